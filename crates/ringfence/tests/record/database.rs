//! The record's file locked, overwritten or deleted by another process, and shared by two servers.

use super::{
    agent::Agent,
    state::{State, all_words, details, words},
};
use crate::client::*;
use ringfence_store::audit::Record;
use rusqlite::Connection;
use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

fn execute(agent: &mut Agent) -> Value {
    agent.run(json!({"code": "print(6 * 7)"}))
}

/// Holds an exclusive lock on the database, as another process would.
fn hold(state: &State) -> Connection {
    let other = Connection::open(state.database()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    other
}

/// The path of a file beside the database: with `-wal` its log, with `-shm` the index of the log.
fn beside(state: &State, end: &str) -> PathBuf {
    let mut name = state.database().into_os_string();
    name.push(end);
    name.into()
}

/// claim: [REC-1]
#[test]
fn a_locked_database_is_waited_for_and_then_the_call_is_refused() {
    let state = State::new("locked");
    let mut agent = state.serve();
    assert_eq!(execute(&mut agent)["stdout"], "42\n");
    let other = hold(&state);
    let id = agent.send_run(json!({"code": "print(6 * 7)"}));
    // The call waits, and continues when the lock is released.
    assert!(!agent.read_until(Duration::from_secs(1), |agent| agent.has_answer(id)));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(agent.result(id)["stdout"], "42\n");
    let other = hold(&state);
    let begun = Instant::now();
    let refused = execute(&mut agent);
    assert_eq!(refused["code"], "audit_unavailable", "{refused}");
    refused.assert_text("message", ["another process"]);
    assert!(
        (4..15).contains(&begun.elapsed().as_secs()),
        "{:?}",
        begun.elapsed()
    );
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(execute(&mut agent)["stdout"], "42\n");
    assert!(agent.close().status.success());
    state.assert_verifies();
}

/// claim: [REC-1]
#[test]
fn artifacts_of_a_run_with_an_unrecorded_end_are_withheld_and_the_end_is_recorded_later() {
    let state = State::new("withheld");
    let mut agent = state.serve();
    let code = "import time\nopen('left.txt', 'w').write('the-canary')\ntime.sleep(2)";
    let control = agent.run(json!({"code": "open('left.txt', 'w').write('x')"}));
    let files_of = |agent: &mut Agent, id: &Value| agent.facts("get_artifacts", json!({"request_id": id}));
    let told = files_of(&mut agent, &control["execution_id"]);
    told.assert_fields(json!({"artifacts.0.name": "left.txt"}));
    let call = agent.send_run(json!({"code": code}));
    let begun = |words: &[String]| {
        words
            .iter()
            .filter(|words| *words == "execution.started pending")
            .count()
    };
    eventually(|| begun(&all_words(&state.records())) == 2);
    let other = hold(&state);
    let refused = agent.result(call);
    assert_eq!(refused["code"], "audit_unavailable", "{refused}");
    assert!(!refused.to_string().contains("the-canary"));
    other.execute_batch("COMMIT").unwrap();
    let absent = files_of(&mut agent, &refused["execution_id"]);
    assert_eq!(absent["artifacts"], json!([]), "{absent}");
    assert!(agent.close().status.success());
    state.assert_verifies();
    assert_eq!(
        state.words_of(text_of(&refused["execution_id"])),
        ["execution.started pending", "execution.failed failed"]
    );
}

/// claim: [REC-4]
#[test]
fn a_corrupt_database_is_moved_aside_and_the_new_chain_says_so() {
    let state = State::new("garbage");
    let mut agent = state.serve();
    execute(&mut agent);
    assert!(agent.close().status.success());
    let garbage = b"not a database, ".repeat(4096);
    for end in ["-wal", "-shm"] {
        // They are already gone if the server was the last to close the database.
        drop(fs::remove_file(beside(&state, end)));
    }
    fs::write(state.database(), &garbage).unwrap();
    let mut agent = state.serve();
    assert_eq!(execute(&mut agent)["stdout"], "42\n");
    assert!(agent.close().status.success());
    let verdict = state.assert_verifies();
    assert_eq!(verdict.breaks, [1]);
    let first = &state.records()[0];
    assert_eq!(
        (words(first).as_str(), &details(first)["reason"]),
        ("audit.began ok", &json!("damaged"))
    );
    let moved = PathBuf::from(details(first)["moved_to"].as_str().unwrap());
    assert_eq!(
        fs::read(moved).unwrap(),
        garbage,
        "the damaged file is kept unchanged"
    );
}

/// claim: [REC-4]
#[test]
fn the_deletion_of_a_database_under_a_server_is_noticed_and_recorded() {
    let state = State::new("deleted");
    let mut agent = state.serve();
    execute(&mut agent);
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(beside(&state, end)).unwrap();
    }
    let mut answered = BTreeSet::new();
    let mut refused = 0;
    for _ in 0..4 {
        let answer = execute(&mut agent);
        if answer["code"] == "audit_unavailable" {
            refused += 1;
        } else {
            assert_eq!(answer["stdout"], "42\n", "{answer}");
            answered.insert(text_of(&answer["execution_id"]).to_owned());
        }
    }
    assert!(agent.close().status.success());
    assert!(answered.len() >= 2 && refused <= 2, "{refused} refused");
    state.assert_verifies();
    let records = state.records();
    assert_eq!(details(&records[0])["reason"], "replaced", "{:?}", records[0]);
    for id in answered {
        assert_eq!(state.words_of(&id).len(), 2, "{id}");
    }
}

/// claim: [REC-6]
#[test]
fn two_servers_on_one_directory_write_one_chain() {
    const CALLS: usize = 8;
    let state = State::new("two").with_secrets([("TOKEN", "a-value-4711")]);
    let mut agents = [state.serve(), state.serve()];
    let arguments =
        json!({"code": "print(6 * 7)\nopen('a.txt', 'w').write('a' * 5000)", "secrets": ["TOKEN"]});
    let ids: Vec<Vec<u64>> = agents
        .iter_mut()
        .map(|agent| (0..CALLS).map(|_| agent.send_run(arguments.clone())).collect())
        .collect();
    for (agent, ids) in agents.iter_mut().zip(ids) {
        for id in ids {
            let result = agent.result(id);
            assert_eq!(result["stdout"], "42\n", "{result}");
            assert_eq!(state.words_of(text_of(&result["execution_id"])).len(), 3);
            state.assert_artifact(&result, &result["artifacts"][0]);
        }
    }
    for agent in agents {
        assert!(agent.close().status.success());
    }
    let verdict = state.assert_verifies();
    assert!(verdict.breaks.is_empty());
    let records = state.records();
    let of = |action: &str| {
        records
            .iter()
            .filter(|record| record.action == action)
            .collect::<Vec<&Record>>()
    };
    let servers: BTreeSet<&str> = of("server.started")
        .iter()
        .map(|record| record.server_id.as_str())
        .collect();
    assert_eq!((servers.len(), of("server.stopped").len()), (2, 2));
    assert_eq!(of("execution.completed").len(), 2 * CALLS);
    assert_eq!(of("audit.began").len(), 1);
}
