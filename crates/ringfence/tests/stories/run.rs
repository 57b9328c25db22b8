//! `ringfence run`.

use crate::client::*;
use ringfence_engine::EarlyStart;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    time::{Duration, Instant},
};

#[test]
fn exit_status_is_that_of_the_script() {
    for (language, code, expect) in [
        ("shell", "exit 0", 0),
        ("shell", "exit 7", 7),
        ("shell", "exit 255", 255),
        ("shell", "kill -9 $$", 137),
        ("shell", "kill -TERM $$", 143),
        ("python", "import sys; sys.exit(3)", 3),
        ("node", "process.exit(4)", 4),
    ] {
        assert_eq!(
            run_code(language, code, &[]).status.code(),
            Some(expect),
            "{code}"
        );
    }
}

/// The helper of a run is a fork of it, and the processes in the sandbox are forks of the helper.
#[test]
fn environment_of_a_run_is_not_in_its_helper() {
    const SECRET: &str = "mark-of-the-environment-4711";
    let directory = TempDir::new("environment");
    let script = directory.file("wait.sh", "echo up; read line");
    let mut command = ringfence(&["run", &script]);
    let mut running = spawn_piped(command.env("A_SECRET", SECRET).stdin(Stdio::piped()));
    let mut line = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let helpers = descendants_with(running.id(), "__jail-helper");
    assert_eq!(helpers.len(), 3, "helper, supervisor, pid 1: {helpers:?}");
    let has = |pid: u32| contains_text(&writable_memory_of(pid), SECRET);
    assert!(has(running.id()), "the control: the run itself has it");
    let helper = *helpers
        .iter()
        .find(|pid| comm_of(**pid) == "ringfence-help")
        .unwrap();
    assert!(
        writable_memory_of(helper).len() > 64 << 10,
        "the helper's memory is readable"
    );
    let environment = fs::read(format!("/proc/{helper}/environ")).unwrap();
    assert!(environment.iter().all(|byte| *byte == 0));
    for pid in helpers {
        assert!(!has(pid), "{pid}");
    }
    drop(running.stdin.take());
    running.wait().unwrap();
}

/// A preloaded library may start threads before `main`; a test process always has several.
#[test]
fn early_start_in_a_threaded_process_execs_the_helper() {
    let helper = EarlyStart::fork(binary()).unwrap();
    let is_helper = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary());
    let own = std::process::id();
    eventually(|| descendants_with(own, "__jail-helper").iter().any(is_helper));
    drop(helper);
}

#[test]
fn git_commit_works_without_a_configured_identity() {
    let code = "git init -q . && git commit -q --allow-empty -m one && git config user.name Ada && \
        git commit -q --allow-empty -m two && git log --format='%an <%ae>'";
    let output = run_code("shell", code, &[]);
    let stdout = stdout_of(&output);
    assert_eq!(
        stdout, "Ada <sandbox@localhost>\nsandbox <sandbox@localhost>\n",
        "{output:?}"
    );
}

#[test]
fn timeout_exits_with_124_and_keeps_output() {
    let begun = Instant::now();
    let code = "print('said', flush=True)\nwhile True: pass";
    let output = run_code("python", code, &["--timeout", "1"]);
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(output.stdout, b"said\n");
    assert_took_at_most(begun.elapsed(), Duration::from_secs(3));
    let result = run_json("python", code, &["--timeout", "1"]);
    result.assert_fields(json!({"exit.kind": "timeout", "stdout": "said\n"}));
}

#[test]
fn own_failures_exit_with_125_and_wrong_arguments_with_2() {
    assert_contains(cli_error(&["run", "/nonexistent.py"], 2), ["hint:"]);
    for (arguments, part, status) in [
        (&["--allow", "https://example.com"][..], "invalid_argument", 2),
        (&["--memory", "1"], "invalid_argument", 2),
        (&["--timeout", "999999"], "invalid_argument", 2),
        (&["--workspace", "/nonexistent:ro"], "invalid_argument", 2),
        (&["--workspace", "/etc:ro"], "policy_denied", 125),
    ] {
        let output = run_code("shell", "true", &[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stdout_of(&output).contains(part), "{arguments:?}: {output:?}");
    }
    for code in ["", "x = '\0'", &"#".repeat((1 << 20) + 1)] {
        assert_eq!(run_code("python", code, &[]).status.code(), Some(2));
    }
}

#[test]
fn output_streams_while_the_program_runs() {
    let mut child = spawn_piped(ringfence(&["run", "-", "--language", "python"]).stdin(Stdio::piped()));
    let code = b"import time\nprint('first')\ntime.sleep(30)";
    child.stdin.take().unwrap().write_all(code).unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    assert!(
        child.try_wait().unwrap().is_none(),
        "the line came before the end"
    );
    // An interrupt ends the process tree and sets the exit status.
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn stdin_arguments_and_variables_reach_the_program() {
    let script = TempDir::new("stdin");
    let path = script.file(
        "echo.py",
        "import sys, os\nprint(sys.stdin.read().upper(), sys.argv[1:], os.environ['GIVEN'])",
    );
    let arguments = ["run", &path, "--env", "GIVEN=a=b", "--", "-c", "--help", "a b"];
    let output = run_with_stdin(ringfence(&arguments), "hello");
    assert_eq!(stdout_of(&output), "HELLO ['-c', '--help', 'a b'] a=b\n");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn language_is_detected_from_extension_or_shebang() {
    let scripts = TempDir::new("language");
    for (name, code, expect) in [
        ("a.py", "print(6 * 7)", "42\n"),
        ("a.mjs", "import os from 'os'; console.log(6 * 7)", "42\n"),
        ("a.cjs", "console.log(require('path').sep)", "/\n"),
        ("a.ts", "const n: number = 42; console.log(n)", "42\n"),
        ("a.sh", "echo $((6 * 7))", "42\n"),
        ("a", "#!/usr/bin/env python3\nprint(42)", "42\n"),
    ] {
        let output = run_cli(&["run", &scripts.file(name, code)]);
        assert_eq!(stdout_of(&output), expect, "{name}: {output:?}");
    }
    cli_error(&["run", &scripts.file("b", "print(42)")], 2);
}

#[test]
fn result_has_value_error_and_variables() {
    let result = run_json("python", "x = 2\ny = x + 1\n{'sum': x + y}", &[]);
    result.assert_fields(json!({"result": {"sum": 5}, "variables": ["x", "y"]}));
    let result = run_json("python", "def f():\n    return 1 / 0\n\nf()", &[]);
    result.assert_fields(json!({"error.type": "ZeroDivisionError", "error.line": 2}));
    result.assert_text("error.traceback", ["return 1 / 0"]);
    assert_eq!(result["success"], false);
    let result = run_json("node", "const a = 20;\nawait Promise.resolve(a + 22)", &[]);
    assert_eq!(result["result"], 42);
    // Built-in modules of Node.js are found with and without `node:`.
    let code = "const net = await import('node:net'), os = await import('os');\ntypeof net.connect + os.EOL";
    assert_eq!(run_json("node", code, &[])["result"], "function\n");
    let code = "import fs from 'node:fs';\nfs.writeFileSync('a.mjs', 'export const here = import.meta.url');\n\
                const a: { here: string } = await import(new URL('./a.mjs', import.meta.url));\n\
                [a.here, await import('none').catch((error) => error.code)]";
    let expected = json!(["file:///workspace/a.mjs", "ERR_MODULE_NOT_FOUND"]);
    assert_eq!(run_json("typescript", code, &[])["result"], expected);
    let result = run_json(
        "typescript",
        "type T = { n: number };\nfunction f(t: T): never {\n  throw new Error('at ' + t.n);\n}\nf({ n: 1 });",
        &[],
    );
    result.assert_fields(json!({"error.message": "at 1", "error.line": 3}));
}

/// claim: [ART-4]
#[test]
fn artifacts_of_single_runs_stay_within_their_limit() {
    let state = TempDir::new("artifacts-limit");
    for number in 0..3 {
        let mut command = ringfence(&["run", "-", "--language", "python", "--json"]);
        command.env("RINGFENCE_STATE_DIR", &state.0);
        command.env("RINGFENCE_ARTIFACTS_MAX_MB", "1");
        let code = format!("open('a', 'wb').write(b'{number}' * 700_000)");
        let result = json_of(&run_with_stdin(command, code));
        assert_eq!(texts_of(&result["artifacts"], "name"), ["a"], "{result}");
    }
    assert_eq!(files_below(&state.0.join("record/artifacts/blobs")).len(), 1);
}

#[test]
fn files_left_by_the_program_become_artifacts() {
    let keep = TempDir::new("artifacts");
    let code = "import os\nos.makedirs('d')\nopen('d/a.txt', 'w').write('hello')\nopen(os.environ['RINGFENCE_OUTPUT_DIR'] + '/p.png', 'wb').write(bytes.fromhex('89504e470d0a1a0a'))\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('fifo')\nos.link('d/a.txt', 'hard')";
    let result = run_json("python", code, &["--artifacts", &keep.0.display().to_string()]);
    let names = texts_of(&result["artifacts"], "name");
    assert_eq!(
        names,
        ["output/p.png"],
        "a file with two names is refused under both: {result}"
    );
    assert_eq!(result["artifacts"][0]["mime"], "image/png");
    assert_eq!(list_of(&result["denials"]).len(), 4);
    assert!(keep.0.join("output/p.png").is_file());
    let result = run_json("shell", "echo hello > a.txt", &[]);
    let expect =
        json!({"artifacts.0.sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"});
    result.assert_fields(expect);
}

#[test]
fn non_utf8_output_is_marked_as_lossy() {
    let result = run_json("shell", "printf 'a\\377b'", &[]);
    result.assert_fields(json!({"stdout": "a\u{fffd}b", "lossy.stdout": true}));
    assert_eq!(
        run_code("shell", "printf 'a\\377b'", &[]).stdout,
        b"a\xffb",
        "bytes to a pipe are unchanged"
    );
}

#[test]
fn orphan_process_neither_outlives_nor_delays_the_run() {
    let begun = Instant::now();
    let result = run_json(
        "shell",
        "sleep 131.41592 & (setsid sleep 131.41592 &) ; echo done",
        &[],
    );
    assert_eq!(result["stdout"], "done\n");
    assert_took_at_most(begun.elapsed(), Duration::from_secs(5));
    assert_processes_end("131.41592");
}

#[test]
fn example_scripts_run() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["hello.py", "hello.mjs", "hello.ts", "hello.sh"] {
        let output = run_cli(&["run", &examples.join(name).display().to_string()]);
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(stdout_of(&output).to_lowercase().contains("hello"), "{name}");
    }
}

/// claim: [FS-9]
#[test]
fn artifact_copies_do_not_follow_a_moved_directory() {
    let directory = TempDir::new("moved");
    let victim = directory.0.join("victim");
    let shared = directory.0.join("shared");
    fs::create_dir_all(&victim).unwrap();
    fs::create_dir_all(&shared).unwrap();
    let workspace = format!("{}:rw", shared.display());
    let out = shared.join("out").display().to_string();
    let code = format!(
        "import os\nos.rename('out', 'old')\nos.symlink({0:?}, 'out')\nos.symlink({0:?}, 'old/output')\n\
         open('escaped.txt', 'w').write('x')\nopen(os.environ['RINGFENCE_OUTPUT_DIR'] + '/later.sh', 'w').write('x')",
        victim.display().to_string()
    );
    let run = run_json("python", &code, &["--workspace", &workspace, "--artifacts", &out]);
    assert_eq!(run["exit_code"], 0, "{run}");
    assert!(shared.join("old/escaped.txt").is_file(), "{run}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{run}");
    // A later copy into a directory where the program has left a link.
    let id = text_of(&run["execution_id"]);
    let old = shared.join("old").display().to_string();
    let copied = run_cli(&["artifacts", id, "--out", &old]);
    assert!(!copied.status.success(), "{copied:?}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{copied:?}");
}

#[test]
fn artifact_copies_into_the_state_directory_are_refused() {
    let own = state_dir().join("record/copies").display().to_string();
    let refused = run_json("python", "open('a.txt', 'w').write('x')", &["--artifacts", &own]);
    assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    assert!(
        !std::path::Path::new(&own).exists(),
        "the directory is not created"
    );
}

/// claim: [FS-8]
#[test]
fn artifact_copies_never_overwrite_and_skip_hidden_files() {
    let directory = TempDir::new("copies");
    let out = directory.path("out");
    let first = run_json(
        "python",
        "open('a.txt', 'w').write('first')",
        &["--artifacts", &out],
    );
    assert_eq!(first["denials"], json!([]), "{first}");
    let code = "import os\nos.makedirs('.conf/hooks')\nfor name in ('a.txt', 'b.txt', '.conf/hooks/post-checkout', '.bashrc'):\n    \
        open(name, 'w').write('second')";
    let second = run_json("python", code, &["--artifacts", &out]);
    assert_eq!(list_of(&second["artifacts"]).len(), 4, "{second}");
    let denied = texts_of(&second["denials"], "what");
    assert!(
        denied.len() == 3 && denied.iter().all(|what| what.contains("was not copied")),
        "{denied:?}"
    );
    assert_eq!(
        (directory.read("out/a.txt"), directory.read("out/b.txt")),
        ("first".into(), "second".into())
    );
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    let output = run_code("python", "open('a.txt', 'w').write('x')", &["--artifacts", &out]);
    assert_contains(
        stderr_of(&output),
        ["a.txt was not copied: there is a file of that name"],
    );
    // The script succeeded, but its file was not copied.
    assert_eq!(output.status.code(), Some(125));
    let file = directory.file("file", "");
    let refused = run_json("python", "1", &["--artifacts", &file]);
    assert_eq!(refused["error"]["code"], "invalid_argument", "{refused}");
}

#[test]
fn only_the_file_with_too_long_a_name_is_lost() {
    let code = "import os\nfor _ in range(5):\n    os.mkdir('d' * 250)\n    os.chdir('d' * 250)\nopen('deep.txt', 'w').write('x')\n\
                open('/workspace/kept.txt', 'w').write('x')";
    let result = run_json("python", code, &[]);
    let kept = list_of(&result["artifacts"]);
    assert_eq!(texts_of(&result["artifacts"], "name"), ["kept.txt"], "{result}");
    assert!(kept[0]["signature"].is_string(), "{result}");
    let refused = text_of(&result["denials"][0]["what"]);
    assert!(refused.starts_with("dddd"), "{result}");
}

#[test]
fn files_not_kept_are_reported() {
    let output = run_code("shell", "ln -s /etc link; mkfifo fifo", &[]);
    let stderr = stderr_of(&output);
    assert_contains(&stderr, ["not kept: link", "not kept: fifo"]);
}
