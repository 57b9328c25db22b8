//! Benchmarks of single parts of the product: the redactor, code and data checks, and the audit record on this disk.
//! Each is an example program of its crate that prints its measurements as JSON.

use super::{Options, machine, write};
use crate::{
    command::{capture, command, show},
    workspace::Workspace,
};
use serde_json::Value;
use std::fs;

/// A measurement with its unit.
struct Figure {
    what: String,
    figure: String,
}

/// Measures the redactor: megabytes per second on one core, and time and memory to construct one.
pub fn redact(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let printed = run(workspace, "ringfence-redact", "redact", &[])?;
    let figures = printed.iter().map(|line| {
        let what = line["what"].as_str().unwrap_or_default();
        let figure = match (
            line["mb_per_s"].as_f64(),
            line["ms"].as_f64(),
            line["peak_mib"].as_f64(),
        ) {
            (Some(speed), ..) => format!("{speed:.0} MB/s"),
            (None, Some(ms), Some(mib)) => format!("made in {ms:.0} ms, {mib:.0} MiB at most"),
            _ => return Err(format!("the example printed {line}")),
        };
        Ok(Figure {
            what: what.to_owned(),
            figure,
        })
    });
    report(
        workspace,
        options,
        "redact",
        &printed,
        &figures.collect::<Result<Vec<_>, _>>()?,
    )
}

/// Measures checks of code and data: milliseconds for a program, megabytes per second for a table.
pub fn check(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let printed = run(workspace, "ringfence-check", "check", &[])?;
    let figures = printed.iter().map(|line| {
        let what = line["what"].as_str().unwrap_or_default().to_owned();
        let figure = match (line["mb_per_s"].as_f64(), line["ms"].as_f64()) {
            (Some(speed), _) => format!("{speed:.0} MB/s"),
            (None, Some(ms)) => format!("{ms:.2} ms"),
            _ => return Err(format!("the example printed {line}")),
        };
        Ok(Figure { what, figure })
    });
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    report(workspace, options, "check", &printed, &figures)
}

/// Measures the audit record: single appends, many at once, and verification of all entries.
pub fn audit(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let scratch = workspace.target.join("bench-audit");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let directory = scratch.display().to_string();
    let printed = run(workspace, "ringfence-store", "audit", &[&directory])?;
    let mut figures = Vec::new();
    for document in &printed {
        flatten("", document, &mut figures);
    }
    report(workspace, options, "audit", &printed, &figures)
}

/// Collects each number with its path.
fn flatten(path: &str, value: &Value, figures: &mut Vec<Figure>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}, {name}")
                };
                flatten(&path, value, figures);
            }
        }
        Value::Number(number) => figures.push(Figure {
            what: path.replace('_', " "),
            figure: format!("{:.0}", number.as_f64().unwrap_or_default()),
        }),
        _ => {}
    }
}

/// Builds and runs an example. Returns the JSON documents that it printed.
fn run(workspace: &Workspace, package: &str, example: &str, words: &[&str]) -> Result<Vec<Value>, String> {
    show(workspace.cargo(&[
        "build",
        "--release",
        "--locked",
        "-p",
        package,
        "--example",
        example,
    ]))?;
    let mut program = command(workspace.target.join("release/examples").join(example), words);
    program.current_dir(&workspace.root);
    let printed = capture(program)?;
    let documents = serde_json::Deserializer::from_str(&printed).into_iter();
    documents
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{example}: {error}: {printed}"))
}

fn report(
    workspace: &Workspace,
    options: &Options,
    bench: &str,
    printed: &[Value],
    figures: &[Figure],
) -> Result<(), String> {
    if options.json {
        println!(
            "{}",
            serde_json::json!({"bench": bench, "machine": machine(), "measured": printed})
        );
    } else {
        println!("{}", machine());
        for Figure { what, figure } in figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        let mut table = format!("{}\n\n| what | figure |\n|---|---|\n", machine());
        for Figure { what, figure } in figures {
            table += &format!("| {what} | {figure} |\n");
        }
        write(workspace, bench, &table)?;
    }
    Ok(())
}
