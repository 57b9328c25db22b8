//! Sandboxes that stand ready: what one of them knows of another, of its template, and what happens when parts die.

use crate::client::{Server, within};
use serde_json::{Value, json};
use std::{collections::HashSet, fs, time::Duration};

const PATIENCE: Duration = Duration::from_secs(20);

fn python(server: &mut Server) -> Value {
    let listed = server.call("list_runtimes", json!({}));
    let runtimes = listed["structuredContent"]["runtimes"]
        .as_array()
        .unwrap()
        .clone();
    runtimes
        .into_iter()
        .find(|runtime| runtime["language"] == "python")
        .unwrap()
}

fn wait_until_warm(server: &mut Server) {
    assert!(
        within(PATIENCE, || python(server)["warm"] == true),
        "{}",
        python(server)
    );
}

fn run(server: &mut Server, code: &str, more: Value) -> Value {
    wait_until_warm(server);
    let mut arguments = json!({"code": code});
    for (name, value) in more.as_object().into_iter().flatten() {
        arguments[name] = value.clone();
    }
    server.call("execute_code", arguments)["structuredContent"].clone()
}

/// Processes below the server whose command line holds the word.
fn below(pid: u32, word: &str) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists: Vec<String> = tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .collect();
    let children = lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|word| word.parse().ok());
    let mut found = Vec::new();
    for child in children {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(word) {
            found.push(child);
        }
        found.extend(below(child, word));
    }
    found
}

/// One that has ended meanwhile is no error.
fn kill(pid: u32) {
    drop(
        std::process::Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .output(),
    );
}

/// claim: [WARM-1]
#[test]
fn forks_of_one_template_draw_different_numbers() {
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

/// claim: [WARM-2]
#[test]
fn a_sandbox_finds_nothing_of_the_one_before() {
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
        assert_eq!(
            second["result"],
            json!([0, true, "1", true, false, false, [], []]),
            "{second}"
        );
    }
}

/// claim: [WARM-3]
#[test]
fn what_a_claim_brings_is_in_force_before_the_program_runs() {
    let mut server = Server::start();
    let code = "import os, resource, sys\nbig = None\ntry:\n    big = bytearray(200 << 20)\nexcept MemoryError:\n    pass\n\
        [sys.argv[1:], os.environ['GREETING'], open('in/a.txt').read(), sys.stdin.read(), \
        resource.getrlimit(resource.RLIMIT_NPROC)[1], os.statvfs('/workspace').f_blocks * os.statvfs('/workspace').f_frsize]";
    let more = json!({
        "args": ["x", "y"], "env": {"GREETING": "hello"}, "stdin": "typed", "files": [{"path": "in/a.txt", "text": "file"}],
        "resource_limits": {"max_processes": 9, "max_disk_mb": 20, "max_ram_mb": 400}
    });
    let done = run(&mut server, code, more);
    assert_eq!(
        done["result"],
        json!([["x", "y"], "hello", "file", "typed", 10, 20 << 20]),
        "{done}"
    );
    let tight = run(
        &mut server,
        "x = bytearray(200 << 20)",
        json!({"memory_limit": "64m"}),
    );
    assert_eq!(tight["exit"]["kind"], "out_of_memory", "{tight}");
}

/// claim: [WARM-4]
#[test]
fn a_fork_neither_sees_nor_reaches_its_template() {
    let mut server = Server::start();
    let code = "import os\nseen = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\nanswers = []\n\
        for pid in range(3, 400):\n    try:\n        os.kill(pid, 0)\n        answers.append(pid)\n    except OSError:\n        pass\n\
        [seen, answers, os.getpid(), os.getppid(), sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4]]";
    let done = run(&mut server, code, json!({}));
    assert_eq!(done["result"], json!([[1, 2], [], 2, 0, [0, 1, 2, 3]]), "{done}");
}

#[test]
fn exits_of_forks_are_those_of_programs() {
    let mut server = Server::start();
    let mut check = |code: &str, status: i64, out: &str, err: &str| {
        let done = run(&mut server, code, json!({}));
        assert_eq!(done["exit_code"], status, "{code}: {done}");
        assert_eq!(done["stdout"], out, "{code}");
        assert!(done["stderr"].as_str().unwrap().contains(err), "{code}: {done}");
    };
    check("import sys; sys.exit(3)", 3, "", "");
    check("import sys; sys.exit('wrong')", 1, "", "wrong");
    check("raise SystemExit", 0, "", "");
    check("1 / 0", 1, "", "ZeroDivisionError");
    check("import os; os._exit(7)", 7, "", "");
    check(
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        137,
        "",
        "",
    );
    check("import atexit; atexit.register(print, 'bye')", 0, "bye\n", "");
    check(
        "class A:\n    def __del__(self): print('gone')\na = A()",
        0,
        "gone\n",
        "",
    );
    check(
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()",
        0,
        "late\n",
        "",
    );
    check("import sys; sys.stdout.write('no newline')", 0, "no newline", "");
    check(
        "import subprocess; print(subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout, end='')",
        0,
        "x\n",
        "",
    );
    check(
        "from multiprocessing import Pool\nprint(sum(Pool(2).map(abs, [-1, -2])))",
        0,
        "3\n",
        "",
    );
}

/// claim: [WARM-5]
#[test]
fn a_template_that_is_killed_is_replaced() {
    let mut server = Server::start();
    wait_until_warm(&mut server);
    let old = below(server.child.id(), "_ringfence_template");
    assert!(!old.is_empty());
    old.iter().for_each(|pid| kill(*pid));
    // What had begun to run below it ends with a typed error; nothing is worse than that.
    let answered = within(PATIENCE, || {
        let done = server.call("execute_code", json!({"code": "print(1)"}))["structuredContent"].clone();
        assert!(
            done["stdout"] == "1\n" || done["code"] == "sandbox_fault",
            "{done}"
        );
        done["stdout"] == "1\n"
    });
    assert!(answered);
    wait_until_warm(&mut server);
    let new = below(server.child.id(), "_ringfence_template");
    assert!(!new.is_empty() && new.iter().all(|pid| !old.contains(pid)));
}

/// claim: [WARM-5]
#[test]
fn a_helper_that_is_killed_is_replaced() {
    let mut server = Server::start();
    wait_until_warm(&mut server);
    for pid in below(server.child.id(), "__jail-helper") {
        drop(
            std::process::Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status(),
        );
    }
    let answered = within(PATIENCE, || {
        let done = server.call("execute_code", json!({"code": "print(1)"}));
        assert!(done["structuredContent"]["code"] != "invalid_argument", "{done}");
        done["structuredContent"]["stdout"] == "1\n"
    });
    assert!(answered);
    wait_until_warm(&mut server);
}
