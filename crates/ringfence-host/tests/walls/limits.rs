//! The environment of a command, and its end.

use crate::world::{World, text, words};
use ringfence_host::{Ending, Outcome};
use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Runs a Python program by a rule with this effect.
fn python(world: &World, effect: &str, code: &str) -> Result<Outcome, String> {
    fs::write(world.directory.join("program.py"), world.fill(code)).unwrap();
    let rules = world.rules_with(&format!(
        "programs:\n  - program: python3\n    why: a test\n    deadline_seconds: 3\n    effect: {effect}\n    forms:\n      - rule: python\n        operands: {{kind: path_read, min: 1, max: 1}}\n        separator: false\n        match: [python3 /x]\n        refuse: [python3 -c x]\n"
    ));
    let command = world.fill("python3 $D/program.py");
    let allowed = rules.judge(&words(&command)).unwrap();
    world.run(&rules, &allowed, 10)
}

const BASIC: &str = "{reads: [operands, directory, /proc], runs: [/usr/bin, /bin]}";

/// claim: [HOST-3]
pub fn command_inherits_nothing_from_the_server() {
    let world = World::new("surroundings");
    let outcome = python(
        &world,
        BASIC,
        r#"
import os, socket, sys
print('env', sorted(os.environ))
print('fds', sorted(int(fd) for fd in os.listdir('/proc/self/fd')))
print('tty', [os.isatty(fd) for fd in (0, 1, 2)], repr(sys.stdin.read()))
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print('caps', [status[name].strip() for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')])
print('pids', sorted(int(pid) for pid in os.listdir('/proc') if pid.isdigit())[:4])
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK):
    try:
        socket.socket(family); print('socket', family)
    except OSError as error:
        print('no socket', error.errno)
for path in ('/etc/shadow', '$S', '/root', '/run', '/var/run/docker.sock'):
    print(path, os.path.exists(path))
for path in ('$D/made', '/tmp/made', '/usr/made'):
    try:
        open(path, 'w'); print('made', path)
    except OSError as error:
        print('not made')
"#,
    )
    .unwrap();
    let output = text(&outcome.stdout.bytes);
    assert_eq!(
        outcome.ending,
        Ending::Code(0),
        "{output}{}",
        text(&outcome.stderr.bytes)
    );
    for wanted in [
        "env ['HOME', 'LANG', 'LC_ALL', 'PATH', 'TERM', 'TZ']",
        "fds [0, 1, 2, 3]",
        "tty [False, False, False] ''",
        "caps ['0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000', '1', '2']",
        "pids [2]",
        "no socket 97\nno socket 97\nno socket 97",
        "/etc/shadow False",
        "not made\nnot made\nnot made",
    ] {
        assert!(output.contains(wanted), "{wanted}\n{output}");
    }
    assert!(!output.contains("True"), "{output}");
}

/// No call sets a set-id bit on a file in a writable directory; without a socket in the rule no Unix socket is made;
/// and the command installs no seccomp filter, because the host's limit on their size is shared by all programs.
/// claim: [HOST-3]
pub fn writing_command_leaves_no_set_id_file_and_reaches_no_socket() {
    let world = World::new("set-id");
    let outcome = python(
        &world,
        "{reads: [operands, directory], writes: [directory], network: host, user: root}",
        r#"
import ctypes, os, socket, stat
def tried(name, call):
    try:
        call(); print(name, 'done')
    except OSError as error:
        print(name, error.errno)
os.umask(0)
at = '$D/left'
tried('plain', lambda: os.close(os.open(at, os.O_CREAT | os.O_WRONLY, 0o755)))
tried('chmod', lambda: os.chmod(at, 0o4755))
tried('fchmod', lambda: os.fchmod(os.open(at, os.O_RDONLY), 0o2755))
tried('plain chmod', lambda: os.chmod(at, 0o711))
tried('open', lambda: os.open('$D/born', os.O_CREAT | os.O_WRONLY, 0o6755))
tried('mknod', lambda: os.mknod('$D/node', 0o4755 | stat.S_IFREG))
tried('mkdir', lambda: os.mkdir('$D/group', 0o2777))
tried('unix', lambda: socket.socket(socket.AF_UNIX))
tried('inet', lambda: socket.socket(socket.AF_INET))
print('filter', ctypes.CDLL(None, use_errno=True).prctl(22, 2, 0), ctypes.get_errno())
"#,
    )
    .unwrap();
    assert_eq!(
        text(&outcome.stdout.bytes),
        "plain done\nchmod 1\nfchmod 1\nplain chmod done\nopen 1\nmknod 1\nmkdir 1\nunix 97\ninet done\nfilter -1 22\n",
        "{}",
        text(&outcome.stderr.bytes)
    );
    let mode = fs::metadata(world.directory.join("left"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o711);
}

/// Ended by the deadline, with processes left in the background, and with a flood of output.
/// claim: [HOST-3]
pub fn command_ends_with_all_its_descendants() {
    let world = World::new("ends");
    let begun = Instant::now();
    let outcome = python(
        &world,
        BASIC,
        r#"
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv('/bin/sleep', ['ringfence-left-behind', '600'])
    os._exit(0)
print('begun', flush=True)
time.sleep(600)
"#,
    )
    .unwrap();
    assert_eq!(outcome.ending, Ending::Timeout, "{}", text(&outcome.stderr.bytes));
    assert_eq!(text(&outcome.stdout.bytes), "begun\n");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(processes_named("ringfence-left-behind"), 0);
    // A command that exits by itself leaves nothing behind either.
    let outcome = python(
        &world,
        BASIC,
        "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execv('/bin/sleep', ['ringfence-left-behind', '600'])\nprint('over')\n",
    )
    .unwrap();
    assert_eq!(outcome.ending, Ending::Code(0));
    assert_eq!(processes_named("ringfence-left-behind"), 0);
    // A flood of output is cut and counted, and the deadline ends the command.
    let outcome = python(
        &world,
        BASIC,
        "import os\nwhile True: os.write(1, b'x' * 65536)\n",
    )
    .unwrap();
    assert_eq!(
        (outcome.ending, outcome.stdout.bytes.len()),
        (Ending::Timeout, 1 << 20)
    );
    assert!(outcome.stdout.total > 1 << 20);
    // The process limit stops a fork loop.
    let outcome = python(
        &world,
        BASIC,
        "import os, time\nfor n in range(5000):\n    try:\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n    except OSError: print('stopped', n < 1000); break\nelse: print('never')\n",
    )
    .unwrap();
    assert!(
        text(&outcome.stdout.bytes).contains("stopped True"),
        "{outcome:?}"
    );
}

/// The same for a server of an ordinary user, which has no cgroup here: only RLIMIT_NPROC stops the fork loop.
/// claim: [HOST-3]
pub fn commands_of_an_ordinary_user_end_with_all_their_descendants() {
    if !rustix::process::geteuid().is_root() {
        return command_ends_with_all_its_descendants();
    }
    let world = World::new("ordinary");
    let program = world.directory.join("walls");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("command_ends_with_all").uid(65534).gid(65534);
    let output = command.current_dir("/").output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("1 passed, 0 failed"), "{said}");
}

fn processes_named(name: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| text(line).contains(name)).count()
}

/// The named one of two sockets in a directory can be reached, and the other does not exist.
/// claim: [HOST-3]
pub fn only_the_named_socket_is_reachable() {
    let world = World::new("socket");
    let listen = |name: &str| -> PathBuf {
        let path = world.base.join("open").join(name);
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                drop(stream.write_all(b"hello"));
                drop(stream.read(&mut [0; 16]));
            }
        });
        path
    };
    let (named, other) = (listen("named"), listen("other"));
    let code = format!(
        "import socket\nfor path in ('{}', '{}'):\n    s = socket.socket(socket.AF_UNIX)\n    try:\n        s.connect(path); print(s.recv(9))\n    except OSError as error: print(type(error).__name__)\ntry:\n    socket.socket(socket.AF_INET); print('inet')\nexcept OSError as error: print('no inet')\n",
        named.display(),
        other.display()
    );
    let effect = format!("{{reads: [operands], socket: {}, user: root}}", named.display());
    let outcome = python(&world, &effect, &code).unwrap();
    assert_eq!(
        text(&outcome.stdout.bytes),
        "b'hello'\nFileNotFoundError\nno inet\n",
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert!(Path::new(&other).exists());
}
