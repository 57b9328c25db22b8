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
    identity,
    process::{self, Fork, Kin, NamespaceKind},
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{io, os::fd::AsFd};

/// The namespaces that pid 1 is born into; cgroup and time follow once it has been placed.
const NAMESPACES: [NamespaceKind; 6] = [
    NamespaceKind::User,
    NamespaceKind::Mount,
    NamespaceKind::Pid,
    NamespaceKind::Net,
    NamespaceKind::Ipc,
    NamespaceKind::Uts,
];

/// The way into the cgroup, for pid 1 and for what a template forks.
pub(crate) fn entrance(template: Option<&Template>, cgroup: &Cgroup) -> Result<Entrance, Failure> {
    let entrance = match template {
        Some(_) => cgroup.side_entrance(),
        None => cgroup.entrance(),
    };
    entrance.map_err(|error| Failure::new("open cgroup", &error))
}

/// Forks pid 1, which lives and does not come back, and gives its number.
pub(crate) fn fork(
    plan: &Plan,
    template: Option<&Template>,
    entrance: Option<&Entrance>,
    live: impl FnOnce(),
) -> Result<i32, Failure> {
    let failed = |error: io::Error| Failure::new("new namespaces", &error);
    if let Some(template) = template {
        return fork_below(plan, template, live).map_err(failed);
    }
    let namespaces: Vec<NamespaceKind> = match plan.tier {
        Tier::Full | Tier::Gvisor | Tier::Container => NAMESPACES.into(),
        Tier::Landlock => Vec::new(),
    };
    let forked = match entrance {
        Some(Entrance::Birth(directory)) => process::fork_into_cgroup(&namespaces, directory.as_fd()),
        _ => process::fork_into(&namespaces),
    };
    match forked.map_err(failed)? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            live();
            process::exit_now(1)
        }
    }
}

/// Sends a process ahead. A new pid namespace can only be made from within the one that it shall lie below, which is
/// entered by being forked into it; so there are two such processes. Pid 1 becomes a child of this one all the same.
fn fork_below(plan: &Plan, template: &Template, live: impl FnOnce()) -> io::Result<i32> {
    let own = std::process::id();
    let mut has_sibling = false;
    let born = process::work_aside(Kin::Child, || {
        go_below(plan, template, own)?;
        let born = process::work_aside(Kin::Sibling, || match process::fork_sibling_into(&NAMESPACES)? {
            Some(born) => Ok(born),
            None => {
                live();
                process::exit_now(1)
            }
        });
        has_sibling = born.is_ok();
        flatten(born)
    });
    let pid = flatten(born).and_then(|born| process::pid_of(born.as_fd()));
    if has_sibling {
        // It has ended, or is about to; pid 1 has not.
        let ended = wait::wait(Child::Any)?;
        if ended.is_some_and(|ended| pid.as_ref().is_ok_and(|pid| *pid == ended.pid)) {
            return Err(io::Error::other("pid 1 has ended"));
        }
    }
    pid
}

fn flatten<T>(worked: io::Result<Option<io::Result<T>>>) -> io::Result<T> {
    worked?.unwrap_or_else(|| Err(io::Error::other("a process that went ahead was killed")))
}

fn go_below(plan: &Plan, template: &Template, supervisor: u32) -> io::Result<()> {
    for namespace in [&template.user, &template.pid, &template.mount] {
        process::join_namespace(namespace.as_fd())?;
    }
    if let Identity::Own { base } = plan.identity {
        let id = base + supervisor;
        identity::leave_groups()?;
        identity::become_user(id, id)?;
    }
    Ok(())
}
