//! Fuzz targets, on the project's own toolchain. A short run tries the seeds of each target and a fixed number of
//! inputs made from them, always the same ones, in the tests' own build: with its assertions and overflow checks, and
//! independent of the machine's speed. In a long run libFuzzer looks for new paths, in a build with coverage, which
//! needs only flags that stable rustc passes on to LLVM. Without a sanitizer both find panics, overflows, hangs and
//! excessive memory, which are the faults of safe code.

use crate::{
    command::{capture, command},
    tally::Tally,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Extent of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// The seeds and [`INPUTS`] made from them.
    Short,
    /// Each target for this many seconds, guided by coverage.
    Seconds(u64),
}

/// Seconds for each target with `--long`.
pub const LONG_SECONDS: u64 = 300;
/// Inputs that each target tries in a short run, its seeds included.
const INPUTS: u64 = 4000;
/// Name of the fuzz program.
pub const PROGRAM: &str = "fuzz";
/// Variable that names a target to the program.
const TARGET: &str = "RINGFENCE_FUZZ";
/// Memory limit of a target: resident memory in a long run, address space in a short one.
const MEMORY_MIB: u64 = 1024;
/// Time limit of one input in a long run.
const INPUT_SECONDS: u32 = 10;
/// Processor time for all inputs of a short run. It stops a hang, and does not depend on how busy the machine is.
const SHORT_SECONDS: u32 = 300;

/// Flags that cargo-fuzz passes, too (its `build` command, with `--sanitizer none`).
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// Builds the targets and runs each. Returns the first failure as the error; its input is kept below `fuzz/artifacts/`.
pub fn run(workspace: &Workspace, effort: Effort) -> Result<Tally, String> {
    let program = built(match effort {
        Effort::Short => workspace.tests(&["--test", PROGRAM, "--no-run"]),
        Effort::Seconds(_) => with_coverage(workspace)?,
    })?;
    let names = capture(command(&program, [""; 0]))?;
    let mut tally = Tally::default();
    for target in names.lines() {
        fuzz(workspace, &program, target, effort)?;
        tally.add(Tally::ONE);
    }
    if tally == Tally::default() {
        return Err("there are no fuzz targets".to_owned());
    }
    Ok(tally)
}

/// Returns the command for a separate build with coverage, dependencies included; optimising these lightly keeps it
/// short.
fn with_coverage(workspace: &Workspace) -> Result<Command, String> {
    let mut build = workspace.cargo(&[
        "test",
        "--release",
        "--locked",
        "--package",
        "ringfence-fuzz",
        "--features",
        "libfuzzer",
    ]);
    build.args(["--test", PROGRAM, "--no-run"]);
    build.args(["--config", "profile.release.debug='line-tables-only'"]);
    build.args(["--config", "profile.release.package.'*'.opt-level=1"]);
    // With an explicit target, these flags do not apply to build scripts and macros.
    build.args(["--target", &workspace.host_triple()?]);
    build
        .env("CARGO_TARGET_DIR", workspace.target.join("fuzz"))
        .env("RUSTFLAGS", FLAGS.join(" "));
    Ok(build)
}

/// Runs the build and returns the path of the program.
fn built(mut build: Command) -> Result<PathBuf, String> {
    build
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let output = capture(build)?;
    let messages = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == PROGRAM);
    let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.ok_or_else(|| "cargo has not built the fuzz program".to_owned())
}

fn fuzz(workspace: &Workspace, program: &Path, target: &str, effort: Effort) -> Result<(), String> {
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    let seeds = workspace.root.join("fuzz/seeds").join(target);
    let mut fuzzer = match effort {
        Effort::Short => short(program, &artifacts),
        Effort::Seconds(seconds) => long(workspace, program, target, seconds)?,
    };
    if seeds.is_dir() {
        fuzzer.arg(&seeds);
    }
    let begun = Instant::now();
    fuzzer
        .env(TARGET, target)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = fuzzer.output().map_err(|error| format!("{target}: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let kept = artifacts.display();
        return Err(format!(
            "{target}: {}: the input is in {kept}\n{log}",
            output.status
        ));
    }
    let executed = |line: &str| {
        line.strip_prefix("stat::number_of_executed_units:")?
            .trim()
            .parse()
            .ok()
    };
    let inputs = match effort {
        Effort::Short => INPUTS,
        Effort::Seconds(_) => log.lines().find_map(executed).unwrap_or(0),
    };
    println!(
        "{target}: {inputs} inputs in {:.1} s, no finding",
        begun.elapsed().as_secs_f64()
    );
    // A target that tried only a few inputs proves nothing.
    if inputs < 1000 {
        Err(format!("{target}: only {inputs} inputs were tried\n{log}"))
    } else {
        Ok(())
    }
}

fn short(program: &Path, artifacts: &Path) -> Command {
    let limits = [
        format!("--as={}", MEMORY_MIB << 20),
        format!("--cpu={SHORT_SECONDS}"),
    ];
    let mut fuzzer = command("prlimit", limits);
    fuzzer
        .arg(program)
        .arg(INPUTS.to_string())
        .arg(artifacts.join("input"));
    fuzzer
}

/// Returns the command of a long run. The corpus grows below the build directory; seeds are part of the project.
fn long(workspace: &Workspace, program: &Path, target: &str, seconds: u64) -> Result<Command, String> {
    let corpus = workspace.target.join("fuzz-corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    let mut fuzzer = command(
        program,
        [
            format!("-max_total_time={seconds}"),
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-timeout={INPUT_SECONDS}"),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".to_owned(),
        ],
    );
    fuzzer.arg(corpus);
    Ok(fuzzer)
}
