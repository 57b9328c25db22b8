//! Ordinary programs run within the limits, and denials explain limits that are met.

use crate::client::*;
use std::time::Duration;

#[test]
fn ordinary_programs_work() {
    let code = r#"
import asyncio, multiprocessing as mp, os, pty, sqlite3, subprocess, sys, tempfile, threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
def square(n): return n * n
if __name__ == '__main__':
    with mp.Pool(4) as pool: assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    with ProcessPoolExecutor(2) as pool: assert list(pool.map(square, [3])) == [9]
    with ThreadPoolExecutor(16) as pool: assert sum(pool.map(square, range(3))) == 5
    with mp.get_context('spawn').Pool(1) as pool: assert pool.map(square, [2]) == [4]
    assert mp.Value('i', 3).value == 3 and mp.Semaphore(1).acquire()
    with tempfile.NamedTemporaryFile() as file: file.write(b'x'); file.flush(); assert os.path.getsize(file.name) == 1
    db = sqlite3.connect('a.db'); db.execute('pragma journal_mode=wal'); db.execute('create table t (n)'); db.execute('insert into t values (1)'); db.commit()
    assert sqlite3.connect('a.db').execute('select n from t').fetchone() == (1,)
    async def served():
        server = await asyncio.start_server(lambda r, w: (w.write(b'hi'), w.close()), '127.0.0.1', 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b'hi'
        child = await asyncio.create_subprocess_exec('echo', 'out', stdout=asyncio.subprocess.PIPE)
        assert (await child.communicate())[0] == b'out\n'
    asyncio.run(served())
    assert subprocess.run('seq 100 | sort -rn | head -1', shell=True, capture_output=True, text=True).stdout == '100\n'
    pid, fd = pty.fork()
    if pid == 0: os.execvp('sh', ['sh', '-c', 'tty; test -t 0 && echo terminal'])
    seen = b''
    try:
        while chunk := os.read(fd, 1000): seen += chunk
    except OSError: pass
    assert b'/dev/pts/0' in seen and b'terminal' in seen, seen
    print('all work')
"#;
    let result = run_json("python", code, &[]);
    assert_eq!(result["stdout"], "all work\n", "{result}");
}

#[test]
fn node_workers_and_children_work() {
    let code = r#"
const { Worker } = require('worker_threads'), { execFileSync, fork } = require('child_process'), fs = require('fs'), http = require('http');
const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
worker.on('message', (n) => {
  console.log(n, execFileSync('echo', ['child']).toString().trim());
  const server = http.createServer((q, s) => s.end('served')).listen(0, () =>
    http.get({ port: server.address().port }, (r) => r.on('data', (d) => { console.log(String(d)); server.close(); })));
});
fs.watchFile('main.js', () => {});
fs.unwatchFile('main.js');
"#;
    let result = run_json("node", code, &[]);
    assert_eq!(result["stdout"], "42 child\nserved\n", "{result}");
}

#[test]
fn git_works_in_the_workspace() {
    let code = "git init -q . && git config user.email a@b.c && git config user.name n && echo x > f && git add f && git commit -qm one && git log --oneline | wc -l && git status --short | wc -l";
    let result = run_json("shell", code, &[]);
    assert_eq!(result["stdout"], "1\n0\n", "{result}");
}

#[test]
fn locale_time_zones_and_certificates_are_available() {
    let code = "import ssl, time, locale, zoneinfo, datetime\nlocale.setlocale(locale.LC_ALL, '')\nprint(len(ssl.create_default_context().get_ca_certs()) > 10, datetime.datetime.now(zoneinfo.ZoneInfo('Europe/Berlin')).tzname() in ('CET', 'CEST'), 'é'.encode())";
    let result = run_json("python", code, &[]);
    assert_eq!(result["stdout"], "True True b'\\xc3\\xa9'\n", "{result}");
}

#[test]
fn gigabyte_of_output_is_counted_and_not_kept() {
    let result = run_json("shell", "head -c 1073741824 /dev/zero", &[]);
    assert_eq!(result["stdout_bytes"], 1_073_741_824_u64, "{}", result["exit"]);
    assert_eq!(result["truncated"]["stdout"], true);
    assert_eq!(text_of(&result["stdout"]).len(), 1_000_000);
    let counted = run_code("shell", "head -c 100000000 /dev/zero", &[]);
    assert_eq!(counted.stdout.len(), 100_000_000, "the live stream is whole");
}

#[test]
fn every_layer_is_named_in_the_result() {
    let short = run_json("shell", "true", &[]);
    short.assert_fields(json!({"isolation": json!({"tier": "full", "inactive": []})}));
    let result = run_json("shell", "true", &["--verbose"]);
    assert_eq!(result["isolation"]["tier"], "full");
    for layer in [
        "user_namespace",
        "mount_namespace",
        "pid_namespace",
        "network_namespace",
        "ipc_namespace",
        "uts_namespace",
        "cgroup_namespace",
        "landlock",
        "seccomp",
        "capabilities",
        "no_new_privileges",
        "memory",
        "processes",
        "cpu",
        "disk",
        "wall_time",
        "resource_limits",
    ] {
        assert_eq!(result["isolation"]["layers"][layer]["active"], true, "{layer}");
    }
}

/// claim: [TIER-2]
#[test]
fn landlock_floor_runs_in_the_landlock_tier_and_names_inactive_layers() {
    let config = TempDir::new("landlock");
    let file = config.file(
        "c.yaml",
        &format!(
            "floor: landlock\nstate_dir: {}\n",
            config.0.join("state").display()
        ),
    );
    let home = config.file("secret", "canary");
    for (language, code) in [
        ("shell", format!("cat {home}; pwd; echo $TMPDIR > x; cat x")),
        (
            "python",
            format!(
                "import socket\ntry: socket.socket(); print('socket')\nexcept OSError: print('none')\ntry: print(open('{home}').read())\nexcept OSError: print('refused')"
            ),
        ),
    ] {
        let result = run_json(language, &code, &["--config", &file]);
        assert_eq!(result["isolation"]["tier"], "landlock", "{result}");
        let inactive = list_of(&result["isolation"]["inactive"]);
        assert!(inactive.contains(&"network_namespace".into()), "{result}");
        let stdout = text_of(&result["stdout"]);
        assert!(
            !stdout.contains("canary") && !stdout.contains("socket"),
            "{result}"
        );
    }
    let result = run_json(
        "shell",
        "(setsid sleep 127.1828 &) ; sleep 0.1; echo made > file",
        &["--config", &file],
    );
    assert_eq!(result["artifacts"][0]["name"], "file", "{result}");
    assert_processes_end("127.1828");
    let runs = state_dir().join("runs");
    let empty = || std::fs::read_dir(&runs).unwrap().count() == 0;
    assert!(
        becomes_true_within(Duration::from_secs(1), empty),
        "the directories of runs are removed"
    );
}

/// Asserts that a run meets the limit of this rule, and that the hint of its denial is `next`.
fn assert_limit_met(server: &mut Server, arguments: &Value, rule: &str, next: &str) {
    let result = server.run(arguments.clone());
    let denials = list_of(&result["denials"]);
    let met = denials.iter().find(|denial| denial["rule"] == rule);
    assert_eq!(
        met.unwrap_or_else(|| panic!("{result}"))["hint"],
        next,
        "{result}"
    );
}

#[test]
fn limit_denial_names_the_argument_that_raises_the_limit() {
    let mut server = Server::start();
    let mut check = |code: &str, rule: &str, next: &str, followed: Value| {
        assert_limit_met(&mut server, &json!({"code": code}), rule, next);
        let mut arguments = followed;
        arguments["code"] = json!(code);
        let result = server.call_ok("execute_code", arguments);
        assert_eq!(result["denials"], json!([]), "{result}");
    };
    check(
        "x = bytearray(600 << 20)\nx[::4096] = bytes([1]) * len(x[::4096])",
        "limit.memory",
        "next: execute_code {resource_limits: {max_ram_mb: 1024}}",
        json!({"resource_limits": {"max_ram_mb": 1024}}),
    );
    check(
        "with open('/tmp/x', 'wb') as f:\n  for _ in range(300): f.write(bytes(1 << 20))",
        "limit.disk",
        "next: execute_code {resource_limits: {max_disk_mb: 1024}}",
        json!({"resource_limits": {"max_disk_mb": 1024}}),
    );
    check(
        "import subprocess\nall = [subprocess.Popen(['sleep', '100']) for _ in range(80)]\nfor one in all: one.kill()",
        "limit.processes",
        "next: execute_code {resource_limits: {max_processes: 128}}",
        json!({"resource_limits": {"max_processes": 128}}),
    );
    let endless = json!({"code": "while True: pass", "timeout_seconds": 1});
    let next = "next: execute_code {timeout_seconds: 2}, if the program ends by itself";
    assert_limit_met(&mut server, &endless, "limit.timeout", next);
    let long = json!({"language": "shell", "code": "head -c 1500000 /dev/zero"});
    let next = "next: execute_code {resource_limits: {max_output_bytes: 1500000}}, or write a file";
    assert_limit_met(&mut server, &long, "limit.output", next);
}

#[test]
fn session_limit_denial_suggests_a_new_session() {
    let mut server = Server::start();
    let made = server.facts("create_session", json!({"resource_limits": {"max_processes": 8}}));
    let code = "import subprocess\nall = []\ntry:\n    for _ in range(9): all.append(subprocess.Popen(['sleep', '100']))\n\
        finally:\n    for one in all: one.kill()";
    let next = "next: create_session {resource_limits: {max_processes: 16}} (a session keeps the limits that it was made with)";
    let arguments = json!({"session_id": made["session_id"], "code": code});
    assert_limit_met(&mut server, &arguments, "limit.processes", next);
    let later = server.eval(&made["session_id"], "1");
    assert_eq!(
        later["denials"],
        json!([]),
        "the limit was met by the earlier call: {later}"
    );
}

#[test]
fn kernel_refusals_are_among_the_denials() {
    let rules = |language: &str, code: &str| -> Vec<String> {
        let result = run_json(language, code, &[]);
        let denials = list_of(&result["denials"]).iter();
        denials
            .map(|denial| text_of(&denial["rule"]).to_owned())
            .collect()
    };
    assert_eq!(rules("python", "open('/usr/x', 'w')"), ["kernel.read_only"]);
    assert_eq!(
        rules("node", "require('fs').writeFileSync('/usr/x', '')"),
        ["kernel.read_only"]
    );
    let raw = "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)";
    assert_eq!(rules("python", raw).len(), 1);
    assert!(rules("python", "open('/workspace/none')").is_empty());
}

/// The server has run programs and keeps check workers, an adviser, a session and warm sandboxes waiting.
#[test]
fn idle_server_uses_no_cpu() {
    let mut server = Server::start();
    for _ in 0..3 {
        let call = json!({"language": "python", "code": "import os\nprint(1)", "validate": "warn"});
        assert_eq!(server.run(call)["stdout"], "1\n");
    }
    let session = server.create_session(json!({"language": "shell"}));
    assert_eq!(server.eval(&session, "echo here")["stdout"], "here\n");
    // In hundredths of a second (proc_pid_stat(5), fields 14 and 15). A process that has ended counts as 0.
    let used = |pids: &[u32]| -> u64 {
        let fields = pids
            .iter()
            .flat_map(|pid| [proc_stat(*pid, 14), proc_stat(*pid, 15)]);
        fields
            .flatten()
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum()
    };
    let pid = server.child.id();
    // True once the warm sandboxes are prepared; never true if a busy loop is left.
    let is_idle = || {
        let pids = [descendants(pid), vec![pid]].concat();
        let before = used(&pids);
        std::thread::sleep(Duration::from_secs(1));
        used(&pids).saturating_sub(before) <= 10
    };
    eventually(is_idle);
}
