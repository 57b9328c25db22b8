//! An interpreter that stays alive: what one program leaves is there for the next, and a ruined workspace is put back.
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use ringfence::{BridgedValue, ExecuteRequest, Language, Namespace, Sandbox, Session, SessionRequest};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    tokio::runtime::Runtime::new()?.block_on(session())
}

async fn session() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::builder().audit_in_memory().build().await?;
    let namespace = Namespace::default_name();
    let python = sandbox
        .create_session(SessionRequest::new(Language::Python))
        .await?;
    let shell = sandbox
        .create_session(SessionRequest::new(Language::Shell))
        .await?;

    let workspace = sandbox.workspace(&namespace, Some(&python.session_id));
    workspace
        .put_file(&"in.csv".parse()?, b"1,2\n3,4\n".to_vec())
        .await?;
    run(
        &sandbox,
        &python,
        "rows = [line.strip().split(',') for line in open('in.csv')]",
    )
    .await?;
    print!("{}", run(&sandbox, &python, "print(len(rows), 'rows')").await?);

    // A variable goes from one language to another.
    let rows = BridgedValue::Variable {
        session: python.session_id.clone(),
        name: "rows".parse()?,
    };
    let sessions = sandbox.sessions(&namespace);
    sessions.bridge(rows, &shell.session_id, None).await?;
    print!(
        "{}",
        run(
            &sandbox,
            &shell,
            "declare -p rows >/dev/null && echo the shell has them"
        )
        .await?
    );

    let saved = workspace.save("as it should be".to_owned()).await?;
    run(&sandbox, &python, "import os; os.remove('in.csv')").await?;
    for gone in workspace.diff(None).await?.deleted {
        println!("gone: {}", gone.path);
    }
    sandbox
        .snapshots(&namespace)
        .restore(&saved.snapshot.snapshot_id, None)
        .await?;
    print!(
        "{}",
        run(&sandbox, &python, "print(open('in.csv').read(), end='')").await?
    );
    sessions.terminate(&python.session_id).await?;
    println!("{} session left", sessions.list().await?.len());
    sandbox.shutdown().await;
    Ok(())
}

async fn run(sandbox: &Sandbox, session: &Session, code: &str) -> Result<String, Box<dyn Error>> {
    let mut request = ExecuteRequest::new(session.language, code);
    request.session = Some(session.session_id.clone());
    Ok(sandbox.execute(request).await?.stdout)
}
