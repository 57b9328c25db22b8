//! Commands behind their walls, played for real: this program is its own child process, so it has a `main` of its own.
//!
//! `walls [TEXT]`: the checks whose names hold the text. `RINGFENCE_LINK_RACES`: rounds of races, 2,000 if not set.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it starts programs, prints its verdicts and ends where it is surprised"
)]

mod files;
mod git;
mod limits;
mod named;
mod options;
mod races;
mod rules;
mod world;

use std::{panic, process::ExitCode};

macro_rules! check {
    ($module:ident::$name:ident) => {
        (stringify!($name), $module::$name)
    };
}

const CHECKS: &[(&str, fn())] = &[
    check!(rules::rules_run_their_examples_when_they_are_loaded),
    check!(rules::what_the_default_rules_let_through_works_behind_its_walls),
    check!(options::nothing_of_what_options_could_do_happens),
    check!(git::git_says_behind_its_walls_what_it_says_without),
    check!(limits::a_command_has_nothing_of_the_servers),
    check!(limits::a_command_that_writes_leaves_no_set_id_program_and_reaches_no_socket),
    check!(limits::a_command_ends_with_all_that_it_has_started),
    check!(limits::only_the_named_socket_is_there),
    check!(files::files_are_read_listed_and_written_by_rule),
    check!(files::rules_are_not_reached_around),
    check!(files::what_is_the_servers_own_is_closed_by_every_way),
    check!(named::an_approval_is_bound_to_what_named_files_hold),
    check!(files::a_write_keeps_owner_and_mode_and_is_taken_back),
    check!(races::no_race_of_links_leads_out),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words
        .get(1)
        .is_some_and(|word| word == ringfence_host::CHILD_WORD)
    {
        std::process::exit(ringfence_host::run_child());
    }
    let wanted = |name: &str| {
        let mut texts = words
            .iter()
            .skip(1)
            .filter(|word| !word.starts_with('-'))
            .peekable();
        texts.peek().is_none() || texts.any(|text| name.contains(text.as_str()))
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, check) in CHECKS.iter().filter(|(name, _)| wanted(name)) {
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
