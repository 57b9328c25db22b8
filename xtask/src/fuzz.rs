//! The fuzz targets, on the project's own toolchain: libFuzzer's coverage needs only what stable rustc passes on to
//! LLVM. Without a sanitizer a target finds panics, overflows, hangs and memory, which is what safe code can do wrong.

use crate::{
    command::{capture, command},
    tally::Tally,
    workspace::Workspace,
};
use serde_json::Value;
use std::{fs, path::Path, process::Stdio};

/// How long each target runs in CI.
pub const SECONDS: u64 = 20;
/// Resident memory at which a target has failed.
const MEMORY_MIB: u32 = 1024;
/// The longest that one input may take.
const INPUT_SECONDS: u32 = 10;

/// What cargo-fuzz passes too (its `build` command, with `--sanitizer none`).
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

/// Builds all targets and runs each for so long; the first that fails is the error, with its input kept below
/// `fuzz/artifacts/`.
pub fn run(workspace: &Workspace, seconds: u64) -> Result<Tally, String> {
    let triple = workspace.host_triple()?;
    let target_dir = workspace.target.join("fuzz");
    let mut build = workspace.cargo(&[
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        &triple,
    ]);
    // Naming the target keeps these flags away from build scripts and macros.
    build
        .env("CARGO_TARGET_DIR", &target_dir)
        .env("RUSTFLAGS", FLAGS.join(" "));
    crate::command::show(build)?;
    let programs = target_dir.join(triple).join("release");
    let mut tally = Tally::default();
    for target in targets(workspace)? {
        fuzz(workspace, &programs.join(&target), &target, seconds)?;
        tally.add(Tally::ONE);
    }
    Ok(tally)
}

/// The binaries of the fuzz package.
fn targets(workspace: &Workspace) -> Result<Vec<String>, String> {
    let ask = workspace.cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--manifest-path",
        "fuzz/Cargo.toml",
    ]);
    let metadata: Value =
        serde_json::from_str(&capture(ask)?).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let names: Vec<String> = targets
        .filter_map(|target| target["name"].as_str())
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        Err("fuzz/ has no targets".to_owned())
    } else {
        Ok(names)
    }
}

/// The corpus grows below the build directory; seeds are part of the project.
fn fuzz(workspace: &Workspace, program: &Path, target: &str, seconds: u64) -> Result<(), String> {
    let corpus = workspace.target.join("fuzz-corpus").join(target);
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    let seeds = workspace.root.join("fuzz/seeds").join(target);
    for directory in [&corpus, &artifacts] {
        fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let mut fuzzer = command(program, [&corpus]);
    if seeds.is_dir() {
        fuzzer.arg(&seeds);
    }
    fuzzer.args([
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_MIB}"),
        format!("-timeout={INPUT_SECONDS}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
    ]);
    let output = fuzzer
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{target}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{target}: {}\n{said}", output.status));
    }
    let runs = said
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .map_or(0, whole);
    println!("{target}: {runs} inputs in {seconds} s, no finding");
    // A target that tried next to nothing has shown nothing.
    if runs < 1000 {
        Err(format!("{target}: only {runs} inputs were tried\n{said}"))
    } else {
        Ok(())
    }
}

fn whole(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}
