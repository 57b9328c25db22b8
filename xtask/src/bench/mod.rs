//! Measurements side by side in one run, interleaved (A B C A B C ...) so that other load of the machine affects all
//! alike. They are printed as text or JSON, and written as the tables of the specification.

mod calls;
mod cold;
mod egress;
mod parts;
mod script;
mod sessions;

pub use egress::measure as egress;
pub use parts::{audit, check, redact};
pub use script::measure as script;
pub use sessions::measure as sessions;

use crate::{command::show, stats::Samples, workspace::Workspace};
use serde_json::{Value, json};
use std::fs;

const RUNS: usize = 100;
const DOCUMENT: &str = "SPECIFICATION.md";

/// Options of a benchmark.
pub struct Options {
    runs: usize,
    json: bool,
    write: bool,
}

impl Options {
    /// Parses `--runs N`, `--json` and `--write`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            runs: RUNS,
            json: false,
            write: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--runs" => {
                    let count = words
                        .next()
                        .and_then(|count| count.parse().ok())
                        .filter(|count| *count > 0);
                    options.runs = count.ok_or("--runs needs a number above 0")?;
                }
                other => return Err(format!("bench: unknown option {other}")),
            }
        }
        Ok(options)
    }
}

/// A row of a table.
pub struct Row {
    name: String,
    samples: Samples,
    /// Name of the row that it is compared with.
    reference: Option<String>,
}

/// Measures cold starts, and calls through MCP.
pub fn all(workspace: &Workspace, options: &Options) -> Result<(), String> {
    cold(workspace, options)?;
    let measured = calls::measure(workspace, options.runs)?;
    if options.json {
        println!("{}", as_json("calls", &measured.rows, &measured.figures));
    } else {
        print!("{}", as_text(&measured.rows));
        for (what, figure) in &measured.figures {
            println!("{what}: {figure}");
        }
    }
    if options.write {
        calls::plot(workspace, &measured.document)?;
        let table = with_figures(as_markdown(&measured.rows), &measured.figures);
        write(workspace, "calls", &table)?;
    }
    Ok(())
}

/// Measures cold starts alone.
pub fn cold(workspace: &Workspace, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let rows = cold::measure(workspace, options.runs)?;
    if options.json {
        println!("{}", as_json("cold", &rows, &[]));
    } else {
        print!("{}", as_text(&rows));
    }
    if options.write {
        write(workspace, "cold", &as_markdown(&rows))?;
    }
    Ok(())
}

fn as_text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{}\n{:<width$}  {:>5} {:>8} {:>8} {:>8} {:>8}  {:>7}\n",
        machine(),
        "",
        "runs",
        "min ms",
        "p50",
        "p90",
        "p99",
        "x ref"
    );
    for row in rows {
        let [min, p50, p90, p99] = figures(row);
        let (count, ratio) = (row.samples.count(), ratio_text(rows, row));
        text.push_str(&format!(
            "{:<width$}  {count:>5} {min:>8.2} {p50:>8.2} {p90:>8.2} {p99:>8.2}  {ratio:>7}\n",
            row.name
        ));
    }
    text
}

fn as_json(bench: &str, rows: &[Row], more: &[(String, String)]) -> Value {
    let more: serde_json::Map<String, Value> = more
        .iter()
        .map(|(what, figure)| (what.clone(), json!(figure)))
        .collect();
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let [min, p50, p90, p99] = figures(row);
            json!({
                "name": row.name, "runs": row.samples.count(), "min_ms": min, "p50_ms": p50, "p90_ms": p90,
                "p99_ms": p99, "p50_ratio": ratio(rows, row),
            })
        })
        .collect();
    json!({"bench": bench, "machine": machine(), "rows": rows, "figures": more})
}

fn as_markdown(rows: &[Row]) -> String {
    let mut text = format!(
        "{}\n\n| what | runs | min ms | p50 ms | p90 ms | p99 ms | p50 × reference |\n|---|---|---|---|---|---|---|\n",
        machine()
    );
    for row in rows {
        let [min, p50, p90, p99] = figures(row);
        let (count, ratio) = (row.samples.count(), ratio_text(rows, row));
        text.push_str(&format!(
            "| {} | {count} | {min:.2} | {p50:.2} | {p90:.2} | {p99:.2} | {ratio} |\n",
            row.name
        ));
    }
    text
}

/// Adds the table of single figures below the table of rows.
fn with_figures(mut table: String, more: &[(String, String)]) -> String {
    table.push_str("\n| what else | figure |\n|---|---|\n");
    for (what, figure) in more {
        table.push_str(&format!("| {what} | {figure} |\n"));
    }
    table
}

fn figures(row: &Row) -> [f64; 4] {
    [
        row.samples.min(),
        row.samples.percentile(50),
        row.samples.percentile(90),
        row.samples.percentile(99),
    ]
}

/// Returns the ratio of a row to its reference in the same run.
fn ratio(rows: &[Row], row: &Row) -> Option<f64> {
    let reference = rows
        .iter()
        .find(|other| Some(&other.name) == row.reference.as_ref())?;
    Some(row.samples.percentile(50) / reference.samples.percentile(50))
}

fn ratio_text(rows: &[Row], row: &Row) -> String {
    ratio(rows, row).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}",
        kernel.split('-').next().unwrap_or("").trim()
    )
}

fn write(workspace: &Workspace, bench: &str, table: &str) -> Result<(), String> {
    let path = workspace.root.join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let text = replace(&text, bench, table)
        .ok_or_else(|| format!("{DOCUMENT} has no marks for the table {bench}"))?;
    fs::write(&path, text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// Replaces the text between the two marks of a table.
fn replace(text: &str, bench: &str, table: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- bench {bench}: begin -->"),
        format!("<!-- bench {bench}: end -->"),
    );
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{table}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let (begin, end) = ("<!-- bench cold: begin -->", "<!-- bench cold: end -->");
        let text = format!("# a\n{begin}\nold\n{end}\nb\n");
        assert_eq!(
            replace(&text, "cold", "| new |").unwrap(),
            format!("# a\n{begin}\n\n| new |\n{end}\nb\n")
        );
        assert!(replace(&text, "calls", "x").is_none());
        let twice = replace(&replace(&text, "cold", "one").unwrap(), "cold", "two").unwrap();
        assert!(twice.contains("two") && !twice.contains("one") && twice.matches(begin).count() == 1);
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--runs", "7", "--json"]).unwrap();
        assert!(options.runs == 7 && options.json && !options.write);
        assert!(Options::parse(&["--runs", "0"]).is_err());
        assert!(Options::parse(&["--runs"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }

    #[test]
    fn ratios_are_against_the_reference() {
        let row = |name: &str, ms, reference: Option<&str>| Row {
            name: name.to_owned(),
            samples: Samples::new(vec![ms]).unwrap(),
            reference: reference.map(str::to_owned),
        };
        let rows = [row("a", 10.0, None), row("b", 25.0, Some("a"))];
        assert_eq!(as_json("x", &rows, &[])["rows"][1]["p50_ratio"], 2.5);
        assert!(as_text(&rows).contains("2.50") && as_markdown(&rows).contains("| b | 1 | 25.00 |"));
        assert!(as_markdown(&rows).contains("| a | 1 | 10.00 | 10.00 | 10.00 | 10.00 | – |"));
    }
}
