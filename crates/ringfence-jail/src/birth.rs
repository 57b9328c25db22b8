//! Makes pid 1 of a sandbox. The supervisor forks it into new namespaces. For a sandbox that is made from a template, a
//! process first enters the template's namespaces and forks pid 1 from there, so that the new namespaces are below the
//! template's and the template may send its forks into them.

use crate::{
    Plan,
    cgroup::{Cgroup, Entrance},
    client::Template,
    plan::Identity,
    wire::Failure,
};
use ringfence_sys::{
    channel, identity,
    process::{self, Fork, NamespaceKind},
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// The namespaces that pid 1 is born into; cgroup and time follow once it has been placed.
const NAMESPACES: [NamespaceKind; 6] = [
    NamespaceKind::User,
    NamespaceKind::Mount,
    NamespaceKind::Pid,
    NamespaceKind::Net,
    NamespaceKind::Ipc,
    NamespaceKind::Uts,
];

/// Forks pid 1. In the child, `Some` is its way into the cgroup.
pub(crate) fn fork(
    plan: &Plan,
    template: Option<&Template>,
    cgroup: Option<&Cgroup>,
) -> Result<(Fork, Option<Entrance>), Failure> {
    let failed = |what: &'static str| move |error: io::Error| Failure::new(what, &error);
    if let Some(template) = template {
        let files = cgroup.map(Cgroup::side_entrance).transpose();
        let entrance = files.map_err(failed("open cgroup"))?.map(Entrance::Walk);
        let forked = fork_below(plan, template).map_err(failed("new namespaces"))?;
        return Ok((forked, entrance));
    }
    let entrance = cgroup.map(Cgroup::entrance).transpose();
    let entrance = entrance.map_err(failed("open cgroup"))?;
    let namespaces: Vec<NamespaceKind> = match plan.tier {
        Tier::Full => NAMESPACES.into(),
        Tier::Landlock => Vec::new(),
    };
    let forked = match &entrance {
        Some(Entrance::Birth(directory)) => process::fork_into_cgroup(&namespaces, directory.as_fd()),
        _ => process::fork_into(&namespaces),
    };
    Ok((forked.map_err(failed("new namespaces"))?, entrance))
}

/// Forks a process that goes ahead. A new pid namespace can only be made from within the one that it shall lie below,
/// which is entered by being forked into it; so there are two such processes, and pid 1 becomes a child of this one all
/// the same.
fn fork_below(plan: &Plan, template: &Template) -> io::Result<Fork> {
    let (ours, theirs) = channel::pair()?;
    let own = std::process::id();
    match process::fork()? {
        Fork::Child => {
            drop(ours);
            match go_below(plan, template, own, &theirs) {
                Ok(()) => Ok(Fork::Child),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    let told = channel::send(theirs.as_fd(), &errno.to_ne_bytes(), &[]);
                    process::exit_now(i32::from(told.is_err()))
                }
            }
        }
        Fork::Parent(_) => {
            drop(theirs);
            let born = hear_of_birth(&ours);
            bury_those_ahead(born.as_ref().ok().copied())?;
            born.map(Fork::Parent)
        }
    }
}

/// Returns in pid 1 alone.
fn go_below(plan: &Plan, template: &Template, supervisor: u32, tell: &OwnedFd) -> io::Result<()> {
    for namespace in [&template.user, &template.pid, &template.mount] {
        process::join_namespace(namespace.as_fd())?;
    }
    if let Identity::Own { base } = plan.identity {
        let id = base + supervisor;
        identity::leave_groups()?;
        identity::become_user(id, id)?;
    }
    // The change of identity has hidden what pid 1 needs to write: its own maps.
    process::allow_dumps()?;
    if let Fork::Parent(_) = process::fork_sibling_into(&[])? {
        process::exit_now(0);
    }
    match process::fork_sibling_into(&NAMESPACES)? {
        Fork::Child => Ok(()),
        Fork::Parent(pid) => {
            let born = process::descriptor_of(pid)?;
            let told = channel::send(tell.as_fd(), &0_i32.to_ne_bytes(), &[born.as_fd()]);
            process::exit_now(i32::from(told.is_err()))
        }
    }
}

fn hear_of_birth(from: &OwnedFd) -> io::Result<i32> {
    let mut errno = [0; 4];
    let (length, descriptors) = channel::receive(from.as_fd(), &mut errno)?;
    match (length, descriptors.first()) {
        (4, Some(born)) => process::pid_of(born.as_fd()),
        (4, None) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

/// Those that went ahead have ended, or are about to; pid 1 has not.
fn bury_those_ahead(born: Option<i32>) -> io::Result<()> {
    let mut ahead = if born.is_some() { 2 } else { 1 };
    while ahead > 0 {
        match wait::wait(Child::Any)? {
            Some(ended) if born == Some(ended.pid) => return Err(io::Error::other("pid 1 has ended")),
            Some(_) => ahead -= 1,
            None => return Ok(()),
        }
    }
    Ok(())
}
