//! Packages through the real binary, from an index that the test makes itself: what is installed, what is not, who waits
//! for whom, and what neither a name, an archive nor a program can do about it.

mod archive;
mod attacks;
mod configured;
mod index;
mod late;
mod life;

use crate::client::{Server, ringfence};
use index::Index;
use serde_json::{Value, json};

/// A server whose pip and npm know this index and no other.
fn server(index: &Index) -> Server {
    Server::of(serving(index))
}

fn serving(index: &Index) -> std::process::Command {
    let mut command = ringfence(&["serve"]);
    command
        .env("PIP_INDEX_URL", index.address("/simple"))
        .env("npm_config_registry", index.address("/npm/"))
        .env("RINGFENCE_LOG", "error");
    command
}

/// A Python program with these packages.
fn python(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    server.facts("execute_code", json!({"code": code, "packages": packages}))
}

fn node(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    let arguments = json!({"code": code, "language": "node", "packages": packages});
    server.facts("execute_code", arguments)
}
