//! The official Python client against the real server, in both eras of the protocol: 1.30 speaks the handshake
//! revisions, 2.3 those and the stateless one. Each version lives in a virtual environment below the build directory.

use crate::{
    command::{capture, command, count_tests, show},
    require,
    tally::Tally,
    workspace::Workspace,
};
use std::path::{Path, PathBuf};

/// As whom the server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerUser {
    /// Whoever runs the tests.
    Same,
    /// uid 65534; needs root.
    Nobody,
}

/// A virtual environment with that version (`1.30`), made when it is not there.
pub fn environment(workspace: &Workspace, version: &str) -> Result<PathBuf, String> {
    let directory = workspace.target.join(format!("venv-mcp-{version}"));
    let python = directory.join("bin/python");
    if installed(&python).starts_with(&format!("{version}.")) {
        return Ok(python);
    }
    let mut venv = command("python3", ["-m", "venv", "--clear"]);
    venv.arg(&directory);
    show(venv)?;
    show(command(
        &python,
        [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            &format!("mcp=={version}.*"),
        ],
    ))?;
    Ok(python)
}

/// A virtual environment with numpy, pandas and matplotlib, made when it is not there.
pub fn data_environment(workspace: &Workspace) -> Result<PathBuf, String> {
    let directory = workspace.target.join("data-venv");
    let python = directory.join("bin/python3");
    let imports = ["-c", "import numpy, pandas, matplotlib"];
    if python.exists() && capture(command(&python, imports)).is_ok() {
        return Ok(python);
    }
    let mut venv = command("python3", ["-m", "venv", "--clear"]);
    venv.arg(&directory);
    show(venv)?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let mut pip = command(&python, install);
    pip.args(["numpy", "pandas", "matplotlib"]);
    show(pip)?;
    Ok(python)
}

fn installed(python: &Path) -> String {
    capture(command(
        python,
        ["-c", "import importlib.metadata as m; print(m.version('mcp'))"],
    ))
    .unwrap_or_default()
}

/// Runs the stories of `tests/mcp_client` with that version against the release build; `data`: the interpreter that the
/// server uses, which has pandas.
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
    // The checkout stays as it is.
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
