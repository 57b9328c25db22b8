//! A secret that a program may use, and that does not leave with its output.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{ExecuteRequest, Namespace, Sandbox};
use std::{error::Error, time::Duration};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(secrets())
}

async fn secrets() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::local().await?;
    let namespace = Namespace::default_name();
    let secrets = sandbox.secrets(&namespace);
    // From wherever yours come from: it is better not to write one down.
    let value = "correct-horse-battery-staple".to_owned();
    secrets
        .put("API_KEY", value, Some(Duration::from_secs(3600)))
        .await?;
    for secret in secrets.list().await? {
        println!("{}: {} bytes", secret.key.as_str(), secret.bytes);
    }

    let mut request =
        ExecuteRequest::python("import os\nkey = os.environ['API_KEY']\nprint(len(key), key, key[::-1])");
    request.secrets.insert("API_KEY".parse()?);
    print!("{}", sandbox.execute(request.clone()).await?.stdout);

    secrets.delete("API_KEY").await?;
    if let Err(error) = sandbox.execute(request).await {
        println!("{}", error.code);
    }
    sandbox.shutdown().await;
    Ok(())
}
