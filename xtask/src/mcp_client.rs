//! The official Python client against the real server, in both eras of the protocol: 1.30 speaks the handshake
//! revisions, 2.3 those and the stateless one. Each version has a virtual environment below the build directory.

use crate::{
    command::{capture, command, count_tests, show},
    require,
    tally::Tally,
    workspace::Workspace,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// User of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerUser {
    /// The user that runs the tests.
    Same,
    /// uid 65534; requires root.
    Nobody,
}

/// Returns the interpreter of a virtual environment with this version of the client (`1.30`).
pub fn environment(workspace: &Workspace, version: &str) -> Result<PathBuf, String> {
    venv(
        workspace,
        &format!("venv-mcp-{version}"),
        &[&format!("mcp=={version}.*")],
    )
}

/// Returns the interpreter of a virtual environment with numpy, pandas and matplotlib.
pub fn data_environment(workspace: &Workspace) -> Result<PathBuf, String> {
    venv(workspace, "data-venv", &["numpy", "pandas", "matplotlib"])
}

/// Returns the interpreter of a virtual environment below the build directory. The environment is made anew unless it
/// works and has exactly these packages.
pub fn venv(workspace: &Workspace, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let directory = workspace.target.join(name);
    let (python, list) = (directory.join("bin/python3"), directory.join("packages.txt"));
    let wanted = packages.join("\n");
    // The list is written last. The interpreter that the environment was made from may have been removed.
    if fs::read_to_string(&list).is_ok_and(|made| made == wanted) && capture(command(&python, ["-V"])).is_ok()
    {
        return Ok(python);
    }
    let mut venv = command("python3", ["-m", "venv", "--clear"]);
    venv.arg(&directory);
    show(venv)?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let mut pip = command(&python, install);
    pip.args(packages);
    show(pip)?;
    fs::write(&list, wanted).map_err(|error| format!("{}: {error}", list.display()))?;
    Ok(python)
}

/// Runs the stories of `tests/mcp_client` with this interpreter against the product's binary. `data` is an interpreter
/// with pandas for the server.
pub fn run(
    workspace: &Workspace,
    python: &Path,
    user: ServerUser,
    data: Option<&Path>,
) -> (Tally, Result<(), String>) {
    let mut stories = command(python, [workspace.root.join("tests/mcp_client/run.py")]);
    stories.arg("--server").arg(workspace.binary());
    if let Some(data) = data {
        stories.arg("--data-python").arg(data);
    }
    // No `__pycache__` in the checkout.
    stories.env("PYTHONDONTWRITEBYTECODE", "1");
    if user == ServerUser::Nobody {
        stories.args(["--server-uid", "65534"]);
    }
    stories
        .current_dir(&workspace.root)
        .env(require::VARIABLE, require::list());
    let (tally, result) = count_tests(stories);
    let nothing = tally.passed == 0 && result.is_ok();
    (
        tally,
        if nothing {
            Err("the client ran no test".to_owned())
        } else {
            result
        },
    )
}
