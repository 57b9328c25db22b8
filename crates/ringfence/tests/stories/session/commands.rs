//! Sessions on the command line: streams, Ctrl-C, files and snapshots of a session.

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
fn reachable_server() -> Server {
    let server = Server::start();
    eventually(|| run_cli(&["session", "list"]).status.success());
    server
}

#[track_caller]
fn create_session(arguments: &[&str]) -> String {
    cli_stdout(&[&["session", "create"], arguments].concat())
        .trim_end()
        .to_owned()
}

/// The standard output of code that runs in a session.
#[track_caller]
fn exec(id: &str, code: &str) -> String {
    cli_stdout(&["session", "exec", id, "-c", code])
}

fn spawn(arguments: &[&str]) -> Child {
    spawn_piped(&mut ringfence(arguments))
}

/// Reads standard output until it contains this text, and returns it.
fn await_output(child: &mut Child, text: &str) -> String {
    let mut seen = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(&seen).contains(text) {
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
fn session_commands_print_results_to_stdout_and_notes_to_stderr() {
    let mut server = reachable_server();
    let made = run_successfully(ringfence(&["session", "create", "--language", "shell"]));
    let out = stdout_of(&made);
    let id = out.trim_end();
    assert_eq!((id.len(), out.len()), (36, 37), "{out:?}");
    assert_contains(stderr_of(&made), ["shell"]);
    assert_eq!(exec(id, "echo $((6 * 7))"), "42\n");
    let made = server.call("create_session", json!({}));
    let text = made.text();
    assert!(text.starts_with("session_id: "), "{text}");
    let id = &create_session(&[]);
    assert_eq!(exec(id, "x = 20\nprint('a', end='')\nx + 1"), "a\n21\n");
    let arguments = [
        "session",
        "exec",
        id,
        "-c",
        "open('new.txt', 'w').write('x') and None",
    ];
    let left = run_successfully(ringfence(&arguments));
    assert_contains(
        stderr_of(&left),
        ["artifacts: new.txt (get them with `ringfence artifacts "],
    );
    // A reader that closes the pipe early causes no error message.
    let id = &create_session(&["--language", "shell"]);
    let mut child = spawn(&["session", "exec", id, "-c", "yes"]);
    await_output(&mut child, "y\n");
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141), "{ended:?}");
    assert_eq!(stderr_of(&ended), "");
    let id = &create_session(&["--workspace", "namespace"]);
    let out = cli_stdout(&["session", "list"]);
    assert!(out.starts_with("SESSION"), "{out}");
    let line = out.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(line.contains("namespace") && line.ends_with("default"), "{out}");
    let listed = server.listed(id);
    listed.assert_fields(json!({"workspace": "namespace", "packages": []}));
}

#[test]
fn ctrl_c_interrupts_the_call_and_keeps_the_session() {
    let _server = reachable_server();
    let id = &create_session(&[]);
    let code =
        "x = 5\ntry:\n    print('begun', flush=True)\n    while True: pass\nfinally:\n    print('and ended')";
    for json in [false, true] {
        let arguments = ["session", "exec", id, "-c", code, "--json"];
        let mut child = spawn(&arguments[..if json { 6 } else { 5 }]);
        let begun = if json {
            eventually(|| cli_json(&["session", "list"])["servers"][0]["sessions"][0]["state"] == "busy");
            String::new()
        } else {
            await_output(&mut child, "begun")
        };
        // Two signals at once, as timeout(1) sends them, count as one.
        ctrl_c(&child);
        ctrl_c(&child);
        let ended = child.wait_with_output().unwrap();
        let out = begun + &stdout_of(&ended);
        let err = stderr_of(&ended);
        assert_eq!(ended.status.code(), Some(130), "{out}{err}");
        if json {
            let document: Value = serde_json::from_str(&out).unwrap();
            document.assert_fields(json!({"exit.kind": "cancelled", "session_ended": null}));
        } else {
            assert!(out.contains("and ended"), "{out}{err}");
            assert!(err.contains("KeyboardInterrupt"), "{err}");
            assert!(err.contains("interrupted; the session is kept"), "{err}");
        }
    }
    assert_eq!(exec(id, "x"), "5\n");
}

#[test]
fn second_ctrl_c_exits_at_once() {
    let _server = reachable_server();
    let id = &create_session(&[]);
    let code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\ntime.sleep(60)";
    let mut child = spawn(&["session", "exec", id, "-c", code]);
    await_output(&mut child, "begun");
    let timeout = Duration::from_millis(1500);
    // One after the other, as two signals at once count as one.
    let has_left = becomes_true_within(timeout, || {
        ctrl_c(&child);
        child.try_wait().unwrap().is_some()
    });
    assert!(has_left, "not ended within {timeout:?}");
    let left = child.wait_with_output().unwrap();
    assert_eq!(left.status.code(), Some(130));
    // It does not wait for the interpreter, which ignores the interrupt and would end with its session.
    assert_eq!(stderr_of(&left), "interrupted, without waiting for its end\n");
}

#[test]
fn ctrl_c_of_a_waiting_call_does_not_interrupt_the_running_one() {
    let mut server = reachable_server();
    let id = &create_session(&[]);
    let first = "print('begun', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'whole'";
    let mut running = spawn(&["session", "exec", id, "-c", first]);
    await_output(&mut running, "begun");
    let waiting = spawn(&["session", "exec", id, "-c", "x = 1"]);
    eventually(|| server.listed(id)["waiting"] == 1);
    ctrl_c(&waiting);
    let left = waiting.wait_with_output().unwrap();
    assert_eq!(left.status.code(), Some(130), "{left:?}");
    eventually(|| server.listed(id)["waiting"] == 0);
    assert!(running.try_wait().unwrap().is_none());
    ctrl_c(&running);
    let ended = running.wait_with_output().unwrap();
    assert_contains(stderr_of(&ended), ["KeyboardInterrupt"]);
    // The waiting call has never run.
    assert_eq!(exec(id, "'x' in globals()"), "False\n");
}

#[test]
fn stdin_feeds_calls_and_bridges_and_is_limited() {
    let _server = reachable_server();
    let id = &create_session(&[]);
    let code = "import sys, hashlib\nhashlib.sha256(sys.stdin.buffer.read()).hexdigest()";
    let count = "import sys\nlen(sys.stdin.buffer.read())";
    let bytes: Vec<u8> = (0..9 << 20_u32)
        .map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[2])
        .collect();
    let given = run_with_stdin(
        ringfence(&["session", "exec", id, "--stdin", "-", "-c", code]),
        &bytes,
    );
    let expect = sha256sum(&bytes);
    assert_eq!(stdout_of(&given), format!("'{expect}'\n"), "{given:?}");
    let place = TempDir::new("stdin");
    let large = place.0.join("large");
    fs::File::create(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let refused = run_cli(&[
        "session",
        "exec",
        id,
        "--stdin",
        large.to_str().unwrap(),
        "-c",
        count,
    ]);
    assert_contains(stderr_of(&refused), ["more than 64 MiB"]);
    // Without `--stdin` standard input is not read.
    let mut command = ringfence(&["session", "exec", id, "-c", count]);
    let mut child = spawn_piped(command.stdin(Stdio::piped()));
    let kept_open = child.stdin.take();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"0\n");
    drop(kept_open);
    let script = place.file("count.py", count);
    let ran = run_with_stdin(ringfence(&["run", &script, "--session", id]), b"\xff\x00in");
    assert_eq!(ran.stdout, b"4\n", "{ran:?}");
    // A bridged value is read from standard input, too.
    let given = run_with_stdin(ringfence(&["bridge", id, "x", "-"]), b"[1, 2]\n");
    assert!(given.status.success(), "{given:?}");
    let given = run_with_stdin(ringfence(&["bridge", id, "y", "-"]), b"a text\n");
    assert!(given.status.success(), "{given:?}");
    assert_eq!(exec(id, "[x, y]"), "[[1, 2], 'a text']\n");
    let refused = run_cli(&["bridge", id, "bad name", "12"]);
    let err = stderr_of(&refused);
    assert_contains(&err, ["Name a plain variable"]);
    assert_lacks(&err, ["--help"]);
}

/// A SHA-256 digest computed by sha256sum(1).
fn sha256sum(bytes: &[u8]) -> String {
    stdout_of(&run_with_stdin(Command::new("sha256sum"), bytes))[..64].to_owned()
}

#[test]
fn script_in_another_language_is_refused_and_named() {
    let _server = reachable_server();
    let id = &create_session(&["--language", "node"]);
    let place = TempDir::new("language");
    for (name, language) in [("x.ts", "typescript"), ("x.py", "python"), ("x.sh", "shell")] {
        let script = place.file(name, "1");
        for arguments in [
            ["run", &script, "--session", id],
            ["session", "exec", id, &script],
        ] {
            assert_contains(cli_error(&arguments, 2), [&format!("the script is {language}")]);
        }
    }
    let script = place.file("x.mjs", "console.log(6 * 7)");
    assert_eq!(cli_stdout(&["run", &script, "--session", id]), "42\n");
    cli_error(&["run", &script, "--session", id, "--allow", "example.com"], 2);
}

#[test]
fn ending_a_session_twice_succeeds_and_ending_an_unknown_one_fails() {
    let mut server = reachable_server();
    let id = &create_session(&[]);
    assert_eq!(cli_stdout(&["session", "kill", id]), "ended\n");
    assert_eq!(cli_stdout(&["session", "kill", id]), "it had ended before\n");
    let unknown = "0190b8f0-5c1e-7000-8000-00000000abcd";
    let err = cli_error(&["session", "kill", unknown], 125);
    assert_contains(&err, ["`ringfence session list`"]);
    assert_lacks(&err, ["list_sessions"]);
    let answer = server.facts("terminate_session", json!({"session_id": id}));
    answer.assert_fields(json!({"killed": false, "existed": true}));
    let answer = server.facts("terminate_session", json!({"session_id": unknown}));
    answer.assert_fields(json!({"killed": false, "existed": false}));
}

#[test]
fn session_files_and_snapshots_are_reached_from_the_command_line() {
    let _server = reachable_server();
    let id = &create_session(&[]);
    let place = TempDir::new("copies");
    let own = place.file("in.bin", "one\n");
    cli_stdout(&["session", "cp", &own, &format!("{id}:data/")]);
    assert!(cli_stdout(&["session", "ls", id]).contains("data/in.bin"));
    assert_eq!(
        cli_stdout(&["session", "cp", &format!("{id}:/workspace/data/in.bin"), "-"]),
        "one\n"
    );
    let made = cli_json(&["snapshot", "create", "first", "--session", id]);
    assert_eq!(made["of"], json!(id), "{made}");
    let snapshot = text_of(&made["snapshot_id"]);
    exec(id, "open('data/in.bin', 'w').write('two')\nopen('more', 'w')");
    let out = cli_stdout(&["snapshot", "diff", "--session", id]);
    assert_contains(
        &out,
        ["changed data/in.bin", "1 changed, 1 added, 0 deleted; 0 flagged"],
    );
    assert!(cli_stdout(&["snapshot", "list", "--session", id]).contains(snapshot));
    cli_stdout(&["snapshot", "restore", snapshot, "--session", id]);
    let copied = place.0.join("out.bin");
    cli_stdout(&[
        "session",
        "cp",
        &format!("{id}:data/in.bin"),
        copied.to_str().unwrap(),
    ]);
    assert_eq!(fs::read(&copied).unwrap(), b"one\n");
    cli_error(&["session", "cp", &format!("{id}:more"), "-"], 125);
    cli_error(&["session", "cp", &own, &format!("{id}:../in.bin")], 2);
    exec(id, "import os; os.symlink('/etc/passwd', 'link')");
    let followed = run_cli(&["session", "cp", &format!("{id}:link"), "-"]);
    assert!(
        !followed.status.success() && followed.stdout.is_empty(),
        "{followed:?}"
    );
    let out = cli_stdout(&["snapshot", "diff", "--session", id]);
    assert!(out.contains("added link -> /etc/passwd"), "{out}");
    // The snapshot outlives its session, and can be restored into another.
    cli_stdout(&["session", "kill", id]);
    let gone = run_cli(&["snapshot", "restore", snapshot]);
    assert_contains(stderr_of(&gone), ["`--session`"]);
    let other = &create_session(&[]);
    cli_stdout(&["snapshot", "restore", snapshot, "--session", other]);
    assert_eq!(
        cli_stdout(&["session", "cp", &format!("{other}:data/in.bin"), "-"]),
        "one\n"
    );
}

#[test]
fn usage_error_is_json_with_the_json_flag() {
    for arguments in [
        &["session", "create", "--languag", "x", "--json"][..],
        &["session", "exec", "--json"],
        &["run", "x.py", "--json", "--no-such-flag"],
    ] {
        let refused = run_cli(arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        json_of(&refused).assert_fields(json!({"error.code": "invalid_argument"}));
        assert!(refused.stderr.is_empty(), "{refused:?}");
    }
    // After `--` the flag is an argument of the script.
    let refused = run_cli(&["run", "x.py", "--no-such-flag", "--", "--json"]);
    assert!(
        refused.stdout.is_empty() && !refused.stderr.is_empty(),
        "{refused:?}"
    );
}

#[test]
fn text_of_a_call_says_if_its_session_ended_or_is_kept() {
    let mut server = Server::start();
    let mut text = |code: &str, language: &str, more: Value| {
        let id = server.create_session(json!({"language": language}));
        let result = server.call("execute_code", arguments(&id, code, more));
        result.text().to_owned()
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
fn errors_for_a_missing_mode_and_a_missing_server_are_specific() {
    let place = TempDir::new("modes");
    fs::create_dir(place.0.join("proj")).unwrap();
    place.file("x.py", "1");
    let refused = ringfence(&["run", "x.py", "--workspace", "proj"])
        .current_dir(&place.0)
        .output()
        .unwrap();
    assert_contains(stderr_of(&refused), ["proj:overlay"]);
    let none = run_cli(&["session", "list"]);
    let err = stderr_of(&none);
    assert!(err.contains("no server runs") && !err.contains("vault"), "{err}");
}
