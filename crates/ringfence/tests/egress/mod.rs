//! Egress through the real binary: clients against a test internet in a network namespace of its own, with a record of
//! the traffic that left the sandbox. Nothing is sent to any address outside of the namespace.

mod asks;
mod clients;
mod live;
mod narrow;
mod packages;
mod secrets;
mod web;
#[expect(dead_code, reason = "the escape tests use the rest")]
mod world;

use crate::client::*;
use packages::Packages;
use rustix::process::geteuid;
use world::{User, World};

/// Time limit of one test, generous enough for a busy machine.
const TEST_SECONDS: &str = "240";
/// Environment variable that is set for a test inside the network namespace of its hosts.
const HERE: &str = "RINGFENCE_TEST_HERE";

impl World {
    /// Returns the test internet inside the network namespace. Outside, runs this test there by starting the test
    /// binary again, and returns `None`.
    fn enter() -> Option<Self> {
        if std::env::var_os(HERE).is_some() {
            return Some(Self::start(User::Same));
        }
        run_in_own_network(None);
        None
    }
}

/// Runs this test in a new network namespace, with the state directory of `packages` if there are any.
fn run_in_own_network(packages: Option<&Packages>) {
    let test = std::thread::current();
    let kind = if geteuid().is_root() { "-n" } else { "-Urn" };
    let done = std::process::Command::new("timeout")
        .args(["--kill-after=5", TEST_SECONDS, "unshare", kind, "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test.name().unwrap(), "--nocapture"])
        .env(HERE, "1")
        .envs(packages.map(|packages| (world::STATE, packages.state())))
        .output()
        .unwrap();
    let output = both_streams_of(&done);
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
    for line in output.lines().filter(|line| line.starts_with('|')) {
        println!("{line}");
    }
}
