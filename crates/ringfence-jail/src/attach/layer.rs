//! Shows a sandbox its packages: one layer, a directory of files that are never written again. The host's directory of
//! all layers is part of every sandbox from the beginning, below `/proc`, where the program cannot reach it. When a
//! claim or an order names a layer, a child of the supervisor enters the sandbox's namespaces and attaches that one,
//! read-only, where the program looks for packages.

use super::Target;
use crate::{
    LayerName, PACKAGES,
    enter::own_root::READ_ONLY,
    failure::{StepResult, step},
    visit,
};
use ringfence_sys::{
    file,
    mount::{self, Reach},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

impl Target {
    /// Shows the sandbox this layer, upon whatever it was shown before.
    pub(crate) fn attach_layer(target: Option<&Self>, layer: &LayerName) -> StepResult<()> {
        let attached = match target.and_then(|target| Some((target, target.layers.as_ref()?))) {
            None => Err(io::Error::other("this sandbox has no layers")),
            Some((target, layers)) => visit::send_in([&target.user, &target.mount], || show(layers, layer)),
        };
        step("attach the packages", attached)
    }
}

fn show(layers: &OwnedFd, layer: &LayerName) -> io::Result<()> {
    let tree = mount::clone_tree(layers.as_fd(), Path::new(layer.as_str()))?;
    mount::restrict(tree.as_fd(), READ_ONLY, Reach::AllBelow)?;
    let path = Path::new(PACKAGES)
        .strip_prefix("/")
        .unwrap_or(Path::new(PACKAGES));
    // Where this process stands now is the sandbox's root.
    mount::attach(tree.as_fd(), file::current_directory(), path)
}
