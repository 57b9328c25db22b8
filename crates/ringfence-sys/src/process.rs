//! Creating, signalling and replacing processes.

use crate::done;
use rustix::process::{self, DumpableBehavior, Pid, PidfdFlags, Signal};
use std::{
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
};

/// The side of a fork on which the call returned.
#[derive(Debug)]
pub enum Fork {
    Child,
    /// With the pid of the child.
    Parent(i32),
}

/// A kind of namespace; see namespaces(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NamespaceKind {
    /// User ids and capabilities.
    User = libc::CLONE_NEWUSER,
    Mount = libc::CLONE_NEWNS,
    Pid = libc::CLONE_NEWPID,
    Net = libc::CLONE_NEWNET,
    /// System V IPC objects and POSIX message queues.
    Ipc = libc::CLONE_NEWIPC,
    Uts = libc::CLONE_NEWUTS,
    /// View of the cgroup tree.
    Cgroup = libc::CLONE_NEWCGROUP,
    /// Boot-time and monotonic clocks of future children. Only for [`unshare`].
    Time = 0x80,
}

/// Opens a pidfd: a descriptor of a process that can be passed to another.
pub fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(invalid)?;
    Ok(process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Returns the pid, in this pid namespace, of the process that a pidfd refers to.
pub fn pid_of_pidfd(descriptor: BorrowedFd<'_>) -> io::Result<i32> {
    /// `struct pidfd_info`, in the size that every kernel with this call knows.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        pid: u32,
        others: [u32; 11],
    }
    /// `_IOWR(0xff, 11, struct pidfd_info)`, Linux 6.13.
    const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b;
    let mut info = Info::default();
    // SAFETY: the kernel writes at most the size in the request's number, that of `info`, which outlives the call.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    if let Ok(pid) = i32::try_from(info.pid)
        && result == 0
        && pid > 0
    {
        return Ok(pid);
    }
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match line.and_then(|pid| pid.trim().parse().ok()) {
        Some(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

/// Returns the number of threads of this process (each is a directory in `/proc/self/task`).
pub fn thread_count() -> io::Result<usize> {
    let links = rustix::fs::stat("/proc/self/task")?.st_nlink;
    Ok(usize::try_from(links).unwrap_or(usize::MAX).saturating_sub(2))
}

fn require_single_thread() -> io::Result<()> {
    // The kernel refuses this to a process with several threads, and otherwise does nothing (unshare(2)). A filter of
    // ours refuses it to every process; then the threads are counted.
    // SAFETY: unshare(2) takes a number and no pointer, and changes nothing with CLONE_THREAD.
    let refusal = done(unsafe { libc::unshare(libc::CLONE_THREAD) }).err();
    let has_one = match refusal.and_then(|error| error.raw_os_error()) {
        None => true,
        Some(libc::EINVAL) => false,
        Some(_) => thread_count()? == 1,
    };
    match has_one {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "fork in a process with several threads",
        )),
    }
}

/// Forks (`fork(2)`). Refuses a process with several threads: the child would inherit locks that are never released.
pub fn fork() -> io::Result<Fork> {
    require_single_thread()?;
    // SAFETY: the process has one thread (checked above), so no lock of another thread is copied in a held state.
    let result = unsafe { libc::fork() };
    forked(i64::from(result))
}

/// Forks a child into new namespaces (`clone(2)` without shared memory). Refuses a process with several threads.
pub fn fork_into(namespaces: &[NamespaceKind]) -> io::Result<Fork> {
    let flags = libc::SIGCHLD | clone_flags(namespaces)?;
    require_single_thread()?;
    clone(flags)
}

/// Forks as [`fork_into`] does, and starts the child in a cgroup (version 2), given its directory. Moving a process
/// there later costs an RCU grace period of the kernel, some milliseconds.
pub fn fork_into_cgroup(namespaces: &[NamespaceKind], cgroup: BorrowedFd<'_>) -> io::Result<Fork> {
    let flags = u64::from(clone_flags(namespaces)?.unsigned_abs()) | CLONE_INTO_CGROUP;
    require_single_thread()?;
    let arguments = CloneArguments {
        flags,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArguments::default()
    };
    forked(clone3(&arguments))
}

/// Forks a child into new namespaces; its parent is the parent of this process. Returns `None` in the child and its
/// pidfd in the caller, because its pid may be of another pid namespace. Refuses a process with several threads.
pub fn fork_sibling_into(namespaces: &[NamespaceKind]) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SIGCHLD | libc::CLONE_PARENT | libc::CLONE_PIDFD | clone_flags(namespaces)?;
    require_single_thread()?;
    let none = 0_usize;
    let mut descriptor: RawFd = -1;
    // SAFETY: as in `clone`; with CLONE_PIDFD the kernel writes a descriptor to the third argument, a local that lives.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone,
            i64::from(flags),
            none,
            &raw mut descriptor,
            none,
            none,
        )
    };
    match forked(result)? {
        Fork::Child => Ok(None),
        // SAFETY: the call above has created this descriptor; it has no other owner.
        Fork::Parent(_) => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
    }
}

/// Relation of a new process to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    Child,
    Sibling,
}

/// Runs `work` in a new process that shares this one's memory and descriptors, and waits until it has ended. `None`: it
/// was killed. For a process that changes its namespaces or identity and forks another: it costs a quarter of `fork`,
/// which copies every page that is written later. Refuses a process with several threads.
///
/// If `work` takes another identity, the kernel hides the shared memory from that user's other processes (prctl(2),
/// `PR_SET_DUMPABLE`).
pub fn run_in_vfork<R, F: FnOnce() -> R>(kin: Kin, work: F) -> io::Result<Option<R>> {
    struct Work<F, R> {
        work: Option<F>,
        result: Option<R>,
    }
    extern "C" fn run<R, F: FnOnce() -> R>(given: *mut c_void) -> c_int {
        // SAFETY: the only caller, the clone below, passes a live `Work` of these types and is suspended (CLONE_VFORK).
        let given = unsafe { &mut *given.cast::<Work<F, R>>() };
        given.result = given.work.take().map(|work| work());
        0
    }
    let kin = match kin {
        Kin::Child => 0,
        Kin::Sibling => libc::CLONE_PARENT,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD | kin;
    require_single_thread()?;
    let stack = Stack::new()?;
    let mut given = Work {
        work: Some(work),
        result: None,
    };
    // SAFETY: the stack belongs to this call and is large enough for what the jail does; `given` lives until the call
    // returns, which with CLONE_VFORK is when the new process has ended; there is no other thread (checked above).
    let result = unsafe { libc::clone(run::<R, F>, stack.top(), flags, (&raw mut given).cast()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if kin == 0 {
        // It has released the memory, but may not have ended yet.
        crate::wait::wait(crate::wait::Child::Pid(result))?;
    }
    Ok(given.result)
}

/// The stack of another process, with a guard page below it that ends a process on overflow.
struct Stack(*mut c_void);

impl Stack {
    const BYTES: usize = 1 << 20;
    const GUARD_BYTES: usize = 64 << 10; // the largest page size of any machine

    fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: with a null address and without MAP_FIXED the kernel chooses an unused range.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self(start);
        // SAFETY: the range is the beginning of the mapping above, which nothing uses yet.
        done(unsafe { libc::mprotect(start, Self::GUARD_BYTES, libc::PROT_NONE) })?;
        Ok(stack)
    }

    /// Stacks grow downwards.
    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(Self::BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: `new` has made this mapping, and the process that used it has ended: `run_in_vfork` drops it later.
        unsafe { libc::munmap(self.0, Self::BYTES) };
    }
}

/// Moves this process (for a pid or time namespace: its future children) into the namespace of the descriptor.
pub fn join_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns(2) takes an open descriptor (BorrowedFd) and a number; 0 means a namespace of any kind.
    done(unsafe { libc::setns(namespace.as_raw_fd(), 0) })
}

/// True if clone3(2) works here. Container engines answer ENOSYS, so that programs fall back to clone(2).
pub fn has_clone3() -> bool {
    // An invalid exit signal is refused before a process is created.
    let arguments = CloneArguments {
        exit_signal: u64::MAX,
        ..CloneArguments::default()
    };
    clone3(&arguments) < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// `struct clone_args` of clone3(2), in its third size.
#[derive(Default)]
#[repr(C)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn clone3(arguments: &CloneArguments) -> i64 {
    // SAFETY: the structure is live and of the given size; no CLONE_VM and no stack, so a child continues here on its
    // copy of this stack, as after fork. Callers have checked for one thread, or pass an exit signal that is refused.
    unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(arguments),
            size_of::<CloneArguments>(),
        )
    }
}

/// Forks with clone(2). The callers have checked that this process has one thread.
fn clone(flags: i32) -> io::Result<Fork> {
    let none = 0_usize;
    // SAFETY: no CLONE_VM and a null stack, so the child continues here on its own copy of this stack, as after fork;
    // the process has one thread (checked by the callers). The other pointers are null and their flags unset.
    let result = unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), none, none, none, none) };
    forked(result)
}

fn clone_flags(namespaces: &[NamespaceKind]) -> io::Result<i32> {
    if namespaces.contains(&NamespaceKind::Time) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the time namespace is entered by unshare",
        ));
    }
    Ok(namespaces.iter().fold(0, |flags, kind| flags | *kind as i32))
}

fn forked(result: i64) -> io::Result<Fork> {
    match i32::try_from(result) {
        Ok(0) => Ok(Fork::Child),
        Ok(pid) if pid > 0 => Ok(Fork::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves this process (for `Pid` and `Time`: its future children) into new namespaces.
pub fn unshare(namespaces: &[NamespaceKind]) -> io::Result<()> {
    let flags = namespaces.iter().fold(0, |flags, kind| flags | *kind as i32);
    // SAFETY: unshare(2) takes only flags; `NamespaceKind` has none for the descriptor table.
    done(unsafe { libc::unshare(flags) })
}

/// Replaces this process by a program (`execve(2)`). Returns only on error.
pub fn execve(program: &Path, arguments: &[String], environment: &[(String, String)]) -> io::Error {
    let Ok(path) = CString::new(program.as_os_str().as_encoded_bytes()) else {
        return invalid();
    };
    let Ok(words) = ExecStrings::new(arguments, environment) else {
        return invalid();
    };
    let (argv, envp) = words.pointers();
    // SAFETY: `path` and both null-terminated arrays of NUL-terminated strings live until the call returns.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Replaces this process by the program that is open here, even if its path now leads elsewhere (`execveat(2)`,
/// `AT_EMPTY_PATH`). Returns only on error.
pub fn execute_descriptor(
    program: BorrowedFd<'_>,
    arguments: &[String],
    environment: &[(String, String)],
) -> io::Error {
    let Ok(words) = ExecStrings::new(arguments, environment) else {
        return invalid();
    };
    let (argv, envp) = words.pointers();
    // SAFETY: the descriptor is open; path and both null-terminated arrays of NUL-terminated strings outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Arguments and environment of a program, in the form that execve(2) reads.
struct ExecStrings(Vec<CString>, Vec<CString>);

impl ExecStrings {
    fn new(arguments: &[String], environment: &[(String, String)]) -> Result<Self, std::ffi::NulError> {
        let arguments: Result<_, _> = arguments.iter().map(|word| CString::new(word.as_str())).collect();
        let environment: Result<_, _> = environment
            .iter()
            .map(|(name, value)| CString::new(format!("{name}={value}")))
            .collect();
        Ok(Self(arguments?, environment?))
    }

    /// Returns null-terminated arrays, valid as long as `self`.
    fn pointers(&self) -> (Vec<*const c_char>, Vec<*const c_char>) {
        let pointers = |words: &[CString]| {
            let words = words.iter().map(|word| word.as_ptr());
            words.chain([std::ptr::null()]).collect()
        };
        (pointers(&self.0), pointers(&self.1))
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Ends this process at once, without running exit handlers that a fork has copied from the parent.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) takes a number and no pointer, and does not return.
    unsafe { libc::_exit(status) }
}

/// Signals that the jail sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Terminate,
    Kill,
    /// Sent by Ctrl-C.
    Interrupt,
    /// `SIGPWR`: caught by the shell of a session, which learns of an interrupt by it.
    Abandon,
    /// `SIGSTKFLT`: caught by Node.js in a session, beside the interrupt.
    Wake,
}

impl Kill {
    fn signal(self) -> Signal {
        match self {
            Self::Terminate => Signal::TERM,
            Self::Kill => Signal::KILL,
            Self::Interrupt => Signal::INT,
            Self::Abandon => Signal::POWER,
            Self::Wake => Signal::STKFLT,
        }
    }
}

/// Signals one process. Refuses 0, 1 and negative numbers, which mean init or several processes.
pub fn kill(pid: i32, how: Kill) -> io::Result<()> {
    Ok(process::kill_process(target(pid)?, how.signal())?)
}

fn target(pid: i32) -> io::Result<Pid> {
    Pid::from_raw(pid).filter(|_| pid > 1).ok_or_else(invalid)
}

/// Bit of [`Kill::Abandon`] in `SigCgt` of `/proc/[pid]/status`.
pub const ABANDON_BIT: u64 = 1 << (libc::SIGPWR - 1);

/// Bit of [`Kill::Wake`] in the same mask.
pub const WAKE_BIT: u64 = 1 << (libc::SIGSTKFLT - 1);

/// Signals every process of a group. Refuses 0, 1 and negative numbers, as [`kill`] does.
pub fn kill_group(leader: i32, how: Kill) -> io::Result<()> {
    Ok(process::kill_process_group(target(leader)?, how.signal())?)
}

pub fn kill_by_pidfd(known: BorrowedFd<'_>, how: Kill) -> io::Result<()> {
    Ok(process::pidfd_send_signal(known, how.signal())?)
}

/// Signals every process of the group that the process of a pidfd leads. Kernels since 6.9 do so by the pidfd
/// (`pidfd_send_signal(2)`); on an older one the pid is used, which may belong to another process if the leader has
/// been reaped.
pub fn kill_group_by_pidfd(leader: BorrowedFd<'_>, how: Kill) -> io::Result<()> {
    /// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
    const PROCESS_GROUP: libc::c_uint = 1 << 2;
    // SAFETY: the descriptor is open (BorrowedFd), and the only pointer, to a siginfo, is null, so that it is not read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            leader.as_raw_fd(),
            how.signal().as_raw(),
            std::ptr::null::<libc::siginfo_t>(),
            PROCESS_GROUP,
        )
    };
    match (result, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::EINVAL) => kill_group(pid_of_pidfd(leader)?, how),
        (_, error) => Err(error),
    }
}

/// Signals every process of this pid namespace but the caller. Refuses a caller that is not its pid 1.
pub fn kill_all_others(how: Kill) -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: kill(2) takes no pointer; the caller is pid 1 (checked above), so that -1 reaches its own namespace only.
    done(unsafe { libc::kill(-1, how.signal().as_raw()) })
}

/// Has the kernel kill this process when the thread that created it ends (`PR_SET_PDEATHSIG`).
pub fn die_with_parent() -> io::Result<()> {
    Ok(process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Hides memory, environment and descriptors from others of its user, and disables core dumps (`PR_SET_DUMPABLE`).
pub fn refuse_dumps() -> io::Result<()> {
    Ok(process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Undoes [`refuse_dumps`], so that other processes of its user, and it itself through `/proc`, can inspect it.
pub fn allow_dumps() -> io::Result<()> {
    Ok(process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Makes orphaned descendants of this process its children (`PR_SET_CHILD_SUBREAPER`).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(process::set_child_subreaper(Some(process::getpid()))?)
}

/// Starts a new process group in the same session; signals of the terminal do not reach it.
pub fn new_group() -> io::Result<()> {
    Ok(process::setpgid(None, None)?)
}

/// Starts a new session and process group, without a controlling terminal.
pub fn new_session() -> io::Result<()> {
    process::setsid()?;
    Ok(())
}

/// Sets the name that `ps` shows, at most 15 bytes.
pub fn set_name(name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| invalid())?;
    Ok(rustix::thread::set_name(&name)?)
}

pub fn change_directory(path: &Path) -> io::Result<()> {
    Ok(process::chdir(path)?)
}

pub fn change_directory_to(directory: BorrowedFd<'_>) -> io::Result<()> {
    Ok(process::fchdir(directory)?)
}

/// Ignores `SIGCHLD`, so that the kernel reaps children.
pub fn ignore_children() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_IGN)
}

pub fn stop_ignoring_children() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_DFL)
}

fn set_disposition(signal: i32, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL, which are all that callers pass, install no handler.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Gives every signal its default disposition and unblocks all: a program must not inherit our choices.
pub fn reset_signals() -> io::Result<()> {
    for signal in 1..=64 {
        // The first two cannot be changed; 32 and 33 belong to the C library.
        if ![libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal) {
            set_disposition(signal, libc::SIG_DFL)?;
        }
    }
    signal_mask(libc::SIG_SETMASK, &[])
}

fn signal_mask(how: i32, signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: `set` is an initialised sigset_t that lives until the call returns; a null old set is allowed.
    done(unsafe { libc::sigprocmask(how, &raw const set, std::ptr::null_mut()) })
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set, a local.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: sigemptyset has initialised the set above.
    unsafe { set.assume_init() }
}

/// Blocks `SIGCHLD` and opens a descriptor that is readable when a child has ended (`signalfd(2)`).
pub fn child_events() -> io::Result<OwnedFd> {
    signal_mask(libc::SIG_BLOCK, &[libc::SIGCHLD])?;
    let set = signal_set(&[libc::SIGCHLD]);
    // SAFETY: `set` is initialised and lives until the call returns; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd has just created this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Duplicates `source` to the descriptor number `target`, open across exec.
pub fn place_descriptor(source: impl AsFd, target: RawFd) -> io::Result<()> {
    let source = source.as_fd().as_raw_fd();
    let result = if source == target {
        // dup2 onto itself would leave close-on-exec set.
        // SAFETY: F_SETFD takes numbers and no pointer; `source` is an open descriptor (AsFd).
        unsafe { libc::fcntl(source, libc::F_SETFD, 0) }
    } else {
        // SAFETY: dup2 takes numbers and no pointer. The caller has set `target` aside: it has no other owner.
        unsafe { libc::dup2(source, target) }
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Duplicates the descriptor to a number of at least `lowest`, closed on exec.
pub fn duplicate_above(source: impl AsFd, lowest: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(source, lowest)?)
}

/// Closes every descriptor above 2 but these. For a process that has just been forked and continues with these alone:
/// any other owner of a descriptor must neither be used nor dropped afterwards.
pub fn close_all_except(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut numbers: Vec<u32> = kept.iter().map(|kept| kept.as_raw_fd().unsigned_abs()).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers.into_iter().filter(|number| *number >= 3) {
        if first < number {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: close_range(2) takes numbers and no pointer; `close_all_except` requires that their owners are not used.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// The memory in which the kernel has placed arguments and environment (proc_pid_stat(5)).
pub struct ArgumentArea(std::ops::Range<usize>);

impl ArgumentArea {
    pub fn find() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // The third field follows the name in parentheses, which may contain parentheses.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = rest.split_whitespace().skip(48 - 3);
        let mut next = || fields.next()?.parse().ok().filter(|at| *at > 0);
        match (next(), next(), next(), next()) {
            (Some(start), _, _, Some(end)) => Ok(Self(start..end)),
            _ => Err(invalid()),
        }
    }

    /// Overwrites it with a title and clears the environment. Refuses a process with several threads.
    pub fn overwrite(self, title: &str) -> io::Result<()> {
        require_single_thread()?;
        // SAFETY: this is the only thread (checked above), so no other reads the environment.
        done(unsafe { libc::clearenv() })?;
        for (at, byte) in self.0.zip(title.bytes().chain(std::iter::repeat(0))) {
            // SAFETY: this process's own strings; the environment is cleared (above), and arguments are read anew.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(byte) };
        }
        Ok(())
    }
}

pub fn close_on_exec(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?)
}

/// Marks every descriptor from `first` upwards as closed on exec (`close_range`).
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range(2) takes numbers and no pointer; with CLOEXEC no open descriptor of this process is closed.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}
