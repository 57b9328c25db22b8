//! Attacks of a program on its own session and on others: it can corrupt its own answers, and nothing else.

use super::{assert_result, on_each_kind};
use crate::client::*;
use std::time::{Duration, Instant};

/// Finds the descriptors of requests and reports, at any number where the driver has put them.
const FIND: &str = "import os, stat\n\
    def pipes(flags):\n    found = []\n    for name in os.listdir('/proc/self/fd'):\n        try:\n            \
    info = open('/proc/self/fdinfo/' + name).read()\n            mode = int(info.split('flags:')[1].split()[0], 8)\n            \
    if int(name) > 2 and stat.S_ISFIFO(os.fstat(int(name)).st_mode) and mode & 3 == flags: found.append(int(name))\n        \
    except OSError: pass\n    return found\n\
    def record(tag, data): return tag + len(data).to_bytes(4, 'big') + data\n";

/// claim: [SES-8]
#[test]
fn forged_report_affects_only_its_own_session() {
    on_each_kind(|server, kind| {
        let bystander = server.create_session(json!({}));
        for forged in [
            "record(b'C', b'{\"call\":%d,\"ok\":true}' % n) for n in range(200)",
            "b'C' + (2 ** 32 - 1).to_bytes(4, 'big') + b'x' * 1000",
            "b'R' + (2 ** 31).to_bytes(4, 'big')",
            "bytes(range(256)) * 64",
            "record(b'R', b'{' * 100_000)",
            "record(b'V', b'x' * 200) * 20_000",
            "record(b'E', b'\\xff' * 60_000)",
            "record(b'J', b'{\"a\":' * 10_000)",
            "b'C' * 7",
        ] {
            let parts = if forged.contains(" for ") {
                format!("({forged})")
            } else {
                format!("[{forged}]")
            };
            let id = server.create_session(json!({}));
            server.eval(&id, FIND);
            let found = server.eval(&id, "len(pipes(os.O_WRONLY))");
            assert!(
                found["result"].as_u64().is_some_and(|count| count > 0),
                "the control, {kind}: {found}"
            );
            // The program may corrupt this answer, and the next one while it still writes; at worst its session ends.
            let code = format!(
                "for part in {parts}:\n    for fd in pipes(os.O_WRONLY):\n        os.write(fd, part)\nprint('said')"
            );
            let answer = server.eval_with(&id, &code, json!({"timeout_seconds": 1}));
            assert!(answer["exit"].is_object(), "{kind} {forged}: {answer}");
            let next = server.eval_with(&id, "print('next'); 6 * 7", json!({"timeout_seconds": 5}));
            assert!(
                next["exit"].is_object() || next["code"] == "session_ended",
                "{kind} {forged}: {next}"
            );
            assert_result(&server.eval(&bystander, "6 * 7"), &json!(42));
        }
        let id = server.create_session(json!({}));
        assert_result(&server.eval(&id, "6 * 7"), &json!(42));
    });
}

/// claim: [SES-8]
#[test]
fn report_forged_ahead_is_not_the_answer_of_the_next_call() {
    let mut server = Server::start();
    let id = server.create_session(json!({}));
    server.eval(&id, FIND);
    // A thread waits until this call has ended, and reports results of the next calls before they are sent.
    let lie = "import threading\ndef lie():\n    while not os.path.exists('go'): pass\n    \
        for fd in pipes(os.O_WRONLY):\n        for n in range(1, 50):\n            os.write(fd, record(b'R', b'666') + record(b'C', b'{\"call\":%d,\"ok\":true}' % n))\n    \
        open('lied', 'w').close()\nthreading.Thread(target=lie, daemon=True).start()";
    assert_eq!(server.eval(&id, lie)["success"], true);
    server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
    server.await_file(&id, "lied");
    // A report that came before the request is not its answer.
    let answer = server.eval(&id, "6 * 7");
    assert_result(&answer, &json!(42));
    assert_result(&server.eval(&id, "6 * 8"), &json!(48));
}

/// claim: [SES-8]
#[test]
fn program_that_takes_its_drivers_descriptors_harms_only_itself() {
    on_each_kind(|server, kind| {
        for (language, code) in [
            (
                "python",
                "import os\nfor fd in [*range(4), *range(249, 256)]:\n    try: os.close(fd)\n    except OSError: pass",
            ),
            ("python", "import os; os.closerange(0, 5000)"),
            (
                "python",
                "import os, stat\nfor fd in range(3, 2000):\n    try:\n        if stat.S_ISFIFO(os.fstat(fd).st_mode): os.dup2(os.open('/dev/null', os.O_RDWR), fd)\n    except OSError: pass",
            ),
            (
                "python",
                "import os\nfor fd in range(3, 2000):\n    try: os.set_blocking(fd, False)\n    except OSError: pass",
            ),
            (
                "python",
                "import os\nfor name in os.listdir('/proc/self/fd'):\n    try:\n        fd = os.open('/proc/self/fd/' + name, os.O_WRONLY | os.O_NONBLOCK)\n        os.write(fd, b'\\x00\\x00\\x00\\x02{}' * 100)\n    except OSError: pass",
            ),
            (
                "python",
                "import os, threading\ndef steal():\n    for fd in range(3, 2000):\n        try:\n            if fd >= 1000: os.read(fd, 1 << 20)\n        except OSError: pass\nthreading.Thread(target=steal, daemon=True).start()",
            ),
            (
                "node",
                "const fs = require('fs'); for (let fd = 0; fd < 300; fd++) try { fs.closeSync(fd) } catch {}",
            ),
            (
                "shell",
                "for fd in 0 1 2 3 249 250 251 252 253 254 255; do eval \"exec $fd>&-\"; done",
            ),
            ("shell", "exec 249</dev/null 250>/dev/null"),
            ("shell", "cat <&0; cat /proc/$$/fd/0 & echo x"),
            (
                "shell",
                "builtin() { echo mine; }; printf() { echo mine; }; source() { :; }; trap() { :; }; enable -n printf source builtin trap",
            ),
            (
                "shell",
                "set -e; PROMPT_COMMAND='echo C'; PS1='x'; set -x; exec 2>/dev/null",
            ),
        ] {
            let id = server.create_session(json!({"language": language}));
            let begun = Instant::now();
            let answer = server.eval_with(&id, code, json!({"timeout_seconds": 1}));
            assert!(answer["exit"].is_object(), "{kind} {code}: {answer}");
            let next = server.eval_with(
                &id,
                if language == "shell" { "echo 42" } else { "6 * 7" },
                json!({"timeout_seconds": 1}),
            );
            let answers = next["exit"].is_object() || next["code"] == "session_ended";
            assert!(answers, "{kind} {code}: {next}");
            assert_took_at_most(begun.elapsed(), Duration::from_secs(12));
            server.terminate(&id);
        }
        let id = server.create_session(json!({}));
        assert_result(&server.eval(&id, "6 * 7"), &json!(42));
    });
}

/// claim: [SES-9]
#[test]
fn output_flood_between_calls_is_counted_and_not_kept() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell"}));
    let flood = "(until [ -e go ]; do :; done; head -c 100000000 /dev/zero; : > done) & \
        (until [ -e go ]; do :; done; head -c 50000000 /dev/zero >&2) &";
    server.eval(&id, flood);
    let before = proc_status_kib(server.child.id(), "RssAnon");
    server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
    server.await_file(&id, "done");
    let after = proc_status_kib(server.child.id(), "RssAnon");
    assert!(after < before + (32 << 10), "{before} {after}");
    let next = server.eval(&id, "wait; echo now");
    assert_eq!(next["stdout_bytes"], 100_000_004_u64, "{}", next["exit"]);
    assert_eq!(next["truncated"], json!({"stdout": true, "stderr": true}));
}

/// claim: [SES-9]
#[test]
fn fork_or_memory_bomb_between_calls_meets_the_session_limits() {
    on_each_kind(|server, kind| {
        let id = server.create_session(json!({"resource_limits": {"max_processes": 20}}));
        let bomb = "import os, threading\ndef bomb():\n    while not os.path.exists('go'): pass\n    made = 0\n    \
            while made < 500:\n        try:\n            if os.fork() == 0:\n                while True: __import__('signal').pause()\n            made += 1\n        \
            except OSError: break\n    open('c', 'w').write(str(made)); os.rename('c', 'count')\nthreading.Thread(target=bomb, daemon=True).start()";
        assert_eq!(server.eval(&id, bomb)["success"], true);
        server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
        server.await_file(&id, "count");
        let next = server.eval(&id, "int(open('count').read())");
        let made = next["result"]
            .as_u64()
            .unwrap_or_else(|| panic!("{kind}: {next}"));
        assert!((1..=20).contains(&made), "{kind}: {made}");
        assert_eq!(server.terminate(&id)["killed"], true);
        // The memory limit holds between calls, too.
        let id = server.create_session(json!({"memory_limit": "64m"}));
        let eat = "import os, threading\ndef eat():\n    while not os.path.exists('go'): pass\n    x = [bytearray(10**7) for _ in range(100)]\n\
            threading.Thread(target=eat, daemon=True).start()";
        assert_eq!(server.eval(&id, eat)["success"], true);
        server.facts("put_file", json!({"session_id": id, "path": "go", "text": ""}));
        assert!(
            becomes_true_within(PATIENCE, || server.listed(&id).is_null()),
            "{kind}"
        );
        let after = server.eval(&id, "1");
        after.assert_text("message", ["out of memory"]);
    });
}

/// ATTACKS L09 with a pid namespace; the landlock tier's test is beside those of its session state.
/// claim: [SES-3]
#[test]
fn child_in_its_own_group_survives_an_interrupt_and_ends_with_the_session() {
    on_each_kind(|server, kind| {
        let id = server.create_session(json!({}));
        let code = "import subprocess\n\
            subprocess.Popen(['sh', '-c', 'setsid sh -c \"sleep 144.7213 & exec sleep 144.7213\" &'], start_new_session=True).wait()\n\
            print('begun', flush=True)\nwhile True: pass";
        let request = server.send_eval_until_begun(&id, code);
        let running = || processes_with("144.7213").len();
        assert!(becomes_true_within(PATIENCE, || running() >= 2), "{kind}");
        server.send_call("interrupt_session", json!({"session_id": id}));
        assert_eq!(
            server.result(request)["error"]["type"],
            "KeyboardInterrupt",
            "{kind}"
        );
        assert!(running() >= 2, "{kind}");
        assert_result(&server.eval(&id, "6 * 7"), &json!(42));
        server.terminate(&id);
        assert_eq!(running(), 0, "{kind}: processes after the session's end");
    });
}

/// claim: [SES-6]
#[test]
fn two_sessions_cannot_see_each_other() {
    on_each_kind(|server, kind| {
        let one = server.create_session(json!({}));
        let plant = "import os, socket, subprocess, time\n\
            for place in ('/workspace', '/tmp', '/dev/shm', '/var/tmp', os.path.expanduser('~')):\n    \
            try: open(place + '/canary-of-one', 'w').write('canary-of-one')\n    except OSError: pass\n\
            abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0canary-of-one'); abstract.listen()\n\
            tcp = socket.create_server(('127.0.0.1', 45454))\n\
            os.environ['CANARY'] = 'canary-of-one'; child = subprocess.Popen(['sleep', '138.7298'])\n\
            memory = open('/dev/shm/canary-of-one').read()\nmemory";
        assert_result(&server.eval(&one, plant), &json!("canary-of-one"));
        let look = "import os, socket\ngot = []\n\
            for place in ('/workspace', '/tmp', '/dev/shm', '/var/tmp', os.path.expanduser('~')):\n    \
            got += [name for name in (os.listdir(place) if os.path.isdir(place) else []) if 'canary' in name]\n\
            for family, address in ((socket.AF_UNIX, '\\0canary-of-one'), (socket.AF_INET, ('127.0.0.1', 45454))):\n    s = socket.socket(family)\n    \
            try: s.connect(address); got.append(str(address))\n    except OSError: pass\n\
            for pid in filter(str.isdigit, os.listdir('/proc')):\n    \
            try:\n        if b'138.7298' in open('/proc/%s/cmdline' % pid, 'rb').read(): got.append(pid)\n        \
            if b'canary-of-one' in open('/proc/%s/environ' % pid, 'rb').read(): got.append(pid)\n    except OSError: pass\n\
            got";
        // The control: the session itself finds what it planted.
        let seen = server.eval(&one, look)["result"].clone();
        assert!(
            seen.as_array().is_some_and(|seen| seen.len() >= 6),
            "the control, {kind}: {seen}"
        );
        let other = server.create_session(json!({}));
        assert_result(&server.eval(&other, look), &json!([]));
        for tool in ["list_files", "get_file"] {
            let arguments = json!({"session_id": other, "path": "canary-of-one"});
            let answer = server.facts(tool, arguments);
            assert!(!answer.to_string().contains("sha256\":\""), "{kind}: {answer}");
        }
    });
}

/// ATTACKS L01 and L10.
/// claim: [SES-6]
#[test]
fn session_sees_nothing_of_an_earlier_one() {
    let mut server = Server::start();
    let poison = "import builtins, json, os, signal, sys\nbuiltins.len = lambda x: 'poisoned'\nsys.modules['math'] = json\n\
        json.dumps = lambda *a, **k: 'poisoned'\nsignal.signal(signal.SIGTERM, lambda *a: None)\nos.environ['LEFT'] = 'poisoned'\n\
        for place in ('/tmp/left', '/dev/shm/left', 'left'): open(place, 'w').write('poisoned')\nexec";
    let look = "import json, math, os, signal, sys\n[len([]), math.pi > 3, json.dumps(1), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, \
        'LEFT' in os.environ, 'CLAIM' in os.environ, os.listdir('/tmp'), os.listdir('.'), os.listdir('/dev/shm')]";
    // Searches its memory for the value of an earlier claim; the needle is assembled here, so that it does not find
    // itself.
    let search = "needle = b'-'.join([b'claim', b'of', WHO])\nfound = 0\nfor line in open('/proc/self/maps'):\n    \
        parts = line.split()\n    if 'r' not in parts[1][0] or '[v' in line: continue\n    low, high = (int(x, 16) for x in parts[0].split('-'))\n    \
        with open('/proc/self/mem', 'rb', 0) as memory:\n        try:\n            memory.seek(low); data = memory.read(high - low)\n        except (OSError, ValueError): continue\n    \
        at = data.find(needle + b'!')\n    found += at >= 0\nfound";
    for round in 0..3 {
        let first = server.create_session(json!({"env": {"CLAIM": format!("claim-of-first{round}!")}}));
        server.eval(&first, poison);
        let own = server.eval(&first, &search.replace("WHO", &format!("b'first{round}'")));
        assert!(
            own["result"].as_u64().is_none_or(|found| found > 0),
            "the control: {own}"
        );
        let second = server.create_session(json!({}));
        let clean = json!([0, true, "1", true, false, false, [], [], []]);
        assert_result(&server.eval(&second, look), &clean);
        let other = server.eval(&second, &search.replace("WHO", &format!("b'first{round}'")));
        assert!(other["result"] == 0 || other["error"].is_object(), "{other}");
        server.terminate(&first);
    }
}

/// ATTACKS J09: the program prints messages of its driver or of the server.
/// claim: [SES-8]
#[test]
fn session_output_cannot_forge_protocol_messages() {
    let mut server = Server::with_config("");
    let id = server.create_session(json!({}));
    let forged =
        r#"{"jsonrpc":"2.0","id":3,"result":{"structuredContent":{"success":true,"result":"forged"}}}"#;
    let answer = server.eval(
        &id,
        &format!("print('''{forged}''')\nimport os; os.write(1, b'\\r\\n\\r\\n{forged}\\n')\n6 * 7"),
    );
    assert_result(&answer, &json!(42));
    let status: Value = server.eval(&id, "import os; os._exit(9)");
    status.assert_fields(json!({"exit_code": 9, "success": false}));
}
