//! Compiles the forkers, which templates load, with the compiler and for the target of this build: shared objects that
//! need no C library of their own. That for Node.js takes what it calls from the process that loads it.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what to do by variables"
)]

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/forker");
    compile("forker.so", &[]);
    compile("forker.node", &["--cfg=node"]);
}

fn compile(name: &str, more: &[&str]) {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let image = PathBuf::from(variable("OUT_DIR")).join(name);
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args([
            "--crate-name=forker",
            "--crate-type=cdylib",
            "--edition=2024",
            "--check-cfg=cfg(node)",
        ])
        .args([
            "-Copt-level=2",
            "-Cpanic=abort",
            "-Cstrip=symbols",
            "-Ccodegen-units=1",
        ])
        .args(["-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles"])
        .args(more)
        .arg(format!("--target={}", variable("TARGET")))
        .arg("-o")
        .arg(&image)
        .arg("src/forker/image.rs");
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    let status = compiler.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "the forker does not compile: {status:?}"
    );
}
