//! How sessions end: each for a reason that is told, and with nothing left.

use super::{gives, of, on_each_kind};
use crate::client::*;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// A language, a call that is its session's last, why the session has ended then, and how the call.
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
    // Not the shell's own memory: it could answer.
    ("shell", "echo last; cat /dev/zero | tail -c 200000000", "out_of_memory", "out_of_memory", 137),
];

/// claim: [SES-3]
#[test]
fn an_interpreter_that_ends_takes_its_session_with_it_and_says_why() {
    on_each_kind(|server, kind| {
        for (language, code, why, kind_of_exit, status) in LAST_CALLS {
            let limit = if language == "node" { "256m" } else { "64m" };
            let id = server.create(json!({"language": language, "memory_limit": limit}));
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
            after.says("message", [&id]);
            assert_eq!(server.listed(&id), Value::Null, "{kind} {code}");
            assert_eq!(
                server.records("session.killed")[0]["details"]["why"],
                why,
                "{kind} {code}"
            );
        }
        let id = server.create(json!({}));
        gives(&server.eval(&id, "6 * 7"), &json!(42));
    });
}

/// claim: [SES-3]
#[test]
fn an_interpreter_that_ends_between_calls_is_noticed_at_once() {
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
        let id = server.create(json!({"language": language}));
        assert_eq!(server.eval(&id, code)["success"], true, "{code}");
        assert!(within(PATIENCE, || server.listed(&id).is_null()), "{code}");
        assert_eq!(
            server.records("session.killed")[0]["details"]["why"],
            why,
            "{code}"
        );
        assert_eq!(server.eval(&id, "1")["code"], "session_ended", "{code}");
    }
}

/// claim: [SES-2]
#[test]
fn what_cannot_be_interrupted_ends_its_session_as_stuck() {
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
        let id = server.create(json!({"language": language}));
        let late = server.runs_out_of_time(&id, code);
        let expect = json!({"exit.kind": "timeout", "session_ended": "stuck"});
        assert_facts_of(code, &late, expect);
        let after = server.eval(&id, "1");
        assert_eq!(after["code"], "session_ended", "{after}");
        after.says("message", ["could not be interrupted"]);
    }
}

/// claim: [SES-3]
#[test]
fn nobody_uses_it_or_it_is_too_old() {
    let mut server = Server::with("");
    let idle = server.create(json!({"idle_timeout_seconds": 3}));
    let begun = Instant::now();
    let gone = |server: &mut Server, id: &str| within(PATIENCE, || server.listed(id).is_null());
    // A call that runs is use.
    gives(&server.eval(&idle, "import time; time.sleep(3.2); 5"), &json!(5));
    gives(&server.eval(&idle, "6"), &json!(6));
    assert!(gone(&mut server, &idle) && begun.elapsed() > Duration::from_secs(6));
    let after = server.eval(&idle, "1");
    after.says("message", ["not used for too long"]);
    drop(server);
    // Longer than its start takes on a busy machine.
    let mut server = Server::with("sessions: {age_seconds: 5}\n");
    let old = server.create(json!({}));
    assert!(gone(&mut server, &old));
    server.eval(&old, "1").says("message", ["as old as"]);
    // Age ends a call too.
    let id = server.create(json!({}));
    let cut = server.eval(&id, "import time; print('begun', flush=True); time.sleep(1000)");
    cut.shows(json!({"session_ended": "age", "stdout": "begun\n"}));
    for bad in [0.5, 1e9] {
        let wish = json!({"idle_timeout_seconds": bad});
        server.refuses("create_session", wish, "invalid_argument");
    }
}

/// claim: [SES-4]
#[test]
fn there_are_as_many_sessions_as_there_may_be() {
    let mut server = Server::with("sessions: {per_namespace: 2, max: 3}\n");
    let first = server.create(json!({}));
    server.create(json!({"language": "shell"}));
    let full = server.refuses("create_session", json!({}), "busy");
    full.says("message", ["sessions.per_namespace"]);
    server.create(json!({"namespace": "other"}));
    let full = server.facts("create_session", json!({"namespace": "other"}));
    full.says("message", ["sessions.max"]);
    server.end(&first);
    server.create(json!({"namespace": "other"}));
    // Ten at once get the one place that is left, and no more.
    let own = server.facts("list_sessions", json!({}))["sessions"][0]["session_id"].clone();
    server.end(own.as_str().unwrap());
    let ids: Vec<u64> = (0..10)
        .map(|_| server.send_call("create_session", json!({"language": "shell"})))
        .collect();
    let answers = server.await_all(&ids);
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
fn ending_wins_over_a_call_once() {
    let mut server = Server::start();
    let id = server.create(json!({}));
    let request = server.begun(&id, "print('begun', flush=True)\nwhile True: pass");
    let waiting = server.begin(&id, "'never'", json!({}));
    eventually(|| server.listed(&id)["waiting"] == 1);
    let ends = [0, 1].map(|_| server.send_call("terminate_session", json!({"session_id": id})));
    let answers = server.await_all(&[request, waiting, ends[0], ends[1]]);
    let call = of(&answers, request);
    call.shows(json!({"exit.kind": "cancelled", "session_ended": "terminated", "stdout": "begun\n"}));
    assert_eq!(of(&answers, waiting)["code"], "session_ended", "{answers:?}");
    for end in ends {
        assert_eq!(of(&answers, end)["existed"], true, "{answers:?}");
    }
    assert_eq!(
        server.end(&id),
        json!({"success": true, "killed": false, "existed": true})
    );
    assert_eq!(server.records("session.killed").len(), 1);
    assert_eq!(server.eval(&id, "1")["code"], "session_ended");
}

/// claim: [SES-3]
#[test]
fn a_call_that_comes_when_time_is_over_is_answered_or_told_why() {
    let mut server = Server::with("sessions: {idle_seconds: 1}\n");
    let ids: Vec<String> = (0..8)
        .map(|_| server.create(json!({"language": "shell"})))
        .collect();
    let begun = Instant::now();
    let (mut answered, mut late) = (0, 0);
    // Each is asked once, the later ones nearer to the end of their second and beyond.
    for (number, id) in ids.iter().enumerate() {
        let at = Duration::from_millis(980 + 10 * number as u64);
        eventually(|| begun.elapsed() >= at);
        let said = server.eval(id, "echo yes");
        match (said["stdout"].as_str(), said["code"].as_str()) {
            (Some("yes\n"), None) => answered += 1,
            (None, Some("session_ended")) => late += 1,
            _ => panic!("neither: {said}"),
        }
    }
    assert_eq!(answered + late, 8);
    eventually(|| server.facts("list_sessions", json!({}))["sessions"] == json!([]));
    let killed = server.records("session.killed");
    assert_eq!(killed.len(), 8, "each has ended once");
}

/// claim: [PROC-6]
#[test]
fn nothing_of_a_session_outlives_its_server() {
    for (config, word) in [
        ("", "161.8033"),
        ("warm: {ready: 0}\n", "161.8034"),
        ("floor: landlock\n", "161.8035"),
    ] {
        for is_killed in [false, true] {
            assert_within_a_second(|| {
                let mut server = Server::with(config);
                let id = server.create(json!({"language": "shell"}));
                server.eval(&id, &format!("sleep {word} & (setsid sleep {word} &)"));
                eventually(|| processes_with(word).len() >= 2);
                if is_killed {
                    server.kill();
                } else {
                    server.leaves();
                }
                assert_gone(word)
            });
            if !is_killed {
                eventually(|| remains().is_empty());
            }
        }
        // What a killed server could not remove, the next one does.
        let mut next = Server::with(config);
        assert_eq!(next.execute("shell", "echo up")["stdout"], "up\n");
        next.leaves();
        eventually(|| remains().is_empty());
    }
}

/// Directories of runs and sessions that are on disk.
fn remains() -> Vec<String> {
    let runs = fs::read_dir(state_dir().join("runs"))
        .into_iter()
        .flatten()
        .flatten();
    runs.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// claim: [SES-3]
#[test]
fn an_ended_session_leaves_no_group_no_directory_and_no_process() {
    let mut server = Server::with("warm: {ready: 0}\n");
    let ended = server.create(json!({"language": "shell"}));
    // The second one has its code looked at by an adviser of its namespace, which stays.
    server.eval(&ended, "true");
    server.eval(&ended, "true");
    server.end(&ended);
    // The workers that look at code stay; they are there when nothing has changed for a second.
    let (mut before, mut since) = ((remains(), descendants(server.child.id())), Instant::now());
    eventually(|| {
        let now = (remains(), descendants(server.child.id()));
        if now != before {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    for round in 0..3 {
        let word = format!("127.1829{round}");
        let id = server.create(json!({"language": "shell"}));
        let code = format!("echo x > file; setsid sleep {word} & sleep {word} & (sleep {word} &)");
        server.eval(&id, &code);
        eventually(|| processes_with(&word).len() >= 3);
        let supervisors = descendants(server.child.id());
        assert!(supervisors.len() > before.1.len(), "the control");
        assert_eq!(server.end(&id)["killed"], true);
        assert!(
            processes_with(&word).is_empty(),
            "ended means gone: {:?}",
            processes_with(&word)
        );
        // Its group has the name of its supervisor.
        let of_session = supervisors.iter().filter(|pid| !before.1.contains(pid));
        let names: Vec<String> = of_session.map(|pid| format!("ringfence-{pid}")).collect();
        let own = |name: &String| names.contains(name);
        eventually(|| !directories_below(Path::new("/sys/fs/cgroup"), 4).iter().any(own));
        assert!(
            within(PATIENCE, || remains().len() <= before.0.len()),
            "{:?}",
            remains()
        );
        eventually(|| descendants(server.child.id()).len() <= before.1.len());
    }
}

/// claim: [PROC-6]
#[test]
fn nothing_of_an_ordinary_users_session_outlives_a_killed_server() {
    let Some(nobody) = Nobody::new("") else { return };
    assert_within_a_second(|| {
        let mut server = nobody.serve();
        let id = server.create(json!({"language": "shell"}));
        server.eval(&id, "sleep 114.1421 & (setsid sleep 114.1421 &)");
        eventually(|| processes_with("114.1421").len() >= 2);
        server.kill();
        assert_gone("114.1421")
    });
}
