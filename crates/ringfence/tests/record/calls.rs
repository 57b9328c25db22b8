//! Each call leaves exactly the expected records: none is missing, and none appears twice.

use super::{
    agent::Agent,
    state::{State, all_words, details, words},
};
use crate::client::*;
use ringfence_store::audit::Record;

const STARTED: &str = "execution.started pending";

/// A server, and the number of its records read so far.
struct Watch {
    state: State,
    agent: Agent,
    seen: usize,
}

impl Watch {
    fn new(state: State) -> Self {
        let agent = state.serve();
        let mut watch = Self {
            state,
            agent,
            seen: 0,
        };
        // The handshake is answered before the engine has started.
        eventually(|| watch.state.database().exists());
        let begun = watch.records_of(|agent| drop(agent.call("sandbox_stats", json!({}))));
        assert_eq!(
            all_words(&begun),
            ["audit.began ok", "server.started ok", "tool.called ok"]
        );
        watch
    }

    /// Returns the new records after `act`.
    fn records_of(&mut self, act: impl FnOnce(&mut Agent)) -> Vec<Record> {
        act(&mut self.agent);
        let records = self.state.records();
        let new = records[self.seen..].to_vec();
        self.seen = records.len();
        new
    }

    /// Calls a tool and compares the new records with the expected ones.
    fn check(&mut self, tool: &str, arguments: Value, expect: &[&str]) -> Vec<Record> {
        let shown = arguments.to_string();
        let records = self.records_of(|agent| drop(agent.call(tool, arguments)));
        assert_eq!(all_words(&records), expect, "{tool} {shown}");
        let client = |record: &Record| record.caller == "mcp record 1";
        assert!(records.iter().all(client), "{tool}: {records:?}");
        records
    }
}

/// claim: [REC-6]
#[test]
fn every_execution_leaves_a_start_record_and_one_end_record() {
    let state = State::new("executions").with_secrets([("TOKEN", "a-value-4711")]);
    let mut watch = Watch::new(state.with("RINGFENCE_VAULT_ALLOW", "default/TOKEN"));
    let ok = [STARTED, "execution.completed ok"];
    let failed = [STARTED, "execution.failed failed"];
    let denied = ["execution.refused denied"];
    for (arguments, expect) in [
        (json!({"code": "1"}), &ok[..]),
        (json!({"code": "1 / 0"}), &failed),
        (json!({"code": "exit 3", "language": "shell"}), &failed),
        (
            json!({"code": "while True: pass", "timeout_seconds": 0.3}),
            &[STARTED, "execution.timeout failed"],
        ),
        (
            json!({"code": "b = b'x' * (1 << 30)", "memory_limit": "64m"}),
            &failed,
        ),
        (
            json!({"code": "1", "secrets": ["TOKEN"]}),
            &[STARTED, "vault.accessed ok", "execution.completed ok"],
        ),
        (json!({"code": "1", "secrets": ["OTHER"]}), &denied),
        (
            json!({"code": "1", "secrets": ["TOKEN"], "namespace": "other"}),
            &denied,
        ),
        (
            json!({"code": "1", "memory_limit": "9999999m"}),
            &["execution.refused failed"],
        ),
    ] {
        let records = watch.check("execute_code", arguments, expect);
        let id = records[0].execution_id.as_deref();
        assert!(id.is_some() && records.iter().all(|record| record.execution_id.as_deref() == id));
        let beginning = details(&records[0]);
        assert_eq!(beginning["code_sha256"].as_str().map(str::len), Some(64));
    }
    // The out-of-memory run is marked in its end record.
    let is_oom = |record: &Record| details(record)["exit"] == "out_of_memory";
    assert_eq!(
        watch
            .state
            .records()
            .iter()
            .filter(|record| is_oom(record))
            .count(),
        1
    );
}

#[test]
fn a_request_for_an_absent_secret_is_recorded() {
    let mut watch = Watch::new(State::new("absent"));
    watch.check(
        "execute_code",
        json!({"code": "1", "secrets": ["ABSENT"]}),
        &[STARTED, "vault.accessed failed", "execution.refused failed"],
    );
}

#[test]
fn a_cancelled_program_has_an_end_record() {
    let mut watch = Watch::new(State::new("cancelled"));
    let records = watch.records_of(|agent| {
        let id = agent.send_run(json!({"code": "print('begun', flush=True)\nwhile True: pass"}));
        agent.await_message("begun");
        agent.cancel(id);
    });
    assert_eq!(all_words(&records), [STARTED]);
    let id = records[0].execution_id.clone().unwrap();
    eventually(|| watch.state.words_of(&id).len() == 2);
    assert_eq!(watch.state.words_of(&id)[1], "execution.failed failed");
    let end = watch.records_of(|_| {});
    assert_eq!(details(&end[0])["exit"], "cancelled");
}

/// claim: [REC-6]
#[test]
fn a_call_refused_as_busy_is_recorded() {
    let state = State::new("busy")
        .with("RINGFENCE_QUEUE_CONCURRENCY", "1")
        .with("RINGFENCE_QUEUE_WAITING", "0");
    let mut watch = Watch::new(state);
    let records = watch.records_of(|agent| {
        let first = agent.send_run(json!({"code": "print('begun', flush=True)\nwhile True: pass"}));
        agent.await_message("begun");
        let refused = agent.run(json!({"code": "1"}));
        assert_eq!(refused["code"], "busy");
        agent.cancel(first);
    });
    assert_eq!(words(&records[1]), "execution.refused denied");
    assert_eq!(details(&records[1])["code"], "busy");
}

/// claim: [REC-6]
#[test]
fn invalid_calls_are_recorded() {
    let mut watch = Watch::new(State::new("refused"));
    for (tool, arguments, code) in [
        (
            "execute_code",
            json!({"code": "1", "colour": "red"}),
            "unknown_argument",
        ),
        ("execute_code", json!({"code": 1}), "invalid_argument"),
        (
            "execute_code",
            json!({"code": "1", "use_container": true, "backend": "native"}),
            "invalid_argument",
        ),
        (
            "execute_code",
            json!({"code": "1", "session_id": "s"}),
            "invalid_argument",
        ),
        (
            "execute_code",
            json!({"code": "1", "namespace": "../x"}),
            "invalid_argument",
        ),
        ("sandbox_stats", json!({"colour": "red"}), "unknown_argument"),
        ("list_runtimes", json!({"colour": "red"}), "unknown_argument"),
        ("get_sandbox_info", json!({"colour": "red"}), "unknown_argument"),
        ("set_resource_limits", json!({}), "invalid_argument"),
        ("get_artifacts", json!({}), "invalid_argument"),
        ("audit_execution", json!({"limit": 0}), "invalid_argument"),
        ("vault_delete", json!({"key": "a b"}), "invalid_argument"),
        ("vault_list", json!({"namespace": 7}), "invalid_argument"),
    ] {
        let records = watch.check(tool, arguments, &["tool.called denied"]);
        assert_eq!(details(&records[0]), json!({"tool": tool, "code": code}));
    }
    let absent = json!({"request_id": "../../x"});
    watch.check("get_artifacts", absent, &["artifact.read denied"]);
    let far = json!({"before": u64::MAX, "limit": 1});
    watch.check("audit_execution", far, &["tool.called ok"]);
    let records = watch.records_of(|agent| {
        let answer = agent.rpc("tools/call", json!({"name": "rm_rf_hunter22", "arguments": {}}));
        assert!(answer["error"].is_object(), "{answer}");
        let answer = agent.read_resource("sandbox://hunter22");
        assert!(answer["error"].is_object(), "{answer}");
    });
    assert_eq!(all_words(&records), ["tool.called denied", "tool.called denied"]);
    // Invented names do not appear in the record.
    assert!(
        records
            .iter()
            .all(|record| !record.to_json().contains("hunter22"))
    );
}

/// claim: [REC-6]
#[test]
fn every_other_tool_and_resource_leaves_one_record() {
    let state = State::new("tools").with("RINGFENCE_VAULT_STORE", "memory");
    let mut watch = Watch::new(state);
    let result = watch
        .agent
        .run(json!({"code": "open('a.txt', 'w').write('a' * 70000)"}));
    let (id, uri) = (&result["execution_id"], &result["artifacts"][0]["uri"]);
    watch.records_of(|_| {});
    for (tool, arguments, expect) in [
        ("sandbox_stats", json!({}), "tool.called ok"),
        ("get_sandbox_metrics", json!({}), "tool.called ok"),
        ("get_sandbox_info", json!({}), "tool.called ok"),
        ("inspect_state", json!({}), "tool.called ok"),
        ("audit_execution", json!({"limit": 3}), "tool.called ok"),
        ("vault_list", json!({}), "vault.accessed ok"),
        ("get_artifacts", json!({"request_id": id}), "artifact.read ok"),
        (
            "get_artifacts",
            json!({"request_id": id, "namespace": "other"}),
            "artifact.read denied",
        ),
        (
            "get_artifacts",
            json!({"request_id": "absent"}),
            "artifact.read denied",
        ),
        (
            "set_resource_limits",
            json!({"max_ram_mb": 64}),
            "limits.changed ok",
        ),
        (
            "set_resource_limits",
            json!({"max_ram_mb": 8193}),
            "limits.changed denied",
        ),
        (
            "restore_state_snapshot",
            json!({"snapshot_id": "absent"}),
            "snapshot.restored denied",
        ),
        (
            "delete_state_snapshot",
            json!({"snapshot_id": "absent"}),
            "snapshot.deleted denied",
        ),
    ] {
        watch.check(tool, arguments, &[expect]);
    }
    watch.check(
        "vault_delete",
        json!({"key": "NONE"}),
        &["vault.changed pending", "vault.changed ok"],
    );
    watch.check(
        "install_package",
        json!({"packages": ["six"], "session_id": "01a1ff50-58f1-722a-bd4c-5f2b5ca3fdcb"}),
        &["tool.called pending", "tool.called failed"],
    );
    for (uri, expect) in [
        (&json!("sandbox://snapshots/absent"), "tool.called ok"),
        (&json!("sandbox://status"), "tool.called ok"),
        (&json!("sandbox://logs"), "tool.called ok"),
        (&json!("sandbox://audit"), "tool.called ok"),
        (uri, "artifact.read ok"),
        (&json!("sandbox://artifacts/absent/a.txt"), "artifact.read denied"),
    ] {
        let records = watch.records_of(|agent| drop(agent.read_resource(uri)));
        assert_eq!(all_words(&records), [expect], "{uri}");
    }
}

/// Versions of the languages are determined in sandboxes, which are executions of the server itself.
#[test]
fn executions_of_the_server_itself_are_recorded_as_its_own() {
    let mut watch = Watch::new(State::new("runtimes"));
    let records = watch.records_of(|agent| drop(agent.call("list_runtimes", json!({}))));
    assert_eq!(words(&records[0]), "tool.called ok");
    let own: Vec<&Record> = records
        .iter()
        .filter(|record| record.caller == "ringfence")
        .collect();
    assert_eq!(own.len(), records.len() - 1);
    let begun = own
        .iter()
        .filter(|record| record.action == "execution.started")
        .count();
    assert_eq!(2 * begun, own.len());
    watch.check("list_runtimes", json!({}), &["tool.called ok"]);
}

#[test]
fn a_stopped_server_leaves_a_stop_record_and_a_killed_one_does_not() {
    let state = State::new("ends");
    state.serve().call_and_close();
    let agent = state.serve();
    let mut killed = agent;
    killed.call("sandbox_stats", json!({}));
    drop(killed.kill());
    state.serve().call_and_close();
    assert_eq!(
        all_words(&state.records()),
        [
            "audit.began ok",
            "server.started ok",
            "tool.called ok",
            "server.stopped ok",
            "server.started ok",
            "tool.called ok",
            "server.started ok",
            "tool.called ok",
            "server.stopped ok",
        ]
    );
    let verdict = state.assert_verifies();
    assert_eq!((verdict.records, verdict.breaks.len()), (9, 0));
}

#[test]
fn a_cli_run_leaves_the_same_records() {
    let state = State::new("command-line");
    let script = TempDir::new("record-script");
    let file = script.file("a.sh", "exit 4");
    let output = state.command(&["run", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert_eq!(
        all_words(&state.records()),
        [
            "audit.began ok",
            "server.started ok",
            STARTED,
            "execution.failed failed",
            "server.stopped ok",
        ]
    );
}
