//! Somebody who is sent into a sandbox's namespaces by its supervisor, does one thing there, and does not come back.

use ringfence_sys::{
    process::{self, Fork},
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
    match process::fork()? {
        Fork::Child => {
            let joined = namespaces
                .into_iter()
                .try_for_each(|namespace| process::join_namespace(namespace.as_fd()));
            let errno = match joined.and_then(|()| work()) {
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
