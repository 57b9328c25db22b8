//! Warm sandboxes: isolation from each other and from their template, and recovery from killed parts.

use crate::client::*;
use rustix::process::Signal;
use std::{
    collections::HashSet,
    fs,
    process::Command,
    time::{Duration, Instant},
};

/// True if its parent is one of these processes.
fn is_fork(templates: &[u32], pid: u32) -> bool {
    let parent = proc_stat(pid, 4).and_then(|parent| parent.parse().ok());
    parent.is_some_and(|parent| templates.contains(&parent))
}

/// Runs a Python program once a sandbox is warm.
fn run(server: &mut Server, code: &str, more: Value) -> Value {
    server.wait_until_warm("python");
    let mut arguments = more;
    arguments["code"] = json!(code);
    server.run(arguments)
}

/// claim: [WARM-1]
#[test]
fn forks_of_one_template_draw_different_random_numbers() {
    let mut server = Server::start();
    let code = "import random, secrets, uuid, tempfile, ssl, os, time\n\
        [random.random(), secrets.token_hex(8), str(uuid.uuid4()), str(uuid.uuid1()), \
        os.path.basename(tempfile.mkstemp()[1]), ssl.RAND_bytes(8).hex(), os.urandom(8).hex()]";
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let drawn = run(&mut server, code, json!({}))["result"].clone();
        for value in drawn.as_array().unwrap() {
            assert!(seen.insert(value.to_string()), "{value} came twice");
        }
    }
}

/// claim: [WARM-1]
///
/// Preloaded libraries have fork handlers, and a process cannot tell from its pid that it is a fork.
#[test]
fn fork_handlers_of_a_preloaded_library_run_for_each_sandbox() {
    let drawing = "import os\ndef draw():\n    global token\n    token = os.urandom(8).hex()\ndraw()\n\
                   os.register_at_fork(after_in_child=draw)\n";
    let (_directory, mut server) = with_preloaded("drawing", drawing);
    let code = "import sys\nready = 'preloaded' in sys.modules\nimport preloaded\n[ready, preloaded.token]";
    eventually(|| run(&mut server, code, json!({}))["result"][0] == true);
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let drawn = run(&mut server, code, json!({}))["result"].clone();
        assert!(seen.insert(drawn[1].to_string()), "{drawn} came twice");
    }
}

#[test]
fn program_in_a_fork_gets_sigterm_at_its_time_limit() {
    let mut server = Server::start();
    let code = "import signal, sys, time\n\
        signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit()))\ntime.sleep(60)";
    let ended = run(&mut server, code, json!({"timeout_seconds": 1}));
    assert_eq!(ended["exit"]["kind"], "timeout", "{ended}");
    assert_eq!(ended["stdout"], "asked\n", "{ended}");
}

/// Without handlers a fork is the plain syscall: the interpreter's own work for a fork takes a tenth of a call.
/// `threading` creates a lock as part of that work.
#[test]
fn fork_of_a_template_without_handlers_is_a_plain_syscall() {
    let counting = "import threading\nmade, lock = [], threading.RLock\n\
                    def counted():\n    made.append(1)\n    return lock()\nthreading.RLock = counted\n";
    for (name, mention, expected) in [("without", "", 0), ("with", "# as register_at_fork would\n", 1)] {
        let (_directory, mut server) = with_preloaded(name, &format!("{counting}{mention}"));
        let code =
            "import sys\nready = 'preloaded' in sys.modules\nimport preloaded\n[ready, len(preloaded.made)]";
        eventually(|| run(&mut server, code, json!({}))["result"][0] == true);
        let found = run(&mut server, code, json!({}))["result"].clone();
        assert_eq!(found, json!([true, expected]), "{name}");
    }
}

/// A server whose Python preloads this module as `preloaded`.
fn with_preloaded(name: &str, text: &str) -> (TempDir, Server) {
    let directory = TempDir::new(name);
    let home = directory.0.join("venv");
    fs::create_dir_all(home.join("bin")).unwrap();
    let python = fs::canonicalize("/usr/bin/python3").unwrap();
    std::os::unix::fs::symlink(&python, home.join("bin/python3")).unwrap();
    directory.file("venv/pyvenv.cfg", "home = /usr/bin\n");
    let version = python.file_name().unwrap().to_str().unwrap();
    directory.file(&format!("venv/lib/{version}/site-packages/preloaded.py"), text);
    let server = Server::with_env([
        ("RINGFENCE_RUNTIMES_PYTHON", home.to_str().unwrap()),
        ("RINGFENCE_WARM_PRELOAD_PYTHON", "preloaded"),
    ]);
    (directory, server)
}

/// claim: [WARM-2]
///
/// The forker has a list of live children and one of the pages that they touch. The control is the template's own
/// memory, which has the lists, if the test may read it.
#[test]
fn lists_of_the_forker_are_zero_in_a_fork() {
    let mut server = Server::start();
    let code = r"
import os, sys
process = sys.argv[1] if len(sys.argv) > 1 else 'self'
lines = [line.split(None, 5) for line in open(f'/proc/{process}/maps')]
last = max(at for at, line in enumerate(lines) if 'ringfence-forker' in line[-1])
begin, end = (int(number, 16) for number in lines[last + 1][0].split('-'))
length = 128 << 10  # of its lists; another mapping may follow at once
found = os.pread(os.open(f'/proc/{process}/mem', os.O_RDONLY), length, begin)
result = [end - begin >= length, found.count(0) == length]
print(result)
";
    server.wait_until_warm("python");
    let others: Vec<String> = (0..3).map(|_| server.create_session(json!({}))).collect();
    server.call("terminate_session", json!({"session_id": others[0]}));
    let done = run(&mut server, code, json!({}));
    assert_eq!(done["result"], json!([true, true]), "{done}");
    if is_root() {
        let pythons = descendants_with(server.child.id(), "_ringfence_template");
        let found_in = |pid: &u32| {
            let mut reader = Command::new("/usr/bin/python3");
            let read = reader.args(["-c", code, &pid.to_string()]).output().unwrap();
            String::from_utf8(read.stdout).unwrap()
        };
        let found: Vec<String> = pythons.iter().map(found_in).collect();
        assert!(found.contains(&"[True, False]\n".to_owned()), "{found:?}");
    }
}

/// A regression: each fork left a megabyte with its template, which was killed for it, and every session with it.
#[test]
fn template_survives_many_forks() {
    const SESSIONS: usize = 70;
    let mut server = Server::with_env([("RINGFENCE_LIMITS_RAM_MB", "64")]);
    server.wait_until_warm("python");
    let sessions: Vec<String> = (0..SESSIONS).map(|_| server.create_session(json!({}))).collect();
    for (number, session) in sessions.iter().enumerate() {
        let code = format!("{number} + 1");
        let called = server.eval(session, &code);
        assert_eq!(called["result"], number + 1, "{called}");
    }
}

/// claim: [WARM-2]
#[test]
fn sandbox_sees_nothing_of_an_earlier_one() {
    let mut server = Server::start();
    let poison = "import atexit, builtins, json, os, signal, sys\n\
        builtins.len = lambda x: 'poisoned'\nsys.modules['math'] = json\njson.dumps = lambda *a, **k: 'poisoned'\n\
        atexit.register(print, 'poisoned')\nsignal.signal(signal.SIGTERM, lambda *a: None)\n\
        os.environ['LEFT'] = 'poisoned'\nopen('/tmp/left', 'w').write('poisoned')\nopen('left', 'w').write('poisoned')";
    let look = "import json, math, os, signal, sys\n\
        [len([]), math.pi > 3, json.dumps(1), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, \
        'LEFT' in os.environ, 'SECRET' in os.environ, os.listdir('/tmp'), os.listdir('.')]";
    for _ in 0..3 {
        let first = run(&mut server, poison, json!({"env": {"SECRET": "of the first"}}));
        assert_eq!(first["exit"]["kind"], "code", "{first}");
        let second = run(&mut server, look, json!({}));
        second.assert_fields(json!({"result": [0, true, "1", true, false, false, [], []]}));
    }
}

/// claim: [WARM-3]
#[test]
fn claim_is_in_force_before_the_program_runs() {
    let mut server = Server::start();
    let code = "import os, resource, sys\nbig = None\ntry:\n    big = bytearray(200 << 20)\nexcept MemoryError:\n    pass\n\
        [sys.argv[1:], os.environ['GREETING'], open('in/a.txt').read(), sys.stdin.read(), \
        resource.getrlimit(resource.RLIMIT_NPROC)[1], os.statvfs('/workspace').f_blocks * os.statvfs('/workspace').f_frsize]";
    let more = json!({
        "args": ["x", "y"], "env": {"GREETING": "hello"}, "stdin": "typed", "files": [{"path": "in/a.txt", "text": "file"}],
        "resource_limits": {"max_processes": 9, "max_disk_mb": 20, "max_ram_mb": 400}
    });
    let done = run(&mut server, code, more);
    let expect = json!({"result": [["x", "y"], "hello", "file", "typed", 10, 20 << 20]});
    done.assert_fields(expect);
    let tight = run(
        &mut server,
        "x = bytearray(200 << 20)",
        json!({"memory_limit": "64m"}),
    );
    assert_eq!(tight["exit"]["kind"], "out_of_memory", "{tight}");
    // A warm sandbox serves a large request, too.
    let names = 0..1000;
    let env: serde_json::Map<String, Value> = names
        .map(|n| (format!("NAME_{n}"), json!(format!("value {n}"))))
        .collect();
    let files: Vec<Value> = (0..50)
        .map(|n| json!({"path": format!("in/{n}.txt"), "text": format!("file {n}")}))
        .collect();
    let special = json!({
        "env": env, "files": files, "timeout_seconds": 7, "args": ["x"],
        "resource_limits": {"max_ram_mb": 99, "max_processes": 7, "max_disk_mb": 9, "max_cpu_cores": 0.5},
    });
    let code = "import os, subprocess\nos.environ['NAME_7'] = 'changed'\ndel os.environ['NAME_8']\n\
        seen = subprocess.run('env | grep -c ^NAME_; echo $NAME_7 $NAME_999', shell=True, capture_output=True, text=True)\n\
        [len([n for n in os.environ if n.startswith('NAME_')]), os.environ['NAME_999'], seen.stdout, \
        len(os.listdir('in')), open('in/49.txt').read(), os.getppid()]";
    for _ in 0..5 {
        let done = run(&mut server, code, special.clone());
        // A fork's parent is its template, outside the sandbox; the parent of a program that starts cold is pid 1.
        let expect = json!([999, "value 999", "999\nchanged value 999\n", 50, "file 49", 0]);
        assert_eq!(done["result"], expect, "{done}");
    }
}

/// claim: [WARM-4]
#[test]
fn fork_has_nothing_of_its_template() {
    let mut server = Server::start();
    let code = "import os\nseen = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\nanswers = []\n\
        for pid in range(3, 400):\n    try:\n        os.kill(pid, 0)\n        answers.append(pid)\n    except OSError:\n        pass\n\
        [seen, answers, os.getpid(), os.getppid(), sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4]]";
    let done = run(&mut server, code, json!({}));
    assert_eq!(done["result"], json!([[1, 2], [], 2, 0, [0, 1, 2, 3]]), "{done}");
    let code = "import os, signal, sys, threading, logging, random\n\
        [os.listdir('/proc/self/task'), threading.active_count(), threading.current_thread() is threading.main_thread(), \
        [signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)], \
        sorted(int(n) for n in os.listdir('/proc/self/fd')), \
        signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.sigpending() == set(), \
        logging.getLogger().handlers, logging._lock.acquire(timeout=1)]";
    let done = run(&mut server, code, json!({}));
    // Descriptors: the standard streams, the driver's pipe, and the directory being listed.
    done.assert_fields(json!({"result": [
        ["2"],
        1,
        true,
        [0.0, 0.0, 0.0],
        [0, 1, 2, 3, 4],
        true,
        true,
        [],
        true
    ]}));
}

/// A program must behave the same in warm and cold sandboxes.
#[test]
fn forks_exit_and_import_like_cold_starts() {
    let mut server = Server::start();
    let status_out_err = [
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('wrong')", 1, "", "wrong"),
        ("import sys; sys.exit(2 ** 70)", 255, "", ""),
        (
            "import sys; sys.exit(type('E', (), {'__str__': lambda e: 1 / 0})())",
            1,
            "",
            "",
        ),
        ("raise SystemExit", 0, "", ""),
        ("1 / 0", 1, "", "ZeroDivisionError"),
        (FORGED_REPORT, 9, "", ""),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            137,
            "",
            "",
        ),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n", ""),
        (
            "class A:\n    def __del__(self): print('gone')\na = A()",
            0,
            "gone\n",
            "",
        ),
        (LATE_THREAD, 0, "late\n", ""),
        ("import sys; sys.stdout.write('no newline')", 0, "no newline", ""),
        ("import subprocess; subprocess.run(['echo', 'x'])", 0, "x\n", ""),
        (POOL, 0, "3\n", ""),
    ];
    for (code, status, out, err) in status_out_err {
        let done = run(&mut server, code, json!({}));
        let expect = json!({"exit_code": status, "success": status == 0, "stdout": out});
        assert_fields_of(code, &done, expect);
        done.assert_text("stderr", [err]);
    }
    // A module of the program takes precedence over a preloaded one.
    let files = json!([
        {"path": "calendar.py", "text": "mine = 1"}, {"path": "html/__init__.py", "text": "mine = 2"}
    ]);
    let done = run(
        &mut server,
        "import calendar, html\n[calendar.mine, html.mine]",
        json!({"files": files}),
    );
    assert_eq!(done["result"], json!([1, 2]), "{done}");
    // Buffers of files and streams are flushed at exit, also those opened by a module.
    let module = "log = open('log.txt', 'w')\nlog.write('kept')\n";
    let code = "import io, sys, m\nprint('said', end='')\nsys.stdout = io.StringIO()";
    let done = run(
        &mut server,
        code,
        json!({"files": [{"path": "m.py", "text": module}]}),
    );
    done.assert_fields(json!({"stdout": "said", "artifacts.0.name": "log.txt", "artifacts.0.size_bytes": 4}));
    let daemon = "import threading, time\nx = 1\ndef work():\n    while True:\n        x + 1\n\
        threading.Thread(target=work, daemon=True).start()\nprint('end')";
    let done = run(&mut server, daemon, json!({}));
    assert_eq!(
        (done["stdout"].as_str(), done["stderr"].as_str()),
        (Some("end\n"), Some("")),
        "{done}"
    );
}

const FORGED_REPORT: &str =
    "import os\nos.write(3, b'R\\x00\\x00\\x00\\x04true')\nos.write(3, b'\\xff' * 100)\nos._exit(9)";
const LATE_THREAD: &str =
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()";
const POOL: &str = "from multiprocessing import Pool\nprint(sum(Pool(2).map(abs, [-1, -2])))";

/// Most page faults of a fork happen before its call: it has more than 250 while it waits, without the template's trial
/// run about a hundred.
#[test]
fn waiting_python_fork_has_its_pages_faulted_in() {
    let mut server = Server::start();
    server.wait_until_warm("python");
    let pythons = descendants_with(server.child.id(), "_ringfence_template");
    let forks: Vec<u32> = pythons
        .iter()
        .copied()
        .filter(|pid| is_fork(&pythons, *pid))
        .collect();
    assert!(!forks.is_empty(), "{pythons:?}");
    for fork in forks {
        let faults: u64 = proc_stat(fork, MINOR_FAULTS).unwrap().parse().unwrap();
        assert!(faults > 250, "{faults}");
    }
}

/// claim: [WARM-5]
#[test]
fn killed_template_or_helper_is_replaced() {
    let mut server = Server::start();
    for part in ["_ringfence_template", "__jail-helper"] {
        server.wait_until_warm("python");
        let old = descendants_with(server.child.id(), part);
        assert!(!old.is_empty(), "{part}");
        old.iter().for_each(|pid| signal(*pid, Signal::KILL));
        // A program that had started below it ends with a typed error at worst.
        eventually(|| {
            let done = server.run(json!({"code": "print(1)"}));
            assert!(
                done["stdout"] == "1\n" || done["code"] == "sandbox_fault",
                "{part}: {done}"
            );
            done["stdout"] == "1\n"
        });
        server.wait_until_warm("python");
        let new = descendants_with(server.child.id(), part);
        assert!(
            !new.is_empty() && new.iter().all(|pid| !old.contains(pid)),
            "{part}"
        );
    }
}

/// Counts a word in all memory of its own process. The first letter of the pattern is written separately, so that it
/// does not find itself.
const SCAN: &str = r#"
import re
def count(word):
    pattern, found = re.compile(b'[c]' + word), 0
    with open('/proc/self/mem', 'rb') as memory, open('/proc/self/maps') as maps:
        for line in maps.read().splitlines():
            span, rights = line.split()[:2]
            if not rights.startswith('r') or '[v' in line: continue
            begin, end = (int(x, 16) for x in span.split('-'))
            try:
                memory.seek(begin)
                found += sum(1 for _ in pattern.finditer(memory.read(end - begin)))
            except (OSError, ValueError, OverflowError): pass
    return found
"#;

/// claim: [WARM-2]
///
/// ATTACKS L10: values of an earlier claim and of the server's command line are not in the memory of a later one.
#[test]
fn memory_has_nothing_of_earlier_claims_or_the_server() {
    let directory = TempDir::new("canary-of-the-server");
    let config = directory.file("canary-of-the-server.yaml", "warm: {ready: 2}\n");
    let mut server = Server::start_with(&["--config", &config]);
    let look = format!(
        "{SCAN}\nimport os\n\
        [count(b'anary-secret'), count(b'anary-argument'), count(b'anary-of-the-server'), 'SECRET' in os.environ]"
    );
    let secret =
        json!({"env": {"SECRET": "canary-secret"}, "args": ["canary-argument"], "stdin": "canary-secret"});
    // The control: the program that was given the values finds them.
    let own = run(&mut server, &look, secret.clone());
    assert!(
        own["result"][0].as_u64() > Some(0) && own["result"][1].as_u64() > Some(0),
        "{own}"
    );
    for _ in 0..4 {
        run(
            &mut server,
            "x = 'canary-secret' * 1000\nprint(len(x))",
            secret.clone(),
        );
        let later = run(&mut server, &look, json!({}));
        assert_eq!(later["result"], json!([0, 0, 0, false]), "{later}");
    }
}

/// claim: [WARM-4]
///
/// ATTACKS L03, and the namespaces of two sandboxes that run at once.
#[test]
fn two_forks_share_no_namespace_and_have_their_own_clocks() {
    let mut server = Server::start();
    server.wait_until_warm("python");
    let code = "import os, time\nbegun = time.time()\ntime.sleep(0.5)\n\
        [{n: os.readlink('/proc/self/ns/' + n) for n in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup')}, \
        begun, time.monotonic(), time.process_time(), time.clock_gettime(time.CLOCK_BOOTTIME)]";
    let began = std::time::SystemTime::now();
    let now = began.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let ids: Vec<u64> = (0..2).map(|_| server.send_run(json!({"code": code}))).collect();
    let results = server.await_responses(&ids);
    let results: Vec<&Value> = results.iter().map(|(_, done)| &done["result"]).collect();
    for (name, namespace) in results[0][0].as_object().unwrap() {
        assert_ne!(Some(namespace), results[1][0].get(name), "{name}");
    }
    for result in results {
        let [wall, monotonic, processor, boot] = [1, 2, 3, 4].map(|at| result[at].as_f64().unwrap());
        assert!((wall - now).abs() < 60.0, "{result}");
        // The sandbox is new; the host is older, and the template has used more CPU time.
        assert!(monotonic < 120.0 && boot < 120.0 && processor < 0.2, "{result}");
    }
}

/// claim: [WARM-6]
#[test]
fn template_is_retired_after_template_forks() {
    let mut server = Server::with_config("warm: {ready: 1, ready_max: 1, template_forks: 3}\n");
    server.wait_until_warm("python");
    let templates = |server: &Server| -> HashSet<u32> {
        let python = descendants_with(server.child.id(), "_ringfence_template");
        python
            .iter()
            .filter(|pid| !is_fork(&python, **pid))
            .copied()
            .collect()
    };
    let mut seen = templates(&server);
    for number in 0..12 {
        let done = run(&mut server, &format!("print({number})"), json!({}));
        assert_eq!(done["stdout"], format!("{number}\n"), "{done}");
        seen.extend(templates(&server));
    }
    assert!(seen.len() >= 3, "{seen:?}");
    assert!(
        becomes_true_within(PATIENCE, || templates(&server).len() <= 1),
        "old templates end"
    );
}

/// claim: [WARM-6]
#[test]
fn warm_pools_stay_within_their_memory_limit_and_report_it() {
    let mut server = Server::with_config("warm: {ready: 4, memory_mb: 16}\n");
    let is_reported = |runtime: &Value| runtime["trouble"].to_string().contains("warm.memory_mb");
    eventually(|| server.runtimes().iter().any(is_reported));
    let all = server.runtimes();
    let runtimes = all.iter().filter(|runtime| runtime["language"] != "typescript");
    let bytes: u64 = runtimes
        .filter_map(|runtime| runtime["memory_bytes"].as_u64())
        .sum();
    assert!(bytes <= 16 << 20, "{all:?}");
    for (language, code) in [
        ("python", "print(1)"),
        ("node", "console.log(1)"),
        ("shell", "echo 1"),
    ] {
        assert_eq!(server.execute(language, code)["stdout"], "1\n", "{language}");
    }
}

/// claim: [WARM-7]
///
/// ATTACKS L07: a sandbox that is claimed, dropped and replaced at the same time has one owner.
#[test]
fn cancelled_claims_do_not_affect_other_calls() {
    let mut server = Server::start();
    server.wait_until_warm("python");
    let mut wanted = HashSet::new();
    for number in 0..120 {
        let id = server.send_run(json!({"code": format!("print({number})")}));
        if number % 2 == 0 {
            server.cancel(id);
        } else {
            wanted.insert((id, number));
        }
    }
    let by = Instant::now() + PATIENCE;
    while !wanted.is_empty() && Instant::now() < by {
        let message = server.receive();
        let Some((id, number)) = wanted.iter().copied().find(|(id, _)| message["id"] == json!(id)) else {
            continue;
        };
        wanted.remove(&(id, number));
        let done = &message["result"]["structuredContent"];
        assert_eq!(done["stdout"], format!("{number}\n"), "{message}");
    }
    assert!(wanted.is_empty(), "{wanted:?}");
}

fn supervisors(server: &Server) -> usize {
    let mut all = descendants_with(server.child.id(), "__jail-helper");
    all.retain(|pid| comm_of(*pid).starts_with("ringfence-super"));
    all.len()
}

/// claim: [WARM-7]
///
/// Before the program starts, pid 1 holds the program's pipes, and the server would wait for their end.
#[test]
fn call_cancelled_before_its_program_starts_leaves_nothing() {
    let mut server = Server::with_config("warm: {ready: 2, ready_max: 2}\n");
    let full = |server: &mut Server| server.runtimes().iter().all(|runtime| runtime["ready"] == 2);
    eventually(|| full(&mut server));
    // The sandboxes of the parser are not listed; all exist once the count has not changed for a second.
    let (mut before, mut since) = (0, Instant::now());
    eventually(|| {
        let now = supervisors(&server);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    for number in 0..100 {
        // Every second call starts cold: its sandbox is claimed before its walls are complete.
        let env = if number % 2 == 0 {
            json!({})
        } else {
            json!({"LC_ALL": "C"})
        };
        // Without a check of the code, which may start and keep a second worker.
        let arguments = json!({"code": "sleep 60", "language": "shell", "env": env, "validate": "off"});
        let id = server.send_run(arguments);
        server.cancel(id);
    }
    assert!(
        becomes_true_within(PATIENCE, || full(&mut server) && supervisors(&server) == before),
        "{before} became {}",
        supervisors(&server)
    );
}

/// claim: [WARM-7]
#[test]
fn dead_waiting_fork_is_not_claimed() {
    let mut server = Server::start();
    for number in 0..3 {
        server.wait_until_warm("python");
        let python = descendants_with(server.child.id(), "_ringfence_template");
        let forks: Vec<u32> = python
            .iter()
            .filter(|pid| is_fork(&python, **pid))
            .copied()
            .collect();
        forks.iter().for_each(|pid| signal(*pid, Signal::KILL));
        eventually(|| !forks.iter().any(|pid| is_running(*pid)));
        let done = server.execute("python", &format!("print({number})"));
        assert_eq!(done["stdout"], format!("{number}\n"), "{done}");
    }
}

/// A fork of the template has no parent in its sandbox; an interpreter started by pid 1 has.
#[test]
fn fork_gets_the_namespace_workspace_with_its_claim() {
    let listed = TempDir::new("listed");
    let root = listed.0.display();
    let mut server = Server::with_config(&format!("workspaces:\n  listed: {{path: {root}, mode: ro}}\n"));
    let shared = json!({"workspace": "namespace"});
    // Locks are refused in a read-only workspace; space that is only reserved, and Landlock rules, in another.
    let filtered = "import ctypes, os\nfile = os.open('/tmp/x', os.O_RDWR | os.O_CREAT)\n\
        c = ctypes.CDLL(None, use_errno=True)\n\
        [os.getppid(), c.flock(file, 1) and ctypes.get_errno(), c.fallocate(file, 0, 0, 1) and ctypes.get_errno(), \
        c.syscall(445, -1, 1, None, 0) and ctypes.get_errno()]";
    for (workspace, expect) in [("namespace", [0, 0, 95, 95]), ("listed", [0, 95, 0, 9])] {
        let done = run(&mut server, filtered, json!({"workspace": workspace}));
        assert_eq!(done["result"], json!(expect), "{workspace}: {done}");
    }
    let code = "import os, socket\nopen('kept', 'w').write('kept')\ndef errno(act):\n    try:\n        act()\n    \
        except OSError as error:\n        return error.errno\n[os.getppid(), os.getcwd(), os.listdir(), \
        errno(lambda: socket.socket(socket.AF_UNIX)), errno(lambda: os.chmod('kept', 0o4755)), \
        errno(lambda: open('/usr/new', 'w')), errno(lambda: open('/new', 'w'))]";
    let done = run(&mut server, code, shared.clone());
    done.assert_fields(json!({"result": [0, "/workspace", ["kept"], 97, 1, 30, 30]}));
    let private = run(
        &mut server,
        "import os, socket\nsocket.socket(socket.AF_UNIX)\n[os.getppid(), os.listdir()]",
        json!({}),
    );
    assert_eq!(private["result"], json!([0, []]), "{private}");
    for (language, code) in [
        ("shell", "ls"),
        ("node", "console.log(...require('fs').readdirSync('.'))"),
    ] {
        let done = run(
            &mut server,
            code,
            json!({"workspace": "namespace", "language": language}),
        );
        assert_eq!(done["stdout"], "kept\n", "{done}");
    }
    // A module in the workspace is imported instead of the template's module of that name.
    let own = "import os\nopen('random.py', 'w').write('own = 1')\nNone";
    assert_eq!(run(&mut server, own, shared.clone())["success"], true);
    let done = run(
        &mut server,
        "import random, os\n[random.own, os.getppid()]",
        shared,
    );
    assert_eq!(done["result"], json!([1, 1]), "{done}");
}

/// claim: [WARM-8]
#[test]
fn later_host_mounts_do_not_appear_in_a_workspace() {
    if !is_root() {
        return;
    }
    // Shared propagation, as on most hosts: new mounts propagate to copies of the mount namespace.
    let shared = ["unshare", "--mount", "--propagation", "shared"];
    let mut server = Server::from_command(wrap_command(&shared, &ringfence(&["serve"])));
    server.wait_until_warm("python");
    let session = server.create_session(json!({"workspace": "namespace"}));
    let look = "import os\nos.makedirs('late', exist_ok=True)\nsorted(os.listdir('late'))";
    let arguments = json!({"session_id": session, "code": look});
    let before = server.run(arguments.clone());
    assert_eq!(before["result"], json!([]), "{before}");
    let late = state_dir().join("workspaces/default/late");
    let inside = format!(
        "mount -t tmpfs none {0} && touch {0}/canary && ls {0}",
        late.display()
    );
    let pid = server.child.id().to_string();
    let host = Command::new("nsenter")
        .args(["-t", &pid, "-m", "sh", "-c", &inside])
        .output()
        .unwrap();
    assert_eq!(host.stdout, b"canary\n", "{host:?}");
    let after = server.run(arguments);
    assert_eq!(after["result"], json!([]), "{after}");
}
