//! Packages through the real binary, from an index that the test serves: installation, refusals, concurrency, and
//! attacks by names, archives and programs.

mod archive;
mod attacks;
mod configured;
mod index;
mod late;
mod life;

use crate::client::*;
use index::Index;

/// A server whose pip and npm use only this index.
fn server(index: &Index) -> Server {
    Server::from_command(serve_command(index))
}

/// The same server with one more setting.
fn server_with(index: &Index, setting: &str, value: &str) -> Server {
    let mut command = serve_command(index);
    command.env(setting, value);
    Server::from_command(command)
}

fn serve_command(index: &Index) -> std::process::Command {
    let mut command = ringfence(&["serve"]);
    command
        .env("PIP_INDEX_URL", index.address("/simple"))
        .env("npm_config_registry", index.address("/npm/"))
        .env("RINGFENCE_LOG", "error");
    command
}

/// Installs a package and returns the fields of the answer.
fn install(server: &mut Server, package: &str) -> Value {
    server.facts("install_package", json!({"packages": [package]}))
}

/// Runs a Python program with these packages.
fn python(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    server.run(json!({"code": code, "packages": packages}))
}

/// Asserts that `hello` works, with its dependency.
#[track_caller]
fn assert_hello_works(server: &mut Server) {
    let run = python(server, "import hello; hello.value", &["hello"]);
    assert_eq!(run["result"], 42, "{run}");
}

fn node(server: &mut Server, code: &str, packages: &[&str]) -> Value {
    let arguments = json!({"code": code, "language": "node", "packages": packages});
    server.run(arguments)
}
