//! Helper of build scripts: compiles one source, without any crate, with the compiler and for the target of this build.

use std::{
    env,
    path::PathBuf,
    process::{Command, ExitStatus},
};

/// Compiles `source` into `image`, below `OUT_DIR`.
pub fn compile(source: &str, image: &str, arguments: &[&str]) {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--edition=2024", "-Copt-level=2", "-Cpanic=abort"])
        .args(["-Cstrip=symbols", "-Ccodegen-units=1"])
        .args(arguments)
        .arg(format!("--target={}", variable("TARGET")))
        .arg("-o")
        .arg(PathBuf::from(variable("OUT_DIR")).join(image))
        .arg(source);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    let status = compiler.status();
    assert!(
        status.as_ref().is_ok_and(ExitStatus::success),
        "{source} does not compile: {status:?}"
    );
}
