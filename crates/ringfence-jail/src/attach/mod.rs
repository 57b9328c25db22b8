//! What a sandbox is given after its walls are up: a workspace, packages, ports of its egress. A child of the
//! supervisor enters the sandbox's namespaces for it; nothing else is ever attached late.

pub(crate) mod egress;
pub(crate) mod layer;
pub(crate) mod workspace;

use crate::{
    failure::{StepResult, step},
    wire::Handle,
};
use std::{collections::HashMap, os::fd::OwnedFd};

/// Copies of descriptors that others use too. `None`: pid 1 has not handed over all of them.
fn kept<const N: usize>(
    what: &str,
    descriptors: &HashMap<Handle, OwnedFd>,
    kinds: [Handle; N],
) -> StepResult<Option<[OwnedFd; N]>> {
    let mut copies = Vec::with_capacity(N);
    for kind in kinds {
        let Some(descriptor) = descriptors.get(&kind) else {
            return Ok(None);
        };
        copies.push(step(format!("namespaces of the {what}"), descriptor.try_clone())?);
    }
    Ok(copies.try_into().ok())
}
