//! Command lines of the systems that Ringfence replaces, and errors of the command line.

use crate::client::*;
use std::{fs::File, io::Read, process::Stdio};

#[test]
fn command_lines_of_replaced_systems_are_accepted() {
    let mut server = Server::start();
    let session = server.create_session(json!({"language": "bash"}));
    let scratch = TempDir::new("words");
    let app = scratch.file("app.js", "console.log(1)\n");
    for arguments in [
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
        cli_stdout(arguments);
    }
    let records = cli_stdout(&["audit", "--action", "session."]);
    let (head, rows) = records.split_once('\n').unwrap();
    assert_eq!(head.find("ACTION"), rows.find("session."), "{records}");
    let limits = cli_stdout(&["limits"]);
    assert!(limits.contains("256"), "{limits}");
    let left = server.facts("list_sessions", json!({}));
    assert_eq!(left["sessions"], json!([]), "{left}");
}

#[track_caller]
fn assert_cli_error(arguments: &[&str], status: i32, part: &str) {
    let text = cli_error(arguments, status);
    assert!(text.contains(part), "{arguments:?}: {text}");
}

#[test]
fn out_of_range_number_is_refused_with_its_range() {
    let scratch = TempDir::new("numbers");
    let script = scratch.file("x.py", "1\n");
    for (arguments, part) in [
        (&["run", &script, "--timeout", "-1"][..], "a number above 0"),
        (&["run", &script, "--cpus", "-1"], "a number above 0"),
        (
            &["run", &script, "--memory", "-1"],
            "'--memory <SIZE>': `-1` is not a size",
        ),
        (&["limits", "--timeout", "-1"], "a number above 0"),
        (&["host", "exec", "--timeout", "-1", "ls"], "-1 is not in 1..=300"),
        (&["audit", "--limit", "-1"], "-1 is not in 1..=10000"),
        (&["limits", "--disk-mb", "-1"], "a whole number above 0"),
        (&["audit", "--before", "-1"], "-1 is not in 1.."),
        (&["audit", "--since", "-2h"], "`-2h` is not a time"),
        (&["vault", "add", "KEY", "--ttl", "-5m"], "write a length of time"),
        (&["run", &script, "--memory", "-5m"], "`-5m` is not a size"),
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
        assert_cli_error(arguments, 2, part);
    }
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_125() {
    let scratch = TempDir::new("sense");
    let script = scratch.file("x.py", "1\n");
    for (arguments, status, part) in [
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
            "'--memory <SIZE>': `much` is not a size",
        ),
        (&["run", &script, "--allow", "http://x y"], 2, "--allow: "),
        (
            &["run", &script, "--workspace", "other"],
            125,
            "no workspace `other`",
        ),
        (&["session", "kill", "nobody"], 2, "a UUID of 36 characters"),
        (&["verify", &script], 2, "`ringfence artifacts` lists executions"),
        (
            &["ps", "--config", "/nonexistent/c.yaml"],
            2,
            "(--config): No such file",
        ),
        (&["ps", "--server", "1"], 125, "`ringfence stats --json` shows"),
        (
            &["connect", "unix:/nonexistent/s"],
            125,
            "at unix:/nonexistent/s: ",
        ),
        (&["vault", "add", "1KEY"], 2, "begins with no digit"),
        (&["host", "exec", "ls"], 125, "Set `host.enabled: true`"),
    ] {
        assert_cli_error(arguments, status, part);
    }
    // With `--json` an error is a JSON document.
    let output = cli_exits_with(&["doctor", "--json", "--compose"], 2);
    assert_contains(stdout_of(&output), ["'--json' cannot be used with '--compose'"]);
    let text = stdout_of(&cli_exits_with(&["run", "/nonexistent/x.py", "--json"], 2));
    assert!(
        text.contains("No such file or directory.") && !text.contains("os error"),
        "{text}"
    );
    let output = cli_exits_with(&["vault", "add", "KEY", "hunter2value"], 2);
    assert_contains(stderr_of(&output), ["ringfence vault add KEY"]);
    assert_lacks(both_streams_of(&output), ["hunter2value"]);
}

/// What cannot be read is not reported as absent; the control is a directory that is there and empty.
#[test]
fn unusable_state_directory_is_an_error_of_each_command() {
    let scratch = TempDir::new("no-state");
    let file = scratch.file("file", "");
    let run = |arguments: &[&str], state: &str| {
        let mut command = ringfence(arguments);
        command.env("RINGFENCE_STATE_DIR", state).output().unwrap()
    };
    for arguments in [
        &["audit", "list"][..],
        &["artifacts"],
        &["ps"],
        &["token", "list"],
        &["snapshot"],
        &["vault", "list"],
    ] {
        let output = run(arguments, &file);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {output:?}");
        let text = stderr_of(&output);
        assert_lacks(&text, ["os error", "there is no", "no server runs"]);
        assert!(text.lines().count() == 2 && text.contains(&file), "{text}");
    }
    std::fs::create_dir(scratch.0.join("state")).unwrap();
    set_mode(scratch.0.join("state"), 0o700);
    assert!(run(&["artifacts"], &scratch.path("state")).status.success());
}

/// The control: the same export to a disk with room.
#[test]
fn export_to_a_full_disk_leaves_no_part_of_it() {
    let scratch = TempDir::new("full");
    let small = scratch.path("small");
    std::fs::create_dir(&small).unwrap();
    for name in ["one", "two", "three"] {
        cli_stdout(&["token", "create", name]);
    }
    let export = |size: &str| {
        let script = format!(
            "mount -t tmpfs -o size={size} none {small} || exit 9; \"$0\" \"$@\"; code=$?; ls {small}; exit $code"
        );
        let inner = ringfence(&["audit", "export", "--output", &scratch.path("small/out")]);
        wrap_command(&["unshare", "-rm", "sh", "-c", &script], &inner)
            .output()
            .unwrap()
    };
    let output = export("1m");
    assert_eq!(
        (output.status.code(), &*stdout_of(&output)),
        (Some(0), "out\n"),
        "{output:?}"
    );
    let output = export("4k");
    assert_eq!(
        (output.status.code(), &*stdout_of(&output)),
        (Some(125), ""),
        "{output:?}"
    );
    assert_contains(stderr_of(&output), ["Make room on that disk"]);
}

/// The control: a token that was written.
#[test]
fn token_that_cannot_be_written_is_revoked() {
    let names = || texts_of(&cli_json(&["token", "list"])["tokens"], "name").join(" ");
    let shown = run_successfully(ringfence(&["token", "create", "seen", "--expires", "5000"]));
    assert!(stdout_of(&shown).starts_with("rft_"), "{shown:?}");
    // A number without a unit is seconds; the answer says what was understood.
    assert_contains(stderr_of(&shown), ["it expires at 2"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (stdout, json) in [(Stdio::from(full), false), (Stdio::from(closed), true)] {
        let mut command = ringfence(&["token", "create", "unseen"]);
        let output = command
            .args(json.then_some("--json"))
            .stdout(stdout)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(
            json || stderr_of(&output).contains("It was revoked."),
            "{output:?}"
        );
        assert_eq!(names(), "seen");
    }
    let records = cli_json(&["audit", "--action", "token."]);
    let actions = texts_of(&records["records"], "action");
    let [created, revoked] = ["token.created", "token.revoked"]
        .map(|name| actions.iter().filter(|action| **action == name).count());
    assert!(created >= 3 && revoked >= 2, "{records}");
}

#[test]
fn events_command_follows_live_events() {
    let mut server = Server::start();
    server.execute("python", "1");
    assert_contains(cli_stdout(&["events"]), [" execution.completed default "]);
    let mut follower = ringfence(&["events", "-f", "--json", "--output"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = follower.stdout.take().unwrap();
    let (send, received) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = stdout.read(&mut bytes) {
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
        becomes_true_within(PATIENCE, || {
            // Earlier events come first; once they have arrived, the follower is known to listen.
            all.extend(received.try_iter());
            all.contains("execution.completed") && {
                server.execute("python", "print('to be heard')");
                all.extend(received.try_iter());
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
fn run_sandbox_code_restricts_imports_and_file_access() {
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
    // A path that the code's text does not contain.
    let code = "import json\nkept = open('kept.txt').read()\npath = json.loads('\"../../etc/passwd\"')\n\
        def read():\n    try:\n        return open(path).read()\n    except PermissionError as error:\n        return error.errno\n\
        result = [kept, read()]";
    let done = call(code);
    assert_eq!(done["structuredContent"]["result"], json!(["kept", 13]), "{done}");
}
