//! A program that embeds Ringfence, started again for each check: the examples, and unusual states of the process. It
//! has a `main` of its own, because `ringfence::init` must come first there.
//!
//! `embedded [TEXT]...`: runs the checks whose names contain one of the texts.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it starts itself, prints its verdicts and panics on surprises"
)]

#[path = "../../examples/artifacts.rs"]
mod artifacts;
mod checks;
#[path = "../client/mod.rs"]
#[expect(dead_code, unused_imports, reason = "helpers shared by all test binaries")]
mod client;
#[path = "../../examples/hello.rs"]
mod hello;
mod roles;
#[path = "../../examples/secrets.rs"]
mod secrets;
#[path = "../../examples/session.rs"]
mod session;
#[path = "../../examples/stream.rs"]
mod stream;
#[path = "../../examples/tenants.rs"]
mod tenants;

use std::{panic, process::ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, role, ..] = words.as_slice()
        && word == roles::WORD
    {
        return roles::play(role);
    }
    // The helper is this program, too. It has no arguments except that of `init`, so its name selects the second
    // thread.
    if words
        .first()
        .is_some_and(|own| own.ends_with(roles::WITH_A_THREAD))
    {
        roles::begin_a_thread();
    }
    ringfence::init();
    let wanted = |name: &str| {
        let mut texts = words
            .iter()
            .skip(1)
            .filter(|word| !word.starts_with('-'))
            .peekable();
        texts.peek().is_none() || texts.any(|text| name.contains(text.as_str()))
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, check) in checks::ALL.iter().filter(|(name, _)| wanted(name)) {
        let held = panic::catch_unwind(check).is_ok();
        println!("test {name} ... {}", if held { "ok" } else { "FAILED" });
        if held {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    println!("\n{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
