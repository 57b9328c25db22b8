//! The drivers with this machine's own interpreters, outside of any sandbox: what they report, record by record.
#![expect(clippy::disallowed_methods, reason = "a test starts interpreters")]

use super::{Launch, ProgramReport, launch, needs_preparation, read_report};
use ringfence_types::Language;
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

/// Runs code under its driver, in a directory of its own; descriptor 3 is a file.
fn run(language: Language, code: &str) -> (ProgramReport, Output) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("ringfence-driver-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (program, name) = match language {
        Language::Python => ("/usr/bin/python3", "main.py"),
        _ => ("/usr/bin/node", "main.js"),
    };
    let script = directory.join(name);
    fs::write(&script, code).unwrap();
    let Launch { argv, env, .. } = launch(language, program, &script.display().to_string(), None, &[]);
    let output = Command::new("bash")
        .args(["-c", "exec 3>report; exec \"$@\"", "bash"])
        .args(argv)
        .envs(env)
        .current_dir(&directory)
        .output()
        .unwrap();
    let report = read_report(&fs::read(directory.join("report")).unwrap());
    fs::remove_dir_all(PathBuf::from(&directory)).unwrap();
    (report, output)
}

#[test]
fn python_values_are_told_as_json_where_they_are_json() {
    let check = |code: &str, result: Option<serde_json::Value>, repr: Option<&str>| {
        let (report, output) = run(Language::Python, code);
        assert_eq!(
            (report.result, report.result_repr.as_deref()),
            (result, repr),
            "{code}: {output:?}"
        );
    };
    check("1 + 1", Some(json!(2)), Some("2"));
    check("x = 1", None, None);
    check(
        "result = {'a': [1, None]}",
        Some(json!({"a": [1, null]})),
        Some("{'a': [1, None]}"),
    );
    check("output = 3\nprint(output)", Some(json!(3)), Some("3"));
    check("(1, 2)", Some(json!([1, 2])), Some("(1, 2)"));
    check("{1: 2}", None, Some("{1: 2}"));
    check("float('nan')", None, Some("nan"));
    check("a = []\na.append(a)\na", None, Some("[[...]]"));
    check(
        "class X:\n    def __repr__(self): 1 / 0\nX()",
        None,
        Some("<unrepresentable X>"),
    );
    check(
        "from __future__ import annotations\ndef f(x: Nowhere): return 5\nf(1)",
        Some(json!(5)),
        Some("5"),
    );
    check(
        "import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'slept')",
        Some(json!("slept")),
        Some("'slept'"),
    );
    check("'only a docstring'", None, None);
}

#[test]
fn python_errors_are_the_callers() {
    let check = |code: &str, kind: &str, line: Option<u32>, status: i32| {
        let (report, output) = run(Language::Python, code);
        let error = report.error.unwrap_or_else(|| panic!("{code}: {output:?}"));
        assert_eq!(
            (error.kind.as_str(), error.line, output.status.code()),
            (kind, line, Some(status)),
            "{code}"
        );
        assert!(!error.traceback.contains("_ringfence"), "{}", error.traceback);
    };
    check("def f():\n    return {}['x']\n\nf()", "KeyError", Some(2), 1);
    check("x = 1\ndef broken(:\n", "SyntaxError", Some(2), 1);
    check(
        "import asyncio\nawait asyncio.sleep(0)\nraise ValueError('late')",
        "ValueError",
        Some(3),
        1,
    );
    check("def r(): r()\nr()", "RecursionError", Some(1), 1);
    check(
        "raise ValueError('x') from KeyError('y')",
        "ValueError",
        Some(1),
        1,
    );
    check(
        "import json\njson.loads('{')",
        "json.decoder.JSONDecodeError",
        Some(2),
        1,
    );
}

#[test]
fn python_leaves_as_it_always_did() {
    for (code, status, stderr) in [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('bye')", 1, "bye\n"),
        ("import os; os._exit(7)", 7, ""),
    ] {
        let (report, output) = run(Language::Python, code);
        assert_eq!(
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).as_ref()
            ),
            (Some(status), stderr),
            "{code}"
        );
        assert_eq!(report.error, None, "{code}");
    }
    let (_, output) = run(
        Language::Python,
        "import threading, atexit, time\natexit.register(print, 'atexit')\nthreading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()",
    );
    assert_eq!(output.stdout, b"thread\natexit\n");
}

#[test]
fn node_values_errors_and_names_are_told() {
    let (report, _) = run(
        Language::Node,
        "const a = 1; let { b } = { b: 2 }; var c = 3; function f() {} a + b + c",
    );
    assert_eq!(report.result, Some(json!(6)));
    assert_eq!(report.variables, ["a", "b", "c", "f"]);
    let check = |code: &str, kind: &str, line: Option<u32>| {
        let (report, output) = run(Language::Node, code);
        let error = report.error.unwrap_or_else(|| panic!("{code}: {output:?}"));
        assert_eq!(
            (error.kind.as_str(), error.line, output.status.code()),
            (kind, line, Some(1)),
            "{code}"
        );
    };
    check(
        "function f() {\n  throw new TypeError('boom') }\nf()",
        "TypeError",
        Some(2),
    );
    check("let a = ;", "SyntaxError", Some(1));
    check("Promise.reject(new RangeError('r'))", "RangeError", Some(1));
    check("throw 5", "number", None);
    let (report, output) = run(Language::Node, "process.exit(3)");
    assert_eq!((report.error, output.status.code()), (None, Some(3)));
    assert_eq!(run(Language::Node, "return 5").0.result, Some(json!(5)));
    assert_eq!(run(Language::Node, "Promise.resolve(7)").0.result, Some(json!(7)));
    assert_eq!(run(Language::Node, "const o = {}; o.o = o; o").0.result, None);
    assert_eq!(
        run(Language::Node, "setTimeout(() => console.log('later'), 20); 1")
            .1
            .stdout,
        b"later\n"
    );
}

#[test]
fn only_what_may_be_a_module_is_parsed_first() {
    assert!(needs_preparation(Language::Typescript, "1", "main.ts"));
    assert!(needs_preparation(Language::Node, "await x", "main.js"));
    assert!(needs_preparation(Language::Node, "1", "main.mjs"));
    assert!(!needs_preparation(Language::Node, "require('x')", "main.js"));
    assert!(!needs_preparation(Language::Python, "import x", "main.py"));
}
