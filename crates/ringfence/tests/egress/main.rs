//! Programs and hosts, through the real binary: what each client reaches of an internet that the test makes, in a network
//! namespace of its own, and what left the machine meanwhile. Nothing is sent to any address outside of it.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test prints its table, starts programs, reads its environment and ends where it is surprised"
)]

mod asks;
#[path = "../stories/client.rs"]
#[expect(dead_code, reason = "the vocabulary is that of the stories")]
mod client;
mod clients;
mod live;
mod narrow;
mod packages;
mod secrets;
#[expect(dead_code, reason = "the attacks on the way out use it, too")]
mod world;

use packages::Packages;
use world::{User, World};

/// How long a story may take, on a machine that is busy with others.
const STORY_SECONDS: &str = "240";

/// Runs the story of this name in a network namespace of its own: this test's binary is started there again.
fn elsewhere(name: &str) {
    elsewhere_with(name, None);
}

/// The same, where some packages are installed.
fn elsewhere_with(name: &str, packages: Option<&Packages>) {
    let own = std::env::current_exe().unwrap();
    let kind = if rustix::process::geteuid().is_root() {
        "-n"
    } else {
        "-Urn"
    };
    let done = std::process::Command::new("timeout")
        .args(["--kill-after=5", STORY_SECONDS, "unshare", kind, "--"])
        .arg(own)
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(packages.map(|packages| (world::STATE, packages.state())))
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with('|')) {
        println!("{line}");
    }
}

/// claim: [NET-4]
#[test]
fn every_client_reaches_what_is_named_and_nothing_else() {
    let packages = Packages::install("clients-packages", User::Same);
    elsewhere_with("clients::the_table", packages.as_ref());
}

/// claim: [NET-4]
#[test]
fn every_client_of_an_ordinary_user_reaches_what_is_named_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(!required.contains("root"), "RINGFENCE_REQUIRE asks for root");
        eprintln!(
            "skipped: it needs root to be another user; whoever runs this is an ordinary one, whose table is above"
        );
        return;
    }
    let packages = Packages::install("nobodys-packages", User::Nobody);
    elsewhere_with("clients::the_table_of_an_ordinary_user", packages.as_ref());
}

#[test]
fn what_is_carried_arrives_to_the_byte() {
    elsewhere("live::many_bytes_arrive_as_they_were_sent");
}

/// claim: [SEC-2]
#[test]
fn a_programs_secret_is_not_told_with_whom_it_wanted_to_reach() {
    elsewhere("live::a_secret_in_a_name_or_a_path_is_not_told");
}

/// claim: [NET-8]
#[test]
fn who_floods_its_way_out_keeps_nobody_else_waiting() {
    elsewhere("live::a_flood_of_connections_keeps_nobody_else_from_an_answer");
}

/// claim: [NET-7]
#[test]
fn what_is_approved_is_reached_and_what_is_taken_away_is_not() {
    elsewhere("live::an_approval_opens_a_host_for_a_session");
}

/// claim: [SEC-6]
#[test]
fn who_holds_a_word_for_a_secret_speaks_as_the_secret_and_never_has_it() {
    elsewhere("secrets::every_client_speaks_as_the_secret_and_never_has_it");
}

/// claim: [SEC-6]
#[test]
fn a_bound_secret_leaves_for_its_host_in_its_place_alone() {
    elsewhere("secrets::a_secret_is_put_nowhere_but_where_it_belongs");
}

/// claim: [SEC-6]
#[test]
fn a_bound_secret_is_written_whatever_the_program_says_of_its_connection() {
    elsewhere("secrets::a_secret_that_is_always_written_cannot_be_taken_away");
}

/// claim: [SEC-6]
#[test]
fn a_connection_that_does_not_agree_gets_no_secret() {
    elsewhere("secrets::what_does_not_agree_is_refused_with_its_rule");
}

/// claim: [NET-8]
#[test]
fn who_does_not_read_what_he_asked_for_fills_no_memory() {
    elsewhere("secrets::who_does_not_read_is_not_read_for");
}

/// claim: [APR-8]
#[test]
fn an_approval_asked_by_a_sandboxed_program_decided_in_the_cli_continues_the_same_connection() {
    elsewhere("asks::an_approval_in_the_command_line_continues_the_same_connection");
}

/// claim: [APR-8]
#[test]
fn a_question_of_a_program_that_nobody_answers_is_a_denial() {
    elsewhere("asks::without_an_answer_it_is_denied_and_a_call_that_is_gone_takes_its_question_along");
}

/// claim: [APR-8]
#[test]
fn a_program_cannot_wear_a_person_down() {
    elsewhere("asks::a_program_that_tries_everything_asks_a_few_times");
}

/// claim: [APR-8]
#[test]
fn a_yes_to_a_program_opens_nothing_inside() {
    elsewhere("asks::an_approval_makes_no_address_reachable_that_is_not_public");
}

/// claim: [APR-8]
#[test]
fn nobody_is_asked_by_default_or_against_the_callers_word() {
    elsewhere("asks::whoever_denies_or_narrows_is_not_asked");
}

#[test]
fn a_session_asks_in_its_calls() {
    elsewhere("asks::a_session_has_what_was_approved_for_it_and_asks_in_its_calls_alone");
}

#[test]
fn a_program_asks_in_the_dialogue_of_the_client_that_runs_it() {
    elsewhere("asks::the_client_whose_call_waits_asks_its_user");
}

#[test]
fn a_script_of_the_command_line_asks_at_another_terminal() {
    elsewhere("asks::a_run_of_the_command_line_is_answered_at_another_terminal");
}

/// claim: [NET-7]
#[test]
fn one_call_of_a_session_is_narrowed_and_the_session_is_not() {
    elsewhere("narrow::a_call_has_the_hosts_that_it_names_of_those_that_its_session_has");
}
