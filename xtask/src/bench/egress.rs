//! Cost of egress: a connection, many bytes, and a call with rules, on a network that is made for the benchmark.

use super::{Options, as_json, as_markdown, as_text, calls, cold, sessions, with_figures, write};
use crate::{
    command::{capture, command, show},
    mcp_client, require,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// An ordinary user, measured beside root.
const NOBODY: &str = "65534";
/// An interpreter that every user may start, so that all rows measure the same one.
const PYTHON: &str = "/usr/bin/python3";

/// Runs `tests/mcp_client/bench_egress.py` in a separate network namespace; for an ordinary user in a user namespace,
/// too.
pub fn measure(workspace: &Workspace, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let scratch = workspace.target.join("bench");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let is_root = require::is_root();
    let kind = if is_root { "-n" } else { "-Urn" };
    let mut bench = command("unshare", [kind, "--"]);
    bench.arg(mcp_client::environment(workspace, calls::CLIENT)?);
    bench.arg(workspace.root.join("tests/mcp_client/bench_egress.py"));
    bench.arg("--server").arg(workspace.binary());
    bench.arg("--python").arg(python(workspace, &scratch)?);
    bench.arg("--scratch").arg(&scratch);
    bench.args(["--runs", &options.runs.to_string()]);
    if is_root {
        bench.args(["--uid", NOBODY]);
    }
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = capture(bench)?;
    let document: Value =
        serde_json::from_str(&output).map_err(|error| format!("bench_egress.py: {error}"))?;
    let rows = calls::rows(&document).ok_or("bench_egress.py has printed no measurements")?;
    let figures = sessions::figures(&document).ok_or("bench_egress.py has printed no figures")?;
    if options.json {
        println!("{}", as_json("egress", &rows, &figures));
    } else {
        print!("{}", as_text(&rows));
        for (what, figure) in &figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        write(workspace, "egress", &with_figures(as_markdown(&rows), &figures))?;
    }
    Ok(())
}

fn python(workspace: &Workspace, scratch: &Path) -> Result<PathBuf, String> {
    let system = PathBuf::from(PYTHON);
    if system.exists() {
        return Ok(system);
    }
    cold::interpreter(&workspace.binary(), scratch)
}
