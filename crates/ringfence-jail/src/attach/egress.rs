//! Opens the ports that a claim, or a running program, adds to a sandbox's egress.

use super::kept;
use crate::{
    EgressSpec, PORTS_MAX,
    egress::open_claimed,
    failure::{StepResult, step},
    visit,
    wire::Handle,
};
use ringfence_sys::channel;
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

#[derive(Debug)]
pub(crate) struct EgressTarget {
    user: OwnedFd,
    net: OwnedFd,
}

impl EgressTarget {
    /// `None`: the sandbox has no network of its own.
    pub(crate) fn of(descriptors: &HashMap<Handle, OwnedFd>) -> StepResult<Option<Self>> {
        let kept = kept("egress", descriptors, [Handle::User, Handle::Net])?;
        Ok(kept.map(|[user, net]| Self { user, net }))
    }

    /// Opens what is wanted beside the sockets of every sandbox.
    pub(crate) fn open(target: Option<&Self>, spec: &EgressSpec) -> StepResult<Vec<OwnedFd>> {
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
