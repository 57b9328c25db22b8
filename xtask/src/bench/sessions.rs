//! What a session costs: a call in a live one, its memory, many of them, and snapshots of what they leave.

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
    let said = capture(bench)?;
    let document: Value =
        serde_json::from_str(&said).map_err(|error| format!("bench_sessions.py: {error}"))?;
    let rows = calls::rows(&document).ok_or("bench_sessions.py said something else than measurements")?;
    let figures = figures(&document).ok_or("bench_sessions.py said something else than figures")?;
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

/// Figures beside a table, as the programs that measure print them.
pub(super) fn figures(document: &Value) -> Option<Vec<(String, String)>> {
    let figure = |told: &Value| {
        Some((
            told["what"].as_str()?.to_owned(),
            told["figure"].as_str()?.to_owned(),
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
