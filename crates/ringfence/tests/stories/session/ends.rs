//! How sessions end: each for a reason that is told, and with nothing left.

use super::{Nobody, PATIENCE, gives, of, on_each_kind, serve, serving};
use crate::client::{Server, descendants, processes_with, state_dir, within};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// A language, a call that is its session's last, why the session has ended then, and how the call.
const LAST_CALLS: [(&str, &str, &str, &str, i32); 11] = [
    (
        "python",
        "print('last'); raise SystemExit(3)",
        "exited",
        "code",
        3,
    ),
    (
        "python",
        "import os; os.write(1, b'last\\n'); os._exit(4)",
        "exited",
        "code",
        4,
    ),
    (
        "python",
        "import ctypes; print('last', flush=True); ctypes.string_at(0)",
        "crashed",
        "signal",
        139,
    ),
    (
        "python",
        "import os; print('last', flush=True); os.kill(os.getpid(), 9)",
        "crashed",
        "signal",
        137,
    ),
    (
        "python",
        "print('last', flush=True); x = [bytearray(10**7) for _ in range(100)]",
        "out_of_memory",
        "out_of_memory",
        137,
    ),
    (
        "node",
        "process.stdout.write('last\\n'); process.exit(5)",
        "exited",
        "code",
        5,
    ),
    (
        "node",
        "require('fs').writeSync(1, 'last\\n'); process.kill(process.pid, 'SIGKILL')",
        "crashed",
        "signal",
        137,
    ),
    ("shell", "echo last; exit 6", "exited", "code", 6),
    ("shell", "echo last; exec true", "exited", "code", 0),
    ("shell", "echo last; kill -9 $$", "crashed", "signal", 137),
    // Not the shell's own memory: it could answer.
    (
        "shell",
        "echo last; cat /dev/zero | tail -c 200000000",
        "out_of_memory",
        "out_of_memory",
        137,
    ),
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
            assert!(after["message"].as_str().unwrap().contains(&id), "{after}");
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
            "import time\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass",
        ),
        (
            "python",
            "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        ),
        (
            "python",
            "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        ),
        ("shell", "trap '' INT; while :; do :; done"),
    ] {
        let id = server.create(json!({"language": language}));
        let begun = Instant::now();
        let late = server.eval_with(&id, code, json!({"timeout_seconds": 0.3}));
        assert_eq!(
            (&late["exit"]["kind"], &late["session_ended"]),
            (&json!("timeout"), &json!("stuck")),
            "{code}: {late}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(6),
            "{code}: {:?}",
            begun.elapsed()
        );
        let after = server.eval(&id, "1");
        assert_eq!(after["code"], "session_ended", "{after}");
        assert!(
            after["message"]
                .as_str()
                .unwrap()
                .contains("could not be interrupted"),
            "{after}"
        );
    }
}

/// claim: [SES-3]
#[test]
fn nobody_uses_it_or_it_is_too_old() {
    let mut server = serving("");
    let idle = server.create(json!({"idle_timeout_seconds": 1}));
    let begun = Instant::now();
    let gone = |server: &mut Server, id: &str| within(PATIENCE, || server.listed(id).is_null());
    // A call that runs is use.
    gives(&server.eval(&idle, "import time; time.sleep(1.2); 5"), &json!(5));
    gives(&server.eval(&idle, "6"), &json!(6));
    assert!(gone(&mut server, &idle) && begun.elapsed() > Duration::from_secs(2));
    let after = server.eval(&idle, "1");
    assert!(
        after["message"]
            .as_str()
            .unwrap()
            .contains("not used for too long"),
        "{after}"
    );
    drop(server);
    let mut server = serving("sessions: {age_seconds: 1.5}\n");
    let old = server.create(json!({}));
    assert!(gone(&mut server, &old));
    assert!(
        server.eval(&old, "1")["message"]
            .as_str()
            .unwrap()
            .contains("as old as")
    );
    // Age ends a call too.
    let id = server.create(json!({}));
    let cut = server.eval(&id, "import time; print('begun', flush=True); time.sleep(1000)");
    assert_eq!(
        (&cut["session_ended"], &cut["stdout"]),
        (&json!("age"), &json!("begun\n")),
        "{cut}"
    );
    for bad in [0.5, 1e9] {
        let refused = server.facts("create_session", json!({"idle_timeout_seconds": bad}));
        assert_eq!(refused["code"], "invalid_argument", "{refused}");
    }
}

/// claim: [SES-4]
#[test]
fn there_are_as_many_sessions_as_there_may_be() {
    let mut server = serving("sessions: {per_namespace: 2, max: 3}\n");
    let first = server.create(json!({}));
    server.create(json!({"language": "shell"}));
    let full = server.facts("create_session", json!({}));
    assert_eq!(full["code"], "busy", "{full}");
    assert!(
        full["message"]
            .as_str()
            .unwrap()
            .contains("sessions.per_namespace"),
        "{full}"
    );
    server.create(json!({"namespace": "other"}));
    let full = server.facts("create_session", json!({"namespace": "other"}));
    assert!(
        full["message"].as_str().unwrap().contains("sessions.max"),
        "{full}"
    );
    server.end(&first);
    server.create(json!({"namespace": "other"}));
    // Ten at once get the one place that is left, and no more.
    let own = server.facts("list_sessions", json!({}))["sessions"][0]["session_id"].clone();
    server.end(own.as_str().unwrap());
    let ids: Vec<u64> = (0..10)
        .map(|_| {
            server.send(
                "tools/call",
                json!({"name": "create_session", "arguments": {"language": "shell"}}),
            )
        })
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
    assert!(within(PATIENCE, || server.listed(&id)["waiting"] == 1));
    let end = json!({"name": "terminate_session", "arguments": {"session_id": id}});
    let ends = [
        server.send("tools/call", end.clone()),
        server.send("tools/call", end),
    ];
    let answers = server.await_all(&[request, waiting, ends[0], ends[1]]);
    let call = of(&answers, request);
    assert_eq!(
        (&call["exit"]["kind"], &call["session_ended"], &call["stdout"]),
        (&json!("cancelled"), &json!("terminated"), &json!("begun\n")),
        "{call}"
    );
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
    let mut server = serving("sessions: {idle_seconds: 1}\n");
    let ids: Vec<String> = (0..8)
        .map(|_| server.create(json!({"language": "shell"})))
        .collect();
    let begun = Instant::now();
    let (mut answered, mut late) = (0, 0);
    // Each is asked once, the later ones nearer to the end of their second and beyond.
    for (number, id) in ids.iter().enumerate() {
        let at = Duration::from_millis(980 + 10 * number as u64);
        assert!(within(PATIENCE, || begun.elapsed() >= at));
        let said = server.eval(id, "echo yes");
        match (said["stdout"].as_str(), said["code"].as_str()) {
            (Some("yes\n"), None) => answered += 1,
            (None, Some("session_ended")) => late += 1,
            _ => panic!("neither: {said}"),
        }
    }
    assert_eq!(answered + late, 8);
    assert!(within(
        PATIENCE,
        || server.facts("list_sessions", json!({}))["sessions"] == json!([])
    ));
    let killed = server.records("session.killed");
    assert_eq!(killed.len(), 8, "each has ended once");
}

/// claim: [PROC-6]
#[test]
fn nothing_of_a_session_outlives_its_server() {
    for (config, word) in [
        ("", "61.8033"),
        ("warm: {ready: 0}\n", "61.8034"),
        ("floor: landlock\n", "61.8035"),
    ] {
        for is_killed in [false, true] {
            let mut server = Server::of(serve(config));
            let id = server.create(json!({"language": "shell"}));
            server.eval(&id, &format!("sleep {word} & (setsid sleep {word} &)"));
            let running = || processes_with(word);
            assert!(within(PATIENCE, || running().len() >= 2), "{config}");
            if is_killed {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
            } else {
                server.hang_up();
                assert!(server.ended_within(Duration::from_secs(5)), "{config}");
            }
            assert!(
                within(Duration::from_secs(2), || running().is_empty()),
                "{config}: {:?}",
                running()
            );
            assert!(
                within(Duration::from_secs(2), || remains().is_empty()) || is_killed,
                "{config}: {:?}",
                remains()
            );
        }
        // What a killed server could not remove, the next one does.
        let mut next = Server::of(serve(config));
        assert_eq!(next.execute("shell", "echo up")["stdout"], "up\n");
        next.hang_up();
        assert!(next.ended_within(Duration::from_secs(5)), "{config}");
        assert!(
            within(PATIENCE, || remains().is_empty()),
            "{config}: {:?}",
            remains()
        );
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
    let mut server = serving("warm: {ready: 0}\n");
    let ended = server.create(json!({"language": "shell"}));
    server.eval(&ended, "true");
    server.end(&ended);
    // The workers that look at code stay; they are there when nothing has changed for a second.
    let (mut before, mut since) = ((remains(), descendants(server.child.id())), Instant::now());
    assert!(within(PATIENCE, || {
        let now = (remains(), descendants(server.child.id()));
        if now != before {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    }));
    for round in 0..3 {
        let word = format!("27.1829{round}");
        let id = server.create(json!({"language": "shell"}));
        let code = format!("echo x > file; setsid sleep {word} & sleep {word} & (sleep {word} &)");
        server.eval(&id, &code);
        assert!(within(PATIENCE, || processes_with(&word).len() >= 3));
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
        assert!(within(PATIENCE, || !groups(Path::new("/sys/fs/cgroup"), 4)
            .iter()
            .any(own)));
        assert!(
            within(PATIENCE, || remains().len() <= before.0.len()),
            "{:?}",
            remains()
        );
        assert!(within(PATIENCE, || descendants(server.child.id()).len()
            <= before.1.len()));
    }
}

/// The names of all groups of control.
fn groups(directory: &Path, depth: usize) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .flat_map(|entry| {
            let below = if depth > 0 {
                groups(&entry.path(), depth - 1)
            } else {
                Vec::new()
            };
            below
                .into_iter()
                .chain([entry.file_name().to_string_lossy().into_owned()])
        })
        .collect()
}

/// claim: [PROC-6]
#[test]
fn nothing_of_an_ordinary_users_session_outlives_a_killed_server() {
    let Some(nobody) = Nobody::new("") else { return };
    let mut server = nobody.serve();
    let id = server.create(json!({"language": "shell"}));
    server.eval(&id, "sleep 14.1421 & (setsid sleep 14.1421 &)");
    assert!(within(PATIENCE, || processes_with("14.1421").len() >= 2));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(within(Duration::from_secs(2), || processes_with("14.1421").is_empty()));
}
