//! The project's chores (`tidy`, `golden`, `bench` and others), in Rust so that they need only the toolchain, and `ci`,
//! which is exactly what continuous integration runs.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "starting cargo and reading CI's variables is what this program is for"
)]
#![expect(clippy::print_stdout, reason = "its standard output is its report")]

mod backends;
mod bench;
mod ci;
mod clients;
mod command;
mod conformance;
mod deny;
mod extraction;
mod fuzz;
mod gateway;
mod golden;
mod hosts;
mod http_clients;
mod http_server;
mod mcp_client;
mod programs;
mod require;
mod scan;
mod stats;
mod tally;
mod tidy;
mod workspace;

use std::process::ExitCode;
use workspace::{Profile, Workspace};

const USAGE: &str = "\
usage: cargo xtask [--release] <chore>

--release runs backends, image, golden and fuzz with the release build.

  ci [--quick] [--release] [--once] [--only PART]
                                      run every step of CI, in order; --quick leaves out the long ones, --release uses the
                                      release build, --once runs no failed test again, --only runs the steps whose name
                                      contains PART
  tidy                                check the rules that the compiler cannot
  tidy --report [FENCE]               print the lines of each crate against its budget and the violations of each fence;
                                      with FENCE, list those of `lines`, `circle`, `arrow up`, `defined twice`,
                                      `arguments`, `name`, `columns` or `words`
  tidy --bless                        lower the numbers of xtask/ratchet.json to the violations that remain
  golden [--bless]                    compare the golden files, or rewrite them
  bench [cold|sessions|egress|http|web|redact|audit|check] [--runs N] [--json] [--write]
                                      measure cold starts and calls through MCP, beside what they replace; or only cold
                                      starts, sessions and snapshots, egress, HTTP, the web tools, the redactor, the audit
                                      record or the checks; --write puts the tables into SPECIFICATION.md and draws
                                      docs/bench.svg
  hosts [--binary PATH] [NAME]        compare doctor with run in containers, bubblewrap, chroots and under filters; only
                                      environments whose name contains NAME
  backends [NAME]                     run the conformance suite on native sandboxes, Docker and gVisor, and print a matrix;
                                      only cases whose name contains NAME
  backends --short                    run only the cases of CI
  backends --kill                     run programs in each backend while server, containers and engine are killed: 12
                                      programs, or RINGFENCE_KILLED_RUNS
  backends --fault [PART]             test an engine that hangs, is gone or is full, and containers that are not ours; only
                                      stories whose name contains PART
  backends --restart                  test `docker restart web` on the host, approved in a terminal, through a client
  image                               build the image of packaging/Dockerfile and call it, with the documented options and
                                      with none
  bench backends [--runs N]           measure each backend, beside the engine itself
  clients [--binary PATH] [NAME]      test client libraries and agent frameworks against the server; only those whose name
                                      contains NAME
  conformance                         run the official conformance suite of the protocol, in both eras
  oauth [--binary PATH]               test clients with OAuth and a real provider
  long-calls [--seconds N]            test calls that take longer than clients wait, and jobs of N seconds (600) whose
                                      client dies, with the release build
  floods                              measure calls of one client while others flood the server over HTTP
  gateway [--binary PATH]             test the ContextForge gateway in front of the server, with a token and with OAuth
  extraction DIR...                   measure how much of the main text of labelled pages is found, for each kind of page;
                                      crates/ringfence-web/examples/extraction.rs describes the directories
  fuzz [--long | --seconds N]         run every fuzz target with its seeds and mutations of them; or for 300 or N seconds,
                                      guided by coverage, in a separate build
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

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text}: not a whole number"))
}

/// Returns the build profile of a chore, and the chore's arguments. Measurements and client tests use the release
/// build; the other chores use the development build, which is quicker to make.
fn profile<'a, 'w>(words: &'a [&'w str]) -> (Profile, &'a [&'w str]) {
    match words {
        ["--release", chore @ ..] => (Profile::Release, chore),
        ["backends" | "image" | "fuzz" | "golden", ..] => (Profile::Dev, words),
        _ => (Profile::Release, words),
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    if let [] | ["-h" | "--help" | "help"] = words {
        println!("{USAGE}");
        return Ok(());
    }
    let mut workspace = Workspace::open()?;
    let (profile, words) = profile(words);
    workspace.profile = profile;
    match words {
        ["ci", options @ ..] => ci::run(workspace, ci::CiOptions::parse(options)?),
        ["tidy"] => tidy::run(&workspace),
        ["tidy", "--report"] => tidy::report(&workspace, ""),
        ["tidy", "--report", fence] => tidy::report(&workspace, fence),
        ["tidy", "--bless"] => tidy::bless(&workspace),
        ["golden"] => golden::run(&workspace, golden::Mode::Compare),
        ["golden", "--bless"] => golden::run(&workspace, golden::Mode::Bless),
        ["bench", "cold", options @ ..] => bench::cold(&workspace, &bench::Options::parse(options)?),
        ["bench", "sessions", options @ ..] => bench::sessions(&workspace, &bench::Options::parse(options)?),
        ["bench", "egress", options @ ..] => bench::egress(&workspace, &bench::Options::parse(options)?),
        ["bench", name @ ("http" | "web"), options @ ..] => {
            bench::script(&workspace, name, &bench::Options::parse(options)?)
        }
        ["bench", "redact", options @ ..] => bench::redact(&workspace, &bench::Options::parse(options)?),
        ["bench", "check", options @ ..] => bench::check(&workspace, &bench::Options::parse(options)?),
        ["bench", "audit", options @ ..] => bench::audit(&workspace, &bench::Options::parse(options)?),
        ["image"] => backends::image::run(&workspace),
        ["bench", "backends"] => backends::bench(&workspace, backends::RUNS),
        ["bench", "backends", "--runs", runs] => backends::bench(&workspace, number(runs)?),
        ["backends"] => backends::run(&workspace, "", backends::Extent::Whole).map(drop),
        ["backends", "--short"] => backends::run(&workspace, "", backends::Extent::Short).map(drop),
        ["backends", "--kill"] => backends::kill(&workspace),
        ["backends", "--fault"] => backends::fault(&workspace, ""),
        ["backends", "--fault", part] => backends::fault(&workspace, part),
        ["backends", "--restart"] => backends::restart(&workspace).1,
        ["backends", name] => backends::run(&workspace, name, backends::Extent::Whole).map(drop),
        ["bench", options @ ..] => bench::all(&workspace, &bench::Options::parse(options)?),
        ["hosts"] => hosts::run(&workspace, &workspace.binary(), ""),
        ["hosts", "--binary", binary] => hosts::run(&workspace, binary.as_ref(), ""),
        ["hosts", "--binary", binary, name] => hosts::run(&workspace, binary.as_ref(), name),
        ["hosts", name] => hosts::run(&workspace, &workspace.binary(), name),
        ["clients"] => clients::run(&workspace, &workspace.binary(), ""),
        ["clients", "--binary", binary] => clients::run(&workspace, binary.as_ref(), ""),
        ["clients", "--binary", binary, name] => clients::run(&workspace, binary.as_ref(), name),
        ["clients", name] => clients::run(&workspace, &workspace.binary(), name),
        ["conformance"] => {
            let suite = conformance::installed(&workspace)?;
            conformance::run(&workspace, &suite).1
        }
        ["oauth"] => http_clients::oauth(&workspace, &workspace.binary()).1,
        ["oauth", "--binary", binary] => http_clients::oauth(&workspace, binary.as_ref()).1,
        ["long-calls"] => {
            http_clients::long_calls(&workspace, &workspace.binary(), http_clients::JOB_SECONDS)
        }
        ["long-calls", "--seconds", seconds] => {
            http_clients::long_calls(&workspace, &workspace.binary(), seconds)
        }
        ["floods"] => http_clients::floods(&workspace, &workspace.binary()),
        ["gateway"] => gateway::run(&workspace, &workspace.binary()),
        ["gateway", "--binary", binary] => gateway::run(&workspace, binary.as_ref()),
        ["extraction", directories @ ..] => extraction::run(&workspace, directories),
        ["fuzz"] => fuzz::run(&workspace, fuzz::Effort::Short).map(drop),
        ["fuzz", "--long"] => fuzz::run(&workspace, fuzz::Effort::Seconds(fuzz::LONG_SECONDS)).map(drop),
        ["fuzz", "--seconds", seconds] => {
            let seconds = seconds
                .parse()
                .map_err(|_| format!("--seconds {seconds}: not a whole number"))?;
            fuzz::run(&workspace, fuzz::Effort::Seconds(seconds)).map(drop)
        }
        _ => Err(format!("unknown chore: {}\n\n{USAGE}", words.join(" "))),
    }
}
