//! Real clients over HTTP beyond single calls: OAuth with a real provider, jobs that outlive a call and a client, and
//! floods.

use crate::{
    clients::{self, Library},
    command::{command, count_tests},
    mcp_client,
    tally::Tally,
    workspace::Workspace,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Seconds of the jobs whose client dies.
pub const JOB_SECONDS: &str = "600";

/// Returns the directory with the OpenID provider and its Node.js, and installs them first if they are missing.
pub fn provider(workspace: &Workspace) -> Result<PathBuf, String> {
    clients::npm_directory(workspace, &workspace.root.join("tests/gateway"), "gateway")
}

/// Tests client credentials, a code with PKCE, more scopes when they are needed, tokens that are refused, and the
/// metadata.
pub fn oauth(workspace: &Workspace, binary: &Path) -> (Tally, Result<(), String>) {
    run(script(workspace, "oauth.py", binary).and_then(|mut oauth| {
        oauth.arg("--provider").arg(provider(workspace)?);
        for version in ["1.30", "2.3"] {
            let python = mcp_client::environment(workspace, version)?;
            oauth
                .arg("--python")
                .arg(format!("{version}={}", python.display()));
        }
        Ok(oauth)
    }))
}

/// Tests calls that outlive their client. Takes as long as the jobs, and at least two minutes; not a step of CI.
pub fn long_calls(workspace: &Workspace, binary: &Path, seconds: &str) -> Result<(), String> {
    run(script(workspace, "long_calls.py", binary).and_then(|mut calls| {
        calls.args(["--seconds", seconds]);
        for client in clients::over_http() {
            let [program, _] = clients::installed(workspace, client.library)?;
            let python = match client.library {
                Library::Node => String::new(),
                _ => program.display().to_string(),
            };
            calls
                .arg("--client")
                .arg(format!("{}={}={python}", client.name, client.word));
        }
        Ok(calls)
    }))
    .1
}

/// Measures calls of one client while others flood the server, with the release build, because it shows times.
pub fn floods(workspace: &Workspace, binary: &Path) -> Result<(), String> {
    let mut floods = command("python3", [workspace.root.join("tests/gateway/floods.py")]);
    floods.arg("--server").arg(binary);
    floods.env("PYTHONDONTWRITEBYTECODE", "1");
    count_tests(floods).1
}

/// Returns the command of a script of `tests/gateway`, with the arguments common to `oauth.py` and `long_calls.py`.
fn script(workspace: &Workspace, name: &str, binary: &Path) -> Result<Command, String> {
    let node = clients::npm_directory(workspace, &workspace.root.join("tests/clients"), "node-clients")?;
    let mut script = command("python3", [workspace.root.join("tests/gateway").join(name)]);
    script.arg("--server").arg(binary).arg("--node").arg(node);
    script.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(script)
}

fn run(script: Result<Command, String>) -> (Tally, Result<(), String>) {
    match script {
        Ok(script) => count_tests(script),
        Err(reason) => (Tally::default(), Err(reason)),
    }
}
