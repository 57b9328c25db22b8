//! Waiting for children, and for descriptors with a timeout.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::{
    io,
    mem::MaybeUninit,
    os::{fd::BorrowedFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    time::Duration,
};

#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub pid: i32,
    /// Wait status, as the kernel reports it.
    pub status: ExitStatus,
    /// Processor time and peak memory of the child and of the descendants that it had waited for.
    pub usage: Usage,
}

/// From `struct rusage`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    /// Largest resident set of any one process, in bytes.
    pub max_rss_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Child {
    Pid(i32),
    Any,
}

/// Blocks until the child ends (`wait4(2)`). `None`: there is no such child. Interruptions are retried.
pub fn wait(child: Child) -> io::Result<Option<Ended>> {
    wait4(child, 0)
}

/// Like [`wait`], without blocking; `None` also if no child has ended yet.
pub fn wait_nonblocking(child: Child) -> io::Result<Option<Ended>> {
    wait4(child, libc::WNOHANG)
}

fn wait4(child: Child, flags: i32) -> io::Result<Option<Ended>> {
    let target = match child {
        Child::Pid(pid) if pid > 0 => pid,
        Child::Pid(_) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Child::Any => -1,
    };
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to locals of the types that wait4(2) writes, and live until the call returns.
        let pid = unsafe { libc::wait4(target, &raw mut status, flags | libc::__WALL, usage.as_mut_ptr()) };
        if pid > 0 {
            // SAFETY: `usage` was zeroed above (all-zero is a valid rusage), and wait4 has filled it.
            let usage = unsafe { usage.assume_init() };
            return Ok(Some(Ended {
                pid,
                status: ExitStatus::from_raw(status),
                usage: Usage::from(&usage),
            }));
        }
        if pid == 0 {
            return Ok(None);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

impl From<&libc::rusage> for Usage {
    fn from(raw: &libc::rusage) -> Self {
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        Self {
            user: time(raw.ru_utime),
            system: time(raw.ru_stime),
            max_rss_bytes: raw.ru_maxrss.unsigned_abs().saturating_mul(1024),
        }
    }
}

/// Waits until a descriptor is readable or hung up, the timeout expires or a signal interrupts; true for each that is.
pub fn readable<const N: usize>(
    descriptors: [Option<BorrowedFd<'_>>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<PollFd<'_>> = descriptors
        .iter()
        .flatten()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(descriptors.map(|fd| fd.is_some() && ready.next().unwrap_or(false)))
}
