//! The attacks of the catalogue, against the real binary: each is first tried outside, where it must succeed, and then
//! inside, where it must not. A verdict comes from a planted canary or from what the kernel answered, never from an
//! exit code. Run as root this does everything as root and as uid 65534; each time in sandboxes that are made for the run, in
//! sandboxes that stood ready, and in those of the tier `landlock`. The attacks on the way out come first, against hosts
//! in a network namespace that is made for them.
//!
//! `escape [--filter TEXT] [--list]`; prints one line per attack and the counts.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it starts others, reads its environment, prints its verdicts and ends where it is surprised"
)]

mod canary;
mod catalogue;
#[path = "../client/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the vocabulary is that of all stories")]
mod client;
mod network;
mod runner;
mod warm;
#[path = "../egress/world.rs"]
#[expect(dead_code, reason = "it is that of the clients, too")]
mod world;

use catalogue::{Attack, Verdict};
use runner::{Caller, Runner, Sandbox};
use std::process::ExitCode;

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
    if has(network::HERE) {
        let callers = [Caller::Same, Caller::Nobody];
        let count = if has(network::NOBODY_TOO) { 2 } else { 1 };
        network::try_all(filter.as_deref(), &callers[..count]);
        return ExitCode::SUCCESS;
    }
    let mut callers = vec![Caller::Same];
    if canary::is_root() {
        callers.push(Caller::Nobody);
    } else {
        println!("not root: only the attacks as an ordinary user are run");
    }
    if !canary::is_root() && std::env::var("RINGFENCE_REQUIRE").is_ok_and(|list| list.contains("root")) {
        eprintln!("RINGFENCE_REQUIRE asks for root");
        return ExitCode::FAILURE;
    }
    let (mut passed, mut failed) = network::elsewhere(filter.as_deref(), &callers);
    for caller in &callers {
        for sandbox in [Sandbox::Cold, Sandbox::Warm, Sandbox::WarmLandlock] {
            let (held, escaped) = try_all(&Runner::new(*caller, sandbox), &attacks, filter.as_deref());
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

/// How many held, and how many did not.
fn try_all(runner: &Runner, attacks: &[Attack], filter: Option<&str>) -> (usize, usize) {
    let (mut held, mut not_applicable, mut escaped) = (0, 0, 0);
    println!("\n== {}", runner.who());
    for attack in attacks
        .iter()
        .filter(|attack| filter.is_none_or(|f| attack.matches(f)) && runner.can_try(attack))
    {
        let verdict = runner.judge(attack);
        println!(
            "{:<4} {:<14} {} {}",
            attack.id,
            verdict.word(),
            attack.name,
            verdict.reason()
        );
        match verdict {
            Verdict::Held(_) => held += 1,
            Verdict::NotApplicable(_) => not_applicable += 1,
            Verdict::Escaped(_) => escaped += 1,
        }
    }
    println!(
        "{}: {held} held, {not_applicable} not applicable, {escaped} escaped",
        runner.who()
    );
    (held, escaped)
}
