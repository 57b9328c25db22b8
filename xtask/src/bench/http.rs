//! What HTTP adds to a call, beside standard input and output in one run, and what an idle connection takes.

use super::{Options, as_json, as_markdown, as_text, calls, sessions, with_figures, write};
use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use serde_json::Value;
use std::fs;

/// Runs `tests/mcp_client/bench_http.py`, which needs no client library.
pub fn measure(workspace: &Workspace, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let scratch = workspace.target.join("bench/http");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let script = workspace.root.join("tests/mcp_client/bench_http.py");
    let mut bench = command("python3", [script]);
    bench.arg("--server").arg(workspace.binary());
    bench.arg("--scratch").arg(&scratch);
    bench.args(["--runs", &options.runs.to_string()]);
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    let said = capture(bench)?;
    let document: Value = serde_json::from_str(&said).map_err(|error| format!("bench_http.py: {error}"))?;
    let rows = calls::rows(&document).ok_or("bench_http.py said something else than measurements")?;
    let figures = sessions::figures(&document).ok_or("bench_http.py said something else than figures")?;
    if options.json {
        println!("{}", as_json("http", &rows, &figures));
    } else {
        print!("{}", as_text(&rows));
        for (what, figure) in &figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        write(workspace, "http", &with_figures(as_markdown(&rows), &figures))?;
    }
    Ok(())
}
