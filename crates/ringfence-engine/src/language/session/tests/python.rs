//! Sessions of Python: state, errors, interrupts, and programs that break their environment.

use super::*;
use serde_json::json;

fn python() -> Driver {
    Driver::begin(Language::Python)
}

#[test]
fn python_keeps_its_state() {
    let mut live = python();
    let check = |live: &mut Driver, code: &str, result: Option<serde_json::Value>, stdout: &str| {
        let got = live.call(code);
        assert_eq!(
            (&got.answer.report.result, got.stdout.as_str(), got.answer.ok),
            (&result, stdout, true),
            "{code}: {got:?}"
        );
    };
    check(
        &mut live,
        "import os, math\nx = 5\ndef f(y): return x + y",
        None,
        "",
    );
    check(&mut live, "f(2)", Some(json!(7)), "");
    check(&mut live, "x = 6; f(2)", Some(json!(8)), "");
    check(&mut live, "math.floor(1.5)", Some(json!(1)), "");
    check(&mut live, "'text'", Some(json!("text")), "");
    check(
        &mut live,
        "os.mkdir('d'); os.chdir('d'); file = open('a', 'w+')",
        None,
        "",
    );
    check(&mut live, "os.path.basename(os.getcwd())", Some(json!("d")), "");
    check(
        &mut live,
        "file.write('abc'); file.seek(0); file.read()",
        Some(json!("abc")),
        "",
    );
    check(&mut live, "print('no newline', end='')", None, "no newline");
    check(&mut live, "os.system('echo child')", Some(json!(0)), "child\n");
    // An assignment to `result` is the result of its own call only.
    check(&mut live, "result = 3", Some(json!(3)), "");
    check(&mut live, "pass", None, "");
    check(&mut live, "print(result)", None, "3\n");
    check(&mut live, "if not result: result = 4", None, "");
    check(&mut live, "for result in [3]: pass", None, "");
    check(&mut live, "result = 3", Some(json!(3)), "");
    check(&mut live, "from __future__ import annotations", None, "");
    check(&mut live, "def g(a: Nowhere): return a\ng(1)", Some(json!(1)), "");
    check(
        &mut live,
        "import threading\ngo, went = threading.Event(), threading.Event()\n\
         threading.Thread(target=lambda: (go.wait(), went.set()), daemon=True).start()",
        None,
        "",
    );
    check(&mut live, "go.set(); went.wait(10)", Some(json!(true)), "");
    check(
        &mut live,
        "import inspect; inspect.getsource(f)",
        Some(json!("def f(y): return x + y\n")),
        "",
    );
    check(
        &mut live,
        "__name__, '__file__' in globals()",
        Some(json!(["__main__", false])),
        "",
    );
}

#[test]
fn python_reports_the_names_of_each_call() {
    let mut live = python();
    let names = |live: &mut Driver, code: &str| live.call(code).answer.report.variables;
    assert_eq!(
        names(
            &mut live,
            "import os\nx = y = 1\nclass C: z = 1\ndef f(): w = 1\ndel y\n__p = 1"
        ),
        ["x", "C", "f"]
    );
    assert_eq!(names(&mut live, "x = 2\nfor i in range(2): pass"), ["x", "i"]);
    assert_eq!(names(&mut live, "x"), [""; 0]);
    let many: String = (0..600).map(|number| format!("v{number} = 1\n")).collect();
    assert_eq!(names(&mut live, &many).len(), 600);
}

#[test]
fn python_event_loop_continues_between_calls() {
    let mut live = python();
    let check = |live: &mut Driver, code: &str, result: serde_json::Value| {
        let got = live.call(code);
        assert_eq!(got.answer.report.result, Some(result), "{code}: {got:?}");
    };
    check(
        &mut live,
        "import asyncio\nasyncio.run(asyncio.sleep(0, 1))",
        json!(1),
    );
    check(&mut live, "await asyncio.sleep(0, 2)", json!(2));
    live.call(
        "import os\nasync def later():\n    await asyncio.sleep(0.05)\n    open('went', 'w').close()\n    return 3\n\
         task = asyncio.ensure_future(later())\nawait asyncio.sleep(0)",
    );
    // The task continues without a call.
    let end = Instant::now() + TIMEOUT;
    while !live.directory.join("went").exists() {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
    check(&mut live, "await task", json!(3));
    check(&mut live, "asyncio.run(asyncio.sleep(0, 4))", json!(4));
    check(
        &mut live,
        "queue = asyncio.Queue(); await queue.put(5); await queue.get()",
        json!(5),
    );
    // A loop that the program has broken is replaced.
    live.call("async def f(): asyncio.get_running_loop().stop()\nt = asyncio.ensure_future(f())\nawait asyncio.sleep(0)");
    live.call("asyncio.get_event_loop_policy().get_event_loop().close()");
    check(&mut live, "await asyncio.sleep(0, 6)", json!(6));
}

#[test]
fn ipython_command_error_has_a_hint() {
    let mut live = python();
    for code in ["%matplotlib inline", "x = 1\n!pip install x"] {
        let error = live.call(code).answer.report.error.unwrap();
        assert!(
            error.message.contains("IPython") && error.traceback.contains("IPython"),
            "{error:?}"
        );
    }
    assert!(!live.call("x = 1 !").stderr.contains("IPython"));
}

#[test]
fn python_error_ends_only_its_call() {
    let mut live = python();
    live.call("x = 5\ndef f():\n    return {}['k']");
    let check = |live: &mut Driver, code: &str, kind: &str, line: Option<u32>, shown: &str| {
        let got = live.call(code);
        let error = got
            .answer
            .report
            .error
            .clone()
            .unwrap_or_else(|| panic!("{code}: {got:?}"));
        assert_eq!(
            (error.kind.as_str(), error.line, got.answer.ok),
            (kind, line, false),
            "{got:?}"
        );
        for part in shown.split('|') {
            assert!(error.traceback.contains(part), "{part}: {}", error.traceback);
        }
        assert!(
            !error.traceback.contains("ringfence") && !error.traceback.contains("_run_once"),
            "{}",
            error.traceback
        );
        assert_eq!(got.stderr, error.traceback);
    };
    check(
        &mut live,
        "\nf()",
        "KeyError",
        Some(2),
        "File \"call-2\", line 2|f()|File \"call-1\", line 3, in f|return {}['k']",
    );
    check(
        &mut live,
        "x = 1\ndef broken(:",
        "SyntaxError",
        Some(2),
        "call-3|broken",
    );
    // The type of this error depends on the version.
    assert!(live.call("a\0b").stderr.contains("null bytes"));
    check(
        &mut live,
        "import asyncio\nawait asyncio.sleep(0)\n1 / 0",
        "ZeroDivisionError",
        Some(3),
        "1 / 0",
    );
    check(&mut live, "def r(): r()\nr()", "RecursionError", Some(1), "r()");
    check(
        &mut live,
        "raise KeyboardInterrupt",
        "KeyboardInterrupt",
        Some(1),
        "raise",
    );
    check(
        &mut live,
        "class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E",
        "E",
        Some(3),
        "raise E",
    );
    assert_eq!(live.call("x").answer.report.result, Some(json!(5)));
}

#[test]
fn python_is_interrupted_at_any_code_and_keeps_its_state() {
    let mut live = python();
    live.call("import asyncio, time, threading\nx = 5");
    let begun = "open('begun', 'w').close()\n";
    for code in [
        "while True: pass",
        "time.sleep(1000)",
        "threading.Event().wait()",
        "await asyncio.sleep(1000)",
        "await asyncio.sleep(0)\nwhile True: pass",
        "asyncio.run(asyncio.sleep(1000))",
        "async def spin():\n    while True: pass\nawait spin()",
        "async def spin():\n    BEGUN    while True: await asyncio.sleep(0)\nt = asyncio.ensure_future(spin())\nawait t",
        "async def spin():\n    BEGUN    while True: pass\nt = asyncio.ensure_future(spin())\nawait asyncio.sleep(1000)",
        "import os; os.system('exec sleep 1000')\nwhile True: pass",
        "class H:\n    def __repr__(self):\n        while True: pass\nH()",
        "class H(Exception):\n    def __str__(self):\n        while True: pass\nraise H",
        "class H:\n    def write(self, text): pass\n    def flush(self):\n        sys.stdout = sys.__stdout__\n        \
         while True: pass\nimport sys; sys.stdout = H()",
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n\
         while True: pass",
        "input('?') if False else None\n[0 for _ in iter(int, 1)]",
    ] {
        let code = match code.contains("BEGUN") {
            true => code.replace("BEGUN", begun),
            false => format!("{begun}{code}"),
        };
        let got = live.interrupted(&code);
        assert!(!got.answer.ok, "{code}: {got:?}");
        let error = got.answer.report.error.unwrap_or_else(|| panic!("{code}"));
        assert!(
            ["KeyboardInterrupt", "H"].contains(&error.kind.as_str()),
            "{code}: {error:?}"
        );
        assert!(!error.traceback.contains("ringfence"), "{}", error.traceback);
        let got = live.call("x");
        assert_eq!(got.answer.report.result, Some(json!(5)), "after {code}: {got:?}");
    }
    // A loop may catch interrupts; the call then ends by itself.
    let code = "caught = 0\nwhile caught < 3:\n    try:\n        open(f'caught{caught}', 'w').close()\n        \
        time.sleep(1000)\n    except KeyboardInterrupt: caught += 1\ncaught";
    live.send(code, &[], &[], b"");
    for caught in 0..3 {
        live.await_file(&format!("caught{caught}"));
        live.signal();
    }
    let got = live.wait().unwrap();
    assert_eq!(got.answer.report.result, Some(json!(3)), "{got:?}");
}

#[test]
fn interrupt_between_calls_is_harmless() {
    let mut live = python();
    for round in 0..100 {
        live.signal();
        // Without and with an event loop that waits.
        let code = if round < 50 {
            "1 + 1"
        } else {
            "import asyncio; await asyncio.sleep(0); 1 + 1"
        };
        live.signal();
        let got = live.call(code);
        let hit = got
            .answer
            .report
            .error
            .as_ref()
            .is_some_and(|error| error.kind == "KeyboardInterrupt");
        assert!(hit || got.answer.report.result == Some(json!(2)), "{got:?}");
        assert!(live.child.try_wait().unwrap().is_none());
    }
}

#[test]
fn python_gets_arguments_environment_and_input_of_each_call() {
    let mut live = python();
    let arguments = ["a b", "--c"].map(|word| Argument::try_from(word.to_owned()).unwrap());
    let code = "import os, subprocess, sys, time\nkept = sys.stdin\n[sys.argv[1:], os.environ['A'], time.tzname[0], input(), \
                subprocess.run(['cat'], capture_output=True).stdout.decode()]";
    let env = [("A", "ä"), ("TZ", "ABC-1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send(code, &arguments, &env, "één\n".as_bytes());
    let got = live.wait().unwrap();
    assert_eq!(
        got.answer.report.result,
        Some(json!([["a b", "--c"], "ä", "ABC", "één", ""])),
        "{got:?}"
    );
    live.send(
        "subprocess.run(['cat'], capture_output=True).stdout.decode()",
        &[],
        &[],
        &vec![b'x'; 300_000],
    );
    let got = live.wait().unwrap();
    assert!(got.answer.report.result_repr.unwrap().starts_with("'xxx"));
    // Input of one call is not left for the next, and a call without input is at its end of file.
    live.send("1", &[], &[], b"unread\n");
    live.wait().unwrap();
    let got = live.call("[sys.argv[1:], os.environ['A'], sys.stdin.read(), kept.read(), os.system('cat')]");
    assert_eq!(
        got.answer.report.result,
        Some(json!([[], "ä", "", "", 0])),
        "{got:?}"
    );
    assert_eq!(live.call("input()").answer.report.error.unwrap().kind, "EOFError");
}

#[test]
fn exit_with_0_keeps_the_session() {
    let mut live = python();
    for code in ["x = 1; exit()", "import sys; x += 1; sys.exit(0)"] {
        let got = live.call(code);
        assert!(got.answer.ok && got.answer.report.error.is_none(), "{got:?}");
    }
    assert_eq!(live.call("x").answer.report.result, Some(json!(2)));
    let child = live.call("import os\npid = os.fork()\nif not pid: sys.exit(0)\nos.waitpid(pid, 0)[1]");
    assert_eq!(child.answer.report.result, Some(json!(0)), "{child:?}");
}

#[test]
fn python_session_ends_on_exit() {
    for (code, status, stdout) in [
        ("import sys; sys.exit(3)", Some(3), ""),
        ("import os; os._exit(7)", Some(7), ""),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            None,
            "",
        ),
        (
            "import atexit; atexit.register(print, 'last'); print('x', end=''); raise SystemExit(4)",
            Some(4),
            "xlast\n",
        ),
        (
            "import asyncio; await asyncio.sleep(0); raise SystemExit(5)",
            Some(5),
            "",
        ),
        (
            "import sys; sys.setrecursionlimit(1 << 30)\ndef f(): return f.__call__()\nf()",
            None,
            "",
        ),
    ] {
        let mut live = python();
        let (got, ended) = live.last(code);
        assert_eq!((ended, got.stdout.as_str()), (status, stdout), "{code}: {got:?}");
    }
    // The requests are closed.
    let mut live = python();
    live.call("import atexit; atexit.register(print, 'last')");
    drop(live.requests.take());
    assert_eq!(live.child.wait().unwrap().code(), Some(0));
    assert_eq!(live.reply(DriverAnswer::default()).stdout, "last\n");
}

/// Programs that replace what the driver uses, or show it objects that raise or lie.
const REPLACED: &[&str] = &[
    "import builtins; builtins.open = builtins.repr = builtins.len = None",
    "import sys; sys.stdout = None; sys.stderr = None",
    "import sys; del sys.stdout, sys.stderr, sys.stdin; sys.argv = None",
    "import json; json.dumps = lambda *a, **k: 'lie'; json.loads = json.JSONEncoder = json.JSONDecoder = None",
    "import json; json.encoder.c_make_encoder = json.encoder.encode_basestring_ascii = None",
    "import os\nfor n in ('write', 'read', 'readv', 'dup2', 'close', 'lseek', 'memfd_create', 'getpid'): setattr(os, n, None)",
    "import linecache, traceback\nfor m in (linecache, traceback): vars(m).clear()",
    "import traceback; traceback.format_exception = lambda *a: [5]",
    "import re, io, binascii; re.search = re.compile = io.TextIOWrapper = binascii.a2b_base64 = None",
    "import sys\nfor n in ('json', 'traceback', 'linecache', 'os', 'io', 're'): sys.modules[n] = None",
    "import signal; signal.signal(2, 1); signal.signal = None",
    "globals()[5] = 6",
    "class P:\n    def write(self, text): raise SystemExit(3)\n    def flush(self): raise SystemExit(4)\n\
     import sys; sys.stdout = sys.stderr = P()",
    "import sys, types; m = types.ModuleType('m'); m.get_fignums = lambda: 1 / 0; sys.modules['matplotlib.pyplot'] = m",
    // A task of the event loop that leaves the program, between two calls.
    "import asyncio, os, sys\nasync def leave():\n    await asyncio.sleep(0.01)\n    open('left', 'w').close()\n    sys.exit(0)\n\
     task = asyncio.ensure_future(leave()); await asyncio.sleep(0)",
    // A child of such a task: the loop of its parent must not lose the descriptor of requests.
    "import asyncio, os, sys\nasync def leave():\n    await asyncio.sleep(0.01)\n    child = os.fork()\n    \
     if child == 0: sys.exit(0)\n    os.waitpid(child, 0)\n    open('left', 'w').close()\n\
     task = asyncio.ensure_future(leave()); await asyncio.sleep(0)",
    "import os; os.close(0)",
    "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(3)\n    def __eq__(cls, other): return True\n    \
     def __hash__(cls): raise SystemExit(4)\nclass A(metaclass=M): pass\na = A()\na",
    "class M(type):\n    __name__ = __module__ = property(lambda cls: 1 / 0)\n    \
     def __getattr__(cls, name): raise RuntimeError\nclass A(metaclass=M): pass\na = A()\na",
    "class A:\n    __class__ = property(lambda self: 1 / 0)\n    def __repr__(self): raise SystemExit(3)\n    \
     def __eq__(self, other): raise SystemExit(3)\n    __hash__ = __eq__\na = A()\na",
    "class S(str):\n    def encode(self, *a): raise SystemExit(3)\n    __getitem__ = encode\n\
     class A:\n    __class__ = str\n    def __repr__(self): return S('x')\na = A()\na",
    "class I(int):\n    def __repr__(self): raise SystemExit(3)\n    def __eq__(self, other): raise SystemExit(4)\n\
     a = [I(5)]\na",
];

#[test]
fn python_call_has_its_result_after_any_replacement() {
    for code in REPLACED {
        let mut live = python();
        let got = live.call(code);
        assert!(got.answer.ok, "{code}: {got:?}");
        if code.contains("left") {
            live.await_file("left");
        }
        live.send("import sys; [sys.stdin.read(), {'a': 1.5}]", &[], &[], b"in");
        let got = live.wait().unwrap_or_else(|_| panic!("{code}: ended"));
        assert_eq!(
            got.answer.report.result,
            Some(json!(["in", {"a": 1.5}])),
            "{code}: {got:?}"
        );
        assert_eq!(live.call("x = 1").answer.report.variables, ["x"], "{code}");
        let got = live.call("raise KeyError('k')");
        let error = got.answer.report.error.unwrap_or_else(|| panic!("{code}"));
        assert_eq!(
            (error.kind.as_str(), error.line),
            ("KeyError", Some(1)),
            "{code}: {error:?}"
        );
        assert!(error.traceback.contains("KeyError: 'k'"), "{code}: {error:?}");
    }
}

#[test]
fn hostile_error_ends_only_its_call() {
    for code in [
        "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(3)\n\
         class A(Exception, metaclass=M):\n    def __str__(self): raise SystemExit(5)\nraise A('x')",
        "class E(Exception):\n    __traceback__ = property(lambda self: 1 / 0)\nraise E",
        "class E(SystemExit):\n    code = property(lambda self: 1 / 0)\nraise E",
        "class Z:\n    def __eq__(self, other): raise ValueError\nraise NameError(Z())",
    ] {
        let mut live = python();
        let got = live.call(code);
        assert!(got.answer.report.error.is_some(), "{code}: {got:?}");
        assert_eq!(live.call("6 * 7").answer.report.result, Some(json!(42)), "{code}");
    }
}

#[test]
fn python_answers_or_ends_after_any_breakage() {
    for code in [
        "import sys; sys.stdout = None; sys.stderr = 5; sys.stdin = 'x'; sys.argv = None",
        "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "import os; os.close(0); os.close(1); os.close(3)",
        "import os; os.closerange(0, 60)",
        "import sys; del sys.modules['__main__']; import gc; gc.collect()",
        "import sys; sys.modules.clear()",
        "globals().clear()",
        "len = str = type = list = dict = isinstance = getattr = repr = None",
        "import builtins\nfor name in dir(builtins):\n    if name[0].islower() and name not in ('setattr',): setattr(builtins, name, None)",
        "import os; os.write = os.read = os.dup2 = os.getpid = os.open = None; os.environ = {}",
        "import json, linecache, signal, traceback\nfor m in (json, linecache, traceback): vars(m).clear()",
        "import sys; sys.exit = None; sys.excepthook = None; sys.setrecursionlimit(40)",
        "import sys; sys.settrace(lambda *a: 1 / 0); sys.setprofile(lambda *a: 1 / 0)",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)",
        "import os\nif os.fork() == 0: x = 1",
        "import os\nif os.fork() == 0: raise ValueError",
        "import os\nif os.fork() == 0: os.execv('/bin/sleep', ['sleep', '30'])",
        "import os, sys\nif os.fork() == 0: sys.exit()",
        "import sys; sys.displayhook = sys.audit = None; sys.addaudithook(lambda *a: 1 / 0)",
        "import threading\nthreading.Thread(target=lambda: 1 / 0).start()",
        "class X:\n    def __repr__(self): return 'x' * (10 << 20)\nX()",
        "class X:\n    def __repr__(self): return 5\n    __class__ = property(lambda self: 1 / 0)\n    def __getattr__(self, name): raise SystemExit\nX()",
        "raise type('E', (BaseException,), {'__str__': lambda self: 1 / 0, '__module__': 5})",
        "print('x' * 1000000)",
    ] {
        let mut live = python();
        live.send(code, &[], &[], b"");
        // Each call is answered, or the session ends; otherwise `wait` fails.
        if live.wait().is_ok() {
            for code in ["x = 2", "x + 1"] {
                live.send(code, &[], &[], b"");
                let Ok(got) = live.wait() else { break };
                assert_eq!(got.answer.number, live.number, "{code}");
            }
        }
    }
}
