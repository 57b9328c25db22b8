//! The drivers with this machine's own interpreters, outside of any sandbox: their reports, record by record.
#![expect(clippy::disallowed_methods, reason = "a test starts interpreters")]

mod imports;

use super::{Launch, Prepared, ProgramReport, needs_preparation, read_report};
use ringfence_check::{ModuleAnswer, ModuleQuestion, prepare};
use ringfence_types::{Display, Language};
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

#[derive(PartialEq, Eq)]
pub(super) enum Setting {
    Program,
    Call,
}

/// Returns the code as the parser of modules leaves it; only JavaScript has one.
pub(super) fn parsed(language: Language, code: &str, setting: Setting) -> ModuleAnswer {
    let question = ModuleQuestion {
        code: code.to_owned(),
        name: "main.js".to_owned(),
        typescript: false,
        session: setting == Setting::Call,
        workspace: "/workspace".to_owned(),
    };
    let answer: ModuleAnswer =
        serde_json::from_slice(&prepare(&serde_json::to_vec(&question).unwrap())).unwrap();
    match (language, &answer.error) {
        (Language::Node, None) => answer,
        _ => ModuleAnswer {
            code: code.to_owned(),
            ..ModuleAnswer::default()
        },
    }
}

/// Runs code under its driver, in a directory of its own; descriptor 3 is a file.
fn run(language: Language, code: &str) -> (ProgramReport, Output) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("ringfence-driver-{}-{number}", std::process::id()));
    fs::create_dir_all(directory.join("output")).unwrap();
    let (program, name) = match language {
        Language::Python => ("/usr/bin/python3", "main.py"),
        _ => ("/usr/bin/node", "main.js"),
    };
    let ModuleAnswer { code, module, .. } = parsed(language, code, Setting::Program);
    let script = Prepared::script(name.to_owned(), String::new());
    let prepared = Prepared { module, ..script };
    fs::write(directory.join(prepared.name()), code).unwrap();
    let Launch { argv, env, .. } = prepared.launch(language, program.as_ref(), &directory, &[]);
    let output = Command::new("bash")
        .args(["-c", "exec 3>report; exec \"$@\"", "bash"])
        .args(argv)
        .envs(env)
        .env("RINGFENCE_OUTPUT_DIR", directory.join("output"))
        .current_dir(&directory)
        .output()
        .unwrap();
    let report = read_report(&fs::read(directory.join("report")).unwrap());
    fs::remove_dir_all(PathBuf::from(&directory)).unwrap();
    (report, output)
}

#[test]
fn python_value_is_reported_as_json_if_it_is_json() {
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
    // `result`, `output` and `_` count if the program assigns them at its top level.
    let three = || Some(json!(3));
    check("for _ in range(3): pass", None, None);
    check("_ = 7\nfor a, (_, *result) in [(1, (2, 3))]: pass", None, None);
    check("first, _ = 1, 2", None, None);
    check("from math import pi as result", None, None);
    check(
        "def f():\n    result = 2\nf()\nx = [0 for result in range(9)]",
        None,
        None,
    );
    check("result = 1\nresult += 2\nprint()", three(), Some("3"));
    check("_: int = 3", three(), Some("3"));
    check("x = output = 3", three(), Some("3"));
    check(
        "try:\n    if 1:\n        result = 3\nfinally: pass",
        three(),
        Some("3"),
    );
    check("result = 3\ndel result", None, None);
    check(
        "result = 3\nimport asyncio\nawait asyncio.sleep(0)",
        three(),
        Some("3"),
    );
}

#[test]
fn numpy_numbers_are_reported_as_json() {
    // The attributes of numpy that the driver uses: the type's module, `size` and `tolist`.
    let check = |value: &str, result: Option<serde_json::Value>| {
        let code = format!(
            "class N:\n    size = 1\n    def __init__(self, value): self.value = value\n    \
             def tolist(self): return self.value\n    def __eq__(self, other): return self.value == other\n\
             N.__module__ = 'numpy'\nclass Odd: pass\nOdd.__module__ = 'numpy'\n{value}"
        );
        let (report, output) = run(Language::Python, &code);
        assert_eq!(
            (report.result, report.error),
            (result, None),
            "{value}: {output:?}"
        );
    };
    check("N(1.5)", Some(json!(1.5)));
    check("N([[1, 2], [3, 4]])", Some(json!([[1, 2], [3, 4]])));
    check("{'n': N(3)}", Some(json!({"n": 3})));
    check("N(float('inf'))", None);
    check("N(1j)", None);
    check("x = N(1)\nx.size = 1 << 17\nx", None);
    check("Odd()", None);
}

/// Returns the displays of a program that defines a class `V` and ends with a value of it.
fn displays(forms: &str) -> Vec<(String, Option<String>, Option<String>)> {
    let code = format!("class V:\n{forms}\nV()");
    let (report, output) = run(Language::Python, &code);
    assert!(output.status.success() && report.error.is_none(), "{output:?}");
    let flat = |one: Display| (one.mime, one.artifact, one.text);
    report.display.into_iter().map(flat).collect()
}

#[test]
fn python_value_is_displayed_in_all_its_forms() {
    let text = |mime: &str, text: &str| (mime.to_owned(), None, Some(text.to_owned()));
    let file = |mime: &str, name: &str| (mime.to_owned(), Some(name.to_owned()), None);
    let form = |name: &str, value: &str| format!("    def _repr_{name}_(self): return {value}\n");
    let check = |forms: String, expect: &[(String, Option<String>, Option<String>)]| {
        assert_eq!(displays(&forms), expect, "{forms}");
    };
    check(form("html", "'<b>é</b>'"), &[text("text/html", "<b>é</b>")]);
    check(
        form("svg", "'<svg/>'") + &form("markdown", "'# x'") + &form("latex", "'$x$', {}"),
        &[
            text("image/svg+xml", "<svg/>"),
            text("text/markdown", "# x"),
            text("text/latex", "$x$"),
        ],
    );
    check(
        form("json", "{'a': [1]}"),
        &[text("application/json", "{\"a\": [1]}")],
    );
    check(
        form("png", "b'png'"),
        &[file("image/png", "output/display-1.png")],
    );
    check(
        form("png", "'cG5n'"),
        &[file("image/png", "output/display-1.png")],
    );
    check(
        form("html", "'x' * (1 << 18)"),
        &[text("text/html", &"x".repeat(1 << 18))],
    );
    check(
        form("html", "'x' * ((1 << 18) + 1)"),
        &[file("text/html", "output/display-1.html")],
    );
    // A form that fails is left out.
    check(
        form("png", "1 / 0") + &form("svg", "5") + &form("latex", "exit(3)") + &form("html", "'y'"),
        &[text("text/html", "y")],
    );
    check(form("html", "None"), &[]);
    check(form("html", "''"), &[]);
    check(form("html", "'\\ud800'"), &[text("text/html", "\\ud800")]);
    // Methods of the instance, which may have any attribute, and of the class itself do not count.
    check(
        "    def __getattr__(self, name): return lambda: 'z'".to_owned(),
        &[],
    );
    let (report, _) = run(Language::Python, &format!("class V:\n{}V", form("html", "'x'")));
    assert_eq!(report.display, []);
    assert!(report.result_repr.is_some());
}

const PYPLOT: &str = "import os, sys, types
class Figure:
    def __init__(self, number): self.number = number
    def savefig(self, file, format):
        file.write(b'%s %d' % (format.encode(), self.number))
        if self.number == 2: raise ValueError('cannot be drawn')
plot = types.ModuleType('matplotlib.pyplot')
plot.get_fignums = lambda: numbers
plot.figure = Figure
sys.modules['matplotlib.pyplot'] = plot
output = os.environ['RINGFENCE_OUTPUT_DIR']
";

#[test]
fn open_figures_are_saved_at_any_end_of_a_python_program() {
    let named = |numbers: &[u32]| -> Vec<Option<String>> {
        let name = |number| Some(format!("output/figure-{number}.png"));
        numbers.iter().map(name).collect()
    };
    let check = |code: &str, expect: &[u32], status: i32| {
        let (report, output) = run(Language::Python, &format!("{PYPLOT}{code}"));
        let names: Vec<_> = report.display.into_iter().map(|one| one.artifact).collect();
        assert_eq!(
            (names, output.status.code()),
            (named(expect), Some(status)),
            "{code}: {output:?}"
        );
        assert!(!String::from_utf8_lossy(&output.stderr).contains("cannot be drawn"));
    };
    check("numbers = []", &[], 0);
    check("numbers = [1]", &[1], 0);
    check("numbers = [1, 2, 3]", &[1, 2], 0);
    check("numbers = [1]\nsys.exit(3)", &[1], 3);
    check("numbers = [1]\n1 / 0", &[1], 1);
    check("numbers = [1]\nos.environ.clear()\nos.chdir('/')", &[1], 0);
    check("numbers = [1]\nopen(output + '/figure-1.png', 'w')", &[2], 0);
    check("numbers = list(range(3, 99))", &Vec::from_iter(1..=16), 0);
    check("numbers = None", &[], 0);
    check("numbers = [1]\nos.rmdir(output)", &[], 0);
    check("numbers = [1]\ndel plot.get_fignums", &[], 0);
    check("numbers = [1]\nplot.figure = sys.exit", &[], 0);
}

#[test]
fn python_error_is_reported_in_the_callers_code() {
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
fn python_exit_behaviour_is_preserved() {
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
fn node_values_errors_and_names_are_reported() {
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
fn module_imports_as_node_does() {
    let code = r#"import fs from 'node:fs';
fs.mkdirSync('node_modules/dual', { recursive: true });
const put = (name, text) => fs.writeFileSync('node_modules/dual/' + name, text);
put('package.json', '{"exports": {"import": "./a.mjs", "require": "./a.cjs"}}');
put('a.mjs', 'export default "module"; export const here = import.meta.url;');
put('a.cjs', 'module.exports = "CommonJS"');
put('a.json', '[5]');
const dual = await import('dual');
const names = ['./node_modules/dual/a.mjs', new URL('./node_modules/dual/a.mjs', import.meta.url), dual.here];
for (const name of names) if (await import(name) !== dual) throw name;
const { default: [five] } = await import('./node_modules/dual/a.json', { with: { type: 'json' } });
const data = await import('data:text/javascript,export default 7');
const missing = await import('nowhere').catch((error) => error.code);
[dual.default, five, data.default, missing, import.meta.resolve('node:fs')]"#;
    let (report, output) = run(Language::Node, code);
    let expected = json!(["module", 5, 7, "ERR_MODULE_NOT_FOUND", "node:fs"]);
    assert_eq!(report.result, Some(expected), "{report:?} {output:?}");
}

#[test]
fn only_possible_modules_are_parsed_first() {
    assert!(needs_preparation(Language::Typescript, "1", "main.ts"));
    assert!(needs_preparation(Language::Node, "await x", "main.js"));
    assert!(needs_preparation(Language::Node, "1", "main.mjs"));
    assert!(!needs_preparation(Language::Node, "require('x')", "main.js"));
    assert!(!needs_preparation(Language::Python, "import x", "main.py"));
}
