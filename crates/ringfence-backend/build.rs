//! Compiles the agent of containers, statically linked with the C library, so that it runs in any image.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what to do by variables"
)]

#[path = "../ringfence-sys/compile.rs"]
mod compile;

fn main() {
    println!("cargo::rerun-if-changed=src/agent");
    println!("cargo::rerun-if-changed=src/frame.rs");
    println!("cargo::rerun-if-changed=../ringfence-sys/src/agent_calls.rs");
    let arguments = [
        "--crate-name=agent",
        "--crate-type=bin",
        "-Ctarget-feature=+crt-static",
        "-Crelocation-model=static",
    ];
    compile::compile("src/agent/main.rs", "agent", &arguments);
}
