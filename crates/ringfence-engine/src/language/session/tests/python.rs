//! Sessions of Python: what stays, what fails, what is interrupted, and what a program breaks.

use super::*;
use serde_json::json;

fn python() -> Driver {
    Driver::begin(Language::Python)
}

#[test]
fn python_keeps_its_state() {
    let mut live = python();
    let check = |live: &mut Driver, code: &str, result: Option<serde_json::Value>, stdout: &str| {
        let said = live.call(code);
        assert_eq!(
            (&said.answer.report.result, said.stdout.as_str(), said.answer.ok),
            (&result, stdout, true),
            "{code}: {said:?}"
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
    // A name that stands for a result, of this call alone.
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
fn python_tells_the_names_of_each_call() {
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
fn python_awaits_on_one_loop_that_goes_on_between_calls() {
    let mut live = python();
    let check = |live: &mut Driver, code: &str, result: serde_json::Value| {
        let said = live.call(code);
        assert_eq!(said.answer.report.result, Some(result), "{code}: {said:?}");
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
    // Nobody calls, and it goes on.
    let end = Instant::now() + PATIENCE;
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
fn commands_of_ipython_come_with_their_cure() {
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
fn python_errors_are_of_the_call_and_leave_the_state() {
    let mut live = python();
    live.call("x = 5\ndef f():\n    return {}['k']");
    let check = |live: &mut Driver, code: &str, kind: &str, line: Option<u32>, shown: &str| {
        let said = live.call(code);
        let error = said
            .answer
            .report
            .error
            .clone()
            .unwrap_or_else(|| panic!("{code}: {said:?}"));
        assert_eq!(
            (error.kind.as_str(), error.line, said.answer.ok),
            (kind, line, false),
            "{said:?}"
        );
        for part in shown.split('|') {
            assert!(error.traceback.contains(part), "{part}: {}", error.traceback);
        }
        assert!(
            !error.traceback.contains("ringfence") && !error.traceback.contains("_run_once"),
            "{}",
            error.traceback
        );
        assert_eq!(said.stderr, error.traceback);
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
    // Of a kind that changes with the version.
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
        None,
        "",
    );
    assert_eq!(live.call("x").answer.report.result, Some(json!(5)));
}

#[test]
fn python_is_interrupted_in_whatever_it_does_and_keeps_its_state() {
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
        let said = live.interrupted(&code);
        assert!(!said.answer.ok, "{code}: {said:?}");
        let error = said.answer.report.error.unwrap_or_else(|| panic!("{code}"));
        assert!(
            ["KeyboardInterrupt", "H"].contains(&error.kind.as_str()),
            "{code}: {error:?}"
        );
        assert!(!error.traceback.contains("ringfence"), "{}", error.traceback);
        let said = live.call("x");
        assert_eq!(
            said.answer.report.result,
            Some(json!(5)),
            "after {code}: {said:?}"
        );
    }
    // A loop that shrugs off interrupts is the program's own choice, as long as it lasts.
    let said = live.interrupted(&format!(
        "{begun}caught = 0\nwhile caught < 3:\n    try: time.sleep(1000)\n    except KeyboardInterrupt: caught += 1\ncaught"
    ));
    assert_eq!(said.answer.report.result, Some(json!(3)));
}

#[test]
fn an_interrupt_that_comes_when_nothing_runs_is_nothing() {
    let mut live = python();
    for round in 0..100 {
        live.signal();
        // With and without a loop that waits.
        let code = if round < 50 {
            "1 + 1"
        } else {
            "import asyncio; await asyncio.sleep(0); 1 + 1"
        };
        live.signal();
        let said = live.call(code);
        let hit = said
            .answer
            .report
            .error
            .as_ref()
            .is_some_and(|error| error.kind == "KeyboardInterrupt");
        assert!(hit || said.answer.report.result == Some(json!(2)), "{said:?}");
        assert!(live.child.try_wait().unwrap().is_none());
    }
}

#[test]
fn python_gets_the_words_the_environment_and_the_input_of_each_call() {
    let mut live = python();
    let arguments = ["a b", "--c"].map(|word| Argument::try_from(word.to_owned()).unwrap());
    let code = "import os, subprocess, sys, time\nkept = sys.stdin\n[sys.argv[1:], os.environ['A'], time.tzname[0], input(), \
                subprocess.run(['cat'], capture_output=True).stdout.decode()]";
    let env = [("A", "ä"), ("TZ", "ABC-1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    live.send(code, &arguments, &env, "één\n".as_bytes());
    let said = live.wait().unwrap();
    assert_eq!(
        said.answer.report.result,
        Some(json!([["a b", "--c"], "ä", "ABC", "één", ""])),
        "{said:?}"
    );
    live.send(
        "subprocess.run(['cat'], capture_output=True).stdout.decode()",
        &[],
        &[],
        &vec![b'x'; 300_000],
    );
    let said = live.wait().unwrap();
    assert!(said.answer.report.result_repr.unwrap().starts_with("'xxx"));
    // What was given to one call is not the next one's, and a call without is at the end of its input.
    live.send("1", &[], &[], b"unread\n");
    live.wait().unwrap();
    let said = live.call("[sys.argv[1:], os.environ['A'], sys.stdin.read(), kept.read(), os.system('cat')]");
    assert_eq!(
        said.answer.report.result,
        Some(json!([[], "ä", "", "", 0])),
        "{said:?}"
    );
    assert_eq!(live.call("input()").answer.report.error.unwrap().kind, "EOFError");
}

#[test]
fn a_script_that_ends_with_0_leaves_its_session() {
    let mut live = python();
    for code in ["x = 1; exit()", "import sys; x += 1; sys.exit(0)"] {
        let said = live.call(code);
        assert!(said.answer.ok && said.answer.report.error.is_none(), "{said:?}");
    }
    assert_eq!(live.call("x").answer.report.result, Some(json!(2)));
    let child = live.call("import os\npid = os.fork()\nif not pid: sys.exit(0)\nos.waitpid(pid, 0)[1]");
    assert_eq!(child.answer.report.result, Some(json!(0)), "{child:?}");
}

#[test]
fn python_leaves_when_it_is_told_to() {
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
        let (said, ended) = live.last(code);
        assert_eq!(
            (ended, said.stdout.as_str()),
            (status, stdout),
            "{code}: {said:?}"
        );
    }
    // Nobody asks any more.
    let mut live = python();
    live.call("import atexit; atexit.register(print, 'last')");
    drop(live.requests.take());
    assert_eq!(live.child.wait().unwrap().code(), Some(0));
    assert_eq!(live.said(DriverAnswer::default()).stdout, "last\n");
}

#[test]
fn python_goes_on_or_ends_whatever_a_program_breaks() {
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
        // Each is answered, or the session ends; it is `wait` that fails otherwise.
        if live.wait().is_ok() {
            for code in ["x = 2", "x + 1"] {
                live.send(code, &[], &[], b"");
                let Ok(said) = live.wait() else { break };
                assert_eq!(said.answer.number, live.number, "{code}");
            }
        }
    }
}
