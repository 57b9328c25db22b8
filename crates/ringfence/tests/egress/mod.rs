//! Programs and hosts, through the real binary: what each client reaches of an internet that the test makes, in a network
//! namespace of its own, and what left the machine meanwhile. Nothing is sent to any address outside of it.

mod asks;
mod clients;
mod live;
mod narrow;
mod packages;
mod secrets;
mod web;
#[expect(dead_code, reason = "the attacks on the way out use it, too")]
mod world;

use crate::client::{stderr_of, stdout_of};
use packages::Packages;
use rustix::process::geteuid;
use world::World;

/// How long a story may take, on a machine that is busy with others.
const STORY_SECONDS: &str = "240";
/// The variable by which a story knows that it is where its hosts are.
const HERE: &str = "RINGFENCE_TEST_HERE";

/// Runs the story of this name in a network namespace of its own, where this test's binary is started again; false: it
/// is there already.
fn elsewhere(name: &str) -> bool {
    let is_away = std::env::var_os(HERE).is_none();
    if is_away {
        elsewhere_with(name, None);
    }
    is_away
}

/// The same from outside, where some packages are installed.
fn elsewhere_with(name: &str, packages: Option<&Packages>) {
    let own = std::env::current_exe().unwrap();
    let kind = if geteuid().is_root() { "-n" } else { "-Urn" };
    let done = std::process::Command::new("timeout")
        .args(["--kill-after=5", STORY_SECONDS, "unshare", kind, "--"])
        .arg(own)
        .args([
            "--exact",
            &format!("egress::{name}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(HERE, "1")
        .envs(packages.map(|packages| (world::STATE, packages.state())))
        .output()
        .unwrap();
    let said = stdout_of(&done) + &stderr_of(&done);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with('|')) {
        println!("{line}");
    }
}
