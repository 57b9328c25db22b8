//! The project's own chores, in Rust so that they need nothing but the toolchain: `tidy`, `golden`, `bench`, and `ci`,
//! which is exactly what the continuous integration runs.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "starting cargo and reading CI's variables is what this program is for"
)]
#![expect(clippy::print_stdout, reason = "its standard output is its report")]

mod bench;
mod ci;
mod command;
mod deny;
mod fuzz;
mod golden;
mod mcp_client;
mod require;
mod scan;
mod stats;
mod tally;
mod tidy;
mod workspace;

use std::process::ExitCode;
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <chore>

  ci [--only PART]                    everything that CI runs, in its order, or the steps whose name holds PART
  tidy                                the rules that no compiler holds
  golden [--bless]                    compare the golden files, or write them anew
  bench [cold|sessions|egress|redact|audit|check] [--runs N] [--json] [--write]
                                      cold starts, and calls through MCP, side by side with what they replace; or
                                      sessions and snapshots, or the way out, or the redactor or the audit record alone;
                                      --write puts the tables into SPECIFICATION.md and draws docs/bench.svg
  fuzz [--seconds N]                  every fuzz target for N seconds (30)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    if let [] | ["-h" | "--help" | "help"] = words {
        println!("{USAGE}");
        return Ok(());
    }
    let workspace = Workspace::open()?;
    match words {
        ["ci"] => ci::run(&workspace, ""),
        ["ci", "--only", part] => ci::run(&workspace, part),
        ["tidy"] => tidy::run(&workspace),
        ["golden"] => golden::run(&workspace, golden::Mode::Compare),
        ["golden", "--bless"] => golden::run(&workspace, golden::Mode::Bless),
        ["bench", "cold", options @ ..] => bench::cold(&workspace, &bench::Options::parse(options)?),
        ["bench", "sessions", options @ ..] => bench::sessions(&workspace, &bench::Options::parse(options)?),
        ["bench", "egress", options @ ..] => bench::egress(&workspace, &bench::Options::parse(options)?),
        ["bench", "redact", options @ ..] => bench::redact(&workspace, &bench::Options::parse(options)?),
        ["bench", "check", options @ ..] => bench::check(&workspace, &bench::Options::parse(options)?),
        ["bench", "audit", options @ ..] => bench::audit(&workspace, &bench::Options::parse(options)?),
        ["bench", options @ ..] => bench::all(&workspace, &bench::Options::parse(options)?),
        ["fuzz"] => fuzz::run(&workspace, fuzz::SECONDS).map(drop),
        ["fuzz", "--seconds", seconds] => {
            let seconds = seconds
                .parse()
                .map_err(|_| format!("--seconds {seconds}: not a whole number"))?;
            fuzz::run(&workspace, seconds).map(drop)
        }
        _ => Err(format!("unknown chore: {}\n\n{USAGE}", words.join(" "))),
    }
}
