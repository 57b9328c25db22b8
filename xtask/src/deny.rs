//! `cargo deny` with our `deny.toml`: licences, bans and sources. If the machine does not have the tool, it is
//! installed once below the build directory, without optimisation: that takes one minute on two cores instead of three.

use crate::{
    command::{capture, command, exists, show},
    workspace::Workspace,
};
use std::path::PathBuf;

const TOOL: &str = "cargo-deny";
/// The release that is installed. A tool on the path is used in any version.
const VERSION: &str = "0.20.2";

/// Runs the checks that need no network access beyond the registry's index.
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

/// Returns the tool, and builds it first if it is missing.
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
