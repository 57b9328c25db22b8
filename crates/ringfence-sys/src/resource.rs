//! Resource limits, processor affinity, usage and file-system space.

use crate::done;
use rustix::{
    process::{self, Resource},
    thread,
    time::{ClockId, clock_gettime},
};
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// The limits that the jail sets (`getrlimit(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Core dump size.
    Core,
    /// Processor seconds.
    Cpu,
    /// Data segment and private memory.
    Data,
    /// File size.
    FileSize,
    /// Locked memory.
    LockedMemory,
    /// POSIX message queue bytes.
    MessageQueue,
    /// Nice ceiling.
    Nice,
    /// Open files.
    OpenFiles,
    /// Processes and threads of the user (in its user namespace).
    Processes,
    /// Real-time priority.
    RealtimePriority,
    /// Queued signals.
    PendingSignals,
    /// Stack size.
    Stack,
}

impl Limit {
    fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::Core => libc::RLIMIT_CORE,
            Self::Cpu => libc::RLIMIT_CPU,
            Self::Data => libc::RLIMIT_DATA,
            Self::FileSize => libc::RLIMIT_FSIZE,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK,
            Self::MessageQueue => libc::RLIMIT_MSGQUEUE,
            Self::Nice => libc::RLIMIT_NICE,
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::Processes => libc::RLIMIT_NPROC,
            Self::RealtimePriority => libc::RLIMIT_RTPRIO,
            Self::PendingSignals => libc::RLIMIT_SIGPENDING,
            Self::Stack => libc::RLIMIT_STACK,
        }
    }
}

/// Sets soft and hard limit of a process (0: this one), lowered to the hard limit that is already there, because
/// raising it needs a privilege.
pub fn lower_limit(pid: i32, limit: Limit, value: u64) -> io::Result<()> {
    let mut present = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: prlimit fills the struct that it is given, and reads none.
    done(unsafe { libc::prlimit64(pid, limit.number(), std::ptr::null(), &raw mut present) })?;
    let value = value.min(present.rlim_max);
    let wanted = libc::rlimit64 {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: prlimit reads the struct that it is given, and fills none.
    done(unsafe { libc::prlimit64(pid, limit.number(), &raw const wanted, std::ptr::null_mut()) })
}

/// No core dump of this process and of what it starts is written to a file, nor given to the program that the host
/// starts for dumps: for that one a limit of 0 means nothing and 1 means none (core(5)), and no dump is that small.
/// Where the hard limit is 0 already, only a privileged process can raise it; then files alone are refused.
pub fn refuse_core_dumps() -> io::Result<()> {
    let refused = libc::rlimit64 {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: prlimit reads the struct that it is given, and fills none.
    let set =
        done(unsafe { libc::prlimit64(0, libc::RLIMIT_CORE, &raw const refused, std::ptr::null_mut()) });
    match set {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => lower_limit(0, Limit::Core, 1),
        set => set,
    }
}

/// Lets this process have as many open files as it may.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(process::setrlimit(Resource::Nofile, limit)?)
}

/// What this process has had of the processors.
pub fn own_processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Lets a process run on `count` processors only, the `first`th of those that this one may use and those after it.
pub fn pin_to_processors(pid: i32, first: usize, count: usize) -> io::Result<()> {
    let allowed = thread::sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..thread::CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    if usable.is_empty() || count == 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut chosen = thread::CpuSet::new();
    for offset in 0..count.min(usable.len()) {
        chosen.set(usable[(first + offset) % usable.len()]);
    }
    Ok(thread::sched_setaffinity(thread::Pid::from_raw(pid), &chosen)?)
}

/// Bytes used and inodes used on the file system of this descriptor.
pub fn space_used(descriptor: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = statfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok((
        stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block),
        stat.f_files.saturating_sub(stat.f_ffree),
    ))
}

/// Bytes that are free there for those who are not root.
pub fn space_free(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = statfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok(stat.f_bavail.saturating_mul(block))
}

fn statfs(descriptor: BorrowedFd<'_>) -> io::Result<libc::statfs> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: fstatfs fills the struct when it returns 0; the descriptor is live.
    done(unsafe { libc::fstatfs(descriptor.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: filled by the call above.
    Ok(unsafe { stat.assume_init() })
}

/// The monotonic and the boot-time clock, each as whole seconds since boot.
pub fn clock_seconds() -> (i64, i64) {
    let read = |clock| clock_gettime(clock).tv_sec;
    (read(ClockId::Monotonic), read(ClockId::Boottime))
}
