//! Cost of sessions: a call in a live session, its memory, many idle sessions, and snapshots of workspaces.

use super::{Options, as_json, as_markdown, as_text, calls, cold, with_figures, write};
use crate::{
    command::{capture, command, show},
    mcp_client,
    workspace::Workspace,
};
use serde_json::Value;
use std::fs;

/// Runs `tests/mcp_client/bench_sessions.py`.
pub fn measure(workspace: &Workspace, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let scratch = workspace.target.join("bench");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let python = cold::interpreter(&workspace.binary(), &scratch)?;
    let mut bench = command(
        mcp_client::environment(workspace, calls::CLIENT)?,
        [workspace.root.join("tests/mcp_client/bench_sessions.py")],
    );
    bench.arg("--server").arg(workspace.binary());
    bench.arg("--python").arg(&python);
    bench.arg("--scratch").arg(&scratch);
    bench.args(["--runs", &options.runs.to_string()]);
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = capture(bench)?;
    let document: Value =
        serde_json::from_str(&output).map_err(|error| format!("bench_sessions.py: {error}"))?;
    let rows = calls::rows(&document).ok_or("bench_sessions.py has printed no measurements")?;
    let figures = figures(&document).ok_or("bench_sessions.py has printed no figures")?;
    if options.json {
        println!("{}", as_json("sessions", &rows, &figures));
    } else {
        print!("{}", as_text(&rows));
        for (what, figure) in &figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        write(workspace, "sessions", &with_figures(as_markdown(&rows), &figures))?;
    }
    Ok(())
}

/// Reads the figures beside a table from the output of a benchmark.
pub(super) fn figures(document: &Value) -> Option<Vec<(String, String)>> {
    let figure = |value: &Value| {
        Some((
            value["what"].as_str()?.to_owned(),
            value["figure"].as_str()?.to_owned(),
        ))
    };
    document["figures"].as_array()?.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_read_and_anything_else_is_refused() {
        let good = json!({"figures": [{"what": "a", "figure": "1 ms"}]});
        assert_eq!(figures(&good).unwrap(), [("a".to_owned(), "1 ms".to_owned())]);
        assert!(figures(&json!({"figures": [{"what": "a", "figure": 1}]})).is_none());
        assert!(figures(&json!({})).is_none());
    }
}
