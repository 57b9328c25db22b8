//! The identity of a sandbox on the host: its user namespace's maps, and the trees that have to appear as its own.

use crate::{
    Plan, Program,
    enter::own_root::clone_tree,
    failure::{Failure, step},
    plan::{INSIDE_ID, Identity, Tree},
    wire::{self, Order},
};
use ringfence_sys::{
    channel, file, mount,
    process::{self, Fork, NamespaceKind},
    wait::{self, Child},
};
use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Maximum pid (`PID_MAX_LIMIT`), which is the number of ids for the sandboxes of a root server.
const PIDS_MAX: u32 = 4 << 20;

/// Maps the one id inside to one outside. An unprivileged server must give up `setgroups` first (user_namespaces(7)). A
/// template keeps the ids of the host, of which each sandbox that is made from it takes one.
pub(crate) fn map_identity(proc: &Path, plan: &Plan) -> io::Result<()> {
    let template = matches!(plan.program, Program::Template { .. });
    let map = |id: u32| match (plan.identity, template) {
        (Identity::Own { base }, true) => format!("{base} {base} {PIDS_MAX}\n"),
        (Identity::Own { base }, false) => format!("{INSIDE_ID} {} 1\n", base + std::process::id()),
        (Identity::Server { .. }, true) => format!("{id} {id} 1\n"),
        (Identity::Server { .. }, false) => format!("{INSIDE_ID} {id} 1\n"),
    };
    let (uid, gid) = match plan.identity {
        Identity::Own { .. } => (0, 0),
        Identity::Server { uid, gid } => {
            fs::write(proc.join("setgroups"), "deny")?;
            (uid, gid)
        }
    };
    fs::write(proc.join("gid_map"), map(gid))?;
    fs::write(proc.join("uid_map"), map(uid))
}

/// Opens the trees whose owner has to appear as the sandbox's user, which only real root may do.
pub(crate) fn map_trees(plan: &Plan) -> Result<Vec<(usize, OwnedFd)>, Failure> {
    let Identity::Own { base } = plan.identity else {
        return Ok(Vec::new());
    };
    let numbered = plan.trees.iter().enumerate().filter(|(_, tree)| tree.map_owner);
    let mapped = numbered.map(|(number, tree)| {
        let name = format!("map the owner of {}", tree.source.display());
        let opened = step(name, map_tree(plan, tree, base + std::process::id()))?;
        Ok((number, opened))
    });
    mapped.collect()
}

fn map_tree(plan: &Plan, tree: &Tree, id: u32) -> io::Result<OwnedFd> {
    let opened = clone_tree(plan, tree)?;
    mount::make_private(opened.as_fd())?;
    map_owner(&opened, id)?;
    Ok(opened)
}

pub(crate) fn map_owner(tree: &OwnedFd, id: u32) -> io::Result<()> {
    let (uid, gid) = file::owner(tree.as_fd())?;
    mount::map_ids(tree.as_fd(), id_mapping(uid, gid, id)?.as_fd())
}

/// Creates a user namespace that maps `uid` and `gid` of the disk to `id`. A process that does nothing else holds it.
fn id_mapping(uid: u32, gid: u32, id: u32) -> io::Result<OwnedFd> {
    let (ours, theirs) = channel::pair()?;
    match process::fork_into(&[NamespaceKind::User])? {
        Fork::Child => {
            drop(ours);
            // Holds the namespace until the parent closes the connection.
            drop(wire::receive::<Order>(theirs.as_fd()));
            process::exit_now(0)
        }
        Fork::Parent(holder) => {
            drop(theirs);
            let proc = Path::new("/proc").join(holder.to_string());
            let opened = fs::write(proc.join("gid_map"), format!("{gid} {id} 1\n"))
                .and_then(|()| fs::write(proc.join("uid_map"), format!("{uid} {id} 1\n")))
                .and_then(|()| File::open(proc.join("ns/user")));
            drop(ours);
            wait::wait(Child::Pid(holder))?;
            Ok(opened?.into())
        }
    }
}
