//! Attaches a directory of the host as the workspace of a claimed sandbox. The supervisor opens it, detached from mount
//! events of the host, and a child of it joins the sandbox's namespaces and attaches it there.

use super::Target;
use crate::{
    HostWorkspace, Plan,
    enter::own_root::READ_ONLY,
    failure::{StepResult, step},
    identity_map::map_owner,
    plan::Identity,
    visit,
};
use ringfence_sys::{
    channel, file,
    mount::{self, Attributes, Reach},
    process::NamespaceKind,
};
use ringfence_types::WorkspaceMode;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

impl Target {
    /// Mounts this directory as the sandbox's workspace. Returns a descriptor that leads to it from outside.
    pub(crate) fn attach_workspace(
        target: Option<&Self>,
        plan: &Plan,
        workspace: &HostWorkspace,
    ) -> StepResult<OwnedFd> {
        let name = |what: &str| format!("{what} {}", workspace.directory.path.display());
        let tree = step(name("open"), open(plan.identity, workspace))?;
        let root = step(name("open"), file::open_directory(tree.as_fd(), Path::new(".")))?;
        let path = plan.layout.workspace.strip_prefix("/");
        let path = path.unwrap_or(&plan.layout.workspace);
        let attached = match target {
            None => Err(io::Error::other("this sandbox has no root of its own")),
            Some(Self { user, mount, .. }) => visit::run_in([user, mount], || {
                // The current directory of this process is the sandbox's root.
                mount::attach(tree.as_fd(), file::current_directory(), path)
            }),
        };
        step(name("attach"), attached)?;
        Ok(root)
    }
}

/// Opens the directory as a detached tree with the owner that its files have inside. A server that is not root has no
/// power over the host's mounts, and opens it in a copy of them.
fn open(identity: Identity, workspace: &HostWorkspace) -> io::Result<OwnedFd> {
    let Identity::Own { base } = identity else {
        let (link, theirs) = channel::pair()?;
        let own = [NamespaceKind::User, NamespaceKind::Mount];
        visit::run_in_new(&own, || {
            channel::send(theirs.as_fd(), b"tree", &[detached(workspace)?.as_fd()])
        })?;
        drop(theirs);
        let (_, handed) = channel::receive(link.as_fd(), &mut [0; 16])?;
        let none = || io::Error::from(io::ErrorKind::UnexpectedEof);
        return handed.into_iter().next().ok_or_else(none);
    };
    let tree = detached(workspace)?;
    map_owner(&tree, base + std::process::id())?;
    Ok(tree)
}

fn detached(workspace: &HostWorkspace) -> io::Result<OwnedFd> {
    let tree = mount::clone_tree(workspace.directory.reopen()?.as_fd(), Path::new(""))?;
    mount::make_private(tree.as_fd())?;
    let attributes = Attributes {
        read_only: workspace.mode != WorkspaceMode::Rw,
        ..READ_ONLY
    };
    mount::restrict(tree.as_fd(), attributes, Reach::AllBelow)?;
    Ok(tree)
}
