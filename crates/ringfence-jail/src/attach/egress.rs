//! Opens the ports that a claim, or a running program, adds to a sandbox's egress.

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
    /// Opens what is wanted beside the sockets of every sandbox.
    pub(crate) fn open_egress(target: Option<&Self>, spec: &EgressSpec) -> StepResult<Vec<OwnedFd>> {
        if spec.ports.is_empty() && spec.networks.is_empty() {
            return Ok(Vec::new());
        }
        let opened = match target {
            None => Err(io::Error::other("this sandbox has no network of its own")),
            Some(_) if spec.ports.len() > PORTS_MAX => Err(io::Error::from_raw_os_error(libc::E2BIG)),
            Some(target) => target.hand_out(spec),
        };
        step("open the egress", opened)
    }

    /// A child that enters the namespaces opens the sockets and passes them back.
    fn hand_out(&self, spec: &EgressSpec) -> io::Result<Vec<OwnedFd>> {
        let (link, theirs) = channel::pair()?;
        visit::send_in([&self.user, &self.net], || {
            let sockets = open_claimed(spec)?;
            let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            channel::send(theirs.as_fd(), b"egress", &handed)
        })?;
        drop(theirs);
        let (_, sockets) = channel::receive(link.as_fd(), &mut [0; 16])?;
        Ok(sockets)
    }
}
