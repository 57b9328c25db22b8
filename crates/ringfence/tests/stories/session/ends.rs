//! Ends of sessions: each has a reported reason, and leaves nothing behind.

use super::{answer_to, assert_result, on_each_kind};
use crate::client::*;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// A language, the last call of its session, the session's end reason, and the kind and status of the call's exit.
#[rustfmt::skip]
const LAST_CALLS: [(&str, &str, &str, &str, i32); 11] = [
    ("python", "print('last'); raise SystemExit(3)", "exited", "code", 3),
    ("python", "import os; os.write(1, b'last\\n'); os._exit(4)", "exited", "code", 4),
    ("python", "import ctypes; print('last', flush=True); ctypes.string_at(0)", "crashed", "signal", 139),
    ("python", "import os; print('last', flush=True); os.kill(os.getpid(), 9)", "crashed", "signal", 137),
    ("python", "print('last', flush=True); x = [bytearray(10**7) for _ in range(100)]", "out_of_memory", "out_of_memory", 137),
    ("node", "process.stdout.write('last\\n'); process.exit(5)", "exited", "code", 5),
    ("node", "require('fs').writeSync(1, 'last\\n'); process.kill(process.pid, 'SIGKILL')", "crashed", "signal", 137),
    ("shell", "echo last; exit 6", "exited", "code", 6),
    ("shell", "echo last; exec true", "exited", "code", 0),
    ("shell", "echo last; kill -9 $$", "crashed", "signal", 137),
    // Memory of a child, not of the shell, which could still answer.
    ("shell", "echo last; cat /dev/zero | tail -c 200000000", "out_of_memory", "out_of_memory", 137),
];

/// claim: [SES-3]
#[test]
fn session_ends_with_its_interpreter_and_has_a_reason() {
    on_each_kind(|server, kind| {
        for (language, code, why, kind_of_exit, status) in LAST_CALLS {
            let limit = if language == "node" { "256m" } else { "64m" };
            let id = server.create_session(json!({"language": language, "memory_limit": limit}));
            let last = server.eval(&id, code);
            assert_eq!(
                (
                    &last["session_ended"],
                    &json!([last["exit"]["kind"], last["exit_code"]])
                ),
                (&json!(why), &json!([kind_of_exit, status])),
                "{kind} {code}: {last}"
            );
            assert_eq!(last["stdout"], "last\n", "{kind} {code}: {last}");
            let after = server.eval(&id, "1");
            assert_eq!(after["code"], "session_ended", "{kind} {code}: {after}");
            after.assert_text("message", [&id]);
            assert_eq!(server.listed(&id), Value::Null, "{kind} {code}");
            assert_eq!(
                server.audit_records("session.killed")[0]["details"]["why"],
                why,
                "{kind} {code}"
            );
        }
        let id = server.create_session(json!({}));
        assert_result(&server.eval(&id, "6 * 7"), &json!(42));
    });
}

/// claim: [SES-3]
#[test]
fn interpreter_exit_between_calls_ends_its_session() {
    let mut server = Server::start();
    for (language, code, why) in [
        (
            "python",
            "import threading, os; threading.Timer(.2, os._exit, [3]).start()",
            "exited",
        ),
        (
            "python",
            "import threading, os; threading.Timer(.2, os.kill, [os.getpid(), 9]).start()",
            "crashed",
        ),
        ("node", "setTimeout(() => process.exit(3), 200); 1", "exited"),
        ("shell", "(sleep .2; kill -9 $$) &", "crashed"),
    ] {
        let id = server.create_session(json!({"language": language}));
        assert_eq!(server.eval(&id, code)["success"], true, "{code}");
        assert!(
            becomes_true_within(PATIENCE, || server.listed(&id).is_null()),
            "{code}"
        );
        assert_eq!(
            server.audit_records("session.killed")[0]["details"]["why"],
            why,
            "{code}"
        );
        assert_eq!(server.eval(&id, "1")["code"], "session_ended", "{code}");
    }
}

/// claim: [SES-2]
#[test]
fn uninterruptible_call_ends_its_session_as_stuck() {
    let mut server = Server::start();
    for (language, code) in [
        (
            "python",
            "import time\nwhile True:\n    try:\n        print('begun', flush=True)\n        while True: time.sleep(1000)\n    except BaseException: pass",
        ),
        (
            "python",
            "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('begun', flush=True)\nwhile True: pass",
        ),
        (
            "python",
            "import os, signal; print('begun', flush=True); os.kill(os.getpid(), signal.SIGSTOP)",
        ),
        ("shell", "trap '' INT; echo begun; while :; do :; done"),
    ] {
        let id = server.create_session(json!({"language": language}));
        let late = server.run_until_timeout(&id, code);
        let expect = json!({"exit.kind": "timeout", "session_ended": "stuck"});
        assert_fields_of(code, &late, expect);
        let after = server.eval(&id, "1");
        assert_eq!(after["code"], "session_ended", "{after}");
        after.assert_text("message", ["could not be interrupted"]);
    }
}

/// claim: [SES-3]
#[test]
fn idle_timeout_and_maximum_age_end_a_session() {
    let mut server = Server::with_config("");
    let idle = server.create_session(json!({"idle_timeout_seconds": 3}));
    let begun = Instant::now();
    let gone = |server: &mut Server, id: &str| becomes_true_within(PATIENCE, || server.listed(id).is_null());
    // A running call counts as use.
    assert_result(&server.eval(&idle, "import time; time.sleep(3.2); 5"), &json!(5));
    assert_result(&server.eval(&idle, "6"), &json!(6));
    assert!(gone(&mut server, &idle) && begun.elapsed() > Duration::from_secs(6));
    let after = server.eval(&idle, "1");
    after.assert_text("message", ["not used for too long"]);
    drop(server);
    // Longer than a session takes to start on a busy machine.
    let mut server = Server::with_config("sessions: {age_seconds: 5}\n");
    let old = server.create_session(json!({}));
    assert!(gone(&mut server, &old));
    server.eval(&old, "1").assert_text("message", ["as old as"]);
    // The maximum age also ends a running call.
    let id = server.create_session(json!({}));
    let cut = server.eval(&id, "import time; print('begun', flush=True); time.sleep(1000)");
    cut.assert_fields(json!({"session_ended": "age", "stdout": "begun\n"}));
    for bad in [0.5, 1e9] {
        let arguments = json!({"idle_timeout_seconds": bad});
        server.call_error("create_session", arguments, "invalid_argument");
    }
}

/// claim: [SES-4]
#[test]
fn number_of_sessions_is_limited_per_namespace_and_in_total() {
    let mut server = Server::with_config("sessions: {per_namespace: 2, max: 3}\n");
    let first = server.create_session(json!({}));
    server.create_session(json!({"language": "shell"}));
    let full = server.call_error("create_session", json!({}), "busy");
    full.assert_text("message", ["sessions.per_namespace"]);
    server.create_session(json!({"namespace": "other"}));
    let full = server.facts("create_session", json!({"namespace": "other"}));
    full.assert_text("message", ["sessions.max"]);
    server.terminate(&first);
    server.create_session(json!({"namespace": "other"}));
    // Of ten calls at once only one gets the last free place.
    let own = server.facts("list_sessions", json!({}))["sessions"][0]["session_id"].clone();
    server.terminate(own.as_str().unwrap());
    let ids: Vec<u64> = (0..10)
        .map(|_| server.send_call("create_session", json!({"language": "shell"})))
        .collect();
    let answers = server.await_responses(&ids);
    let made = answers
        .iter()
        .filter(|(_, answer)| answer["success"] == true)
        .count();
    let busy = answers
        .iter()
        .filter(|(_, answer)| answer["code"] == "busy")
        .count();
    assert_eq!((made, busy), (1, 9), "{answers:?}");
}

/// claim: [SES-3]
#[test]
fn termination_cancels_running_and_waiting_calls_once() {
    let mut server = Server::start();
    let id = server.create_session(json!({}));
    let request = server.send_eval_until_begun(&id, "print('begun', flush=True)\nwhile True: pass");
    let waiting = server.send_eval(&id, "'never'", json!({}));
    eventually(|| server.listed(&id)["waiting"] == 1);
    let ends = [0, 1].map(|_| server.send_call("terminate_session", json!({"session_id": id})));
    let answers = server.await_responses(&[request, waiting, ends[0], ends[1]]);
    let call = answer_to(&answers, request);
    call.assert_fields(json!({"exit.kind": "cancelled", "session_ended": "terminated", "stdout": "begun\n"}));
    assert_eq!(
        answer_to(&answers, waiting)["code"],
        "session_ended",
        "{answers:?}"
    );
    for end in ends {
        assert_eq!(answer_to(&answers, end)["existed"], true, "{answers:?}");
    }
    assert_eq!(
        server.terminate(&id),
        json!({"success": true, "killed": false, "existed": true})
    );
    assert_eq!(server.audit_records("session.killed").len(), 1);
    assert_eq!(server.eval(&id, "1")["code"], "session_ended");
}

/// claim: [SES-3]
#[test]
fn call_racing_with_the_idle_timeout_is_answered_or_gets_session_ended() {
    let mut server = Server::with_config("sessions: {idle_seconds: 1}\n");
    let ids: Vec<String> = (0..8)
        .map(|_| server.create_session(json!({"language": "shell"})))
        .collect();
    let begun = Instant::now();
    let (mut answered, mut late) = (0, 0);
    // Each is called once, the later ones nearer to the end of their second, and after it.
    for (number, id) in ids.iter().enumerate() {
        let at = Duration::from_millis(980 + 10 * number as u64);
        eventually(|| begun.elapsed() >= at);
        let answer = server.eval(id, "echo yes");
        match (answer["stdout"].as_str(), answer["code"].as_str()) {
            (Some("yes\n"), None) => answered += 1,
            (None, Some("session_ended")) => late += 1,
            _ => panic!("neither: {answer}"),
        }
    }
    assert_eq!(answered + late, 8);
    eventually(|| server.facts("list_sessions", json!({}))["sessions"] == json!([]));
    let killed = server.audit_records("session.killed");
    assert_eq!(killed.len(), 8, "each has ended once");
}

/// claim: [PROC-6]
#[test]
fn no_process_or_directory_of_a_session_outlives_its_server() {
    for (config, word) in [
        ("", "161.8033"),
        ("warm: {ready: 0}\n", "161.8034"),
        ("floor: landlock\n", "161.8035"),
    ] {
        for is_killed in [false, true] {
            assert_within_a_second(|| {
                let mut server = Server::with_config(config);
                let id = server.create_session(json!({"language": "shell"}));
                server.eval(&id, &format!("sleep {word} & (setsid sleep {word} &)"));
                eventually(|| processes_with(word).len() >= 2);
                if is_killed {
                    server.kill();
                } else {
                    server.shut_down();
                }
                assert_processes_end(word)
            });
            if !is_killed {
                eventually(|| run_directories().is_empty());
            }
        }
        // The next server removes what a killed one left.
        let mut next = Server::with_config(config);
        assert_eq!(next.execute("shell", "echo up")["stdout"], "up\n");
        next.shut_down();
        eventually(|| run_directories().is_empty());
    }
}

/// Names of the directories of runs and sessions on disk.
fn run_directories() -> Vec<String> {
    let runs = fs::read_dir(state_dir().join("runs"))
        .into_iter()
        .flatten()
        .flatten();
    runs.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// claim: [SES-3]
#[test]
fn ended_session_leaves_no_cgroup_directory_or_process() {
    let mut server = Server::with_config("warm: {ready: 0}\n");
    let ended = server.create_session(json!({"language": "shell"}));
    // The second call starts a check adviser of the namespace, which stays.
    server.eval(&ended, "true");
    server.eval(&ended, "true");
    server.terminate(&ended);
    // Check workers stay, too; all have started once nothing has changed for a second.
    let (mut before, mut since) = (
        (run_directories(), descendants(server.child.id())),
        Instant::now(),
    );
    eventually(|| {
        let now = (run_directories(), descendants(server.child.id()));
        if now != before {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    for round in 0..3 {
        let word = format!("127.1829{round}");
        let id = server.create_session(json!({"language": "shell"}));
        let code = format!("echo x > file; setsid sleep {word} & sleep {word} & (sleep {word} &)");
        server.eval(&id, &code);
        eventually(|| processes_with(&word).len() >= 3);
        let supervisors = descendants(server.child.id());
        assert!(supervisors.len() > before.1.len(), "the control");
        assert_eq!(server.terminate(&id)["killed"], true);
        assert!(
            processes_with(&word).is_empty(),
            "processes after the session's end: {:?}",
            processes_with(&word)
        );
        // A session's cgroup is named after its supervisor.
        let of_session = supervisors.iter().filter(|pid| !before.1.contains(pid));
        let names: Vec<String> = of_session.map(|pid| format!("ringfence-{pid}")).collect();
        let own = |name: &String| names.contains(name);
        eventually(|| !directories_below(Path::new("/sys/fs/cgroup"), 4).iter().any(own));
        assert!(
            becomes_true_within(PATIENCE, || run_directories().len() <= before.0.len()),
            "{:?}",
            run_directories()
        );
        eventually(|| descendants(server.child.id()).len() <= before.1.len());
    }
}

/// claim: [PROC-6]
#[test]
fn processes_of_an_unprivileged_session_end_with_a_killed_server() {
    let Some(nobody) = Nobody::new("") else { return };
    assert_within_a_second(|| {
        let mut server = nobody.serve();
        let id = server.create_session(json!({"language": "shell"}));
        server.eval(&id, "sleep 114.1421 & (setsid sleep 114.1421 &)");
        eventually(|| processes_with("114.1421").len() >= 2);
        server.kill();
        assert_processes_end("114.1421")
    });
}
