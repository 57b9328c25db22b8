//! A child of the supervisor that enters a sandbox's namespaces, does one thing there, and exits.

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

/// Has `work` done by a child of this process in these namespaces, which it joins in this order.
pub(crate) fn send_in(namespaces: [&OwnedFd; 2], work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    finish(process::fork()?, || {
        for namespace in namespaces {
            process::join_namespace(namespace.as_fd())?;
        }
        work()
    })
}

/// Has `work` done by a child of this process in a user and a mount namespace of its own, in which it may open trees.
pub(crate) fn send_apart(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    finish(
        process::fork_into(&[NamespaceKind::User, NamespaceKind::Mount])?,
        work,
    )
}

fn finish(fork: Fork, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match fork {
        Fork::Child => {
            let errno = match work() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            process::exit_now(errno)
        }
        Fork::Parent(child) => {
            let ended = wait::wait(Child::Pid(child))?;
            match ended.map(|ended| ended.status.into_raw()) {
                Some(0) => Ok(()),
                Some(status) if status & 0x7f == 0 => Err(io::Error::from_raw_os_error(status >> 8)),
                _ => Err(io::Error::other("who was sent in has not come to the end")),
            }
        }
    }
}
