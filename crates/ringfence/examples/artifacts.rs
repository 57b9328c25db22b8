//! The files that a program leaves: listed, read back, and checked by somebody who has only the public key.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{ExecuteRequest, Namespace, Sandbox, artifact};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(artifacts())
}

async fn artifacts() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::local().await?;
    let code = "open('table.csv', 'w').write('a,b\\n1,2\\n')";
    let result = sandbox.execute(ExecuteRequest::python(code)).await?;

    let namespace = Namespace::default_name();
    let kept = sandbox.artifacts(&namespace, &result.execution_id);
    let manifest = kept.manifest().await?;
    let public_key = sandbox.public_key();
    artifact::verify_manifest(&manifest, Some(&public_key))?;

    for artifact in &result.artifacts {
        let content = kept.read(&artifact.name).await?;
        println!(
            "{}: {} bytes, {}",
            artifact.name, artifact.size_bytes, artifact.mime
        );
        artifact::verify(artifact, &result.execution_id, &*content, &public_key)?;
        let forged = artifact::verify(artifact, &result.execution_id, &b"a,b\n9,9\n"[..], &public_key);
        println!("intact: true, forged: {}", forged.is_ok());
    }
    sandbox.shutdown().await;
    Ok(())
}
