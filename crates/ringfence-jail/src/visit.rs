//! A child of this process that does one thing, in the namespaces of a sandbox or in new ones, and exits.

use ringfence_sys::{
    process::{self, Fork, NamespaceKind},
    wait::{self, Child},
};
use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
};

/// Runs `work` in a child of this process that joins these namespaces, in this order.
pub(crate) fn run_in(namespaces: [&OwnedFd; 2], work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    finish(process::fork()?, || {
        for namespace in namespaces {
            process::join_namespace(namespace.as_fd())?;
        }
        work()
    })
}

/// Runs `work` in a child of this process, in new namespaces.
pub(crate) fn run_in_new(
    namespaces: &[NamespaceKind],
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    finish(process::fork_into(namespaces)?, work)
}

fn finish(fork: Fork, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match fork {
        Fork::Child => process::exit_now(match work() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }),
        Fork::Parent(child) => {
            let ended = wait::wait(Child::Pid(child))?;
            let ended = ended.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            match (ended.status.code(), ended.status.signal()) {
                (Some(0), _) => Ok(()),
                (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
                (None, signal) => {
                    let signal = signal.unwrap_or_default();
                    Err(io::Error::other(format!("ended by signal {signal}")))
                }
            }
        }
    }
}
