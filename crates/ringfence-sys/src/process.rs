//! Making processes, ending them, and replacing oneself.

use crate::done;
use rustix::process::{self, DumpableBehavior, Pid, PidfdFlags, Signal};
use std::{
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
};

/// Which side of a fork one is on.
#[derive(Debug)]
pub enum Fork {
    Child,
    /// The old one, with the pid of the new.
    Parent(i32),
}

/// Namespaces that a new process gets for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NamespaceKind {
    /// Users and capabilities.
    User = libc::CLONE_NEWUSER,
    Mount = libc::CLONE_NEWNS,
    Pid = libc::CLONE_NEWPID,
    Net = libc::CLONE_NEWNET,
    /// System V and POSIX message queues, shared memory.
    Ipc = libc::CLONE_NEWIPC,
    Uts = libc::CLONE_NEWUTS,
    /// View of the cgroup tree.
    Cgroup = libc::CLONE_NEWCGROUP,
    /// Boot-time and monotonic clocks, for children to come. Only for [`unshare`].
    Time = 0x80,
}

/// A descriptor that stands for a process, and can be handed to another.
pub fn descriptor_of(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(invalid)?;
    Ok(process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// The pid, in this pid namespace, of the process that a descriptor stands for.
pub fn pid_of(descriptor: BorrowedFd<'_>) -> io::Result<i32> {
    /// `struct pidfd_info`, as far as all kernels that have it know it.
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
    // SAFETY: the kernel writes at most the size that is part of the request's number, which is that of `info`.
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

/// Threads of this process, from the kernel (each is a directory in `/proc/self/task`).
pub fn thread_count() -> io::Result<usize> {
    let links = rustix::fs::stat("/proc/self/task")?.st_nlink;
    Ok(usize::try_from(links).unwrap_or(usize::MAX).saturating_sub(2))
}

fn refuse_threads() -> io::Result<()> {
    // The kernel refuses this to a process with several threads, and does nothing else (unshare(2)). Behind a filter of
    // ours it refuses it to all.
    // SAFETY: unshare takes a number.
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

/// `fork(2)`. Refuses a process with several threads: the child would inherit locks that are never released.
pub fn fork() -> io::Result<Fork> {
    refuse_threads()?;
    // SAFETY: the process has one thread (checked above), so no lock of another thread is copied in a held state.
    let result = unsafe { libc::fork() };
    forked(i64::from(result))
}

/// `clone(2)` without shared memory: a fork whose child is in new namespaces. Refuses a process with several threads.
pub fn fork_into(namespaces: &[NamespaceKind]) -> io::Result<Fork> {
    let flags = libc::SIGCHLD | clone_flags(namespaces)?;
    refuse_threads()?;
    clone(flags)
}

/// The same, and the child is born in the cgroup (version 2) that `cgroup` is the directory of. Moving a process there
/// later costs the kernel an RCU grace period, some milliseconds.
pub fn fork_into_cgroup(namespaces: &[NamespaceKind], cgroup: BorrowedFd<'_>) -> io::Result<Fork> {
    let flags = u64::from(clone_flags(namespaces)?.unsigned_abs()) | CLONE_INTO_CGROUP;
    refuse_threads()?;
    let arguments = CloneArguments {
        flags,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArguments::default()
    };
    forked(clone3(&arguments))
}

/// A fork whose child is in new namespaces and has this process's parent as its own. `None` in the child; the caller
/// gets a descriptor of it, because its number may be of another pid namespace. Refuses a process with several
/// threads.
pub fn fork_sibling_into(namespaces: &[NamespaceKind]) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SIGCHLD | libc::CLONE_PARENT | libc::CLONE_PIDFD | clone_flags(namespaces)?;
    refuse_threads()?;
    let none = 0_usize;
    let mut descriptor: RawFd = -1;
    // SAFETY: as in `clone`; with CLONE_PIDFD the kernel writes a new descriptor to the third argument, which is live.
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
        // SAFETY: the call has made this descriptor; it has no other owner.
        Fork::Parent(_) => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
    }
}

/// Whose child a new process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// The caller's.
    Child,
    /// The caller's parent's.
    Sibling,
}

/// Has `work` done by a new process that shares this one's memory and descriptors, and waits until it has ended.
/// `None`: it was killed. For a process that changes its namespaces or identity and forks another: it costs a quarter
/// of what `fork` does, which copies what is written later. Refuses a process with several threads.
///
/// When `work` takes another identity, the kernel hides their common memory from that user's other processes (prctl(2),
/// `PR_SET_DUMPABLE`).
pub fn work_aside<R, F: FnOnce() -> R>(kin: Kin, work: F) -> io::Result<Option<R>> {
    struct Work<F, R> {
        work: Option<F>,
        result: Option<R>,
    }
    extern "C" fn run<R, F: FnOnce() -> R>(given: *mut c_void) -> c_int {
        // SAFETY: the only caller, below, gives its own `Work` of these types, and does not touch it meanwhile.
        let given = unsafe { &mut *given.cast::<Work<F, R>>() };
        given.result = given.work.take().map(|work| work());
        0
    }
    let kin = match kin {
        Kin::Child => 0,
        Kin::Sibling => libc::CLONE_PARENT,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD | kin;
    refuse_threads()?;
    let stack = Stack::new()?;
    let mut given = Work {
        work: Some(work),
        result: None,
    };
    // SAFETY: the stack is this call's own and large enough for what the jail does; `given` lives until the call
    // returns, which with CLONE_VFORK is when the new process has ended; there is no other thread (checked above).
    let result = unsafe { libc::clone(run::<R, F>, stack.top(), flags, (&raw mut given).cast()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if kin == 0 {
        // It has let go of the memory, and may have yet to end.
        crate::wait::wait(crate::wait::Child::Pid(result))?;
    }
    Ok(given.result)
}

/// A stack for another process, with a page below it that ends what overflows it.
struct Stack(*mut c_void);

impl Stack {
    const BYTES: usize = 1 << 20;
    const GUARD_BYTES: usize = 64 << 10; // the largest page that there is

    fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where nothing else is.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self(start);
        // SAFETY: the beginning of the mapping above, which is not used yet.
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
        // SAFETY: the mapping that `new` has made; the process that used it has ended.
        unsafe { libc::munmap(self.0, Self::BYTES) };
    }
}

/// Moves this process (for a pid or time namespace: its children to come) into the namespace of the descriptor.
pub fn join_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns(2) takes a live descriptor (BorrowedFd) and a number; 0 means a namespace of any kind.
    done(unsafe { libc::setns(namespace.as_raw_fd(), 0) })
}

/// Whether clone3(2) works here. Container engines answer ENOSYS so that programs fall back to clone(2).
pub fn has_clone3() -> bool {
    // Two exit signals at once are refused before anything is made.
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
    // SAFETY: the structure is live and of the size given; no CLONE_VM and no stack, so a child continues here on its
    // own copy of this stack, as after fork. The callers have checked that there is one thread, or ask for an error.
    unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(arguments),
            size_of::<CloneArguments>(),
        )
    }
}

/// The callers have checked that this process has one thread.
fn clone(flags: i32) -> io::Result<Fork> {
    let none = 0_usize;
    // SAFETY: no CLONE_VM and a null stack, so the child continues here on its own copy of this stack, as after fork;
    // the process has one thread (see above). The other pointers are null and their flags unset.
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

/// Moves this process (for `Pid` and `Time`: its children to come) into new namespaces.
pub fn unshare(namespaces: &[NamespaceKind]) -> io::Result<()> {
    let flags = namespaces.iter().fold(0, |flags, kind| flags | *kind as i32);
    // SAFETY: unshare(2) takes only flags; descriptor tables are not among those of `NamespaceKind`.
    done(unsafe { libc::unshare(flags) })
}

/// Replaces this process. Returns only with an error.
pub fn execve(program: &Path, arguments: &[String], environment: &[(String, String)]) -> io::Error {
    let Ok(path) = CString::new(program.as_os_str().as_encoded_bytes()) else {
        return invalid();
    };
    let Ok(words) = Words::new(arguments, environment) else {
        return invalid();
    };
    let (argv, envp) = words.pointers();
    // SAFETY: `path` and both null-ended arrays of NUL-ended strings live until the call returns or the image is gone.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// The same with the file that is open here, whatever its path leads to by now (`execveat(2)`, `AT_EMPTY_PATH`).
/// Returns only with an error.
pub fn execute_descriptor(
    program: BorrowedFd<'_>,
    arguments: &[String],
    environment: &[(String, String)],
) -> io::Error {
    let Ok(words) = Words::new(arguments, environment) else {
        return invalid();
    };
    let (argv, envp) = words.pointers();
    // SAFETY: the path is empty and NUL-ended, and both null-ended arrays of NUL-ended strings live until the call
    // returns or the image is gone.
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

/// Arguments and environment of a program, as the kernel reads them.
struct Words(Vec<CString>, Vec<CString>);

impl Words {
    fn new(arguments: &[String], environment: &[(String, String)]) -> Result<Self, std::ffi::NulError> {
        let arguments: Result<_, _> = arguments.iter().map(|word| CString::new(word.as_str())).collect();
        let environment: Result<_, _> = environment
            .iter()
            .map(|(name, value)| CString::new(format!("{name}={value}")))
            .collect();
        Ok(Self(arguments?, environment?))
    }

    /// Null-ended, and valid as long as `self`.
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

/// Ends this process at once, without running anything of a parent's that was copied by fork.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) takes no pointer and does not return.
    unsafe { libc::_exit(status) }
}

/// The signals that the jail sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Terminate,
    Kill,
    /// What Ctrl-C sends.
    Interrupt,
    /// What a shell of a session catches beside it (`SIGPWR`).
    Abandon,
    /// What Node.js in a session listens for beside it (`SIGSTKFLT`).
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

/// Signals one process. Refuses 0, 1 and negative numbers, which mean more than one process or init.
pub fn kill(pid: i32, how: Kill) -> io::Result<()> {
    Ok(process::kill_process(target(pid)?, how.signal())?)
}

fn target(pid: i32) -> io::Result<Pid> {
    Pid::from_raw(pid).filter(|_| pid > 1).ok_or_else(invalid)
}

/// The signal that a shell catches to be told of an interrupt, as a bit of `SigCgt` in `/proc/[pid]/status`.
pub const ABANDON_BIT: u64 = 1 << (libc::SIGPWR - 1);

/// [`Kill::Wake`] in the same masks.
pub const WAKE_BIT: u64 = 1 << (libc::SIGSTKFLT - 1);

/// Signals every process of a group. Refuses 0, 1 and negative numbers, as [`kill`] does.
pub fn kill_group(leader: i32, how: Kill) -> io::Result<()> {
    Ok(process::kill_process_group(target(leader)?, how.signal())?)
}

/// Signals this process.
pub fn kill_by_descriptor(known: BorrowedFd<'_>, how: Kill) -> io::Result<()> {
    Ok(process::pidfd_send_signal(known, how.signal())?)
}

/// Signals every process of the group that this process leads. The kernel does so by the descriptor since 6.9
/// (`pidfd_send_signal(2)`); an older one by the number, which may have become another's where the process has been
/// reaped.
pub fn kill_group_of(leader: BorrowedFd<'_>, how: Kill) -> io::Result<()> {
    /// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
    const PROCESS_GROUP: libc::c_uint = 1 << 2;
    // SAFETY: the call reads a signal's details only where they are given, and the pointer to them is null.
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
        (_, error) if error.raw_os_error() == Some(libc::EINVAL) => kill_group(pid_of(leader)?, how),
        (_, error) => Err(error),
    }
}

/// Signals every process of this pid namespace but the caller. Refuses a caller that is not its pid 1.
pub fn kill_all_others(how: Kill) -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: kill(2) takes no pointer; the caller is pid 1 (checked above), so -1 reaches its own namespace only.
    done(unsafe { libc::kill(-1, how.signal().as_raw()) })
}

/// Has the kernel kill this process when the thread that made it ends.
pub fn die_with_parent() -> io::Result<()> {
    Ok(process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Hides this process's memory, environment and descriptors from its equals, and forbids its core dumps.
pub fn refuse_dumps() -> io::Result<()> {
    Ok(process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Lets its equals, and itself by way of `/proc`, look at this process again.
pub fn allow_dumps() -> io::Result<()> {
    Ok(process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Makes orphans below this process its children.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(process::set_child_subreaper(Some(process::getpid()))?)
}

/// Leads a new process group, which the terminal's signals do not reach, in the session where it is.
pub fn new_group() -> io::Result<()> {
    Ok(process::setpgid(None, None)?)
}

/// A session and process group of its own, without a terminal.
pub fn new_session() -> io::Result<()> {
    process::setsid()?;
    Ok(())
}

/// The name that `ps` shows, at most 15 bytes.
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

/// Ignored children are reaped by the kernel (`SIGCHLD` set to ignore).
pub fn ignore_children() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_IGN)
}

/// Undoes [`ignore_children`].
pub fn mind_children() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_DFL)
}

fn set_disposition(signal: i32, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL (the only callers' values) install no handler code.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Gives every signal its default action and blocks none: a program must not inherit our choices.
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
    // SAFETY: `set` is an initialised sigset_t; a null old set is allowed.
    done(unsafe { libc::sigprocmask(how, &raw const set, std::ptr::null_mut()) })
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: initialised by sigemptyset above.
    unsafe { set.assume_init() }
}

/// A descriptor that is readable when a child has ended (`signalfd` on `SIGCHLD`, which is blocked).
pub fn child_events() -> io::Result<OwnedFd> {
    signal_mask(libc::SIG_BLOCK, &[libc::SIGCHLD])?;
    let set = signal_set(&[libc::SIGCHLD]);
    // SAFETY: `set` is initialised; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd just returned this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts `source` on the descriptor number `target`, open across exec.
pub fn place_descriptor(source: impl AsFd, target: RawFd) -> io::Result<()> {
    let source = source.as_fd().as_raw_fd();
    let result = if source == target {
        // dup2 onto itself would leave close-on-exec set.
        // SAFETY: fcntl takes plain numbers; `source` is a live descriptor (AsFd).
        unsafe { libc::fcntl(source, libc::F_SETFD, 0) }
    } else {
        // SAFETY: dup2 takes plain numbers. `target` is one of 0..=3, which the caller has set aside.
        unsafe { libc::dup2(source, target) }
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A copy of the descriptor with a number of at least `lowest`, closed on exec.
pub fn duplicate_above(source: impl AsFd, lowest: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(source, lowest)?)
}

/// Closes every descriptor above 2 but these. For a process that has just been forked and goes on with these alone:
/// what else owns a descriptor here must neither be used nor dropped any more.
pub fn keep_only(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
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
    // SAFETY: close_range(2) takes plain numbers; the caller of `keep_only` vouches for the owners.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// Where the kernel has put arguments and environment (proc_pid_stat(5)).
pub struct StartArea(std::ops::Range<usize>);

impl StartArea {
    pub fn find() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // Behind the name in parentheses, which may have some of its own, comes the third field.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = rest.split_whitespace().skip(48 - 3);
        let mut next = || fields.next()?.parse().ok().filter(|at| *at > 0);
        match (next(), next(), next(), next()) {
            (Some(start), _, _, Some(end)) => Ok(Self(start..end)),
            _ => Err(invalid()),
        }
    }

    /// Overwrites it with a title.
    pub fn overwrite(self, title: &str) -> io::Result<()> {
        refuse_threads()?;
        // SAFETY: there is no other thread (checked above).
        done(unsafe { libc::clearenv() })?;
        for (at, byte) in self.0.zip(title.bytes().chain(std::iter::repeat(0))) {
            // SAFETY: the process's own strings; the C library knows of no environment, and arguments are read anew.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(byte) };
        }
        Ok(())
    }
}

/// Marks a descriptor as closed on exec.
pub fn close_on_exec(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?)
}

/// Marks every descriptor from `first` upwards as closed on exec (`close_range`).
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range(2) takes plain numbers; with CLOEXEC no open descriptor of this process is closed.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}
