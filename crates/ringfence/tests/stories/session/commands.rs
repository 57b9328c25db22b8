//! Sessions from the command line: what stands on which stream, what Ctrl-C does, files and saved workspaces of a session.

use super::arguments;
use crate::client::*;
use rustix::process::Signal;
use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A server that commands can reach.
fn listening() -> Server {
    let server = Server::start();
    eventually(|| said(&["session", "list"]).status.success());
    server
}

#[track_caller]
fn created(words: &[&str]) -> String {
    told(&[&["session", "create"], words].concat())
        .trim_end()
        .to_owned()
}

/// What a call of a session prints.
#[track_caller]
fn exec(id: &str, code: &str) -> String {
    told(&["session", "exec", id, "-c", code])
}

fn started(words: &[&str]) -> Child {
    start(&mut ringfence(words))
}

/// Until it has written this.
fn await_output(child: &mut Child, words: &str) -> String {
    let mut seen = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(&seen).contains(words) {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "it has ended: {seen:?}");
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

fn ctrl_c(child: &Child) {
    signal(child.id(), Signal::INT);
}

#[test]
fn what_a_command_says_of_a_session_stands_where_it_can_be_taken() {
    let mut server = listening();
    let made = succeeded(ringfence(&["session", "create", "--language", "shell"]));
    let out = stdout_of(&made);
    let id = out.trim_end();
    assert_eq!((id.len(), out.len()), (36, 37), "{out:?}");
    assert_contains(stderr_of(&made), ["shell"]);
    assert_eq!(exec(id, "echo $((6 * 7))"), "42\n");
    let made = server.call("create_session", json!({}));
    let text = made.text();
    assert!(text.starts_with("session_id: "), "{text}");
    let id = &created(&[]);
    assert_eq!(exec(id, "x = 20\nprint('a', end='')\nx + 1"), "a\n21\n");
    let words = [
        "session",
        "exec",
        id,
        "-c",
        "open('new.txt', 'w').write('x') and None",
    ];
    let left = succeeded(ringfence(&words));
    assert_contains(
        stderr_of(&left),
        ["artifacts: new.txt (get them with `ringfence artifacts "],
    );
    // A reader that has enough is not an error.
    let id = &created(&["--language", "shell"]);
    let mut child = started(&["session", "exec", id, "-c", "yes"]);
    await_output(&mut child, "y\n");
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141), "{ended:?}");
    assert_eq!(stderr_of(&ended), "");
    let id = &created(&["--workspace", "namespace"]);
    let out = told(&["session", "list"]);
    assert!(out.starts_with("SESSION"), "{out}");
    let line = out.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(line.contains("namespace") && line.ends_with("default"), "{out}");
    let listed = server.listed(id);
    listed.shows(json!({"workspace": "namespace", "packages": []}));
}

#[test]
fn a_call_that_ctrl_c_interrupts_tells_how_it_ended_and_the_session_is_kept() {
    let _server = listening();
    let id = &created(&[]);
    let code =
        "x = 5\ntry:\n    print('begun', flush=True)\n    while True: pass\nfinally:\n    print('and ended')";
    for json in [false, true] {
        let words = ["session", "exec", id, "-c", code, "--json"];
        let mut child = started(&words[..if json { 6 } else { 5 }]);
        let begun = if json {
            eventually(|| told_json(&["session", "list"])["servers"][0]["sessions"][0]["state"] == "busy");
            String::new()
        } else {
            await_output(&mut child, "begun")
        };
        // Two at once, as timeout(1) sends them, are one.
        ctrl_c(&child);
        ctrl_c(&child);
        let ended = child.wait_with_output().unwrap();
        let out = begun + &stdout_of(&ended);
        let err = stderr_of(&ended);
        assert_eq!(ended.status.code(), Some(130), "{out}{err}");
        if json {
            let document: Value = serde_json::from_str(&out).unwrap();
            document.shows(json!({"exit.kind": "cancelled", "session_ended": null}));
        } else {
            assert!(out.contains("and ended"), "{out}{err}");
            assert!(err.contains("KeyboardInterrupt"), "{err}");
            assert!(err.contains("interrupted; the session is kept"), "{err}");
        }
    }
    assert_eq!(exec(id, "x"), "5\n");
}

#[test]
fn a_second_ctrl_c_leaves_at_once() {
    let _server = listening();
    let id = &created(&[]);
    let code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\ntime.sleep(60)";
    let mut child = started(&["session", "exec", id, "-c", code]);
    await_output(&mut child, "begun");
    let leaving = Duration::from_millis(1500);
    // One after the other, as two signals at once are one.
    let has_left = within(leaving, || {
        ctrl_c(&child);
        child.try_wait().unwrap().is_some()
    });
    assert!(has_left, "it has not left in {leaving:?}");
    let left = child.wait_with_output().unwrap();
    assert_eq!(left.status.code(), Some(130));
    // Nor for the interpreter, which cannot be interrupted and would end with its session.
    assert_eq!(stderr_of(&left), "interrupted, without waiting for its end\n");
}

#[test]
fn ctrl_c_of_a_call_that_waits_does_not_reach_the_one_that_runs() {
    let mut server = listening();
    let id = &created(&[]);
    let first = "print('begun', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'whole'";
    let mut running = started(&["session", "exec", id, "-c", first]);
    await_output(&mut running, "begun");
    let waiting = started(&["session", "exec", id, "-c", "x = 1"]);
    eventually(|| server.listed(id)["waiting"] == 1);
    ctrl_c(&waiting);
    let left = waiting.wait_with_output().unwrap();
    assert_eq!(left.status.code(), Some(130), "{left:?}");
    eventually(|| server.listed(id)["waiting"] == 0);
    assert!(running.try_wait().unwrap().is_none());
    ctrl_c(&running);
    let ended = running.wait_with_output().unwrap();
    assert_contains(stderr_of(&ended), ["KeyboardInterrupt"]);
    // Nothing is left of the one that waited.
    assert_eq!(exec(id, "'x' in globals()"), "False\n");
}

#[test]
fn calls_and_values_come_from_standard_input_and_too_many_bytes_are_refused() {
    let _server = listening();
    let id = &created(&[]);
    let code = "import sys, hashlib\nhashlib.sha256(sys.stdin.buffer.read()).hexdigest()";
    let count = "import sys\nlen(sys.stdin.buffer.read())";
    let bytes: Vec<u8> = (0..9 << 20_u32)
        .map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[2])
        .collect();
    let given = feed(
        ringfence(&["session", "exec", id, "--stdin", "-", "-c", code]),
        &bytes,
    );
    let expect = ringfence_digest(&bytes);
    assert_eq!(stdout_of(&given), format!("'{expect}'\n"), "{given:?}");
    let place = TempDir::new("stdin");
    let large = place.0.join("large");
    fs::File::create(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let refused = said(&[
        "session",
        "exec",
        id,
        "--stdin",
        large.to_str().unwrap(),
        "-c",
        count,
    ]);
    assert_contains(stderr_of(&refused), ["more than 64 MiB"]);
    // What is not asked for is not read.
    let mut command = ringfence(&["session", "exec", id, "-c", count]);
    let mut child = start(command.stdin(Stdio::piped()));
    let kept_open = child.stdin.take();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"0\n");
    drop(kept_open);
    let script = place.file("count.py", count);
    let ran = feed(ringfence(&["run", &script, "--session", id]), b"\xff\x00in");
    assert_eq!(ran.stdout, b"4\n", "{ran:?}");
    // So does a value that is carried in.
    let given = feed(ringfence(&["bridge", id, "x", "-"]), b"[1, 2]\n");
    assert!(given.status.success(), "{given:?}");
    let given = feed(ringfence(&["bridge", id, "y", "-"]), b"a text\n");
    assert!(given.status.success(), "{given:?}");
    assert_eq!(exec(id, "[x, y]"), "[[1, 2], 'a text']\n");
    let refused = said(&["bridge", id, "bad name", "12"]);
    let err = stderr_of(&refused);
    assert_contains(&err, ["Name a plain variable"]);
    assert_lacks(&err, ["--help"]);
}

/// By a program that this project did not write.
fn ringfence_digest(bytes: &[u8]) -> String {
    stdout_of(&feed(Command::new("sha256sum"), bytes))[..64].to_owned()
}

#[test]
fn a_script_of_another_language_is_refused_by_its_name() {
    let _server = listening();
    let id = &created(&["--language", "node"]);
    let place = TempDir::new("language");
    for (name, language) in [("x.ts", "typescript"), ("x.py", "python"), ("x.sh", "shell")] {
        let script = place.file(name, "1");
        for words in [
            ["run", &script, "--session", id],
            ["session", "exec", id, &script],
        ] {
            assert_contains(refused(&words, 2), [&format!("the script is {language}")]);
        }
    }
    let script = place.file("x.mjs", "console.log(6 * 7)");
    assert_eq!(told(&["run", &script, "--session", id]), "42\n");
    refused(&["run", &script, "--session", id, "--allow", "example.com"], 2);
}

#[test]
fn a_session_is_ended_twice_without_complaint_and_one_that_never_was_is_an_error() {
    let mut server = listening();
    let id = &created(&[]);
    assert_eq!(told(&["session", "kill", id]), "ended\n");
    assert_eq!(told(&["session", "kill", id]), "it had ended before\n");
    let nobody = "0190b8f0-5c1e-7000-8000-00000000abcd";
    let err = refused(&["session", "kill", nobody], 125);
    assert_contains(&err, ["`ringfence session list`"]);
    assert_lacks(&err, ["list_sessions"]);
    let told = server.facts("terminate_session", json!({"session_id": id}));
    told.shows(json!({"killed": false, "existed": true}));
    let told = server.facts("terminate_session", json!({"session_id": nobody}));
    told.shows(json!({"killed": false, "existed": false}));
}

#[test]
fn files_and_saved_workspaces_of_a_session_are_reached_from_outside() {
    let _server = listening();
    let id = &created(&[]);
    let place = TempDir::new("copies");
    let own = place.file("in.bin", "one\n");
    told(&["session", "cp", &own, &format!("{id}:data/")]);
    assert!(told(&["session", "ls", id]).contains("data/in.bin"));
    assert_eq!(
        told(&["session", "cp", &format!("{id}:/workspace/data/in.bin"), "-"]),
        "one\n"
    );
    let made = told_json(&["snapshot", "create", "first", "--session", id]);
    assert_eq!(made["of"], json!(id), "{made}");
    let snapshot = text_of(&made["snapshot_id"]);
    exec(id, "open('data/in.bin', 'w').write('two')\nopen('more', 'w')");
    let out = told(&["snapshot", "diff", "--session", id]);
    assert_contains(
        &out,
        ["changed data/in.bin", "1 changed, 1 added, 0 deleted; 0 flagged"],
    );
    assert!(told(&["snapshot", "list", "--session", id]).contains(snapshot));
    told(&["snapshot", "restore", snapshot, "--session", id]);
    let copied = place.0.join("out.bin");
    told(&[
        "session",
        "cp",
        &format!("{id}:data/in.bin"),
        copied.to_str().unwrap(),
    ]);
    assert_eq!(fs::read(&copied).unwrap(), b"one\n");
    refused(&["session", "cp", &format!("{id}:more"), "-"], 125);
    refused(&["session", "cp", &own, &format!("{id}:../in.bin")], 2);
    exec(id, "import os; os.symlink('/etc/passwd', 'link')");
    let followed = said(&["session", "cp", &format!("{id}:link"), "-"]);
    assert!(
        !followed.status.success() && followed.stdout.is_empty(),
        "{followed:?}"
    );
    let out = told(&["snapshot", "diff", "--session", id]);
    assert!(out.contains("added link -> /etc/passwd"), "{out}");
    // It outlives its session, and goes into another.
    told(&["session", "kill", id]);
    let gone = said(&["snapshot", "restore", snapshot]);
    assert_contains(stderr_of(&gone), ["`--session`"]);
    let other = &created(&[]);
    told(&["snapshot", "restore", snapshot, "--session", other]);
    assert_eq!(
        told(&["session", "cp", &format!("{other}:data/in.bin"), "-"]),
        "one\n"
    );
}

#[test]
fn a_mistyped_command_line_is_json_where_json_is_wanted() {
    for words in [
        &["session", "create", "--languag", "x", "--json"][..],
        &["session", "exec", "--json"],
        &["run", "x.py", "--json", "--no-such-flag"],
    ] {
        let refused = said(words);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        json_of(&refused).shows(json!({"error.code": "invalid_argument"}));
        assert!(refused.stderr.is_empty(), "{refused:?}");
    }
    // After `--` it is the script's word.
    let refused = said(&["run", "x.py", "--no-such-flag", "--", "--json"]);
    assert!(
        refused.stdout.is_empty() && !refused.stderr.is_empty(),
        "{refused:?}"
    );
}

#[test]
fn the_text_of_a_call_says_what_became_of_its_session() {
    let mut server = Server::start();
    let mut text = |code: &str, language: &str, more: Value| {
        let id = server.create(json!({"language": language}));
        let said = server.call("execute_code", arguments(&id, code, more));
        said.text().to_owned()
    };
    let kept = "the session and its state are kept";
    let exited = text("import os; os._exit(1)", "python", json!({}));
    assert_contains(&exited, ["the session has ended: exited\nnext: create_session"]);
    let strict = text("set -e; false", "shell", json!({}));
    assert!(strict.contains("the session has ended: exited"), "{strict}");
    let late = text("while True: pass", "python", json!({"timeout_seconds": 0.5}));
    assert!(late.contains(kept), "{late}");
    assert!(!text("1", "python", json!({})).contains(kept));
}

#[test]
fn a_directory_without_a_mode_is_explained_and_no_server_is_not_about_secrets() {
    let place = TempDir::new("modes");
    fs::create_dir(place.0.join("proj")).unwrap();
    place.file("x.py", "1");
    let refused = ringfence(&["run", "x.py", "--workspace", "proj"])
        .current_dir(&place.0)
        .output()
        .unwrap();
    assert_contains(stderr_of(&refused), ["proj:overlay"]);
    let none = said(&["session", "list"]);
    let err = stderr_of(&none);
    assert!(err.contains("no server runs") && !err.contains("vault"), "{err}");
}
