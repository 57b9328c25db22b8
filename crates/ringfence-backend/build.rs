//! Compiles the agent of containers for the target of this build, with the C library in it: it runs in any image.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what to do by variables"
)]

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/agent");
    println!("cargo::rerun-if-changed=src/frame.rs");
    println!("cargo::rerun-if-changed=../ringfence-sys/src/agent_calls.rs");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--crate-name=agent", "--crate-type=bin", "--edition=2024"])
        .args([
            "-Copt-level=2",
            "-Cpanic=abort",
            "-Cstrip=symbols",
            "-Ccodegen-units=1",
        ])
        .args(["-Ctarget-feature=+crt-static", "-Crelocation-model=static"])
        .arg(format!("--target={}", variable("TARGET")))
        .arg("-o")
        .arg(PathBuf::from(variable("OUT_DIR")).join("agent"))
        .arg("src/agent/main.rs");
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    let status = compiler.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "the agent does not compile: {status:?}"
    );
}
