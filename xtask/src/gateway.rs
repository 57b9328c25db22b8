//! The ContextForge gateway in front of the server, registered with a token and with OAuth: what it lists, what it
//! calls, and what it leaves behind. Takes two minutes, most of them for one long job; not a step of CI.

use crate::{
    command::{command, show},
    http_clients, mcp_client,
    workspace::Workspace,
};
use std::path::Path;

/// The newest release for Python 3.11.
const GATEWAY: &str = "mcp-contextforge-gateway==1.0.7.post20260921";

/// Installs the gateway and an OpenID provider below the build directory, and runs `tests/gateway/gateway.py`.
pub fn run(workspace: &Workspace, binary: &Path) -> Result<(), String> {
    let python = mcp_client::venv(workspace, "venv-gateway", &[GATEWAY])?;
    let venv = python
        .parent()
        .and_then(Path::parent)
        .ok_or("the virtual environment has no directory")?;
    let mut gateway = command("python3", [workspace.root.join("tests/gateway/gateway.py")]);
    gateway.arg("--server").arg(binary);
    gateway.arg("--gateway").arg(venv);
    gateway.arg("--provider").arg(http_clients::provider(workspace)?);
    gateway.env("PYTHONDONTWRITEBYTECODE", "1");
    show(gateway)
}
