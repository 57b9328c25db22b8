//! Closed segments, and runs that a dead server left open, through servers and the command line.

use super::state::{State, words};
use crate::client::*;
use std::{
    fs::{self, File},
    path::PathBuf,
};

fn audit_stdout(state: &State, arguments: &[&str]) -> String {
    let output = state.command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    stdout_of(&output)
}

/// claim: [REC-8]
#[test]
fn a_segment_is_closed_while_a_server_runs_and_the_record_stays_whole() {
    let state = State::new("segments");
    let mut agent = state.serve();
    let first = agent.run(json!({"code": "1"}));
    let file = PathBuf::from(audit_stdout(&state, &["audit", "archive"]).trim());
    assert!(file.exists(), "{file:?}");
    // The server and the chain continue.
    let second = agent.run(json!({"code": "2"}));
    let listed: Value = serde_json::from_str(&audit_stdout(&state, &["audit", "list", "--json"])).unwrap();
    let ids: Vec<&str> = list_of(&listed["records"])
        .iter()
        .filter_map(|record| record["execution_id"].as_str())
        .collect();
    for execution in [&first, &second] {
        assert!(
            ids.contains(&execution["execution_id"].as_str().unwrap()),
            "{listed}"
        );
    }
    let exported = audit_stdout(&state, &["audit", "export"]);
    let lines = exported.lines().count() as u64;
    let verdict: Value = serde_json::from_str(&audit_stdout(&state, &["audit", "verify", "--json"])).unwrap();
    assert_eq!(
        (&verdict["ok"], verdict["records"].as_u64()),
        (&json!(true), Some(lines))
    );
    // A damaged closed segment is named, and the rest is exported.
    fs::write(&file, b"no segment").unwrap();
    let output = state.command(&["audit", "export"]).output().unwrap();
    let shown = stdout_of(&output);
    let said = stderr_of(&output);
    assert!(shown.contains(text_of(&second["execution_id"])));
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    let output = state.command(&["audit", "verify"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(agent.run(json!({"code": "print(3)"}))["stdout"], "3\n");
    assert!(agent.close().status.success());
    // After the server has ended, all commits are in the database file.
    let log = fs::metadata(state.record().join("audit.db-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0);
}

/// claim: [REC-8]
#[test]
fn a_run_that_died_with_its_server_is_recorded_as_lost_by_the_next_one() {
    let state = State::new("lost");
    let mut agent = state.serve();
    agent.send_run(json!({"code": "while True: pass"}));
    let begun = || {
        let records = if state.is_blank() {
            Vec::new()
        } else {
            state.records()
        };
        let begun = records
            .into_iter()
            .find(|record| words(record) == "execution.started pending");
        begun.and_then(|record| record.execution_id)
    };
    eventually(|| begun().is_some());
    let id = begun().unwrap();
    let pending = || {
        let listed = audit_stdout(&state, &["audit", "list", "--outcome", "pending", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        list_of(&listed["records"]).len()
    };
    assert_eq!(pending(), 1);
    // Another server does not close the run, because its server is alive.
    state.serve().call_and_close();
    assert_eq!(state.words_of(&id), ["execution.started pending"]);
    drop(agent.kill());
    state.serve().call_and_close();
    assert_eq!(
        state.words_of(&id),
        ["execution.started pending", "execution.failed lost"]
    );
    assert_eq!(pending(), 0);
    state.assert_verifies();
}

/// claim: [REC-8]
#[test]
fn a_restore_into_a_session_that_died_with_its_server_is_recorded_as_lost() {
    let state = State::new("restore");
    let mut agent = state.serve();
    let session = agent.create_session(json!({"language": "python"}));
    let made = agent.facts("create_state_snapshot", json!({"session_id": session}));
    let count = |wanted: &str| {
        state
            .records()
            .iter()
            .map(words)
            .filter(|found| found == wanted)
            .count()
    };
    // The restores wait for the session's call.
    agent.send_run(json!({"session_id": session, "code": "while True: pass"}));
    eventually(|| count("execution.started pending") == 1);
    for _ in 0..2 {
        let snapshot = json!({"snapshot_id": made["snapshot_id"]});
        agent.send_call("restore_state_snapshot", snapshot);
    }
    eventually(|| count("snapshot.restored pending") == 2);
    drop(agent.kill());
    state.serve().call_and_close();
    assert_eq!(count("snapshot.restored lost"), 2);
    state.assert_verifies();
}

/// claim: [REC-8]
#[test]
fn a_restore_that_an_orderly_stop_cuts_off_is_recorded_as_lost_by_the_next_server() {
    let state = State::new("cut-off");
    let mut agent = state.serve();
    let session = agent.create_session(json!({"workspace": "namespace"}));
    let made = agent.facts("create_state_snapshot", json!({"session_id": session}));
    // Another process holds the workspace until the server has stopped.
    let held = File::open(state.path().join("workspaces/.default.lock")).unwrap();
    held.lock().unwrap();
    agent.send_call(
        "restore_state_snapshot",
        json!({"snapshot_id": made["snapshot_id"], "session_id": session}),
    );
    let count = |wanted: &str| {
        let records = state.records();
        records.iter().filter(|record| words(record) == wanted).count()
    };
    eventually(|| count("snapshot.restored pending") == 1);
    assert!(agent.close().status.success());
    assert_eq!(count("server.stopped ok"), 1);
    drop(held);
    state.serve().call_and_close();
    assert_eq!(count("snapshot.restored lost"), 1);
    // Nothing is left to look for.
    state.serve().call_and_close();
    assert_eq!(count("snapshot.restored lost"), 1);
    state.assert_verifies();
}
