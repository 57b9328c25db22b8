//! Sessions of Node.js: state, errors and interrupts.

use super::*;
use serde_json::json;

fn node() -> Driver {
    Driver::begin(Language::Node)
}

fn check(live: &mut Driver, code: &str, result: Option<serde_json::Value>) {
    let got = live.call(code);
    assert_eq!(
        (&got.answer.report.result, got.answer.ok),
        (&result, true),
        "{code}: {got:?}"
    );
}

#[test]
fn node_keeps_its_state() {
    let mut live = node();
    check(
        &mut live,
        "const a = 1; let b = 2; var c = 3; function f(x) { return x + a } class K {}",
        None,
    );
    check(&mut live, "f(b + c)", Some(json!(6)));
    check(
        &mut live,
        "const a = 10; let b = 20; class K { static x = 5 }",
        None,
    );
    check(&mut live, "f(b) + K.x", Some(json!(35)));
    check(
        &mut live,
        "const fs = require('fs'); fs.writeFileSync('x', 'y'); fs.readFileSync('x', 'utf8')",
        Some(json!("y")),
    );
    check(
        &mut live,
        "const t = await new Promise((done) => setTimeout(done, 5, 'slept')); t",
        Some(json!("slept")),
    );
    check(&mut live, "Promise.resolve(7)", Some(json!(7)));
    check(
        &mut live,
        "process.chdir('output'); require('path').basename(process.cwd())",
        Some(json!("output")),
    );
    check(
        &mut live,
        "let n = 0; const timer = setInterval(() => n++, 1); undefined",
        None,
    );
    check(
        &mut live,
        "while (n < 2) await new Promise((done) => setTimeout(done, 1)); clearInterval(timer); n > 1",
        Some(json!(true)),
    );
    check(
        &mut live,
        "({ a: [1, null] })",
        None.or(Some(json!({"a": [1, null]}))),
    );
    let got = live.call("console.log('out'); console.error('err')");
    assert_eq!((got.stdout.as_str(), got.stderr.as_str()), ("out\n", "err\n"));
    check(&mut live, "fs.readFileSync(0, 'utf8')", Some(json!("")));
    let arguments = ["a b".to_owned()].map(|word| Argument::try_from(word).unwrap());
    live.send(
        "[process.argv.slice(2), process.env.A, fs.readFileSync(0, 'utf8')]",
        &arguments,
        &[("A".into(), "ä".into())],
        "é".as_bytes(),
    );
    assert_eq!(
        live.wait().unwrap().answer.report.result,
        Some(json!([["a b"], "ä", "é"]))
    );
}

#[test]
fn node_imports_and_leaves_texts_alone() {
    let mut live = node();
    check(&mut live, "(await import('node:os')).EOL", Some(json!("\n")));
    check(
        &mut live,
        "import os, { EOL as eol } from 'node:os'\nimport * as p from \"path\"\nimport 'fs';\n[eol, os.EOL, p.sep]",
        Some(json!(["\n", "\n", "/"])),
    );
    check(
        &mut live,
        "const g = () => import('os'); (await g()).EOL + 'import(\\'x\\')'",
        Some(json!("\nimport('x')")),
    );
    let text = "const words = `a ${'import('}\nimport b from 'c'` // import(";
    check(
        &mut live,
        &format!("import('os');\nimport {{\n  EOL,\n}} from 'os'; {text}\nwords + EOL"),
        Some(json!("a import(\nimport b from 'c'\n")),
    );
    fs::write(live.directory.join("a.json"), "[5]").unwrap();
    check(
        &mut live,
        "import five from './a.json' with { type: 'json' }; with (five) length",
        Some(json!(1)),
    );
}

#[test]
fn node_error_ends_only_its_call() {
    let mut live = node();
    live.call("let x = 5");
    for (code, kind, line) in [
        ("\nthrow new TypeError('boom')", "TypeError", Some(2)),
        ("let y = ;", "SyntaxError", Some(1)),
        ("1;\n\nlet y = ;\n1", "SyntaxError", Some(3)),
        ("5 ===", "SyntaxError", Some(1)),
        ("\nJSON.parse('{')", "SyntaxError", Some(2)),
        ("await 1; nowhere", "ReferenceError", Some(1)),
        ("Promise.reject(new RangeError('r'))", "RangeError", Some(1)),
        (
            "setTimeout(() => { throw new Error('late') }); await new Promise(() => setInterval(() => {}, 1000))",
            "Error",
            Some(1),
        ),
        ("throw 5", "number", None),
        ("(function r() { r() })()", "RangeError", Some(1)),
    ] {
        let got = live.call(code);
        let error = got
            .answer
            .report
            .error
            .clone()
            .unwrap_or_else(|| panic!("{code}: {got:?}"));
        assert_eq!(
            (error.kind.as_str(), got.answer.ok),
            (kind, false),
            "{code}: {error:?}"
        );
        assert!(line.is_none() || error.line == line, "{code}: {error:?}");
        assert_eq!(live.call("x").answer.report.result, Some(json!(5)), "{code}");
    }
    for code in ["process.exit(3)", "process.kill(process.pid, 'SIGKILL')"] {
        let mut live = node();
        let (_, status) = live.last(code);
        assert_eq!(status, code.contains('3').then_some(3));
    }
}

#[test]
fn node_is_interrupted_at_any_code_and_keeps_its_state() {
    let mut live = node();
    live.call("let x = 5");
    let begun = "require('fs').writeFileSync('begun', '');";
    for code in [
        "while (true) {}",
        "await new Promise(() => {})",
        "await 1; await new Promise((done) => setTimeout(done, 1e6))",
        "for (;;) { try { for (;;) {} } catch {} }",
        // From here on the program handles SIGINT itself.
        "process.on('SIGINT', () => {}); await new Promise(() => {})",
        "while (true) {}",
        "await new Promise(() => {})",
    ] {
        let got = live.interrupted(&format!("{begun}{code}"));
        assert_eq!(
            got.answer.report.error.as_ref().map(|error| error.kind.as_str()),
            Some("Interrupted"),
            "{code}: {got:?}"
        );
        let after = live.call("x");
        assert_eq!(
            after.answer.report.result,
            Some(json!(5)),
            "after {code}: {after:?}"
        );
    }
    for _ in 0..20 {
        live.signal();
        let got = live.call("x");
        assert!(
            got.answer.report.result == Some(json!(5)) || !got.answer.ok,
            "{got:?}"
        );
    }
}

#[test]
fn node_call_has_its_result_after_any_replacement() {
    for code in [
        "JSON.stringify = JSON.parse = () => 'no'",
        "Object.prototype.get = () => 1; Object.prototype.value = 3",
        "Object.prototype.code = '1'; Object.prototype.stdin = 5; Object.prototype.env = 5",
        "Object.prototype.objectId = 'x'; Object.prototype.exceptionDetails = {}",
        "Object.prototype.encoding = 'latin1'; Object.prototype.set = 4; Object.prototype.writable = 1; Object.prototype.mode = 5",
        "process.stdout.write = process.stdin = process.argv = null",
        "Buffer.from = Buffer.concat = Buffer.alloc = null",
        "Object.assign(require('util'), { inspect: null, isDeepStrictEqual: null })",
        "Object.entries = Object.defineProperty = Object.fromEntries = Object.hasOwn = Reflect.ownKeys = null",
        "Object.assign(require('fs'), { writeSync: null, closeSync: null, openSync: null, createReadStream: null })",
        "Promise = Symbol.for = setTimeout = null",
        "Object.prototype.ended = Object.prototype.interrupted = 1",
        "Object.getPrototypeOf((function* () {}).prototype).next = null",
        "require('fs').closeSync(0)",
        "({ get then() { throw 1 } })",
        "new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 }, getPrototypeOf() { throw 3 } })",
    ] {
        let mut live = node();
        let got = live.call(code);
        assert!(got.answer.ok, "{code}: {got:?}");
        let read = "[require('fs').readSync(0, new Uint8Array(9)), { a: 1.5 }]";
        live.send(read, &[], &[], b"in");
        let got = live.wait().unwrap_or_else(|_| panic!("{code}: ended"));
        assert_eq!(
            got.answer.report.result,
            Some(json!([2, {"a": 1.5}])),
            "{code}: {got:?}"
        );
        let got = live.call("throw new TypeError('boom')");
        let error = got.answer.report.error.unwrap_or_else(|| panic!("{code}"));
        assert_eq!(
            (error.kind.as_str(), error.message.as_str()),
            ("TypeError", "boom"),
            "{code}"
        );
    }
    // A `toJSON` of all objects decides their JSON, and nothing else.
    let mut live = node();
    live.call("Object.prototype.toJSON = Array.prototype.toJSON = () => 'no'");
    check(&mut live, "1 + 1", Some(json!(2)));
    assert_eq!(
        live.call("[1]").answer.report.result_repr.as_deref(),
        Some("[ 1 ]")
    );
}

#[test]
fn node_call_ends_after_its_callbacks_of_next_tick() {
    let mut live = node();
    for (code, stdout) in [
        (
            "process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('promise')); 1",
            "tick\npromise\n",
        ),
        (
            "require('stream').Readable.from([5]).on('data', console.log); 1",
            "5\n",
        ),
    ] {
        let got = live.call(code);
        assert!(got.answer.ok && got.stdout == stdout, "{code}: {got:?}");
    }
    assert!(
        live.call("process.emitWarning('look'); 1")
            .stderr
            .contains("look")
    );
    for code in [
        "process.nextTick(() => { throw new RangeError('tick') }); 1",
        "new (require('stream').Readable)().destroy(new RangeError('stream')); 1",
    ] {
        let error = live.call(code).answer.report.error;
        assert_eq!(
            error.map(|error| error.kind).as_deref(),
            Some("RangeError"),
            "{code}"
        );
    }
    assert_eq!(live.call("6 * 7").stderr, "");
}

#[test]
fn node_call_may_close_its_input() {
    let mut live = node();
    live.send("require('fs').closeSync(0)", &[], &[], b"in");
    assert!(live.wait().unwrap().answer.ok);
    check(
        &mut live,
        "require('fs').readSync(0, new Uint8Array(9))",
        Some(json!(0)),
    );
}

#[test]
fn node_call_is_strict_also_beside_members_of_all_objects() {
    let mut live = node();
    live.call("Object.prototype.extra = 5; Object.prototype.toJSON = () => 'no'");
    let code = "'use strict'; (function () { return this === undefined && ({}).extra + ({}).toJSON() })()";
    check(&mut live, code, Some(json!("5no")));
    let error = live.call("throw new Error('boom')").answer.report.error.unwrap();
    assert!(error.traceback.contains(":1:7"), "{error:?}");
}

#[test]
fn node_survives_interrupts_at_any_moment() {
    let mut live = node();
    live.call("let x = 5");
    let pid = live.child.id();
    let storm =
        format!("for i in {{1..3000}}; do kill -INT {pid}; [ $((i % 3)) -gt 0 ] || kill -STKFLT {pid}; done");
    let mut storm = Command::new("bash").args(["-c", &storm]).spawn().unwrap();
    let mut ran = 0;
    while storm.try_wait().unwrap().is_none() {
        let got = live.call("{ const end = Date.now() + 1; while (Date.now() < end); }");
        let kind = got.answer.report.error.map(|error| error.kind);
        assert!(matches!(kind.as_deref(), None | Some("Interrupted")), "{kind:?}");
        ran += 1;
    }
    assert!(storm.wait().unwrap().success() && ran > 0);
    while !live.call("x").answer.ok {}
    assert_eq!(live.call("x").answer.report.result, Some(json!(5)));
}
