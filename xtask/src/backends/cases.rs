//! The cases. Each runs on every backend, or its row says why it cannot.

use super::{server::Server, web::SECRET};
use serde_json::{Value, json};
use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// Outcome of a case that did not fail.
pub enum Verdict {
    Held,
    /// Cannot be tested on this machine, for this reason.
    Unavailable(String),
}

type CaseResult = Result<Verdict, String>;

pub struct Case {
    pub name: &'static str,
    pub is_short: bool,
    /// Backends that it does not apply to, and why.
    pub not_in: &'static [(&'static str, &'static str)],
    pub judge: fn(&Server, &str) -> CaseResult,
}

const KERNEL: &str = "the program's kernel is gVisor's, which answers system calls itself";
const NO_PROCESS_LIMIT: &str =
    "runsc runs with --ignore-cgroups here: processes are not limited, and the result says so";

/// Held if the condition is true; else an error with the value that was seen.
macro_rules! expect {
    ($is_so:expr, $seen:expr $(,)?) => {
        match $is_so {
            true => Ok(Verdict::Held),
            false => Err(shortened($seen)),
        }
    };
}

macro_rules! cases {
    ($($short:ident $name:literal $(not in $($backend:literal: $why:expr),+)? => $judge:expr;)+) => {
        &[$(Case {
            name: $name,
            is_short: cases!(@ $short),
            not_in: &[$($(($backend, $why)),+)?],
            judge: $judge,
        }),+]
    };
    (@ short) => { true };
    (@ whole) => { false };
}

#[rustfmt::skip]
pub const CASES: &[Case] = cases! {
    short "python: output, last value, variables" => |s, b| {
        let r = s.run(b, "python", "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 40\nx + 2")?;
        all(&r, &[("backend", json!(b)), ("success", json!(true)), ("stdout", json!("out\n")), ("stderr", json!("err\n")), ("result", json!(42))])
    };
    short "node: output and last value" => |s, b| {
        let r = s.run(b, "node", "console.log('out'); [1, 2].map(x => x * 2)")?;
        all(&r, &[("success", json!(true)), ("stdout", json!("out\n")), ("result", json!([2, 4]))])
    };
    short "shell: output and exit code" => |s, b| {
        let r = s.run(b, "shell", "echo out; exit 7")?;
        all(&r, &[("success", json!(false)), ("stdout", json!("out\n")), ("exit_code", json!(7))])
    };
    whole "typescript: types are stripped" => |s, b| {
        let r = s.run(b, "typescript", "const x: number = 41; console.log(x + 1)")?;
        all(&r, &[("success", json!(true)), ("stdout", json!("42\n"))])
    };
    short "tier is reported" => |s, b| {
        let r = s.run(b, "shell", "true")?;
        let tier = match b { "native" => "full", "docker" => "container", other => other };
        expect!(r["isolation"]["tier"] == json!(tier), &r["isolation"])
    };
    short "an exception has its type, message and line" => |s, b| {
        let r = s.run(b, "python", "x = 1\n\nraise ValueError('no')")?;
        expect!(r["error"]["type"] == "ValueError" && r["error"]["message"] == "no" && r["error"]["line"] == 3, &r)
    };
    whole "death by a signal is reported" => |s, b| {
        let r = s.run(b, "python", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")?;
        expect!(r["exit"]["kind"] == "signal" && r["exit"]["signal"] == 11, &r["exit"])
    };
    short "stdin, arguments, variables" => |s, b| {
        let more = json!({"stdin": "given", "args": ["a b", "c"], "env": {"WHAT": "x"}});
        let r = s.run_with(b, "python", "import sys, os\nprint(sys.stdin.read(), sys.argv[1:], os.environ['WHAT'])", more)?;
        all(&r, &[("stdout", json!("given ['a b', 'c'] x\n"))])
    };
    whole "variable that the interpreter reads at its start is set" => |s, b| {
        let more = json!({"env": {"PYTHONHASHSEED": "1"}});
        let r = s.run_with(b, "python", "import sys\nprint(sys.flags.hash_randomization, hash('a'))", more)?;
        let again = s.run_with(b, "python", "import sys\nprint(sys.flags.hash_randomization, hash('a'))", json!({"env": {"PYTHONHASHSEED": "1"}}))?;
        expect!(r["stdout"] == again["stdout"] && r["success"] == true, &r)
    };
    whole "environment of the server is not passed on" => |s, b| {
        let r = s.run(b, "shell", "env | cut -d= -f1 | sort | tr '\\n' ' '")?;
        let stdout = text(&r, "stdout");
        expect!(!stdout.contains("RINGFENCE_STATE_DIR") && !stdout.contains("CONTAINERS") && stdout.contains("HOME"), &r)
    };
    short "files in, artifacts out" => |s, b| {
        let more = json!({"files": [{"path": "in/data.txt", "text": "seven"}]});
        let r = s.run_with(b, "python", "t = open('in/data.txt').read()\nopen('out.txt', 'w').write(t.upper())\nopen('in/data.txt', 'a').write('!')", more)?;
        let names: Vec<&str> = r["artifacts"].as_array().into_iter().flatten().filter_map(|a| a["name"].as_str()).collect();
        expect!(names.contains(&"out.txt") && r["success"] == true, &r)
    };
    whole "symlink in the artifact directory is not followed" => |s, b| {
        let canary = canary()?;
        let code = format!("import os\nos.symlink('{canary}', 'leak.txt')\nos.mkfifo('pipe')\nopen('fine', 'w').write('x')");
        let r = s.run(b, "python", &code)?;
        let artifacts = r["artifacts"].to_string();
        drop(fs::remove_file(&canary));
        expect!(artifacts.contains("fine") && !artifacts.contains("canary-") && !artifacts.contains("leak.txt\""), &r["artifacts"])
    };
    short "long output is truncated and counted" => |s, b| {
        let r = s.run(b, "python", "import sys\nfor _ in range(3000): sys.stdout.write('x' * 1000)")?;
        expect!(r["truncated"]["stdout"] == true && r["stdout_bytes"] == 3_000_000, &json!([r["truncated"], r["stdout_bytes"]]))
    };
    whole "binary output on both streams at once" => |s, b| {
        let r = s.run(b, "python", "import os\nfor i in range(200):\n    os.write(1, bytes(range(256)))\n    os.write(2, b'e' * 300)")?;
        expect!(r["stdout_bytes"] == 51_200 && r["stderr_bytes"] == 60_000, &json!([r["stdout_bytes"], r["stderr_bytes"]]))
    };
    short "deadline ends all processes, and output is kept" => |s, b| {
        let begun = Instant::now();
        let code = "import time, signal, os\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nif os.fork() == 0:\n    os.setsid()\n    while True: time.sleep(1)\nprint('begun', flush=True)\nwhile True: time.sleep(1)";
        let r = s.run_with(b, "python", code, json!({"timeout_seconds": 2}))?;
        let took = begun.elapsed();
        expect!(r["exit"]["kind"] == "timeout" && r["stdout"] == "begun\n" && took < Duration::from_secs(12), &json!([r["exit"], took.as_millis() as u64]))
    };
    short "cancelled run ends" => |s, b| {
        let arguments = json!({"code": "import time\ntime.sleep(60)", "backend": b, "background": true, "validate": "off"});
        let begun = s.call("execute_code", &arguments)?;
        let id = json!({"execution_id": begun["execution_id"]});
        sleep(Duration::from_millis(500));
        s.call("cancel_execution", &id)?;
        let r = s.call("get_execution", &json!({"execution_id": begun["execution_id"], "wait_seconds": 15}))?;
        expect!(r["exit"]["kind"] == "cancelled" || r["error"].to_string().contains("cancel"), &r)
    };
    short "memory over the limit" => |s, b| {
        let r = s.run_with(b, "python", "x = []\nwhile True: x.append(bytearray(b'x' * (1 << 22)))", json!({"memory_limit": "128m", "timeout_seconds": 30}))?;
        let kind = &r["exit"]["kind"];
        expect!(kind == "out_of_memory" || r["error"]["type"] == "MemoryError", &json!([r["exit"], r["error"]]))
    };
    whole "fork bomb is contained" not in "gvisor": NO_PROCESS_LIMIT => |s, b| {
        let code = "import os, time\nn = 0\ntry:\n    while n < 500:\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n        n += 1\nexcept OSError as e: print('refused', n, e.errno)";
        let r = s.run_with(b, "python", code, json!({"resource_limits": {"max_processes": 20}, "timeout_seconds": 20}))?;
        let stdout = text(&r, "stdout");
        let count: u64 = stdout.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(999);
        expect!(stdout.starts_with("refused") && count <= 25, &r)
    };
    whole "disk over the limit" => |s, b| {
        let code = "f = 0\nwhile True:\n    open(f'/workspace/f{f}', 'wb').write(b'x' * (4 << 20)); f += 1";
        let r = s.run_with(b, "python", code, json!({"resource_limits": {"max_disk_mb": 32}, "timeout_seconds": 30}))?;
        expect!(r["success"] == false && r["exit"]["kind"] != "timeout", &json!([r["exit"], r["error"]]))
    };
    whole "disk over the limit, deeper than the longest path" => |s, b| {
        let code = "import os, time\nos.chdir('/workspace')\nfor i in range(60):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\nfor i in range(40):\n    with open(str(i), 'wb') as f: f.write(b'x' * (4 << 20))\ntime.sleep(20)";
        let r = s.run_with(b, "python", code, json!({"resource_limits": {"max_disk_mb": 32}, "timeout_seconds": 30}))?;
        expect!(r["success"] == false && r["exit"]["kind"] != "timeout", &json!([r["exit"], r["error"]]))
    };
    whole "disk over the limit, in /tmp" => |s, b| {
        let code = "for i in range(10):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(b'x' * (10 << 20))";
        let r = s.run_with(b, "python", code, json!({"resource_limits": {"max_disk_mb": 16}, "timeout_seconds": 30}))?;
        expect!(r["success"] == false && r["exit"]["kind"] != "timeout", &json!([r["exit"], r["error"]]))
    };
    whole "deep directory tree affects only its run" => |s, b| {
        // Landlock checks each parent directory, so natively the cost grows with the square of the levels.
        let levels = if b == "docker" { 20_000 } else { 2_000 };
        let code = format!("import os\nos.chdir('/workspace')\nfor i in range({levels}):\n    os.mkdir('d'); os.chdir('d')");
        let r = s.run_with(b, "python", &code, json!({"timeout_seconds": 20}))?;
        let next = s.run(b, "python", "print('next')")?;
        expect!(r["exit"].is_object() && next["stdout"] == "next\n", &json!([r["exit"], next["stdout"]]))
    };
    whole "processor share is limited" not in "gvisor": "runsc runs with --ignore-cgroups here" => |s, b| {
        // Two processes that spin for two seconds demand four processor seconds, and get one.
        let code = "import time, os\nt = time.time()\npid = os.fork()\nwhile time.time() - t < 2: pass\nif pid: os.waitpid(pid, 0)";
        let r = s.run_with(b, "python", code, json!({"resource_limits": {"max_cpu_cores": 0.5}, "timeout_seconds": 20}))?;
        let used = |name: &str| r["resource_usage"][name].as_f64().unwrap_or(9999.0);
        expect!(used("cpu_user_ms") + used("cpu_system_ms") < 1800.0, &r["resource_usage"])
    };
    whole "background run, and its result later" => |s, b| {
        let begun = s.run_with(b, "python", "import time\nprint('a', flush=True)\ntime.sleep(1)\nprint('b')", json!({"background": true}))?;
        let r = s.call("get_execution", &json!({"execution_id": begun["execution_id"], "wait_seconds": 20}))?;
        expect!(r["stdout"] == "a\nb\n", &r)
    };
    short "session: python keeps state, files, values" => |s, b| {
        in_session(s, b, "python", |call| {
            call("x = [1]\nopen('f', 'w').write('kept')")?;
            let r = call("x.append(2)\nprint(open('f').read())\nx")?;
            expect!(r["result"] == json!([1, 2]) && r["stdout"] == "kept\n", &r)
        })
    };
    whole "session: endless output of a thread does not block calls" => |s, b| {
        in_session(s, b, "python", |call| {
            let flood = "def flood():\n    while True: print('x' * 999)";
            let r = call(&format!("import threading\n{flood}\nthreading.Thread(target=flood, daemon=True).start()\n1 + 1"))?;
            expect!(r["result"] == 2 && r["exit"]["kind"] == "code", &r["exit"])
        })
    };
    whole "session: node keeps state" => |s, b| {
        in_session(s, b, "node", |call| {
            call("let x = 20")?;
            let r = call("x * 2 + 2")?;
            expect!(r["result"] == 42, &r)
        })
    };
    whole "session: shell keeps state" => |s, b| {
        in_session(s, b, "shell", |call| {
            call("x=42; cd /tmp")?;
            let r = call("echo $x $PWD")?;
            expect!(r["stdout"] == "42 /tmp\n", &r)
        })
    };
    short "session: call over its time limit is interrupted" => |s, b| {
        let made = s.call("create_session", &json!({"language": "python", "backend": b}))?;
        let id = made["session_id"].clone();
        let call = |code: &str, seconds: u64| s.call("execute_code", &json!({"code": code, "session_id": id, "timeout_seconds": seconds, "validate": "off"}));
        call("x = 1", 10)?;
        let late = call("while True: pass", 1)?;
        let r = call("x", 10)?;
        s.call("terminate_session", &json!({"session_id": id}))?;
        expect!(late["exit"]["kind"] == "timeout" && r["result"] == 1, &json!([late["exit"], r["result"]]))
    };
    whole "session: put_file and get_file" => |s, b| {
        let made = s.call("create_session", &json!({"language": "python", "backend": b}))?;
        let id = made["session_id"].clone();
        s.call("put_file", &json!({"session_id": id, "path": "a/b.txt", "text": "from outside"}))?;
        let r = s.call("execute_code", &json!({"code": "t = open('a/b.txt').read()\nopen('c.txt', 'w').write(t + '!')\nt", "session_id": id, "validate": "off"}))?;
        let got = s.call("get_file", &json!({"session_id": id, "path": "c.txt"}))?;
        s.call("terminate_session", &json!({"session_id": id}))?;
        expect!(r["result"] == "from outside" && got["text"] == "from outside!", &json!([r["error"], got]))
    };
    whole "session: bridge_data between languages" => |s, b| {
        let python = s.call("create_session", &json!({"language": "python", "backend": b}))?["session_id"].clone();
        let node = s.call("create_session", &json!({"language": "node", "backend": b}))?["session_id"].clone();
        s.call("execute_code", &json!({"code": "v = {'a': [1, 2]}", "session_id": python, "validate": "off"}))?;
        s.call("bridge_data", &json!({"name": "v", "from_session": python, "to_session": node}))?;
        let r = s.call("execute_code", &json!({"code": "v.a[1] + 40", "session_id": node, "language": "node", "validate": "off"}))?;
        for id in [python, node] { s.call("terminate_session", &json!({"session_id": id}))?; }
        expect!(r["result"] == 42, &r)
    };
    short "egress: only the allowed host is reached" => |s, b| {
        let Some(port) = web(s) else { return Ok(Verdict::Unavailable("no listener".to_owned())) };
        let code = format!("import urllib.request, socket\nprint(urllib.request.urlopen('http://api.allowed.test:{port}/x', timeout=10).read().decode())\ntry:\n    urllib.request.urlopen('http://other.test:{port}/', timeout=10)\n    print('reached')\nexcept Exception as e: print('refused')");
        let r = s.run(b, "python", &code)?;
        let denied = r["denials"].to_string();
        expect!(r["stdout"] == "hello from outside\nrefused\n" && denied.contains("other.test"), &json!([r["stdout"], r["stderr"], r["denials"]]))
    };
    whole "egress: session reaches its allowed host" => |s, b| {
        let Some(port) = web(s) else { return Ok(Verdict::Unavailable("no listener".to_owned())) };
        in_session(s, b, "python", |call| {
            let r = call(&format!("import urllib.request\nurllib.request.urlopen('http://api.allowed.test:{port}/', timeout=10).read().decode()"))?;
            expect!(r["result"] == "hello from outside", &r)
        })
    };
    whole "egress: no access by address, UDP or raw socket" => |s, b| {
        let code = "import socket\ndef t(f):\n    try: f(); return 'open'\n    except OSError as e: return 'shut'\ndef tcp(a):\n    s = socket.socket(); s.settimeout(3); s.connect(a)\ndef udp():\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.sendto(b'x', ('8.8.8.8', 53)); s.recv(10)\nprint(t(lambda: tcp(('8.8.8.8', 443))), t(lambda: tcp(('169.254.169.254', 80))), t(udp), t(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))";
        let r = s.run(b, "python", code)?;
        all(&r, &[("stdout", json!("shut shut shut shut\n"))])
    };
    whole "egress: the host's loopback is not reachable" => |s, b| {
        let Some(port) = web(s) else { return Ok(Verdict::Unavailable("no listener".to_owned())) };
        let code = format!("import socket\ns = socket.socket(); s.settimeout(3)\ntry:\n    s.connect(('127.0.0.1', {port}))\n    s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n    print(s.recv(100))\nexcept OSError: print('shut')");
        let r = s.run(b, "python", &code)?;
        expect!(!text(&r, "stdout").contains("hello"), &r)
    };
    short "egress: TLS is decrypted for paths, secret stays outside" => |s, b| {
        let tls = s.tls.as_ref().ok_or("there is no TLS host")?;
        let p = tls.port;
        let code = format!("import os, urllib.request, urllib.error\ndef get(url, **heads):\n    try:\n        with urllib.request.urlopen(urllib.request.Request(url, headers=heads), timeout=20) as r: return r.status, r.read().decode()\n    except urllib.error.HTTPError as e: return e.code, ''\nprint(os.environ['TOKEN'])\nprint(get('https://api.test:{p}/v1', Authorization='Bearer ' + os.environ['TOKEN']))\nprint(get('https://read.test:{p}/seen')[0], get('https://read.test:{p}/other')[0])");
        let r = s.run_with(b, "python", &code, json!({"secrets": ["TOKEN"], "timeout_seconds": 60}))?;
        let requests = tls.requests(2);
        let stdout = text(&r, "stdout");
        let is_injected = requests.len() == 2 && requests[0].contains(&format!("Bearer {SECRET}")) && requests[1].contains("/seen");
        let is_hidden = stdout.starts_with("ringfence_secret_") && stdout.ends_with("200 403\n") && !r.to_string().contains(SECRET);
        expect!(is_injected && is_hidden, &json!([r["stdout"], r["stderr"], r["error"], r["denials"], requests]))
    };
    short "escape: no capability, no new privileges, a filter, no root" => |s, b| {
        let r = s.run(b, "shell", "id -u; grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status")?;
        let stdout = text(&r, "stdout");
        let zero = |name: &str| stdout.lines().any(|line| line.starts_with(name) && line.trim_end().ends_with("0000000000000000"));
        let rest = b == "gvisor" || (stdout.contains("NoNewPrivs:\t1") && stdout.contains("Seccomp:\t2"));
        expect!(!stdout.starts_with("0\n") && ["CapPrm", "CapEff", "CapBnd"].into_iter().all(zero) && rest, &r)
    };
    whole "escape: the host's files and sockets do not exist inside" => |s, b| {
        let canary = canary()?;
        let code = format!("import os\ntry: print(open('{canary}').read())\nexcept OSError: print('absent')\nprint([p for p in ['/var/run/docker.sock', '/run/docker.sock', '/etc/shadow-'] if os.path.exists(p)])");
        let r = s.run(b, "python", &code)?;
        drop(fs::remove_file(&canary));
        all(&r, &[("stdout", json!("absent\n[]\n"))])
    };
    short "escape: only the sandbox's own directories are writable" => |s, b| {
        let r = s.run(b, "python", "import os\nfor p in ['/x', '/usr/x', '/etc/x', '/code/x', '/code/main.py', '/etc/resolv.conf', '/.ringfence', '/proc/sys/kernel/core_pattern', '/sys/x', '/bin/sh', '/volume/x']:\n    try:\n        open(p, 'w'); print('wrote', p)\n    except OSError: pass\nfor p in ['/workspace/x', '/output/x', '/tmp/x', '/home/sandbox/x']: open(p, 'w')\nprint('done')")?;
        all(&r, &[("stdout", json!("done\n"))])
    };
    whole "escape: mounts, namespaces, keys, bpf, modules are refused" not in "gvisor": KERNEL => |s, b| {
        let code = "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nfor n, a in [(165, (0, b'/tmp', b'tmpfs', 0, 0)), (272, (0x10000000,)), (308, (0, 0)), (250, (0, 0, 0, 0, 0)), (321, (0, 0, 0)), (175, (0, 0, 0)), (425, (1, 0)), (435, (0, 0)), (323, (0,)), (298, (0, 0, -1, -1, 0)), (101, (16, 1, 0, 0)), (430, (b'tmpfs', 0)), (304, (0, 0, 0))]:\n    r = l.syscall(n, *a)\n    if r >= 0: print('allowed', n)\nprint('done')";
        let r = s.run(b, "python", code)?;
        all(&r, &[("stdout", json!("done\n"))])
    };
    whole "escape: sockets of dangerous families are refused" => |s, b| {
        let code = "import socket\nfor f in [38, 40, 17, 29, 31, 44]:\n    try:\n        socket.socket(f, socket.SOCK_SEQPACKET if f == 38 else socket.SOCK_DGRAM); print('open', f)\n    except OSError: pass\nprint('done')";
        let r = s.run(b, "python", code)?;
        all(&r, &[("stdout", json!("done\n"))])
    };
    whole "escape: killing pid 1 affects at most this sandbox" => |s, b| {
        let r = s.run(b, "python", "import os, time\ntry: os.kill(1, 9)\nexcept OSError: pass\ntime.sleep(1)\nprint('alive')")?;
        // gVisor's pid 1 is not protected from this signal; only this sandbox ends with it.
        let is_so = if b == "gvisor" { r["success"] == true || r["exit"]["kind"] == "signal" } else { r["stdout"] == "alive\n" };
        let next = s.run(b, "python", "print('next')")?;
        expect!(is_so && next["stdout"] == "next\n", &json!([r["exit"], next["stdout"]]))
    };
    short "escape: pid 1 cannot be signalled, read or impersonated" => |s, b| {
        // gVisor shows every process's environment and memory map; here these are the image's and the agent's own.
        let read = if b == "gvisor" { "['/proc/1/mem']" } else { "['/proc/1/mem', '/proc/1/environ', '/proc/1/maps']" };
        let code = format!("import os\nfor n in [1, 2, 15, 30]:\n    try: os.kill(1, n)\n    except OSError: pass\nfor p in {read}:\n    try:\n        if open(p, 'rb').read(10): print('read', p)\n    except OSError: pass\nended = b'\\x26' + bytes(4) + b'\\x2d\\0\\0\\0' + bytes(45)\nfor n in range(32):\n    try: os.write(os.open(f'/proc/1/fd/{{n}}', os.O_WRONLY | os.O_NONBLOCK), ended)\n    except OSError: pass\nos._exit(5)");
        let code = code.as_str();
        let r = s.run(b, "python", code)?;
        expect!(r["exit_code"] == 5 && !text(&r, "stdout").contains("read"), &json!([r["exit"], r["stdout"], r["stderr"]]))
    };
    whole "escape: kill(-1) affects only its own sandbox" => |s, b| {
        s.run(b, "python", "import os\nos.kill(-1, 9)")?;
        let r = s.run(b, "python", "print('alive')")?;
        all(&r, &[("stdout", json!("alive\n"))])
    };
    whole "escape: two runs share no writable directory" => |s, b| {
        s.run(b, "shell", "for d in /tmp /dev/shm /workspace /output /home/sandbox; do echo mark > $d/mark; done")?;
        let r = s.run(b, "shell", "ls /tmp/mark /dev/shm/mark /workspace/mark /output/mark /home/sandbox/mark 2>/dev/null; echo end")?;
        all(&r, &[("stdout", json!("end\n"))])
    };
    whole "escape: device nodes cannot be made or opened" => |s, b| {
        let code = "import os, stat, glob\ntry:\n    os.mknod('/workspace/d', 0o666 | stat.S_IFBLK, os.makedev(8, 0)); print('made')\nexcept OSError: pass\nprint(sorted(set(os.listdir('/dev')) & {'sda', 'vda', 'mem', 'kmem', 'kmsg', 'kvm', 'loop0'}))";
        let r = s.run(b, "python", code)?;
        all(&r, &[("stdout", json!("[]\n"))])
    };
    whole "forged report does not change the exit code" => |s, b| {
        let code = "import os\ntry: os.write(3, b'{\"result\": 1}\\n')\nexcept OSError: pass\nos._exit(3)";
        let r = s.run(b, "python", code)?;
        expect!(r["success"] == false && r["exit_code"] == 3, &r["exit"])
    };
    whole "profile is enforced in every backend" => |s, b| {
        let r = s.run_with(b, "python", "import subprocess", json!({"profile": "basic"}))?;
        expect!(r["success"] != true, &r)
    };
    whole "unsupported arguments are refused by name" not in "native": "it supports all arguments" => |s, b| {
        let space = s.run_with(b, "python", "1", json!({"workspace": "namespace"}))?;
        let packages = s.run_with(b, "python", "1", json!({"packages": ["requests"]}))?;
        let named = |r: &Value, what: &str| {
            let message = r["message"].to_string();
            r["code"] == "unsupported_argument" && message.contains(what) && message.contains(b)
        };
        expect!(named(&space, "workspace") && named(&packages, "packages"), &json!([space, packages]))
    };
};

fn shortened(seen: &Value) -> String {
    seen.to_string().chars().take(700).collect()
}

fn all(result: &Value, wanted: &[(&str, Value)]) -> CaseResult {
    match wanted.iter().find(|(name, value)| result[*name] != *value) {
        None => Ok(Verdict::Held),
        Some((name, value)) => {
            let seen = result.to_string();
            Err(format!(
                "{name} is not {value}: {}",
                seen.chars().take(600).collect::<String>()
            ))
        }
    }
}

fn text(result: &Value, name: &str) -> String {
    result[name].as_str().unwrap_or_default().to_owned()
}

type Caller<'a> = dyn Fn(&str) -> Result<Value, String> + 'a;

/// Makes a session, makes the calls, and terminates the session.
fn in_session(
    s: &Server,
    b: &str,
    language: &str,
    calls: impl FnOnce(&Caller<'_>) -> CaseResult,
) -> CaseResult {
    let made = s.call("create_session", &json!({"language": language, "backend": b}))?;
    let id = made["session_id"]
        .as_str()
        .ok_or_else(|| made.to_string())?
        .to_owned();
    let call = |code: &str| {
        s.call(
            "execute_code",
            &json!({"code": code, "session_id": id, "language": language, "validate": "off"}),
        )
    };
    let judged = calls(&call);
    s.call("terminate_session", &json!({"session_id": id}))?;
    judged
}

/// Writes a canary: a file of the host with a text that must not be readable inside.
fn canary() -> Result<String, String> {
    let path = format!("/tmp/ringfence-canary-{}", std::process::id());
    fs::write(&path, format!("canary-{}", std::process::id())).map_err(|error| error.to_string())?;
    Ok(path)
}

/// Returns the port of the web server that is allowed by name.
fn web(server: &Server) -> Option<u16> {
    server.web
}
