//! The filters in the kernel: installed on a thread, whose children inherit them. The kernel's answers must be those
//! that `machine` computes, and ordinary programs must work.

use crate::{
    ALL, FULL, FULL_UNCOUNTED, LANDLOCK, arguments,
    machine::{self, Answer, Call, plain},
};
use ringfence_jail::seccomp::{Profile, program};
use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
};

/// Refuses to continue unless as many filters are in force as its first argument says: without them, some of the calls
/// would be made.
const GUARD: &str = "
import ctypes, os, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
assert int(status['Seccomp_filters']) >= int(sys.argv[1]), 'the filters are not in force'
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) for a in arguments))
    return ctypes.get_errno() if result == -1 else 0
";

fn run(command: &mut Command) -> Output {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/tmp")
        .output()
        .unwrap()
}

/// Runs a program from a thread that is behind the filters.
fn confined(profile: Profile, argv: &[&str]) -> Output {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let thread = std::thread::spawn(move || {
        ringfence_sys::seccomp::install(program(profile).unwrap()).unwrap();
        run(Command::new(&argv[0]).args(&argv[1..]))
    });
    thread.join().unwrap()
}

fn python(profile: Profile, program: &str) -> Output {
    confined(profile, &["python3", "-c", &format!("{GUARD}\n{program}"), "1"])
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Makes all calls in one process, and returns the kernel's answers in order.
fn errnos(profile: Profile, calls: &[Call]) -> Vec<i32> {
    let listed: Vec<String> = calls
        .iter()
        .map(|call| {
            let arguments = call.arguments.map(|argument| argument.to_string()).join(",");
            format!("({},{arguments})", call.number)
        })
        .collect();
    let program = format!("for c in [{}]: print(call(*c))", listed.join(","));
    let output = python(profile, &program);
    assert!(output.status.success(), "{} {}", output.status, text(&output));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect()
}

/// `uretprobe` and `uprobe`: since Linux 6.14 no filter sees them (kernel/seccomp.c, `__secure_computing`), because the
/// kernel's own trampolines call them; other callers get the kernel's own answer.
#[cfg(target_arch = "x86_64")]
const UNSEEN: [i64; 2] = [335, 336];
#[cfg(target_arch = "aarch64")]
const UNSEEN: [i64; 0] = [];

#[test]
fn uprobe_calls_that_bypass_filters_fail() {
    for number in UNSEEN {
        let output = python(FULL, &format!("print(call({number}, 0, 0))"));
        let failed = [libc::ENOSYS, libc::ENXIO]
            .iter()
            .any(|errno| text(&output).trim() == errno.to_string());
        assert!(
            failed || output.status.signal() == Some(libc::SIGILL),
            "{number}: {} {}",
            output.status,
            text(&output)
        );
    }
}

#[test]
fn kernel_answers_with_the_errnos_of_the_golden_table() {
    for profile in ALL {
        let numbers = (0..=600).map(plain);
        let calls = numbers.chain(arguments::cases().into_iter().map(|case| case.call));
        let refused: Vec<(Call, i32)> = calls
            .filter(|call| !UNSEEN.contains(&call.number))
            .filter_map(|call| match machine::answer(profile, call) {
                Answer::Errno(errno) => Some((call, errno)),
                _ => None,
            })
            .collect();
        assert!(refused.len() > 250, "{}", refused.len());
        let calls: Vec<Call> = refused.iter().map(|(call, _)| *call).collect();
        let answers = errnos(profile, &calls);
        assert_eq!(answers.len(), refused.len());
        for ((call, expect), answer) in refused.iter().zip(answers) {
            assert_eq!(answer, *expect, "{profile:?}: {call:x?}");
        }
    }
}

/// Refused uses that are harmless where they are not refused: without the filters, at least some must get another
/// answer, or the test above proves nothing.
#[test]
fn same_calls_get_other_answers_without_filters() {
    let harmless = [
        libc::SYS_unshare,
        libc::SYS_clone3,
        libc::SYS_pidfd_open,
        libc::SYS_io_uring_setup,
    ];
    let program = format!("print(*(call(n, 0, 0) for n in {harmless:?}))");
    let output = run(Command::new("python3").args(["-c", &format!("{GUARD}\n{program}"), "0"]));
    let outside: Vec<i32> = text(&output)
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let calls: Vec<Call> = harmless.iter().map(|number| plain(*number)).collect();
    let inside = errnos(FULL, &calls);
    println!("outside {outside:?}, inside {inside:?}");
    assert_eq!(outside.len(), inside.len());
    assert_ne!(outside, inside);
}

#[cfg(target_arch = "x86_64")]
const I386_GETPID: &str = "
import mmap
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
page.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')   # mov eax, 20; int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid())
";

#[cfg(target_arch = "x86_64")]
#[test]
fn i386_syscall_kills_the_process() {
    let outside = run(Command::new("python3").args(["-c", &format!("{GUARD}\n{I386_GETPID}"), "0"]));
    if !text(&outside).contains("True") {
        // The kernel has no such table; the interrupt itself kills the program.
        println!(
            "not applicable: int 0x80 does not work outside either ({})",
            outside.status
        );
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|word| word == "ia32"),
            "RINGFENCE_REQUIRE asks for ia32"
        );
        return;
    }
    for profile in ALL {
        let inside = python(profile, I386_GETPID);
        assert_eq!(inside.status.signal(), Some(libc::SIGSYS), "{}", text(&inside));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_syscall_kills_the_process_and_minus_one_is_enosys() {
    let x32_getpid = 0x4000_0000 + libc::SYS_getpid;
    let program = format!("call({x32_getpid})\nprint('alive')");
    let outside = run(Command::new("python3").args(["-c", &format!("{GUARD}\n{program}"), "0"]));
    assert!(text(&outside).contains("alive"), "{}", text(&outside));
    for profile in ALL {
        let inside = python(profile, &program);
        assert_eq!(inside.status.signal(), Some(libc::SIGSYS), "{}", text(&inside));
        let no_call = python(profile, "print(call(2**64 - 1))");
        assert_eq!(text(&no_call).trim(), libc::ENOSYS.to_string());
    }
}

/// claim: [KERN-7]
#[test]
fn final_filter_refuses_further_filters() {
    // SECCOMP_RET_ALLOW for everything, then a call that was refused before
    let body = "
import struct
instruction = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(instruction)))
SECCOMP, UNSHARE, PRCTL = map(int, sys.argv[2:])
print(call(SECCOMP, 1, 0, ctypes.addressof(filter)), call(SECCOMP, 1, 8, ctypes.addressof(filter)),
    call(PRCTL, 22, 2, ctypes.addressof(filter)), call(UNSHARE, 0), call(PRCTL, 21))
";
    let numbers = [libc::SYS_seccomp, libc::SYS_unshare, libc::SYS_prctl].map(|number| number.to_string());
    let text_of_program = format!("{GUARD}\n{body}");
    let [seccomp, unshare, prctl] = numbers.each_ref().map(String::as_str);
    let argv = ["python3", "-c", &text_of_program, "1", seccomp, unshare, prctl];
    let words = |output: &Output| text(output).trim().to_owned();
    assert_eq!(
        words(&confined(FULL, &argv)),
        "0 1 0 1 0",
        "without the last filter"
    );
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let behind = std::thread::spawn(move || {
        for filter in [
            program(FULL).unwrap(),
            ringfence_jail::seccomp::final_filter().unwrap(),
        ] {
            ringfence_sys::seccomp::install(filter).unwrap();
        }
        run(Command::new(&argv[0]).args(&argv[1..]))
    });
    // EINVAL three times, EPERM; a query is answered.
    assert_eq!(words(&behind.join().unwrap()), "22 22 22 1 0");
}

const ORDINARY: &str = "
import asyncio, concurrent.futures, fcntl, multiprocessing, os, pty, resource, select, signal, sqlite3
import subprocess, tempfile, threading, time, uuid, socket, mmap, sys
def square(n): return n * n
def main():
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        database = sqlite3.connect('a.db')
        database.execute('pragma journal_mode=wal')
        database.execute('create table t(x)')
        with database: database.executemany('insert into t values (?)', [(i,) for i in range(100)])
        assert database.execute('select sum(x) from t').fetchone() == (4950,)
        os.mkfifo('fifo'); os.symlink('a.db', 'link'); os.rename('fifo', 'pipe'); os.chmod('a.db', 0o600)
        os.utime('a.db'); fcntl.flock(open('a.db'), fcntl.LOCK_SH); os.posix_fallocate(os.open('x', 66), 0, 4096)
        with open('x', 'r+b') as f: mmap.mmap(f.fileno(), 4096)[:3] = b'abc'
        assert subprocess.run(['git', 'init', '-q', 'repository'], stdin=-3).returncode == 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(square, range(9))) == 204
    with multiprocessing.Pool(2) as pool: assert pool.map(square, [2, 3]) == [4, 9]
    async def child():
        process = await asyncio.create_subprocess_exec('sh', '-c', 'ls / | sort | wc -l', stdout=-1)
        return await process.communicate()
    if 'sockets' in sys.argv:
        assert int(asyncio.run(child())[0]) > 3
        server = socket.create_server(('127.0.0.1', 0))
        client = socket.create_connection(server.getsockname()); server.accept()[0].sendall(b'x')
        assert client.recv(1) == b'x' and socket.if_nameindex() and uuid.getnode()
        a, b = socket.socketpair(); socket.send_fds(a, [b'y'], [0]); assert socket.recv_fds(b, 1, 1)[1]
    pid, terminal = pty.fork()
    if not pid: os.execvp('sh', ['sh', '-c', 'test -t 0 && stty size && exit 7'])
    try:
        while os.read(terminal, 100): pass
    except OSError: pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.sigwait({signal.SIGALRM}) if signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}) else None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(1); os.sched_yield(); os.getrandom(8)
    assert subprocess.run(['bash', '-c', 'set -o pipefail; seq 1000 | sort -R | head -n 1000 | wc -l'],
        capture_output=True).stdout.strip() == b'1000'
    print('ordinary')
main()
";

#[test]
fn ordinary_programs_work_under_the_filters() {
    let landlock = Profile::Landlock {
        memory_cgroup: true,
        servers_user: false,
    };
    for (profile, sockets) in [(FULL, "sockets"), (FULL_UNCOUNTED, "sockets"), (landlock, "none")] {
        let output = confined(profile, &["python3", "-c", ORDINARY, sockets]);
        assert!(
            text(&output).contains("ordinary"),
            "{profile:?}: {}",
            text(&output)
        );
    }
}

/// Operations that remain without changes to modes, owners, times and attributes.
#[test]
fn landlock_profile_allows_write_copy_and_touch() {
    let script = "cd $(mktemp -d) && touch a && touch a && cp a b && mv b c && echo x > c && sort c -o c && rm a && echo done";
    let output = text(&confined(LANDLOCK, &["bash", "-c", script]));
    assert_eq!(output.trim(), "done");
}

/// claim: [CHK-2]
#[test]
fn parser_process_cannot_open_connect_or_start_anything() {
    fn attempts(port: u16) -> Vec<(&'static str, std::io::Result<()>)> {
        vec![
            ("open", std::fs::File::open("/proc/self/status").map(drop)),
            (
                "connect",
                std::net::TcpStream::connect(("127.0.0.1", port)).map(drop),
            ),
            ("spawn", Command::new("/bin/true").status().map(drop)),
            ("thread", std::thread::Builder::new().spawn(|| ()).map(drop)),
        ]
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let before = attempts(port);
        ringfence_sys::seccomp::install(&ringfence_jail::seccomp::compute_filter().unwrap()).unwrap();
        let computed: u64 = (0..1_000_000u64).collect::<Vec<_>>().iter().sum();
        (before, attempts(port), computed)
    });
    let (before, after, computed) = thread.join().unwrap();
    assert_eq!(computed, 499_999_500_000);
    for (what, made) in before {
        assert!(made.is_ok(), "without the filter: {what} {made:?}");
    }
    for (what, made) in after {
        let errno = made.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::EPERM), "{what}");
    }
}
