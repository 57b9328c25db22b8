//! `cargo deny` with our `deny.toml`: licences, bans and sources. The tool is installed below the build directory when
//! the machine has none, once: without optimisation, which takes one minute on two cores instead of three.

use crate::{
    command::{capture, command, exists, show},
    workspace::Workspace,
};
use std::path::PathBuf;

const TOOL: &str = "cargo-deny";
/// Releases newer than this may be used where they are installed.
const VERSION: &str = "0.20.2";

/// Runs the checks that need no network beyond the registry's index.
pub fn check(workspace: &Workspace) -> Result<(), String> {
    let tool = find_or_install(workspace)?;
    let mut deny = command(
        &tool,
        ["--all-features", "--locked", "--config", "deny.toml", "check"],
    );
    deny.args([
        "--hide-inclusion-graph",
        "--allow",
        "license-exception-not-encountered",
    ]);
    deny.args(["--allow", "unused-wrapper", "licenses", "bans", "sources"]);
    deny.current_dir(&workspace.root);
    show(deny)
}

/// The tool, built once.
pub fn find_or_install(workspace: &Workspace) -> Result<PathBuf, String> {
    if exists(TOOL) {
        return Ok(PathBuf::from(TOOL));
    }
    let tools = workspace.target.join("tools");
    let tool = tools.join("bin").join(TOOL);
    let installed = capture(command(&tool, ["--version"])).unwrap_or_default();
    if !installed.contains(VERSION) {
        println!("installing {TOOL} {VERSION} into {}", tools.display());
        let mut install = workspace.cargo(&[
            "install",
            "--locked",
            "--debug",
            "--force",
            "--version",
            VERSION,
            TOOL,
            "--root",
        ]);
        install.arg(&tools).env("CARGO_TARGET_DIR", tools.join("build"));
        show(install)?;
    }
    Ok(tool)
}
