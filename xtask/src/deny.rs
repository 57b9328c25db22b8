//! `cargo deny` with our `deny.toml`: licences, bans and sources. The tool is installed below the build directory when
//! the machine has none, which takes two and a half minutes on two cores, once.

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
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut deny = command(
            &tool,
            [
                "--all-features",
                "--locked",
                "--config",
                "deny.toml",
                "--manifest-path",
                manifest,
            ],
        );
        deny.args([
            "check",
            "--hide-inclusion-graph",
            "--allow",
            "license-exception-not-encountered",
        ]);
        deny.args(["--allow", "unused-wrapper"]);
        deny.args(["licenses", "bans", "sources"])
            .current_dir(&workspace.root);
        show(deny)?;
    }
    Ok(())
}

fn find_or_install(workspace: &Workspace) -> Result<PathBuf, String> {
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
