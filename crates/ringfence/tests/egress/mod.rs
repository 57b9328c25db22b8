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

use crate::client::*;
use packages::Packages;
use rustix::process::geteuid;
use world::{User, World};

/// How long a story may take, on a machine that is busy with others.
const STORY_SECONDS: &str = "240";
/// The variable by which a story knows that it is where its hosts are.
const HERE: &str = "RINGFENCE_TEST_HERE";

impl World {
    /// The internet of this story, which is told in a network namespace of its own, by this test's binary that is started
    /// again there; none: here, where it has been told.
    fn apart() -> Option<Self> {
        if std::env::var_os(HERE).is_some() {
            return Some(Self::of(User::Same));
        }
        tell_apart(None);
        None
    }
}

/// Tells this test's story there, where some packages may be installed.
fn tell_apart(packages: Option<&Packages>) {
    let story = std::thread::current();
    let kind = if geteuid().is_root() { "-n" } else { "-Urn" };
    let done = std::process::Command::new("timeout")
        .args(["--kill-after=5", STORY_SECONDS, "unshare", kind, "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", story.name().unwrap(), "--nocapture"])
        .env(HERE, "1")
        .envs(packages.map(|packages| (world::STATE, packages.state())))
        .output()
        .unwrap();
    let said = all_of(&done);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with('|')) {
        println!("{line}");
    }
}
