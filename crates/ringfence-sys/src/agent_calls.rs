//! System calls of the agent in a container. It is a program of its own, compiled by the build script of
//! `ringfence-backend` without any crate, so that the C library's functions are declared here. It has one thread.

use std::{
    ffi::{CString, c_char, c_int, c_long, c_ulong},
    io,
    net::Shutdown,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    time::Duration,
};

#[repr(C)]
struct SignalSet([u64; 16]);

/// What `poll(2)` waits for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    descriptor: c_int,
    wanted: i16,
    found: i16,
}

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
/// An error, a hang-up: reading or writing tells which.
const POLLENDED: i16 = 0x8 | 0x10;

impl Wait {
    pub fn new(descriptor: &impl AsRawFd, reads: bool, writes: bool) -> Self {
        let read = if reads { POLLIN } else { 0 };
        let write = if writes { POLLOUT } else { 0 };
        let wanted = read | write;
        Self {
            // A hang-up would be told without being asked for, again and again.
            descriptor: if wanted == 0 { -1 } else { descriptor.as_raw_fd() },
            wanted,
            found: 0,
        }
    }

    pub fn can_read(&self) -> bool {
        self.wanted & POLLIN != 0 && self.found & (POLLIN | POLLENDED) != 0
    }

    pub fn can_write(&self) -> bool {
        self.wanted & POLLOUT != 0 && self.found & (POLLOUT | POLLENDED) != 0
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct TimeValue {
    seconds: c_long,
    micros: c_long,
}

/// `struct rusage`; what is not used here has no name.
#[repr(C)]
struct ResourceUsage {
    user: TimeValue,
    system: TimeValue,
    max_rss_kib: c_long,
    rest: [c_long; 13],
}

unsafe extern "C" {
    fn fork() -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn _exit(status: c_int) -> !;
    fn setsid() -> c_int;
    fn setgroups(count: usize, groups: *const u32) -> c_int;
    fn setresgid(real: u32, effective: u32, saved: u32) -> c_int;
    fn setresuid(real: u32, effective: u32, saved: u32) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut ResourceUsage) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn prctl(operation: c_int, ...) -> c_int;
    fn prlimit64(pid: c_int, which: c_int, new: *const [u64; 2], old: *mut [u64; 2]) -> c_int;
    fn signal(signal: c_int, disposition: usize) -> usize;
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn signalfd(descriptor: c_int, set: *const SignalSet, flags: c_int) -> c_int;
    fn poll(waits: *mut Wait, count: c_ulong, timeout_ms: c_int) -> c_int;
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
    fn shutdown(descriptor: c_int, how: c_int) -> c_int;
}

const SIGCHLD: c_int = 17;
const SIG_SETMASK: c_int = 2;
const CLOEXEC: c_int = 0o2_000_000;
const NONBLOCK: c_int = 0o4000;
const F_SETFD: c_int = 2;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const F_DUPFD_CLOEXEC: c_int = 1030;
const PR_SET_DUMPABLE: c_int = 4;
const PR_CAPBSET_DROP: c_int = 24;
const WNOHANG: c_int = 1;
const FIONREAD: c_ulong = 0x541b;

fn done(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Hides this process's memory, environment and descriptors from its equals.
pub fn refuse_dumps() -> io::Result<()> {
    // SAFETY: this operation of prctl(2) takes one plain number.
    done(unsafe { prctl(PR_SET_DUMPABLE, 0 as c_ulong) }).map(drop)
}

fn set_mask(signals: &[c_int]) -> io::Result<SignalSet> {
    let mut set = SignalSet([0; 16]);
    // SAFETY: the set is as large as the C library's sigset_t.
    unsafe { sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: an initialised set; the old one is not wanted.
    done(unsafe { sigprocmask(SIG_SETMASK, &raw const set, ptr::null_mut()) })?;
    Ok(set)
}

/// Ignores every signal that can be ignored but that of children. The kernel protects pid 1 from most; gVisor does not.
pub fn ignore_signals() {
    const IGNORE: usize = 1;
    for number in (1..=64).filter(|number| ![9, SIGCHLD, 19, 32, 33].contains(number)) {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { signal(number, IGNORE) };
    }
}

/// Blocks SIGCHLD; the descriptor is readable when a child has ended.
pub fn child_events() -> io::Result<OwnedFd> {
    let set = set_mask(&[SIGCHLD])?;
    // SAFETY: an initialised set; -1 asks for a new descriptor.
    let descriptor = done(unsafe { signalfd(-1, &raw const set, CLOEXEC | NONBLOCK) })?;
    // SAFETY: signalfd has just made it; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub fn set_nonblocking(descriptor: &impl AsRawFd) -> io::Result<()> {
    let number = descriptor.as_raw_fd();
    // SAFETY: F_GETFL takes a plain number.
    let flags = done(unsafe { fcntl(number, F_GETFL) })?;
    // SAFETY: F_SETFL takes plain numbers.
    done(unsafe { fcntl(number, F_SETFL, flags | NONBLOCK) }).map(drop)
}

/// Ends a connection in one direction or both; a pipe refuses it.
pub fn shut_down(connection: &impl AsRawFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => 0,
        Shutdown::Write => 1,
        Shutdown::Both => 2,
    };
    // SAFETY: shutdown(2) takes plain numbers.
    done(unsafe { shutdown(connection.as_raw_fd(), how) }).map(drop)
}

/// Bytes that a pipe holds.
pub fn unread(pipe: &impl AsRawFd) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: FIONREAD writes one number, to this frame's own.
    done(unsafe { ioctl(pipe.as_raw_fd(), FIONREAD, &raw mut bytes) })?;
    u64::try_from(bytes).map_err(io::Error::other)
}

/// Waits until one of these can be used, or for so long.
pub fn wait(waits: &mut [Wait], patience: Option<Duration>) -> io::Result<()> {
    let timeout = patience.map_or(-1, |patience| {
        c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX)
    });
    let count = waits.len() as c_ulong;
    // SAFETY: the pointer and the count are those of one slice of `struct pollfd`s.
    match done(unsafe { poll(waits.as_mut_ptr(), count, timeout) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            waits.iter_mut().for_each(|wait| wait.found = 0);
            Ok(())
        }
        result => result.map(drop),
    }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    pub pid: i32,
    pub status: i32,
    pub user: Duration,
    pub system: Duration,
    pub max_rss_kib: u64,
}

/// What `wait4(2)` says at once.
pub enum Children {
    Ended(Reaped),
    Running,
    None,
}

pub fn reap() -> Children {
    let zero = TimeValue {
        seconds: 0,
        micros: 0,
    };
    let mut usage = ResourceUsage {
        user: zero,
        system: zero,
        max_rss_kib: 0,
        rest: [0; 13],
    };
    let mut status = 0;
    // SAFETY: both pointers are to this frame's own, of the kernel's layout.
    let pid = unsafe { wait4(-1, &raw mut status, WNOHANG, &raw mut usage) };
    let time = |value: TimeValue| {
        let number = |part: c_long| u64::try_from(part).unwrap_or(0);
        Duration::from_secs(number(value.seconds)) + Duration::from_micros(number(value.micros))
    };
    match pid {
        0 => Children::Running,
        1.. => Children::Ended(Reaped {
            pid,
            status,
            user: time(usage.user),
            system: time(usage.system),
            max_rss_kib: u64::try_from(usage.max_rss_kib).unwrap_or(0),
        }),
        _ => Children::None,
    }
}

/// Signals one process, or with a negative number a group; every process but this one: -1, which only pid 1 may say.
pub fn send_signal(pid: i32, number: i32) -> io::Result<()> {
    if pid == 0 || pid == 1 || (pid == -1 && std::process::id() != 1) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: kill(2) takes plain numbers.
    done(unsafe { kill(pid, number) }).map(drop)
}

/// Lowers a limit of a process; 0 is this one.
pub fn limit(pid: i32, which: u32, value: u64) -> io::Result<()> {
    let which = c_int::try_from(which).map_err(io::Error::other)?;
    let new = [value, value];
    // SAFETY: `new` is a `struct rlimit64`; the old limit is not wanted.
    done(unsafe { prlimit64(pid, which, &raw const new, ptr::null_mut()) }).map(drop)
}

/// A user and its only group.
#[derive(Clone, Copy)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// How a program is started.
pub struct Start<'a> {
    pub path: &'a str,
    pub argv: &'a [String],
    pub environment: &'a [String],
    pub directory: &'a str,
    pub rlimits: &'a [(u32, u64)],
    /// Whose process it becomes; none: it stays this one's user's.
    pub user: Option<User>,
    /// Its descriptors from 0 on.
    pub descriptors: &'a [OwnedFd],
}

/// Starts a program in a session of its own. An error of the exec is returned here.
pub fn start(program: &Start<'_>) -> io::Result<i32> {
    let text = |text: &str| CString::new(text).map_err(io::Error::other);
    let texts = |texts: &[String]| {
        texts
            .iter()
            .map(|one| text(one))
            .collect::<io::Result<Vec<CString>>>()
    };
    let (path, argv, environment) = (
        text(program.path)?,
        texts(program.argv)?,
        texts(program.environment)?,
    );
    let pointers = |texts: &[CString]| -> Vec<*const c_char> {
        texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (argv, environment) = (pointers(&argv), pointers(&environment));
    let (mut told, says) = io::pipe()?;
    let failed = std::fs::File::from(above_the_program(&says)?);
    drop(says);
    // SAFETY: this process has one thread, so that the child may use everything.
    let pid = done(unsafe { fork() })?;
    if pid == 0 {
        let error = become_program(program);
        if let Ok(()) = error {
            // SAFETY: three pointers to texts and to null-terminated lists of texts that live until here.
            unsafe { execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
        }
        let error = error.err().unwrap_or_else(io::Error::last_os_error);
        let number = error.raw_os_error().unwrap_or(5);
        drop(io::Write::write_all(&mut &failed, &number.to_le_bytes()));
        // SAFETY: it takes a plain number, and does not return.
        unsafe { _exit(127) }
    }
    drop(failed);
    let mut number = [0; 4];
    match io::Read::read_exact(&mut told, &mut number) {
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(number))),
        Err(_) => Ok(pid),
    }
}

/// A copy with a number above those of the program's descriptors.
fn above_the_program(descriptor: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; the descriptor is alive.
    let copy = done(unsafe { fcntl(descriptor.as_raw_fd(), F_DUPFD_CLOEXEC, 64) })?;
    // SAFETY: fcntl has just made it; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Gives up this user for good, and with it every capability.
fn become_user(user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    for capability in 0..64 as c_ulong {
        // SAFETY: this operation of prctl(2) takes one plain number; one that the kernel does not know is refused.
        if unsafe { prctl(PR_CAPBSET_DROP, capability) } < 0 {
            break;
        }
    }
    // SAFETY: no groups, so that the pointer is not read.
    done(unsafe { setgroups(0, ptr::null()) })?;
    // SAFETY: plain numbers.
    done(unsafe { setresgid(gid, gid, gid) })?;
    // SAFETY: plain numbers.
    done(unsafe { setresuid(uid, uid, uid) }).map(drop)
}

/// Makes something as another user, whose it then is.
pub fn as_user<T>(user: Option<User>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    const UNCHANGED: u32 = u32::MAX;
    let Some(user) = user else { return make() };
    // SAFETY: plain numbers; this process has one thread.
    done(unsafe { setresuid(UNCHANGED, user.uid, UNCHANGED) })?;
    let made = make();
    // SAFETY: plain numbers; back to what it was.
    done(unsafe { setresuid(UNCHANGED, 0, UNCHANGED) })?;
    made
}

/// In the child: everything before the exec.
fn become_program(program: &Start<'_>) -> io::Result<()> {
    // SAFETY: setsid(2) takes nothing.
    done(unsafe { setsid() })?;
    for number in 1..=64 {
        // 9 and 19 cannot be changed; 32 and 33 are the C library's.
        if ![9, 19, 32, 33].contains(&number) {
            // SAFETY: SIG_DFL, which is 0, installs no handler.
            unsafe { signal(number, 0) };
        }
    }
    set_mask(&[])?;
    if let Some(user) = program.user {
        become_user(user)?;
    }
    std::env::set_current_dir(program.directory)?;
    // The host's memory runs out on the program first.
    drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
    for (which, value) in program.rlimits {
        limit(0, *which, *value)?;
    }
    let mut moved = Vec::new();
    for descriptor in program.descriptors {
        moved.push(above_the_program(descriptor)?);
    }
    for (target, descriptor) in (0..).zip(&moved) {
        // SAFETY: plain numbers; what was at the target is used by the parent only.
        done(unsafe { dup2(descriptor.as_raw_fd(), target) })?;
        // SAFETY: plain numbers.
        done(unsafe { fcntl(target, F_SETFD, 0) })?;
    }
    Ok(())
}
