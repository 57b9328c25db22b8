//! System calls of the agent in a container. The build script of `ringfence-backend` compiles the agent as a separate
//! program without any crate, so that the C library's functions are declared here. It has one thread.

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

/// `struct pollfd` of poll(2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    descriptor: c_int,
    events: i16,
    revents: i16,
}

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
/// `POLLERR` and `POLLHUP`: reading or writing shows which.
const POLLENDED: i16 = 0x8 | 0x10;

impl Polled {
    pub fn new(descriptor: &impl AsRawFd, reads: bool, writes: bool) -> Self {
        let read = if reads { POLLIN } else { 0 };
        let write = if writes { POLLOUT } else { 0 };
        let events = read | write;
        Self {
            // poll(2) would report a hang-up again and again, although nothing was requested.
            descriptor: if events == 0 { -1 } else { descriptor.as_raw_fd() },
            events,
            revents: 0,
        }
    }

    pub fn can_read(&self) -> bool {
        self.events & POLLIN != 0 && self.revents & (POLLIN | POLLENDED) != 0
    }

    pub fn can_write(&self) -> bool {
        self.events & POLLOUT != 0 && self.revents & (POLLOUT | POLLENDED) != 0
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct TimeValue {
    seconds: c_long,
    micros: c_long,
}

/// `struct rusage`; fields that are not used here have no name.
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
    fn poll(waits: *mut Polled, count: c_ulong, timeout_ms: c_int) -> c_int;
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

/// Hides this process's memory, environment and descriptors from other processes of its user (`PR_SET_DUMPABLE`).
pub fn refuse_dumps() -> io::Result<()> {
    // SAFETY: this operation of prctl(2) takes a number and no pointer.
    done(unsafe { prctl(PR_SET_DUMPABLE, 0 as c_ulong) }).map(drop)
}

fn set_mask(signals: &[c_int]) -> io::Result<SignalSet> {
    let mut set = SignalSet([0; 16]);
    // SAFETY: sigemptyset writes the whole set, a local as large as the C library's sigset_t.
    unsafe { sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: the set was initialised above and lives until the call returns; a null old set is allowed.
    done(unsafe { sigprocmask(SIG_SETMASK, &raw const set, ptr::null_mut()) })?;
    Ok(set)
}

/// Ignores every signal that can be ignored, except `SIGCHLD`. The kernel protects pid 1 from most; gVisor does not.
pub fn ignore_signals() {
    const IGNORE: usize = 1;
    for number in (1..=64).filter(|number| ![9, SIGCHLD, 19, 32, 33].contains(number)) {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { signal(number, IGNORE) };
    }
}

/// Blocks SIGCHLD and opens a descriptor that is readable when a child has ended.
pub fn child_events() -> io::Result<OwnedFd> {
    let set = set_mask(&[SIGCHLD])?;
    // SAFETY: `set_mask` has initialised the set, which lives until the call returns; -1 asks for a new descriptor.
    let descriptor = done(unsafe { signalfd(-1, &raw const set, CLOEXEC | NONBLOCK) })?;
    // SAFETY: signalfd has just created it; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub fn set_nonblocking(descriptor: &impl AsRawFd) -> io::Result<()> {
    let number = descriptor.as_raw_fd();
    // SAFETY: F_GETFL takes numbers and no pointer.
    let flags = done(unsafe { fcntl(number, F_GETFL) })?;
    // SAFETY: F_SETFL takes numbers and no pointer.
    done(unsafe { fcntl(number, F_SETFL, flags | NONBLOCK) }).map(drop)
}

/// Shuts down one or both directions of a connection; a pipe refuses it.
pub fn shut_down(connection: &impl AsRawFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => 0,
        Shutdown::Write => 1,
        Shutdown::Both => 2,
    };
    // SAFETY: shutdown(2) takes numbers and no pointer.
    done(unsafe { shutdown(connection.as_raw_fd(), how) }).map(drop)
}

/// Returns the number of unread bytes in a pipe.
pub fn unread(pipe: &impl AsRawFd) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: FIONREAD writes one int, to a local that lives until the call returns.
    done(unsafe { ioctl(pipe.as_raw_fd(), FIONREAD, &raw mut bytes) })?;
    u64::try_from(bytes).map_err(io::Error::other)
}

/// Waits until a descriptor is ready, the timeout expires or a signal interrupts.
pub fn wait(waits: &mut [Polled], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map_or(-1, |timeout| {
        c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
    });
    let count = waits.len() as c_ulong;
    // SAFETY: pointer and count are those of one mutable slice of `struct pollfd`s, which lives until the call returns.
    match done(unsafe { poll(waits.as_mut_ptr(), count, timeout) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            waits.iter_mut().for_each(|wait| wait.revents = 0);
            Ok(())
        }
        result => result.map(drop),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    pub pid: i32,
    pub status: i32,
    pub user: Duration,
    pub system: Duration,
    pub max_rss_kib: u64,
}

/// State of the children, from wait4(2) without blocking.
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
    // SAFETY: both pointers are to locals with the kernel's layout, which live until the call returns.
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

/// Signals one process, or with a negative number a group, or with -1 every process but this one: for pid 1 only.
pub fn send_signal(pid: i32, number: i32) -> io::Result<()> {
    if pid == 0 || pid == 1 || (pid == -1 && std::process::id() != 1) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: kill(2) takes numbers and no pointer.
    done(unsafe { kill(pid, number) }).map(drop)
}

/// Lowers a resource limit of a process (0: this one).
pub fn limit(pid: i32, which: u32, value: u64) -> io::Result<()> {
    let which = c_int::try_from(which).map_err(io::Error::other)?;
    let new = [value, value];
    // SAFETY: `new` has the layout of `struct rlimit64` and lives until the call returns; a null old limit is allowed.
    done(unsafe { prlimit64(pid, which, &raw const new, ptr::null_mut()) }).map(drop)
}

/// A user and its only group.
#[derive(Clone, Copy)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// A program to start.
pub struct Start<'a> {
    pub path: &'a str,
    pub argv: &'a [String],
    pub environment: &'a [String],
    pub directory: &'a str,
    pub rlimits: &'a [(u32, u64)],
    /// User of the program; none: the same as of this process.
    pub user: Option<User>,
    /// Descriptors of the program, from 0 on.
    pub descriptors: &'a [OwnedFd],
}

/// Starts a program in a session of its own. An error before or of the exec is returned here.
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
    let (mut error_reader, error_writer) = io::pipe()?;
    let failed = std::fs::File::from(duplicate_above_program(&error_writer)?);
    drop(error_writer);
    // SAFETY: this process has one thread, so that no lock is copied in a held state and the child may use everything.
    let pid = done(unsafe { fork() })?;
    if pid == 0 {
        let error = become_program(program);
        if let Ok(()) = error {
            // SAFETY: `path` and both null-terminated arrays of NUL-terminated strings live until the call returns.
            unsafe { execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
        }
        let error = error.err().unwrap_or_else(io::Error::last_os_error);
        let number = error.raw_os_error().unwrap_or(5);
        drop(io::Write::write_all(&mut &failed, &number.to_le_bytes()));
        // SAFETY: _exit(2) takes a number and no pointer, and does not return.
        unsafe { _exit(127) }
    }
    drop(failed);
    let mut number = [0; 4];
    match io::Read::read_exact(&mut error_reader, &mut number) {
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(number))),
        Err(_) => Ok(pid),
    }
}

/// Duplicates a descriptor to a number above those of the program's descriptors.
fn duplicate_above_program(descriptor: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes numbers and no pointer.
    let copy = done(unsafe { fcntl(descriptor.as_raw_fd(), F_DUPFD_CLOEXEC, 64) })?;
    // SAFETY: fcntl has just created it; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Becomes another user for good, without any capability.
fn become_user(user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    for capability in 0..64 as c_ulong {
        // SAFETY: this operation of prctl(2) takes a number and no pointer; an unknown capability is refused.
        if unsafe { prctl(PR_CAPBSET_DROP, capability) } < 0 {
            break;
        }
    }
    // SAFETY: with 0 groups the kernel does not read the null pointer.
    done(unsafe { setgroups(0, ptr::null()) })?;
    // SAFETY: setresgid(2) takes numbers and no pointer.
    done(unsafe { setresgid(gid, gid, gid) })?;
    // SAFETY: setresuid(2) takes numbers and no pointer.
    done(unsafe { setresuid(uid, uid, uid) }).map(drop)
}

/// Runs `make` with another effective uid, which owns what it creates.
pub fn as_user<T>(user: Option<User>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    const UNCHANGED: u32 = u32::MAX;
    let Some(user) = user else { return make() };
    // SAFETY: setresuid(2) takes numbers and no pointer; in this one thread, no other code runs as the user meanwhile.
    done(unsafe { setresuid(UNCHANGED, user.uid, UNCHANGED) })?;
    let made = make();
    // SAFETY: setresuid(2) takes numbers and no pointer. The effective uid is the agent's again, which is 0.
    done(unsafe { setresuid(UNCHANGED, 0, UNCHANGED) })?;
    made
}

/// Prepares the child for the exec.
fn become_program(program: &Start<'_>) -> io::Result<()> {
    // SAFETY: setsid(2) takes no argument.
    done(unsafe { setsid() })?;
    for number in 1..=64 {
        // 9 and 19 cannot be changed; 32 and 33 belong to the C library.
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
    // If the host runs out of memory, the kernel kills the program first.
    drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
    for (which, value) in program.rlimits {
        limit(0, *which, *value)?;
    }
    let mut moved = Vec::new();
    for descriptor in program.descriptors {
        moved.push(duplicate_above_program(descriptor)?);
    }
    for (target, descriptor) in (0..).zip(&moved) {
        // SAFETY: dup2(2) takes numbers and no pointer; a descriptor at the target is used by the parent only.
        done(unsafe { dup2(descriptor.as_raw_fd(), target) })?;
        // SAFETY: F_SETFD takes numbers and no pointer.
        done(unsafe { fcntl(target, F_SETFD, 0) })?;
    }
    Ok(())
}
