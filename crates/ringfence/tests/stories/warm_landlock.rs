//! Warm sandboxes in the landlock tier, without namespaces: they start before their request, behind the walls of a cold
//! run, and none reaches another, running or waiting.

use crate::client::*;
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

const LANDLOCK: &str = "floor: landlock\n";

/// Runs the story on a server of the test's user and, if that is root, also on one of an ordinary user, whose sandboxes
/// all have the same uid.
fn on_each_server(mut story: impl FnMut(&mut Server, &Path)) {
    story(&mut Server::with_config(LANDLOCK), &state_dir().join("runs"));
    if let Some(nobody) = Nobody::new(LANDLOCK) {
        story(&mut nobody.serve(), &nobody.0.join("state/runs"));
    }
}

/// Waits until a sandbox of each language is warm.
fn wait_until_warm(server: &mut Server) {
    eventually(|| server.runtimes().iter().all(|runtime| runtime["warm"] == true));
}

/// Runs a program in a warm sandbox.
fn run(server: &mut Server, language: &str, code: &str, more: Value) -> Value {
    wait_until_warm(server);
    let mut arguments = more;
    arguments["language"] = json!(language);
    arguments["code"] = json!(code);
    let done = server.run(arguments);
    assert_eq!(done["isolation"]["tier"], "landlock", "{done}");
    done
}

/// True if the sandbox was warm: the directory of one created for its request is named after the execution.
fn was_ready(done: &Value, workspace: &str) -> bool {
    let id = text_of(&done["execution_id"]);
    assert!(workspace.contains("/runs/"), "{workspace}");
    !workspace.contains(id)
}

#[test]
fn landlock_tier_starts_every_language_before_its_request() {
    on_each_server(|server, runs| {
        for _ in 0..3 {
            for (language, code) in [
                ("python", "import os\nprint(os.getcwd())"),
                ("node", "console.log(process.cwd())"),
                ("shell", "pwd"),
            ] {
                let done = run(server, language, code, json!({}));
                let workspace = text_of(&done["stdout"]).trim();
                assert!(was_ready(&done, workspace), "{done}");
                // Its directory is removed after the run.
                let gone = || !Path::new(workspace).exists();
                assert!(becomes_true_within(PATIENCE, gone), "{workspace}");
            }
        }
        // The control: a variable that the C library reads at startup forces a cold start.
        let cold = "import os, sys\n['random' in sys.modules, os.environ['LC_ALL']]";
        let done = run(server, "python", cold, json!({"env": {"LC_ALL": "C"}}));
        assert_eq!(done["result"], json!([false, "C"]), "{done}");
        let done = run(server, "python", &cold.replace("LC_ALL", "HOME"), json!({}));
        assert_eq!(done["result"][0], true, "{done}");
        server.shut_down();
        let left = || fs::read_dir(runs).unwrap().count();
        assert!(
            becomes_true_within(PATIENCE, || left() == 0),
            "{} are left",
            left()
        );
    });
}

/// claim: [WARM-3]
#[test]
fn landlock_tier_claim_is_in_force_before_the_program_runs() {
    let code = "import glob, os, resource as r, sys\nos.environ['RINGFENCE_OUTPUT_DIR'].index('/runs/')\n\
        files = {name: oct(os.stat(name).st_mode) for name in os.listdir('.')}\n\
        [sys.argv[1:], os.environ['GREETING'], open('in/a.txt').read(), sys.stdin.read(), \
        r.getrlimit(r.RLIMIT_FSIZE)[1], r.getrlimit(r.RLIMIT_CPU)[1], r.getrlimit(r.RLIMIT_NOFILE)[1], \
        sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4]]";
    let more = json!({
        "args": ["x", "y"], "env": {"GREETING": "hello"}, "stdin": "typed",
        "files": [{"path": "in/a.txt", "text": "file"}],
        "timeout_seconds": 7, "resource_limits": {"max_disk_mb": 20, "max_cpu_cores": 1, "max_ram_mb": 256}
    });
    // Every thread that existed before the claim.
    let threads = "const fs = require('fs'), all = fs.readdirSync('/proc/self/task');\n\
        const of = (id) => fs.readFileSync(`/proc/self/task/${id}/status`, 'utf8').match(/Cpus_allowed_list:\\s*(.*)/)[1];\n\
        console.log(all.length > 1, new Set(all.map(of)).size)";
    on_each_server(|server, _| {
        let done = run(server, "python", code, more.clone());
        let expect = json!([
            ["x", "y"],
            "hello",
            "file",
            "typed",
            20 << 20,
            8,
            1024,
            [0, 1, 2, 3]
        ]);
        assert_eq!(done["result"], expect, "{done}");
        let one = json!({"resource_limits": {"max_cpu_cores": 1}});
        let done = run(server, "node", threads, one);
        assert_eq!(done["stdout"], "true 1\n", "{done}");
        let tight = json!({"memory_limit": "64m"});
        let done = run(
            server,
            "python",
            "x = bytearray(200 << 20)\nwhile True: pass",
            tight,
        );
        assert_eq!(done["exit"]["kind"], "out_of_memory", "{done}");
    });
}

/// A program must behave the same in warm and cold sandboxes.
#[test]
fn landlock_tier_warm_program_finds_its_files_and_nothing_of_others() {
    let mut server = Server::with_config(LANDLOCK);
    let files = json!([
        {"path": "calendar.py", "text": "mine = 1"}, {"path": ".env", "text": "x"}, {"path": "a.mjs", "text": "export const a = 5"}
    ]);
    let more = json!({"files": files});
    let done = run(
        &mut server,
        "python",
        "import calendar\ncalendar.mine",
        more.clone(),
    );
    assert_eq!(done["result"], 1, "{done}");
    for language in ["node", "typescript"] {
        let module = "import { a } from './a.mjs';\nconsole.log(a, process.cwd())";
        let done = run(&mut server, language, module, more.clone());
        let stdout = text_of(&done["stdout"]);
        assert!(stdout.starts_with("5 ") && was_ready(&done, stdout), "{done}");
    }
    let poison = "import atexit, builtins, json, os, sys\nbuiltins.len = lambda x: 'poisoned'\n\
        json.dumps = lambda *a, **k: 'poisoned'\nos.environ['LEFT'] = 'poisoned'\n\
        for place in ('HOME', 'TMPDIR', 'RINGFENCE_OUTPUT_DIR'): open(os.environ[place] + '/left', 'w').write('x')\n\
        open('left', 'w').write('x')";
    let look = "import json, os, random\n[len([]), json.dumps(1), 'LEFT' in os.environ, 'SECRET' in os.environ, \
        os.listdir('.'), os.listdir(os.environ['TMPDIR']), os.listdir(os.environ['HOME'])]";
    for _ in 0..2 {
        let first = run(
            &mut server,
            "python",
            poison,
            json!({"env": {"SECRET": "of the first"}}),
        );
        assert_eq!(first["success"], true, "{first}");
        let second = run(&mut server, "python", look, json!({}));
        second.assert_fields(json!({"result": [0, "1", false, false, [], [], []]}));
    }
}

/// Tries to read, change, signal and trace each process of PIDS, and to read and change each directory of DIRS; prints
/// the attempts that succeed. They do not harm a victim.
const ATTACKS: &str = r"
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def raw(number, *args):
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
    return result
def read(path):
    with open(path, 'rb', 0) as file: return file.read(1)
def traced(pid):
    raw(101, 16, pid, 0, 0)  # PTRACE_ATTACH
    os.waitpid(pid, 0x40000000)
    raw(101, 17, pid, 0, 0)
def first_mapping(pid):
    with open('/proc/%d/maps' % pid) as maps: return int(maps.readline().split('-')[0], 16)
def memory(pid):
    own = ctypes.create_string_buffer(8)
    vector = lambda at: struct.pack('QQ', at, 8)
    raw(310, pid, vector(ctypes.addressof(own)), 1, vector(first_mapping(pid)), 1, 0)
def descriptor(pid):
    os.close(raw(438, os.pidfd_open(pid), 0, 0))
def by_descriptor(pid):
    raw(424, os.pidfd_open(pid), 0, 0, 0)
of_a_process = {
    'environ': lambda pid: read('/proc/%d/environ' % pid),
    'maps': lambda pid: read('/proc/%d/maps' % pid),
    'mem': lambda pid: os.close(os.open('/proc/%d/mem' % pid, os.O_RDWR)),
    'descriptors': lambda pid: os.readlink('/proc/%d/fd/0' % pid),
    'their positions': lambda pid: read('/proc/%d/fdinfo/0' % pid),
    'stdin': lambda pid: os.close(os.open('/proc/%d/fd/0' % pid, os.O_RDONLY | os.O_NONBLOCK)),
    'the pipe of its claim': lambda pid: os.close(os.open('/proc/%d/fd/4' % pid, os.O_RDWR | os.O_NONBLOCK)),
    'directory': lambda pid: os.listdir('/proc/%d/cwd' % pid),
    'root': lambda pid: os.listdir('/proc/%d/root/root' % pid),
    'namespaces': lambda pid: os.readlink('/proc/%d/ns/mnt' % pid),
    'oom score': lambda pid: open('/proc/%d/oom_score_adj' % pid, 'w').write('1000'),
    'name': lambda pid: open('/proc/%d/comm' % pid, 'w').write('stolen'),
    'ptrace': traced,
    'memory': memory,
    'descriptor': descriptor,
    'signal': lambda pid: os.kill(pid, 0),
    'signal of a thread': lambda pid: raw(234, pid, pid, 0),
    'signal by descriptor': by_descriptor,
    'signal of a group': lambda pid: os.killpg(os.getpgid(pid), 0),
    'limits': lambda pid: raw(302, pid, 7, 0, ctypes.create_string_buffer(16)),
    'priority': lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
    'processors': lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    'scheduler': lambda pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
}
def planted(path):
    with open(path + '/planted', 'w') as file: file.write('x')
    os.unlink(path + '/planted')
def moved(path):
    os.rename(path, path + '.moved')
    os.rename(path + '.moved', path)
of_a_directory = {
    'list': os.listdir,
    'plant': planted,
    'link': lambda path: (os.symlink('/', path + '/linked'), os.unlink(path + '/linked')),
    'make': lambda path: (os.mkdir(path + '/made'), os.rmdir(path + '/made')),
    'move': moved,
    'mode': lambda path: os.chmod(path, os.stat(path).st_mode & 0o7777),
    'read': lambda path: [read(path + '/' + name) for name in ('canary.txt', 'main.py')],
    'write': lambda path: os.close(os.open(path + '/canary.txt', os.O_WRONLY)),
    'take': lambda path: (os.link(path + '/canary.txt', 'taken'), os.unlink('taken')),
}
own = os.path.dirname(os.getcwd())
for acts, victims in ((of_a_process, PIDS), (of_a_directory, DIRS)):
    for victim in victims:
        for name, act in acts.items():
            if victim == os.getpid() or str(victim).startswith(own): continue
            try: act(victim)
            except (OSError, ValueError): continue
            print(name, victim)
";

fn attacks(pids: &[u32], directories: &[PathBuf]) -> String {
    format!("PIDS, DIRS = {pids:?}, {directories:?}\n{ATTACKS}")
}

/// True if the process in this line has no memory left: attempts on a process that has ended may succeed.
fn is_of_ended_process(line: &str) -> bool {
    let Some(Ok(pid)) = line.rsplit(' ').next().map(str::parse::<u32>) else {
        return false;
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.contains("\nVmRSS:")
}

/// The directories of all sandboxes, running and waiting, and their subdirectories.
fn directories(runs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(runs).unwrap().flatten().map(|entry| entry.path());
    let own = ["workspace", "output", "tmp", "home", "code"];
    let inside = |run: PathBuf| own.map(|name| run.join(name)).into_iter().chain([run]);
    entries.flat_map(inside).chain([runs.to_owned()]).collect()
}

/// A process and a directory of the ordinary user, as a target outside the sandboxes.
struct Decoy {
    child: Child,
    directory: PathBuf,
}

impl Decoy {
    fn new(nobody: &Nobody) -> Self {
        let directory = nobody.0.join("decoy");
        fs::create_dir(&directory).unwrap();
        for name in ["canary.txt", "main.py"] {
            fs::write(directory.join(name), "canary").unwrap();
            chown(directory.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = as_nobody("/usr/bin/python3");
        command
            .args(["-c", "print('up', flush=True); input()"])
            .current_dir(&directory);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
        Self { child, directory }
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The control: outside, a process reaches another one of the same user.
fn assert_attacks_succeed_outside() {
    if let Some(nobody) = Nobody::new(LANDLOCK) {
        let decoy = Decoy::new(&nobody);
        let program = attacks(&[decoy.child.id()], std::slice::from_ref(&decoy.directory));
        let outside = nobody.python(&program);
        let mut reached = vec![
            "environ",
            "maps",
            "descriptors",
            "directory",
            "oom score",
            "name",
            "signal",
            "signal of a thread",
            "signal by descriptor",
            "signal of a group",
            "limits",
            "priority",
            "processors",
            "scheduler",
            "list",
            "plant",
            "link",
            "make",
            "move",
            "mode",
            "read",
            "write",
            "take",
        ];
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if matches!(scope.trim(), "" | "0") {
            reached.extend(["mem", "ptrace", "memory", "descriptor"]);
        }
        for name in reached {
            assert!(
                outside.lines().any(|line| line.starts_with(&format!("{name} "))),
                "{name}: {outside}"
            );
        }
    }
}

/// claim: [WARM-9]
#[test]
fn landlock_tier_sandbox_cannot_reach_another_running_or_waiting() {
    assert_attacks_succeed_outside();
    on_each_server(|server, runs| {
        let session = server.create_session(json!({"env": {"SECRET": "canary"}}));
        let call = |server: &mut Server, code: &str| {
            let done = server.call_ok("execute_code", json!({"session_id": session, "code": code}));
            done["result"].clone()
        };
        let keep = "import os\nkept = os.environ['SECRET']\nopen('canary.txt', 'w').write(kept)\nos.getpid()";
        let pid = call(server, keep);
        for (language, rounds) in [("python", 2), ("shell", 1)] {
            for _ in 0..rounds {
                wait_until_warm(server);
                let server_itself = server.child.id();
                let pids = [descendants(server_itself), vec![server_itself]].concat();
                let directories = directories(runs);
                assert!(
                    pids.contains(&u32::try_from(pid.as_u64().unwrap()).unwrap()),
                    "{pids:?}"
                );
                let program = attacks(&pids, &directories);
                let done = match language {
                    "shell" => {
                        let files = json!([{"path": "attacks.py", "text": program}]);
                        run(
                            server,
                            language,
                            "/usr/bin/python3 attacks.py",
                            json!({"files": files}),
                        )
                    }
                    _ => run(server, language, &program, json!({})),
                };
                assert_eq!(done["success"], true, "{done}");
                let reached = text_of(&done["stdout"]).lines();
                let reached: Vec<&str> = reached.filter(|line| !is_of_ended_process(line)).collect();
                assert!(reached.is_empty(), "{reached:?}");
            }
        }
        let look = "[kept, open('canary.txt').read(), sorted(os.listdir('.')), os.getpid()]";
        assert_eq!(
            call(server, look),
            json!(["canary", "canary", ["canary.txt"], pid])
        );
        // The sandboxes that waited during the attacks still work.
        for (language, code) in [
            ("python", "print(1)"),
            ("node", "console.log(1)"),
            ("shell", "echo 1"),
        ] {
            let done = run(server, language, code, json!({}));
            done.assert_fields(json!({"stdout": "1\n", "stderr": ""}));
        }
    });
}
