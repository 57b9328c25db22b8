//! Shows a sandbox its packages: one layer, a directory of files that are never written again. The host's directory of
//! all layers is part of every sandbox from the beginning, below `/proc`, where the program cannot reach it. When a
//! claim or an order names a layer, a child of the supervisor enters the sandbox's namespaces and attaches that one,
//! read-only, where the program looks for packages.

use super::kept;
use crate::{
    LayerName, PACKAGES,
    failure::{StepResult, step},
    visit,
    wire::Handle,
};
use ringfence_sys::{
    file,
    mount::{self, Attributes, Reach},
};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// The directory of all layers, and the namespaces in which one of them is attached.
#[derive(Debug)]
pub(crate) struct LayerTarget {
    layers: OwnedFd,
    user: OwnedFd,
    mount: OwnedFd,
}

impl LayerTarget {
    /// `None`: the sandbox has no layers.
    pub(crate) fn of(descriptors: &mut HashMap<Handle, OwnedFd>) -> StepResult<Option<Self>> {
        let Some(layers) = descriptors.remove(&Handle::Layers) else {
            return Ok(None);
        };
        let kept = kept("layers", descriptors, [Handle::User, Handle::Mount])?;
        let missing = || io::Error::other("pid 1 has not handed over its namespaces");
        let [user, mount] = step("namespaces of the layers", kept.ok_or_else(missing))?;
        Ok(Some(Self { layers, user, mount }))
    }

    /// Shows the sandbox this layer, upon whatever it was shown before.
    pub(crate) fn attach(target: Option<&Self>, layer: &LayerName) -> StepResult<()> {
        let attached = match target {
            None => Err(io::Error::other("this sandbox has no layers")),
            Some(target) => visit::send_in([&target.user, &target.mount], || target.show(layer)),
        };
        step("attach the packages", attached)
    }

    fn show(&self, layer: &LayerName) -> io::Result<()> {
        let tree = mount::clone_tree(self.layers.as_fd(), Path::new(layer.as_str()))?;
        let attributes = Attributes {
            read_only: true,
            no_devices: true,
            no_exec: false,
        };
        mount::restrict(tree.as_fd(), attributes, Reach::AllBelow)?;
        let path = Path::new(PACKAGES)
            .strip_prefix("/")
            .unwrap_or(Path::new(PACKAGES));
        // Where this process stands now is the sandbox's root.
        mount::attach(tree.as_fd(), file::current_directory(), path)
    }
}
