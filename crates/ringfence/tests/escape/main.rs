//! The attacks of the catalogue, against the real binary: each runs first outside of the sandbox, where it must succeed
//! (the positive control), and then inside, where it must not. A verdict comes from a planted canary or from the
//! kernel's answer, never from an exit code. As root, everything runs as root and as uid 65534; each time in sandboxes
//! that are made for the run, in sandboxes that were ready, and in those of the tier `landlock`. The egress attacks
//! come first, against hosts in a network namespace of their own.
//!
//! `escape [--filter TEXT] [--list]` prints one line per attack and the counts.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it starts others, reads its environment, prints its verdicts and panics on surprises"
)]

mod canary;
mod catalogue;
#[path = "../client/mod.rs"]
#[expect(dead_code, unused_imports, reason = "helpers shared by all test binaries")]
mod client;
mod network;
mod runner;
mod warm;
#[path = "../egress/world.rs"]
#[expect(dead_code, reason = "shared with the egress tests")]
mod world;

use catalogue::{is_wanted, tally};
use runner::{Runner, Sandbox};
use std::process::ExitCode;
use world::User;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments
        .iter()
        .position(|word| word == "--filter")
        .and_then(|at| arguments.get(at + 1))
        .cloned();
    let attacks = catalogue::all();
    if arguments.iter().any(|word| word == "--list") {
        for attack in &attacks {
            println!("{} {}", attack.id, attack.name);
        }
        network::list();
        return ExitCode::SUCCESS;
    }
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let of_root: &[User] = &[User::Same, User::Nobody];
    if has(network::HERE) {
        let count = if has(network::NOBODY_TOO) { 2 } else { 1 };
        network::try_all(filter.as_deref(), &of_root[..count]);
        return ExitCode::SUCCESS;
    }
    // Without root, the attacks run only as the current user.
    let users = if client::is_root() { of_root } else { &of_root[..1] };
    let (mut passed, mut failed) = network::run_in_own_network(filter.as_deref(), users);
    for user in users {
        for sandbox in [Sandbox::Cold, Sandbox::Warm, Sandbox::WarmLandlock] {
            let runner = Runner::new(*user, sandbox);
            let wanted = attacks.iter().filter(|attack| {
                is_wanted(filter.as_deref(), [attack.id, attack.name, attack.claim]) && runner.can_try(attack)
            });
            let verdicts = wanted.map(|attack| (attack.id, attack.name, runner.judge(attack)));
            let (held, escaped) = tally(&runner.label(), verdicts);
            passed += held;
            failed += escaped;
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
