//! The words of the systems that Ringfence replaces, and the manners of the command line.

use crate::client::*;
use std::{io::Read, process::Stdio};

#[test]
fn command_lines_of_the_earlier_systems_work_as_they_were_written() {
    let mut server = Server::start();
    let session = server.create(json!({"language": "bash"}));
    let scratch = TempDir::new("words");
    let app = scratch.file("app.js", "console.log(1)\n");
    for words in [
        &["validate", &app, "--language", "node", "--no-auto-fix"][..],
        &["session", "kill", "--id", &session],
        &["audit", "--namespace", "default", "--limit", "100"],
        &["inspect", "default", "--namespace", "other"],
        &["limits", "--ram", "256", "--cpu", "1"],
        &["approvals"],
        &["approvals", "--json", "list"],
        &["session"],
        &["snapshot"],
    ] {
        told(words);
    }
    let records = told(&["audit", "--action", "session."]);
    let (head, rows) = records.split_once('\n').unwrap();
    assert_eq!(head.find("ACTION"), rows.find("session."), "{records}");
    let limits = told(&["limits"]);
    assert!(limits.contains("256"), "{limits}");
    let left = server.facts("list_sessions", json!({}));
    assert_eq!(left["sessions"], json!([]), "{left}");
}

#[track_caller]
fn refused_with(words: &[&str], status: i32, part: &str) {
    let text = refused(words, status);
    assert!(text.contains(part), "{words:?}: {text}");
}

#[test]
fn a_number_that_cannot_be_is_refused_with_its_range() {
    let scratch = TempDir::new("numbers");
    let script = scratch.file("x.py", "1\n");
    for (words, part) in [
        (&["run", &script, "--timeout", "-1"][..], "a number above 0"),
        (&["run", &script, "--cpus", "-1"], "a number above 0"),
        (
            &["run", &script, "--memory", "-1"],
            "--memory: `-1` is not a size",
        ),
        (&["limits", "--timeout", "-1"], "a number above 0"),
        (&["host", "exec", "--timeout", "-1", "ls"], "-1 is not in 1..=300"),
        (&["audit", "--limit", "-1"], "-1 is not in 1..=10000"),
        (&["limits", "--disk-mb", "-1"], "a whole number above 0"),
        (&["audit", "--before", "-1"], "-1 is not in 1.."),
        (&["audit", "--since", "-2h"], "`-2h` is no time"),
        (&["vault", "add", "KEY", "--ttl", "-5m"], "write a length of time"),
        (&["run", &script, "--memory", "-5m"], "a size above 0"),
        (
            &["session", "create", "--idle", "1e12"],
            "'--idle <SECONDS>': it is not within",
        ),
        (&["ps", "-n", "0"], "a whole number above 0"),
        (
            &["token", "create", "x", "--processes", "0"],
            "a whole number above 0",
        ),
        (
            &["web", "browser", "http://x", "--timeout-ms", "0"],
            "a whole number above 0",
        ),
        (
            &["token", "create", "x", "--detach-after", "-1"],
            "neither 0 nor within 0.001..=86400",
        ),
    ] {
        refused_with(words, 2, part);
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_apart_from_a_failure_of_ours() {
    let scratch = TempDir::new("sense");
    let script = scratch.file("x.py", "1\n");
    for (words, status, part) in [
        (&["run", "--what"][..], 2, "--what"),
        (&["run", &script, "--timeout", "abc"], 2, "it is not a number"),
        (&["nothing"], 2, "nothing"),
        (
            &["run", &script, "--processes", "many"],
            2,
            "it is not a whole number",
        ),
        (&["run", &script, "--memory", "1m"], 2, "--memory is at least 16m"),
        (
            &["run", &script, "--memory", "much"],
            2,
            "--memory: `much` is not a size",
        ),
        (&["run", &script, "--allow", "http://x y"], 2, "--allow: "),
        (
            &["run", &script, "--workspace", "other"],
            125,
            "no workspace `other`",
        ),
        (&["session", "kill", "nobody"], 2, "a UUID of 36 characters"),
        (&["verify", &script], 2, "`ringfence artifacts` lists executions"),
    ] {
        refused_with(words, status, part);
    }
    // Who asks for a document has one.
    let told = ended_with(&["doctor", "--json", "--compose"], 2);
    assert_contains(stdout_of(&told), ["'--json' cannot be used with '--compose'"]);
    let told = ended_with(&["vault", "add", "KEY", "hunter2value"], 2);
    assert_contains(stderr_of(&told), ["ringfence vault add KEY"]);
    assert_lacks(all_of(&told), ["hunter2value"]);
}

#[test]
fn an_operator_follows_what_happens_in_every_namespace() {
    let mut server = Server::start();
    server.execute("python", "1");
    assert_contains(told(&["events"]), [" execution.completed default "]);
    let mut follower = ringfence(&["events", "-f", "--json", "--output"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = follower.stdout.take().unwrap();
    let (send, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = told.read(&mut bytes) {
            if send
                .send(String::from_utf8_lossy(&bytes[..count]).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    let mut all = String::new();
    assert!(
        within(PATIENCE, || {
            // What happened before is told first, and only then it is known that somebody listens.
            all.extend(heard.try_iter());
            all.contains("execution.completed") && {
                server.execute("python", "print('to be heard')");
                all.extend(heard.try_iter());
                all.contains("to be heard")
            }
        }),
        "{all}"
    );
    follower.kill().unwrap();
    follower.wait().unwrap();
    reader.join().unwrap();
}

#[test]
fn run_sandbox_code_imports_little_and_opens_nothing_outside_its_workspace() {
    let mut server = Server::start();
    let mut call = |code: &str| server.call("run_sandbox_code", json!({"code": code}));
    for code in [
        "import os, sys",
        "import subprocess",
        "import socket",
        "open('../../etc/passwd').read()",
    ] {
        let refused = call(code);
        assert_eq!(refused["isError"], true, "{code}: {refused}");
        let text = refused.text();
        assert!(
            !text.contains("allowed_imports"),
            "it has no such argument: {text}"
        );
    }
    assert_eq!(call("open('kept.txt', 'w').write('kept')")["isError"], false);
    // Where the text does not say which file it is.
    let code = "import json\nkept = open('kept.txt').read()\npath = json.loads('\"../../etc/passwd\"')\n\
        def read():\n    try:\n        return open(path).read()\n    except PermissionError as error:\n        return error.errno\n\
        result = [kept, read()]";
    let done = call(code);
    assert_eq!(done["structuredContent"]["result"], json!(["kept", 13]), "{done}");
}
