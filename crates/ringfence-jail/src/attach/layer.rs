//! Shows a sandbox its packages: one layer, a directory of files that are never written again. All layers are part of
//! every sandbox from the beginning, below `/proc`, where the program cannot reach them. When a claim or an order names
//! one, a child of the supervisor joins the sandbox's namespaces and attaches it, read-only, where the program looks
//! for it.

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
    /// Mounts this layer, upon any earlier one.
    pub(crate) fn attach_layer(target: Option<&Self>, layer: &LayerName) -> StepResult<()> {
        let attached = match target.and_then(|target| Some((target, target.layers.as_ref()?))) {
            None => Err(io::Error::other("this sandbox has no layers")),
            Some((target, layers)) => visit::run_in([&target.user, &target.mount], || attach(layers, layer)),
        };
        step("attach the packages", attached)
    }
}

fn attach(layers: &OwnedFd, layer: &LayerName) -> io::Result<()> {
    let tree = mount::clone_tree(layers.as_fd(), Path::new(layer.as_str()))?;
    mount::restrict(tree.as_fd(), READ_ONLY, Reach::AllBelow)?;
    let path = Path::new(PACKAGES)
        .strip_prefix("/")
        .unwrap_or(Path::new(PACKAGES));
    // The current directory of this process is the sandbox's root.
    mount::attach(tree.as_fd(), file::current_directory(), path)
}
