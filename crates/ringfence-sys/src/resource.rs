//! Resource limits, processor affinity, usage and file-system space.

use crate::done;
use rustix::{
    process, thread,
    time::{ClockId, clock_gettime},
};
use std::{io, os::fd::BorrowedFd, time::Duration};

pub use rustix::process::Resource as Limit;

/// Sets soft and hard limit of a process (0: this one), lowered to the hard limit that is already there, because
/// raising it needs a privilege.
pub fn lower_limit(pid: i32, limit: Limit, value: u64) -> io::Result<()> {
    let resource = limit as libc::__rlimit_resource_t;
    let mut present = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: prlimit fills the struct that it is given, and reads none.
    done(unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut present) })?;
    set_limit(pid, limit, value.min(present.rlim_max))
}

fn set_limit(pid: i32, limit: Limit, value: u64) -> io::Result<()> {
    let resource = limit as libc::__rlimit_resource_t;
    let wanted = libc::rlimit64 {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: prlimit reads the struct that it is given, and fills none.
    done(unsafe { libc::prlimit64(pid, resource, &raw const wanted, std::ptr::null_mut()) })
}

/// No core dump of this process and of what it starts is written to a file, nor given to the program that the host
/// starts for dumps: for that one a limit of 0 means nothing and 1 means none (core(5)), and no dump is that small.
/// Where the hard limit is 0 already, only a privileged process can raise it; then files alone are refused.
pub fn refuse_core_dumps() -> io::Result<()> {
    match set_limit(0, Limit::Core, 1) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => lower_limit(0, Limit::Core, 1),
        set => set,
    }
}

/// Lets this process have as many open files as it may.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = process::getrlimit(Limit::Nofile);
    limit.current = limit.maximum;
    Ok(process::setrlimit(Limit::Nofile, limit)?)
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
    let stat = rustix::fs::fstatfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok((
        stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block),
        stat.f_files.saturating_sub(stat.f_ffree),
    ))
}

/// Bytes that are free there for those who are not root.
pub fn space_free(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstatfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok(stat.f_bavail.saturating_mul(block))
}

/// The monotonic and the boot-time clock, each as whole seconds since boot.
pub fn clock_seconds() -> (i64, i64) {
    let read = |clock| clock_gettime(clock).tv_sec;
    (read(ClockId::Monotonic), read(ClockId::Boottime))
}
