//! Cost of a call for an agent: through MCP, with the official Python client and without it.

use super::{Row, cold};
use crate::{
    command::{capture, command},
    mcp_client,
    stats::Samples,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Version of the client: the current one.
pub(super) const CLIENT: &str = "2.3";
const PICTURE: &str = "docs/bench.svg";

/// Results of the benchmark.
pub struct Measured {
    pub rows: Vec<Row>,
    pub figures: Vec<(String, String)>,
    /// Output of the script, for the picture.
    pub document: Value,
}

/// Runs `tests/mcp_client/bench.py`.
pub fn measure(workspace: &Workspace, runs: usize) -> Result<Measured, String> {
    let scratch = workspace.target.join("bench");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let python = cold::interpreter(&workspace.binary(), &scratch)?;
    let mut bench = command(
        mcp_client::environment(workspace, CLIENT)?,
        [workspace.root.join("tests/mcp_client/bench.py")],
    );
    bench.arg("--server").arg(workspace.binary());
    bench.arg("--python").arg(&python);
    bench
        .arg("--data-python")
        .arg(mcp_client::data_environment(workspace)?);
    bench.args(["--runs", &runs.to_string()]);
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = capture(bench)?;
    let mut document: Value = serde_json::from_str(&output).map_err(|error| format!("bench.py: {error}"))?;
    document["machine"] = super::machine().into();
    let rows = rows(&document).ok_or("bench.py has printed no measurements")?;
    let figures = figures(&document).ok_or("bench.py has printed no figures")?;
    Ok(Measured {
        rows,
        figures,
        document,
    })
}

/// Reads the rows of a table from the output of a benchmark.
pub(super) fn rows(document: &Value) -> Option<Vec<Row>> {
    let lines = document["lines"].as_array()?;
    let row = |line: &Value| {
        Some(Row {
            name: line["name"].as_str()?.to_owned(),
            samples: samples(&line["samples_ms"])?,
            reference: line["reference"].as_str().map(str::to_owned),
        })
    };
    lines.iter().map(row).collect()
}

fn samples(values: &Value) -> Option<Samples> {
    let values: Option<Vec<f64>> = values.as_array()?.iter().map(Value::as_f64).collect();
    Samples::new(values?)
}

fn figures(document: &Value) -> Option<Vec<(String, String)>> {
    let mut figures = Vec::new();
    let mut add = |what: String, figure: String| figures.push((what, figure));
    for measured in document["throughput"].as_array()? {
        let (concurrency, rate) = (&measured["concurrency"], measured["calls_per_second"].as_f64()?);
        add(
            format!("`print(1)`, {concurrency} at once, JSON lines"),
            format!("{rate:.0} calls/s"),
        );
    }
    let steady = samples(&document["steady"]["samples_ms"])?;
    let (p50, p99) = (steady.percentile(50), steady.percentile(99));
    add(
        "`print(1)` at half of the capacity of 4 at once".to_owned(),
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms ({:.1} × p50)", p99 / p50),
    );
    let more = &document["figures"];
    let seconds = more["thousand_calls_seconds"].as_f64()?;
    add(
        "1,000 forks, one after the other".to_owned(),
        format!("{seconds:.2} s"),
    );
    let compute = samples(&more["describe_compute_ms"])?.percentile(50);
    add(
        "`describe()` itself, second time in one process".to_owned(),
        format!("{compute:.2} ms"),
    );
    for (key, what) in [
        ("parked_python", "unique memory of a waiting Python sandbox"),
        ("running_python", "unique memory of a running one"),
        ("template_python", "Python template (PSS)"),
        ("server_resident", "server, resident"),
    ] {
        add(
            what.to_owned(),
            format!("{:.1} MiB", more["memory_mib"][key].as_f64()?),
        );
    }
    for (key, what) in [
        ("queued_ms", "waiting in the queue"),
        ("start_ms", "from the claim until the program runs"),
        ("run_ms", "from there until all its processes have ended"),
        ("finish_ms", "files and report"),
    ] {
        let phases = document["phases"].as_array()?;
        let values: Option<Vec<f64>> = phases.iter().map(|phases| phases[key].as_f64()).collect();
        let p50 = Samples::new(values?)?.percentile(50);
        add(format!("one call of `print(1)`: {what}"), format!("{p50:.2} ms"));
    }
    Some(figures)
}

/// Draws the distributions with the product itself.
pub fn plot(workspace: &Workspace, document: &Value) -> Result<(), String> {
    let file: PathBuf = workspace.target.join("bench/calls.json");
    fs::write(&file, document.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut draw = command(workspace.binary(), [Path::new("bench")]);
    draw.arg("--read").arg(&file);
    draw.arg("--plot").arg(workspace.root.join(PICTURE));
    capture(draw).map(drop) // the table has been printed
}
