//! Runs commands behind real walls. This program is its own child process, so it has its own `main`.
//!
//! `walls [TEXT]`: the checks whose names contain the text. `RINGFENCE_LINK_RACES`: rounds of races, 2,000 if not set.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it starts programs, prints its verdicts and panics on failure"
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
    check!(rules::loading_rules_runs_their_examples),
    check!(rules::default_rule_commands_work_behind_their_walls),
    check!(options::dangerous_options_have_no_effect),
    check!(git::git_output_is_the_same_behind_walls),
    check!(limits::command_inherits_nothing_from_the_server),
    check!(limits::writing_command_leaves_no_set_id_file_and_reaches_no_socket),
    check!(limits::command_ends_with_all_its_descendants),
    check!(limits::commands_of_an_ordinary_user_end_with_all_their_descendants),
    check!(limits::only_the_named_socket_is_reachable),
    check!(files::files_are_read_listed_and_written_by_rule),
    check!(files::directory_rules_are_not_bypassed),
    check!(files::server_files_are_closed_by_every_path),
    check!(files::server_files_are_closed_through_mounts),
    check!(named::approval_is_bound_to_the_content_of_named_files),
    check!(files::write_keeps_owner_and_mode_and_can_be_undone),
    check!(races::symlink_races_do_not_escape),
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
        let is_ok = panic::catch_unwind(check).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        if is_ok {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    println!("\n{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
