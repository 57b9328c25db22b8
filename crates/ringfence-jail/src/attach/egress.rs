//! Opens the ports that a claim, or an order while the program runs, adds to a sandbox's egress.

use super::Target;
use crate::{
    EgressSpec, PORTS_MAX,
    egress::open_claimed,
    failure::{StepResult, step},
    visit,
};
use ringfence_sys::channel;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

impl Target {
    pub(crate) fn open_egress(target: Option<&Self>, spec: &EgressSpec) -> StepResult<Vec<OwnedFd>> {
        if spec.ports.is_empty() && spec.networks.is_empty() {
            return Ok(Vec::new());
        }
        let opened = match target {
            None => Err(io::Error::other("this sandbox has no network of its own")),
            Some(_) if spec.ports.len() > PORTS_MAX => Err(io::Error::from_raw_os_error(libc::E2BIG)),
            Some(target) => target.open_in_sandbox(spec),
        };
        step("open the egress", opened)
    }

    /// Opens the sockets in a child that joins the namespaces, and passes them back.
    fn open_in_sandbox(&self, spec: &EgressSpec) -> io::Result<Vec<OwnedFd>> {
        let (link, theirs) = channel::pair()?;
        visit::run_in([&self.user, &self.net], || {
            let sockets = open_claimed(spec)?;
            let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            channel::send(theirs.as_fd(), b"egress", &handed)
        })?;
        drop(theirs);
        let (_, sockets) = channel::receive(link.as_fd(), &mut [0; 16])?;
        Ok(sockets)
    }
}
