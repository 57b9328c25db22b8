//! Additions to a sandbox after its walls are up: a workspace, packages, ports of its egress. A child of the supervisor
//! joins the sandbox's namespaces for it; nothing else is ever attached late.

mod egress;
mod layer;
mod workspace;

use crate::{
    failure::{Failure, StepResult, step},
    wire::Handle,
};
use std::{collections::HashMap, io, os::fd::OwnedFd};

/// Copies of the descriptors of a sandbox's namespaces; the originals have other uses.
#[derive(Debug)]
pub(crate) struct Target {
    user: OwnedFd,
    mount: OwnedFd,
    net: OwnedFd,
    layers: Option<OwnedFd>,
}

impl Target {
    /// `None` if pid 1 has not passed all of them: in the tiers without a root of their own, and in templates.
    pub(crate) fn of(descriptors: &mut HashMap<Handle, OwnedFd>) -> StepResult<Option<Self>> {
        let layers = descriptors.remove(&Handle::Layers);
        let kinds = [Handle::User, Handle::Mount, Handle::Net].into_iter();
        let there = kinds.map_while(|kind| descriptors.get(&kind));
        let copies: io::Result<Vec<OwnedFd>> = there.map(OwnedFd::try_clone).collect();
        match <[OwnedFd; 3]>::try_from(step("namespaces of the sandbox", copies)?) {
            Ok([user, mount, net]) => Ok(Some(Self {
                user,
                mount,
                net,
                layers,
            })),
            Err(_) if layers.is_some() => Err(Failure::other(
                "namespaces of the layers",
                "pid 1 has not handed over its namespaces",
            )),
            Err(_) => Ok(None),
        }
    }
}
