//! Packages through the real binary, from an index that the test makes itself: what is installed, what is not, who waits
//! for whom, and what neither a name, an archive nor a program can do about it.

mod archive;
mod attacks;
mod configured;
mod index;
mod late;
mod life;

use crate::client::*;
use index::Index;

/// A server whose pip and npm know this index and no other.
fn server(index: &Index) -> Server {
    Server::of(serving(index))
}

/// The same with this setting.
fn server_with(index: &Index, setting: &str, value: &str) -> Server {
    let mut command = serving(index);
    command.env(setting, value);
    Server::of(command)
}

fn serving(index: &Index) -> std::process::Command {
    let mut command = ringfence(&["serve"]);
    command
        .env("PIP_INDEX_URL", index.address("/simple"))
        .env("npm_config_registry", index.address("/npm/"))
        .env("RINGFENCE_LOG", "error");
    command
}

/// Installs a package: what the server says.
fn install(server: &mut Server, package: &str) -> Value {
    server.facts("install_package", json!({"packages": [package]}))
}

/// A Python program with these packages.
fn python(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    server.run(json!({"code": code, "packages": packages}))
}

/// `hello` is there, with what it needs.
#[track_caller]
fn has_hello(server: &mut Server) {
    let run = python(server, "import hello; hello.value", &["hello"]);
    assert_eq!(run["result"], 42, "{run}");
}

fn node(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    let arguments = json!({"code": code, "language": "node", "packages": packages});
    server.run(arguments)
}
