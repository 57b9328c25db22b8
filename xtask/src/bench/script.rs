//! Measurements by a script of `tests/mcp_client` that needs no client library: the cost of HTTP for a call, and the
//! web tools.

use super::{Options, as_json, as_markdown, as_text, calls, sessions, with_figures, write};
use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use serde_json::Value;
use std::fs;

/// Runs `tests/mcp_client/bench_{name}.py`, and fills the table of this name.
pub fn measure(workspace: &Workspace, name: &str, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let scratch = workspace.target.join("bench").join(name);
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let script = workspace.root.join(format!("tests/mcp_client/bench_{name}.py"));
    let mut bench = command("python3", [script]);
    bench.arg("--server").arg(workspace.binary());
    bench.arg("--scratch").arg(&scratch);
    bench.args(["--runs", &options.runs.to_string()]);
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = capture(bench)?;
    let document: Value = serde_json::from_str(&output).map_err(|error| format!("{name}: {error}"))?;
    let rows = calls::rows(&document).ok_or("the script has printed no measurements")?;
    let figures = sessions::figures(&document).ok_or("the script has printed no figures")?;
    if options.json {
        println!("{}", as_json(name, &rows, &figures));
    } else {
        print!("{}", as_text(&rows));
        for (what, figure) in &figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        write(workspace, name, &with_figures(as_markdown(&rows), &figures))?;
    }
    Ok(())
}
