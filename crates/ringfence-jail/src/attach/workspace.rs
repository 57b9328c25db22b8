//! Attaches a directory of the host as the workspace of a sandbox that is claimed. The supervisor opens it, cut off
//! from mount events of the host, and a child of it enters the sandbox's namespaces and attaches it where the program
//! works.

use super::kept;
use crate::{
    HostWorkspace, Plan,
    failure::{StepResult, step},
    identity_map::map_owner,
    plan::Identity,
    visit,
    wire::Handle,
};
use ringfence_sys::{
    channel, file,
    mount::{self, Attributes, Reach},
};
use ringfence_types::WorkspaceMode;
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

#[derive(Debug)]
pub(crate) struct WorkspaceTarget {
    user: OwnedFd,
    mount: OwnedFd,
}

impl WorkspaceTarget {
    /// `None`: the sandbox has no root of its own.
    pub(crate) fn of(descriptors: &HashMap<Handle, OwnedFd>) -> StepResult<Option<Self>> {
        let kept = kept("workspace", descriptors, [Handle::User, Handle::Mount])?;
        Ok(kept.map(|[user, mount]| Self { user, mount }))
    }

    /// Shows the sandbox this directory as its workspace. What is returned leads to it from outside.
    pub(crate) fn attach(
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
            Some(Self { user, mount }) => visit::send_in([user, mount], || {
                // Where this process stands now is the sandbox's root.
                mount::attach(tree.as_fd(), file::current_directory(), path)
            }),
        };
        step(name("attach"), attached)?;
        Ok(root)
    }
}

/// The directory as a detached tree with the owner that its files have inside. A server that is not root has no power
/// over the host's mounts, and opens it in a copy of them.
fn open(identity: Identity, workspace: &HostWorkspace) -> io::Result<OwnedFd> {
    let Identity::Own { base } = identity else {
        let (link, theirs) = channel::pair()?;
        visit::send_apart(|| channel::send(theirs.as_fd(), b"tree", &[detached(workspace)?.as_fd()]))?;
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
    let tree = mount::clone_tree(workspace.directory.again()?.as_fd(), Path::new(""))?;
    mount::make_private(tree.as_fd())?;
    let attributes = Attributes {
        read_only: workspace.mode != WorkspaceMode::Rw,
        no_devices: true,
        no_exec: false,
    };
    mount::restrict(tree.as_fd(), attributes, Reach::AllBelow)?;
    Ok(tree)
}
