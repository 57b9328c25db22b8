//! Compiles the forkers, which templates load: shared objects that need no C library of their own. That for Node.js
//! takes what it calls from the process that loads it.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what to do by variables"
)]

mod compile;

fn main() {
    println!("cargo::rerun-if-changed=src/forker");
    for (image, more) in [("forker.so", None), ("forker.node", Some("--cfg=node"))] {
        let words = [
            "--crate-name=forker",
            "--crate-type=cdylib",
            "--check-cfg=cfg(node)",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-nostartfiles",
        ];
        let words: Vec<&str> = words.into_iter().chain(more).collect();
        compile::compile("src/forker/image.rs", image, &words);
    }
}
