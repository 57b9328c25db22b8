//! State that a session keeps between its calls, and state of one call.

use super::{answer_to, assert_result, on_each_kind};
use crate::client::*;
use std::{io::Read, os::unix::process::CommandExt, process::Stdio};

/// claim: [SES-1]
#[test]
fn python_session_keeps_its_state() {
    on_each_kind(|server, kind| {
        let id = server.create_session(json!({"env": {"OF_SESSION": "kept"}}));
        let begun = server.eval(
            &id,
            "import asyncio, os, subprocess, threading\nx = 5\ndef double(n): return 2 * n\n\
             os.mkdir('d'); os.chdir('d'); os.environ['MINE'] = 'set'\nlog = open('log', 'w+'); log.write('one ')\n\
             ticks = 0\ndef tick():\n    global ticks\n    while True:\n        ticks += 1\n        threading.Event().wait(.001)\n\
             threading.Thread(target=tick, daemon=True).start()\n\
             beats = 0\nasync def beat():\n    global beats\n    while True:\n        beats += 1\n        await asyncio.sleep(.001)\n\
             task = asyncio.ensure_future(beat())\nawait asyncio.sleep(0)\n\
             child = subprocess.Popen(['cat'], stdin=-1, stdout=-1)\ndouble(x)",
        );
        assert_result(&begun, &json!(10));
        assert_eq!(begun["session_id"], json!(id), "{kind}: {begun}");
        assert_eq!(begun["isolation"]["tier"], "full", "{kind}");
        let failed = server.eval(&id, "x += 1\n1 / 0");
        let expect = json!({"error.type": "ZeroDivisionError", "error.line": 2, "exit_code": 1});
        assert_fields_of(kind, &failed, expect);
        let kept = "log.write('two'); log.seek(0)\nchild.stdin.write(b'said'); child.stdin.close()\n\
            [double(x), os.path.basename(os.getcwd()), os.environ['MINE'], os.environ['OF_SESSION'], log.read(), child.stdout.read().decode()]";
        assert_result(
            &server.eval(&id, kept),
            &json!([12, "d", "set", "kept", "one two", "said"]),
        );
        // Threads and tasks continue between calls.
        let mut counts = || server.eval(&id, "[ticks, beats]")["result"].clone();
        let (first, mut later) = (counts(), Value::Null);
        assert!(
            becomes_true_within(PATIENCE, || {
                later = counts();
                (0..2).all(|at| later[at].as_u64() > first[at].as_u64())
            }),
            "{kind}: {first} {later}"
        );
        assert_eq!(server.terminate(&id)["killed"], true, "{kind}");
        assert_eq!(server.eval(&id, "x")["code"], "session_ended", "{kind}");
    });
}

#[test]
fn landlock_tier_session_keeps_its_state() {
    let mut server = Server::with_config("floor: landlock\n");
    for (language, set, get, value) in [
        (
            "python",
            "import os; x = 5; os.mkdir('d')",
            "[x, os.listdir('.')]",
            json!([5, ["d"]]),
        ),
        ("node", "let x = 5", "x", json!(5)),
    ] {
        let id = server.create_session(json!({"language": language}));
        let first = server.eval(&id, set);
        assert_eq!(first["isolation"]["tier"], "landlock", "{first}");
        assert_result(&server.eval(&id, get), &value);
        let late = server.eval_with(&id, endless(language), json!({"timeout_seconds": 0.3}));
        assert_eq!(late["exit"]["kind"], "timeout", "{late}");
        assert_result(&server.eval(&id, get), &value);
    }
    let id = server.create_session(json!({"language": "shell"}));
    server.eval(&id, "x=5; cd /tmp; (setsid sleep 131.6227 &)");
    assert_eq!(server.eval(&id, "echo $x")["stdout"], "5\n");
    server.terminate(&id);
    let gone = || processes_with("131.6227").is_empty();
    assert!(
        becomes_true_within(PATIENCE, gone),
        "a child in its own process group ends with its session"
    );
}

fn endless(language: &str) -> &'static str {
    match language {
        "python" => "while True: pass",
        "shell" => "while :; do :; done",
        _ => "for (;;) {}",
    }
}

#[test]
fn node_typescript_and_shell_sessions_keep_their_state() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "node"}));
    assert_result(
        &server.eval(
            &id,
            "const fs = require('fs'); let n = 1; class A { v = 7 }\nfunction double(x) { return 2 * x }\n\
             process.chdir('/tmp'); process.env.MINE = 'set'; let ticks = 0; setInterval(() => ticks++, 1); double(n)",
        ),
        &json!(2),
    );
    let failed = server.eval(&id, "n = 8;\nnull.x");
    assert_eq!(failed["error"]["type"], "TypeError", "{failed}");
    let kept = "let m = await Promise.resolve(n); [double(m), new A().v, process.cwd(), process.env.MINE]";
    assert_result(&server.eval(&id, kept), &json!([16, 7, "/tmp", "set"]));
    eventually(|| {
        server.eval(&id, "ticks")["result"]
            .as_u64()
            .is_some_and(|ticks| ticks > 20)
    });
    let imports = "import { EOL } from 'node:os';\nconst text = `import(\nimport a from 'a'`;\n\
                   [EOL, text, (await import('os')).EOL]";
    assert_result(
        &server.eval(&id, imports),
        &json!(["\n", "import(\nimport a from 'a'", "\n"]),
    );
    let exports = server.eval(&id, "1;\nexport const a = 1");
    exports.assert_fields(json!({"error.type": "SyntaxError", "error.line": 2}));
    let id = server.create_session(json!({"language": "typescript"}));
    assert_result(
        &server.eval(&id, "let n: number = 20; interface A { v: number }"),
        &Value::Null,
    );
    assert_result(
        &server.eval(&id, "import fs from 'fs'; import type { Stats } from 'fs'"),
        &Value::Null,
    );
    let kept = "const a: A = { v: n + 1 }; enum E { X = 2 }\n[a.v * E.X, typeof fs.statSync, (await import('node:os')).EOL]";
    assert_result(&server.eval(&id, kept), &json!([42, "function", "\n"]));
    let id = server.create_session(json!({"language": "shell"}));
    let begun = "x=5; list=(a b); f() { echo \"f $1\"; }; mkdir d; cd d; export MINE=set; exec 7<> log; echo one >&7\n\
        (while :; do echo; done) > /dev/null & false";
    let first = server.eval(&id, begun);
    first.assert_fields(json!({"exit_code": 1, "success": false}));
    let kept = "echo $x ${list[1]} $(f y) ${PWD##*/} $(printenv MINE) $(cat log); jobs -p | wc -l; kill %1";
    assert_eq!(server.eval(&id, kept)["stdout"], "5 b f y d set one\n1\n");
}

#[test]
fn arguments_stdin_files_and_env_belong_to_one_call() {
    let mut server = Server::start();
    for (language, code, expect) in [
        (
            "python",
            "import os, sys\nprint(sys.argv[1:], os.environ['GREETING'], open('in/a.txt').read(), sys.stdin.read())",
            "['x y'] hello file typed\n",
        ),
        (
            "node",
            "console.log(process.argv.slice(2)[0], process.env.GREETING, require('fs').readFileSync('in/a.txt', 'utf8'), \
             require('fs').readFileSync(0, 'utf8'))",
            "x y hello file typed\n",
        ),
        (
            "shell",
            "echo \"$1\" $GREETING $(cat in/a.txt) $(cat)",
            "x y hello file typed\n",
        ),
    ] {
        let id = server.create_session(json!({"language": language}));
        let more = json!({
            "args": ["x y"], "env": {"GREETING": "hello"}, "stdin": "typed", "files": [{"path": "in/a.txt", "text": "file"}],
        });
        let answer = server.eval_with(&id, code, more);
        assert_eq!(answer["stdout"], expect, "{language}: {answer}");
        let expect = json!({"artifacts": []});
        assert_fields_of("input files are not artifacts", &answer, expect);
        let bare = match language {
            "python" => "print(sys.argv[1:], os.environ['GREETING'], repr(sys.stdin.read()))",
            "node" => {
                "console.log(process.argv.length, process.env.GREETING, require('fs').readFileSync(0, 'utf8'))"
            }
            _ => "echo $# $GREETING $(cat)",
        };
        let answer = server.eval(&id, bare);
        let expect = match language {
            "python" => "[] hello ''\n",
            "node" => "2 hello \n",
            _ => "0 hello\n",
        };
        assert_eq!(answer["stdout"], expect, "{language}: {answer}");
    }
    // Each file that a call creates is reported once, and again when it changes.
    let id = server.create_session(json!({"language": "shell"}));
    let mut names = |code: &str| -> Vec<String> {
        let answer = server.eval(&id, code);
        let artifacts = list_of(&answer["artifacts"]);
        artifacts.iter().map(|a| text_of(&a["name"]).to_owned()).collect()
    };
    assert_eq!(names("echo one > a; mkdir d; echo two > d/b"), ["a", "d/b"]);
    assert_eq!(names("cat a"), Vec::<String>::new());
    assert_eq!(names("echo more >> d/b"), ["d/b"]);
    assert_eq!(names("rm a; echo one > c"), ["c"]);
}

#[test]
fn output_between_calls_is_returned_by_the_next_call() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell"}));
    server.eval(
        &id,
        "(until [ -e go ]; do :; done; echo late; echo wrong >&2; : > said) & echo begun",
    );
    server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
    server.await_file(&id, "said");
    let next = server.eval(&id, "echo now");
    next.assert_fields(json!({"stdout": "late\nnow\n", "stderr": "wrong\n"}));
    // A megabyte between two calls is counted, and its beginning is kept.
    server.eval(
        &id,
        "(until [ -e more ]; do :; done; head -c 1000000 /dev/zero | tr '\\0' x; : > done) &",
    );
    server.facts("put_file", json!({"session_id": id, "path": "more", "text": ""}));
    server.await_file(&id, "done");
    let next = server.eval(&id, "echo now");
    assert_eq!(
        (&next["stdout_bytes"], &next["truncated"]["stdout"]),
        (&json!(1_000_004), &json!(true)),
        "{}",
        next["exit"]
    );
    assert!(text_of(&next["stdout"]).starts_with("xxx"));
}

#[test]
fn megabyte_of_output_is_complete_and_in_order() {
    let mut server = Server::with_full_output();
    for (language, code) in [
        ("python", "import sys; sys.stdout.write('0123456789' * 100_000)"),
        ("node", "process.stdout.write('0123456789'.repeat(100_000))"),
        (
            "shell",
            "for ((n = 0; n < 1000; n++)); do printf '%01000d' 0; done",
        ),
    ] {
        let id = server.create_session(json!({"language": language}));
        for _ in 0..2 {
            let answer = server.eval(&id, code);
            let stdout = text_of(&answer["stdout"]);
            assert_eq!(
                (stdout.len(), &answer["truncated"]),
                (1_000_000, &Value::Null),
                "{language}"
            );
            assert!(language == "shell" || stdout.as_bytes().chunks(10).all(|part| part == b"0123456789"));
        }
        let more = json!({"resource_limits": {"max_output_bytes": 1000}});
        let answer = server.eval_with(&id, code, more);
        assert_eq!(
            (text_of(&answer["stdout"]).len(), &answer["stdout_bytes"]),
            (1000, &json!(1_000_000)),
            "{language}"
        );
    }
}

/// claim: [SES-2]
#[test]
fn timed_out_call_is_interrupted_and_the_state_is_kept() {
    on_each_kind(|server, kind| {
        for (language, set, get) in [
            ("python", "x = 5", "x"),
            ("node", "let x = 5", "x"),
            ("shell", "x=5", "[ $x = 5 ] && echo 5"),
        ] {
            let id = server.create_session(json!({"language": language, "timeout_seconds": 20}));
            server.eval(&id, set);
            let code = match language {
                "python" => "print('begun', flush=True)\nwhile True: pass",
                "node" => "console.log('begun'); for (;;) {}",
                _ => "echo begun; sleep 1000",
            };
            let late = server.run_until_timeout(&id, code);
            let expect = json!({"exit.kind": "timeout", "stdout": "begun\n", "session_ended": null});
            assert_fields_of(format_args!("{kind} {language}"), &late, expect);
            let answer = server.eval(&id, get);
            assert!(
                answer["result"] == 5 || answer["stdout"] == "5\n",
                "{kind} {language}: {answer}"
            );
        }
    });
}

/// A language, a call that does not end by itself, and a call that prints its state.
#[rustfmt::skip]
const ENDLESS: [(&str, &str, &str); 11] = [
    ("python", "x = 5\nprint('begun', flush=True)\nwhile True: pass", "print(x)"),
    ("python", "import time; x = 5\nprint('begun', flush=True)\ntime.sleep(1000)", "print(x)"),
    ("python", "import asyncio; x = 5\nprint('begun', flush=True)\nawait asyncio.sleep(1000)", "print(x)"),
    ("node", "var x = 5; console.log('begun'); for (;;) {}", "console.log(x)"),
    ("node", "var x = 5; console.log('begun'); await new Promise(() => {})", "console.log(x)"),
    ("typescript", "var x: number = 5; console.log('begun'); for (;;) {}", "console.log(x)"),
    ("shell", "x=5; echo begun; sleep 1000; echo never", "echo $x"),
    ("shell", "x=5; echo begun; while :; do :; done", "echo $x"),
    ("shell", "x=5; echo begun; while :; do /bin/true; done; echo never", "echo $x"),
    ("shell", "x=5; echo begun; sleep 1000 | cat; echo never", "echo $x"),
    ("shell", "x=5; sleep 1000 & echo begun; wait; echo never", "echo $x"),
];

/// claim: [SES-2]
#[test]
fn interrupted_call_ends_and_the_state_is_kept() {
    let mut server = Server::start();
    for (language, code, kept) in ENDLESS {
        let id = server.create_session(json!({"language": language}));
        assert_eq!(server.interrupt(&id)["interrupted"], false);
        let request = server.send_eval_until_begun(&id, code);
        assert_eq!(server.listed(&id)["state"], "busy");
        let interrupt = server.send_call("interrupt_session", json!({"session_id": id}));
        let answers = server.await_responses(&[request, interrupt]);
        assert_eq!(answer_to(&answers, interrupt)["interrupted"], true, "{code}");
        let answer = answer_to(&answers, request);
        assert_fields_of(
            code,
            answer,
            json!({"success": false, "exit.kind": "code", "session_ended": null, "stdout": "begun\n"}),
        );
        // Repeated, as an interrupt may hit the interpreter's own code. Node.js may report one interrupt twice, also to
        // the next call, and has only the round above.
        let rounds = if kept.starts_with("console") { 0 } else { 5 };
        for _ in 0..rounds {
            let request = server.send_eval_until_begun(&id, code);
            server.send_call("interrupt_session", json!({"session_id": id}));
            let answer = server.result(request);
            assert_fields_of(code, &answer, json!({"exit.kind": "code", "session_ended": null}));
        }
        assert_eq!(server.eval(&id, kept)["stdout"], "5\n", "{code}");
        assert_eq!(server.listed(&id)["state"], "idle");
    }
}

/// Without a user namespace the kernel counts all processes of the user against the process limit.
#[test]
fn landlock_tier_process_limit_ignores_other_processes_of_its_user() {
    let Some(nobody) = Nobody::new("floor: landlock\n") else {
        return;
    };
    let many = "trap 'kill 0' EXIT; for i in $(seq 100); do sleep 1000 & done; echo up; read";
    let mut elsewhere = as_nobody("bash")
        .args(["-c", many])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    elsewhere.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let mut server = nobody.serve();
    let id = server.create_session(json!({"language": "shell"}));
    let answer = server.eval(
        &id,
        "for i in $(seq 40); do sleep 1000 & done; jobs -r | wc -l; kill $(jobs -p)",
    );
    assert_eq!(answer["stdout"], "40\n", "{answer}");
    let request = server.send_eval(
        &id,
        "for i in $(seq 200); do sleep 1000 & done; echo never",
        json!({"timeout_seconds": 2}),
    );
    let answers = server.await_responses(&[request]);
    let answer = answer_to(&answers, request);
    answer.assert_text("stderr", ["fork"]);
    assert_eq!(answer["stdout"], "", "{answer}");
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
}

#[test]
fn snapshot_of_many_files_is_restored_into_a_running_session() {
    on_each_kind(|server, kind| {
        let id = server.create_session(json!({"language": "shell"}));
        server.eval(&id, "for i in {1..100}; do echo $i > file$i; done");
        let made = server.facts("create_state_snapshot", json!({"session_id": id}));
        server.eval(&id, "rm file*; echo new > other");
        let restore = json!({"snapshot_id": made["snapshot_id"], "session_id": id});
        let restored = server.facts("restore_state_snapshot", restore);
        restored.assert_fields(json!({"success": true, "written": 100, "deleted": 1}));
        let answer = server.eval(&id, "cat file100; ls | wc -l");
        assert_eq!(answer["stdout"], "100\n100\n", "{kind}: {answer}");
    });
}
