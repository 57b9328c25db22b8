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
fn the_status_of_the_script_is_the_status() {
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

/// The helper of a run is a fork, and everything in the sandbox is one of it.
#[test]
fn what_a_run_was_started_with_is_not_in_its_helper() {
    const SECRET: &str = "mark-of-the-environment-4711";
    let directory = TempDir::new("environment");
    let script = directory.file("wait.sh", "echo up; read line");
    let mut command = ringfence(&["run", &script]);
    let mut running = start(command.env("A_SECRET", SECRET).stdin(Stdio::piped()));
    let mut said = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    lines.read_line(&mut said).unwrap();
    assert_eq!(said, "up\n");
    let helpers = descendants_with(running.id(), "__jail-helper");
    assert_eq!(helpers.len(), 3, "helper, supervisor, pid 1: {helpers:?}");
    let has = |pid: u32| holds(&memory_of(pid), SECRET);
    assert!(has(running.id()), "it is looked for where it is");
    let helper = *helpers
        .iter()
        .find(|pid| name_of(**pid) == "ringfence-help")
        .unwrap();
    assert!(memory_of(helper).len() > 64 << 10, "its memory can be looked at");
    let environment = fs::read(format!("/proc/{helper}/environ")).unwrap();
    assert!(environment.iter().all(|byte| *byte == 0));
    for pid in helpers {
        assert!(!has(pid), "{pid}");
    }
    drop(running.stdin.take());
    running.wait().unwrap();
}

/// As a preloaded library may start threads before `main`; every test has some.
#[test]
fn a_process_with_threads_executes_its_helper() {
    let helper = EarlyStart::fork(binary()).unwrap();
    let is_helper = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary());
    let own = std::process::id();
    eventually(|| descendants_with(own, "__jail-helper").iter().any(is_helper));
    drop(helper);
}

#[test]
fn a_program_that_says_nothing_of_itself_can_commit() {
    let code = "git init -q . && git commit -q --allow-empty -m one && git config user.name Ada && \
        git commit -q --allow-empty -m two && git log --format='%an <%ae>'";
    let output = run_code("shell", code, &[]);
    let said = stdout_of(&output);
    assert_eq!(
        said, "Ada <sandbox@localhost>\nsandbox <sandbox@localhost>\n",
        "{output:?}"
    );
}

#[test]
fn a_deadline_is_124_and_keeps_what_was_said() {
    let begun = Instant::now();
    let code = "print('said', flush=True)\nwhile True: pass";
    let output = run_code("python", code, &["--timeout", "1"]);
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(output.stdout, b"said\n");
    assert_took_at_most(begun.elapsed(), Duration::from_secs(3));
    let result = run_json("python", code, &["--timeout", "1"]);
    result.shows(json!({"exit.kind": "timeout", "stdout": "said\n"}));
}

#[test]
fn our_own_failures_are_125_and_wrong_arguments_2_and_both_say_what_to_do() {
    assert_contains(refused(&["run", "/nonexistent.py"], 2), ["hint:"]);
    for (words, part, status) in [
        (&["--allow", "https://example.com"][..], "invalid_argument", 2),
        (&["--memory", "1"], "invalid_argument", 2),
        (&["--timeout", "999999"], "invalid_argument", 2),
        (&["--workspace", "/nonexistent:ro"], "invalid_argument", 2),
        (&["--workspace", "/etc:ro"], "policy_denied", 125),
    ] {
        let output = run_code("shell", "true", &[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(stdout_of(&output).contains(part), "{words:?}: {output:?}");
    }
    for code in ["", "x = '\0'", &"#".repeat((1 << 20) + 1)] {
        assert_eq!(run_code("python", code, &[]).status.code(), Some(2));
    }
}

#[test]
fn output_streams_while_the_program_runs() {
    let mut child = start(ringfence(&["run", "-", "--language", "python"]).stdin(Stdio::piped()));
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
    // An interrupt stops the tree and is told in the status.
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn standard_input_arguments_and_variables_arrive() {
    let script = TempDir::new("stdin");
    let path = script.file(
        "echo.py",
        "import sys, os\nprint(sys.stdin.read().upper(), sys.argv[1:], os.environ['GIVEN'])",
    );
    let words = ["run", &path, "--env", "GIVEN=a=b", "--", "-c", "--help", "a b"];
    let output = feed(ringfence(&words), "hello");
    assert_eq!(stdout_of(&output), "HELLO ['-c', '--help', 'a b'] a=b\n");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_language_is_told_by_ending_or_first_line() {
    let scripts = TempDir::new("language");
    for (name, code, expect) in [
        ("a.py", "print(6 * 7)", "42\n"),
        ("a.mjs", "import os from 'os'; console.log(6 * 7)", "42\n"),
        ("a.cjs", "console.log(require('path').sep)", "/\n"),
        ("a.ts", "const n: number = 42; console.log(n)", "42\n"),
        ("a.sh", "echo $((6 * 7))", "42\n"),
        ("a", "#!/usr/bin/env python3\nprint(42)", "42\n"),
    ] {
        let output = said(&["run", &scripts.file(name, code)]);
        assert_eq!(stdout_of(&output), expect, "{name}: {output:?}");
    }
    refused(&["run", &scripts.file("b", "print(42)")], 2);
}

#[test]
fn values_errors_and_variables_are_told() {
    let result = run_json("python", "x = 2\ny = x + 1\n{'sum': x + y}", &[]);
    result.shows(json!({"result": {"sum": 5}, "variables": ["x", "y"]}));
    let result = run_json("python", "def f():\n    return 1 / 0\n\nf()", &[]);
    result.shows(json!({"error.type": "ZeroDivisionError", "error.line": 2}));
    result.says("error.traceback", ["return 1 / 0"]);
    assert_eq!(result["success"], false);
    let result = run_json("node", "const a = 20;\nawait Promise.resolve(a + 22)", &[]);
    assert_eq!(result["result"], 42);
    // What is Node's own is found by both of its names.
    let code = "const net = await import('node:net'), os = await import('os');\ntypeof net.connect + os.EOL";
    assert_eq!(run_json("node", code, &[])["result"], "function\n");
    let result = run_json(
        "typescript",
        "type T = { n: number };\nfunction f(t: T): never {\n  throw new Error('at ' + t.n);\n}\nf({ n: 1 });",
        &[],
    );
    result.shows(json!({"error.message": "at 1", "error.line": 3}));
}

#[test]
fn what_the_program_leaves_becomes_artifacts() {
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
    result.shows(expect);
}

#[test]
fn bytes_that_are_not_text_are_carried_with_a_flag() {
    let result = run_json("shell", "printf 'a\\377b'", &[]);
    result.shows(json!({"stdout": "a\u{fffd}b", "lossy.stdout": true}));
    assert_eq!(
        run_code("shell", "printf 'a\\377b'", &[]).stdout,
        b"a\xffb",
        "to a pipe they pass unchanged"
    );
}

#[test]
fn an_orphan_neither_outlives_nor_delays_the_run() {
    let begun = Instant::now();
    let result = run_json(
        "shell",
        "sleep 131.41592 & (setsid sleep 131.41592 &) ; echo done",
        &[],
    );
    assert_eq!(result["stdout"], "done\n");
    assert_took_at_most(begun.elapsed(), Duration::from_secs(5));
    assert_gone("131.41592");
}

#[test]
fn the_examples_greet() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["hello.py", "hello.mjs", "hello.ts", "hello.sh"] {
        let output = said(&["run", &examples.join(name).display().to_string()]);
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(stdout_of(&output).to_lowercase().contains("hello"), "{name}");
    }
}

/// claim: [FS-9]
#[test]
fn a_program_that_moves_the_directory_of_copies_sends_them_nowhere_else() {
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
    // Later, into a directory in which the program has left a link.
    let id = text_of(&run["execution_id"]);
    let old = shared.join("old").display().to_string();
    let copied = said(&["artifacts", id, "--out", &old]);
    assert!(!copied.status.success(), "{copied:?}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{copied:?}");
}

#[test]
fn the_servers_own_directory_takes_no_copies() {
    let own = state_dir().join("record/copies").display().to_string();
    let refused = run_json("python", "open('a.txt', 'w').write('x')", &["--artifacts", &own]);
    assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    assert!(!std::path::Path::new(&own).exists(), "and nothing is made there");
}

/// claim: [FS-8]
#[test]
fn copies_of_artifacts_replace_nothing_and_are_not_hidden() {
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
    let said = run_code("python", "open('a.txt', 'w').write('x')", &["--artifacts", &out]);
    assert_contains(
        stderr_of(&said),
        ["a.txt was not copied: there is a file of that name"],
    );
    // The script ended well, and its file is not there.
    assert_eq!(said.status.code(), Some(125));
    let file = directory.file("file", "");
    let refused = run_json("python", "1", &["--artifacts", &file]);
    assert_eq!(refused["error"]["code"], "invalid_argument", "{refused}");
}

#[test]
fn a_name_that_is_too_long_loses_its_own_file_alone() {
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
fn what_is_not_kept_is_said() {
    let output = run_code("shell", "ln -s /etc link; mkfifo fifo", &[]);
    let said = stderr_of(&output);
    assert_contains(&said, ["not kept: link", "not kept: fifo"]);
}
