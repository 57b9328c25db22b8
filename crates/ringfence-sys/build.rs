//! Compiles the forkers, which templates load: shared objects without a C library of their own. The one for Node.js
//! calls functions of the process that loads it.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what to do by variables"
)]

mod compile;

fn main() {
    println!("cargo::rerun-if-changed=src/forker");
    for (image, more) in [("forker.so", None), ("forker.node", Some("--cfg=node"))] {
        let arguments = [
            "--crate-name=forker",
            "--crate-type=cdylib",
            "--check-cfg=cfg(node)",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-nostartfiles",
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(more).collect();
        compile::compile("src/forker/image.rs", image, &arguments);
    }
}
