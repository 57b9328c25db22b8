//! Ways around the jail and ways to block it: metadata that Landlock does not guard, sandboxes that do not end, shifted
//! clocks.

use crate::client::*;
use rustix::process::Signal;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// Independent of the linker flags of a build.
#[test]
fn binary_is_position_independent_with_full_relro() {
    let mut read = Command::new("readelf");
    read.args(["--wide", "--dynamic", "--program-headers", "--file-header"])
        .arg(binary());
    let stdout = stdout_of(&read.output().unwrap());
    let has = |line: &str, word: &str| stdout.lines().any(|one| one.contains(line) && one.contains(word));
    assert!(has("Type:", "DYN"), "{stdout}");
    assert!(has("(FLAGS)", "BIND_NOW"), "{stdout}");
    assert!(has("GNU_RELRO", "R "), "{stdout}");
    assert!(has("GNU_STACK", "RW "), "{stdout}");
    assert!(!has("GNU_STACK", "RWE"), "{stdout}");
    assert!(!has("TEXTREL", ""), "{stdout}");
}

/// Tries every call that changes metadata, which Landlock does not guard; prints the calls that succeed.
const CHANGES: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def raw(number, *args):
    if libc.syscall(number, *args) != 0: raise OSError(ctypes.get_errno(), 'refused')
path = FILE.encode()
acts = {
    'chmod': lambda: os.chmod(FILE, 0o666),
    'chmod of a directory': lambda: os.chmod(os.path.dirname(FILE), 0o755),
    'fchmodat2': lambda: raw(452, -100, path, 0o666, 0),
    'chown': lambda: os.chown(FILE, -1, os.getgid()),
    'lchown': lambda: os.lchown(FILE, -1, os.getgid()),
    'utime': lambda: os.utime(FILE, (1, 1)),
    'utime now': lambda: os.utime(FILE),
    'setxattr': lambda: os.setxattr(FILE, 'user.x', b'1'),
    'removexattr': lambda: os.removexattr(FILE, 'user.had'),
}
own = os.open('own', os.O_CREAT | os.O_RDWR, 0o755)
acts.update({
    'fchmod': lambda: os.fchmod(own, 0o4755),
    'fchown': lambda: os.fchown(own, -1, os.getgid()),
    'futimens': lambda: os.utime(own, (1, 1)),
    'fsetxattr': lambda: os.setxattr(own, 'user.x', b'1'),
    'set-id open': lambda: os.open('left', os.O_CREAT | os.O_WRONLY, 0o4755),
    'set-id mkdir': lambda: os.mkdir('dir', 0o2755) or os.stat('dir').st_mode & 0o2000 or os.close(-1),
})
for name, act in acts.items():
    try: act()
    except OSError: continue
    print(name)
";

/// claim: [FS-10]
#[test]
fn landlock_tier_cannot_change_metadata_of_the_servers_files() {
    let Some(nobody) = Nobody::new("floor: landlock\n") else {
        return;
    };
    let directory = nobody.0.join("secrets");
    let file = directory.join("key");
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "canary").unwrap();
    for (path, mode) in [(&directory, 0o700), (&file, 0o600)] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let program = format!("FILE = {:?}\n{CHANGES}", file.display().to_string());
    let mut server = nobody.serve();
    let before = fs::metadata(&file).unwrap();
    let inside = server.execute("python", &program);
    inside.assert_fields(json!({"isolation.tier": "landlock", "success": true, "stdout": ""}));
    let after = fs::metadata(&file).unwrap();
    let facts = |data: &fs::Metadata| (data.mode(), data.mtime(), data.mtime_nsec(), data.ctime_nsec());
    assert_eq!(facts(&before), facts(&after));
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    // Creating, writing and touching files still works.
    let code = "touch a && touch a && cp a b && mv b c && echo x >> c && cat c";
    let answer = server.execute("shell", code);
    answer.assert_fields(json!({"stdout": "x\n", "stderr": ""}));
    // The control: outside the sandbox the same user may.
    let outside = nobody.python(&program);
    for name in [
        "chmod",
        "fchmod",
        "fchmodat2",
        "chown",
        "fchown",
        "utime",
        "futimens",
        "set-id open",
    ] {
        assert!(outside.lines().any(|line| line == name), "{name}: {outside}");
    }
}

/// Writes output, and leaves its streams open without a process that has them, so that a reader sees no end: in a
/// message in the queue of a socket that is itself in that message.
const HELD_STREAMS: &str = r"
import array, os, socket
ours, theirs = socket.socketpair(socket.AF_UNIX)
streams = array.array('i', [1, 2, ours.fileno(), theirs.fileno()])
theirs.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
os.write(2, b'an error')
os.write(1, b'x' * 6000 + b'the end')
";

/// True if a reader still waits after a program with held streams has ended. The kernel may free such a message
/// whenever any process closes a socket.
fn is_held_outside() -> bool {
    let mut outside = Command::new("/usr/bin/python3");
    let outside = outside.args(["-c", HELD_STREAMS]).stderr(Stdio::null());
    let mut outside = outside.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = outside.stdout.take().unwrap();
    let mut read = vec![0; 6_007];
    stdout.read_exact(&mut read).unwrap();
    assert!(outside.wait().unwrap().success() && read.ends_with(b"the end"));
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(stdout.read(&mut [0; 1]).unwrap()));
    ended.recv_timeout(Duration::from_millis(200)).is_err()
}

/// claim: [PROC-11]
#[test]
fn run_ends_with_its_program_even_if_a_socket_message_holds_its_streams() {
    assert!((0..20).any(|_| is_held_outside()), "the control");
    let expect = json!({"success": true, "stderr": "an error"});
    let is_whole = |answer: &Value| {
        let stdout = text_of(&answer["stdout"]);
        assert!(
            stdout.len() == 6_007 && stdout.ends_with("the end"),
            "{}",
            stdout.len()
        );
    };
    for _ in 0..3 {
        let run = ringfence(&["run", "-", "--language", "python", "--timeout", "3", "--json"]);
        let output = run_with_stdin(wrap_command(&["/usr/bin/timeout", "60"], &run), HELD_STREAMS);
        let answer = json_of(&output);
        answer.assert_fields(expect.clone());
        is_whole(&answer);
    }
    let mut server = Server::start();
    for _ in 0..3 {
        let answer = server.execute("python", HELD_STREAMS);
        answer.assert_fields(expect.clone());
        is_whole(&answer);
    }
    let session = server.create_session(json!({"language": "python"}));
    let code = format!("{HELD_STREAMS}\nos._exit(3)");
    is_whole(&server.eval(&session, &code));
}

/// claim: [PROC-11]
///
/// Here a process of the host has the writing end of the stream.
#[test]
fn call_ends_with_its_program_even_if_a_host_process_holds_its_streams() {
    if !is_root() {
        return;
    }
    const WORD: &str = "131.41602";
    let mut server = Server::start();
    let id = server.send_run(json!({"language": "shell", "code": format!("echo begun; exec sleep {WORD}")}));
    let sleeps = |pid: &u32| comm_of(*pid) == "sleep";
    eventually(|| processes_with(WORD).iter().any(sleeps));
    let program = processes_with(WORD).into_iter().find(sleeps).unwrap();
    let mut held = File::options()
        .write(true)
        .open(format!("/proc/{program}/fd/1"))
        .unwrap();
    held.write_all(b"by another\n").unwrap();
    // Released after 40 seconds, so that a call that waits for it fails the test instead of blocking it forever.
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(40));
        drop(held);
    });
    signal(program, Signal::KILL);
    let answer = server.result(id);
    answer.assert_fields(json!({"stdout": "begun\nby another\n", "exit.kind": "signal"}));
    assert!(!holder.is_finished(), "the stream was held all the time");
}

/// Puts a process into the pid namespace of each process in its arguments, and never reaps it: pid 1 of such a
/// namespace cannot end. Exits by itself after 90 seconds.
const HOLD: &str = r"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
signal.alarm(90)
for pid in sys.argv[1:]:
    if libc.setns(os.open('/proc/%s/ns/pid' % pid, os.O_RDONLY), 0x20000000) != 0: sys.exit(1)
    if os.fork() == 0:
        while True: signal.pause()
print('held', flush=True)
sys.stdin.read()
";

/// claim: [PROC-10]
#[test]
fn sandboxes_that_cannot_end_do_not_block_the_server() {
    if !is_root() {
        return;
    }
    fs::create_dir_all(state_dir()).unwrap();
    let log = state_dir().join("log");
    let mut command = ringfence(&["serve"]);
    command.stderr(File::create(&log).unwrap());
    let mut server = Server::from_command(command);
    // As many calls as run at once.
    let ids: Vec<u64> = (0..4)
        .map(|_| {
            let arguments = json!({"language": "shell", "code": "echo begun; exec sleep 131.41593", "timeout_seconds": 600});
            server.send_run(arguments)
        })
        .collect();
    let mut sleeping = Vec::new();
    eventually(|| {
        sleeping = processes_with("131.41593");
        sleeping.retain(|pid| comm_of(*pid) == "sleep");
        sleeping.len() == ids.len()
    });
    let mut holder = Command::new("/usr/bin/python3")
        .args(["-c", HOLD])
        .args(sleeping.iter().map(u32::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = String::new();
    let mut stdout = BufReader::new(holder.stdout.take().unwrap());
    stdout.read_line(&mut held).unwrap();
    assert_eq!(held, "held\n");
    sleeping.iter().for_each(|pid| signal(*pid, Signal::KILL));
    for (_, answer) in server.await_responses(&ids) {
        answer.assert_fields(json!({"stdout": "begun\n", "exit.kind": "signal"}));
    }
    // Their slots are free again, and the operator log names each sandbox.
    for _ in 0..8 {
        assert_eq!(server.execute("shell", "echo next")["stdout"], "next\n");
    }
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("a sandbox has not ended").count(), ids.len(), "{log}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn programs_run_in_a_shifted_time_namespace() {
    if !is_root() {
        return;
    }
    for offset in ["100000000", "-5"] {
        let own = ["unshare", "--time", "--fork"];
        let clocks = [&own[..], &["--monotonic", offset, "--boottime", offset, "--"]].concat();
        let command = wrap_command(&clocks, &ringfence(&["run", "-", "--language", "shell"]));
        let code = "read up rest < /proc/uptime; [ ${up%.*} -lt 60 ] && echo young";
        let output = run_with_stdin(command, code);
        assert_eq!(stdout_of(&output), "young\n", "{offset}: {output:?}");
    }
}

/// Many mappings in many forks, whose pages are never touched: they take only the kernel's memory for each mapping.
const MAPPINGS: &str = r"
import ctypes, os, signal
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
start = libc.mmap(None, 12000 * 4096, 1, 0x22, -1, 0)
for page in range(0, 12000, 2):
    assert libc.mprotect(start + page * 4096, 4096, 3) == 0
for _ in range(FORKS):
    if os.fork() == 0: signal.pause()
print('forked', flush=True)
WAIT
";

/// claim: [RES-3]
#[test]
fn mappings_of_many_forks_count_as_memory_without_a_cgroup() {
    let Some(nobody) = Nobody::new("") else { return };
    let mut server = nobody.serve();
    let mut run = |forks: &str, wait: &str| {
        let code = MAPPINGS.replace("FORKS", forks).replace("WAIT", wait);
        let limits = json!({"max_ram_mb": 128, "max_processes": 64});
        let arguments =
            json!({"language": "python", "code": code, "timeout_seconds": 120, "resource_limits": limits});
        server.run(arguments)
    };
    let done = run("2", "");
    done.assert_fields(json!({"success": true, "stdout": "forked\n"}));
    // 12,000 mappings of 200 bytes in each: 146 MB.
    let done = run("60", "signal.pause()");
    assert!(done.to_string().contains("limit.memory"), "{done}");
}
