//! Resource limits, processor affinity, usage and file-system space.

use crate::done;
use rustix::{
    process, thread,
    time::{ClockId, clock_gettime},
};
use std::{io, os::fd::BorrowedFd, time::Duration};

pub use rustix::process::Resource as Limit;

/// Sets soft and hard limit of a process (0: this one), at most to the present hard limit: raising needs a privilege.
pub fn lower_limit(pid: i32, limit: Limit, value: u64) -> io::Result<()> {
    let resource = limit as libc::__rlimit_resource_t;
    let mut present = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the new limit is null, so that prlimit only writes the old one, to a local that lives until it returns.
    done(unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut present) })?;
    set_limit(pid, limit, value.min(present.rlim_max))
}

fn set_limit(pid: i32, limit: Limit, value: u64) -> io::Result<()> {
    let resource = limit as libc::__rlimit_resource_t;
    let wanted = libc::rlimit64 {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the old limit is null, so that prlimit only reads the new one, a local that lives until it returns.
    done(unsafe { libc::prlimit64(pid, resource, &raw const wanted, std::ptr::null_mut()) })
}

/// Disables core dumps of this process and its descendants, to files and to the program that the host starts for dumps:
/// that is started despite a limit of 0, but not with 1 (core(5)), and no dump is that small. If the hard limit is 0
/// already, only a privileged process can raise it, and only dumps to files are disabled.
pub fn refuse_core_dumps() -> io::Result<()> {
    match set_limit(0, Limit::Core, 1) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => lower_limit(0, Limit::Core, 1),
        set => set,
    }
}

/// Raises the soft limit of open files to the hard limit.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = process::getrlimit(Limit::Nofile);
    limit.current = limit.maximum;
    Ok(process::setrlimit(Limit::Nofile, limit)?)
}

pub fn own_processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Restricts a process to `count` of the processors that this one may use, from the `first`th on (0-based, wrapping).
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

/// Returns the used bytes and inodes of the file system of this descriptor.
pub fn space_used(descriptor: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstatfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok((
        stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block),
        stat.f_files.saturating_sub(stat.f_ffree),
    ))
}

/// Returns the bytes of that file system that are free for unprivileged users.
pub fn space_free(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstatfs(descriptor)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    Ok(stat.f_bavail.saturating_mul(block))
}

/// Returns the monotonic and the boot-time clock, each as whole seconds since boot.
pub fn clock_seconds() -> (i64, i64) {
    let read = |clock| clock_gettime(clock).tv_sec;
    (read(ClockId::Monotonic), read(ClockId::Boottime))
}
