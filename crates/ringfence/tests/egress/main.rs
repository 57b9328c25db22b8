//! Programs and hosts, through the real binary: what each client reaches of an internet that the test makes, in a network
//! namespace of its own, and what left the machine meanwhile. Nothing is sent to any address outside of it.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test prints its table, starts programs, reads its environment and ends where it is surprised"
)]

#[path = "../stories/client.rs"]
#[expect(dead_code, reason = "the vocabulary is that of the stories")]
mod client;
mod clients;
mod live;
mod secrets;
mod world;

use world::World;

/// Runs the story of this name in a network namespace of its own: this test's binary is started there again.
fn elsewhere(name: &str) {
    let own = std::env::current_exe().unwrap();
    let kind = if rustix::process::geteuid().is_root() {
        "-n"
    } else {
        "-Urn"
    };
    let done = std::process::Command::new("unshare")
        .args([kind, "--"])
        .arg(own)
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
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
    elsewhere("clients::the_table");
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
