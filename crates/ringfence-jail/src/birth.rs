//! Creates pid 1 of a sandbox. The supervisor forks it into new namespaces. For a sandbox that is made from a template,
//! a process first joins the template's namespaces and forks pid 1 from there, so that the new namespaces are below the
//! template's and the template may move its forks into them.

use crate::{
    Plan,
    cgroup::{Cgroup, CgroupEntry},
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

/// The namespaces in which pid 1 is created; it unshares those of cgroup and time once it is in its cgroup.
const NAMESPACES: [NamespaceKind; 6] = [
    NamespaceKind::User,
    NamespaceKind::Mount,
    NamespaceKind::Pid,
    NamespaceKind::Net,
    NamespaceKind::Ipc,
    NamespaceKind::Uts,
];

pub(crate) fn cgroup_entry(template: Option<&Template>, cgroup: &Cgroup) -> Result<CgroupEntry, Failure> {
    let entry = match template {
        Some(_) => cgroup.entry_by_write(),
        None => cgroup.entry(),
    };
    entry.map_err(|error| Failure::new("open cgroup", &error))
}

/// Forks pid 1, which calls `run_init` and does not return, and returns its pid.
pub(crate) fn fork(
    plan: &Plan,
    template: Option<&Template>,
    cgroup_entry: Option<&CgroupEntry>,
    run_init: impl FnOnce(),
) -> Result<i32, Failure> {
    let failed = |error: io::Error| Failure::new("new namespaces", &error);
    if let Some(template) = template {
        return fork_below(plan, template, run_init).map_err(failed);
    }
    let namespaces: Vec<NamespaceKind> = match plan.tier {
        Tier::Full | Tier::Gvisor | Tier::Container => NAMESPACES.into(),
        Tier::Landlock => Vec::new(),
    };
    let forked = match cgroup_entry {
        Some(CgroupEntry::AtClone(directory)) => process::fork_into_cgroup(&namespaces, directory.as_fd()),
        _ => process::fork_into(&namespaces),
    };
    match forked.map_err(failed)? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            run_init();
            process::exit_now(1)
        }
    }
}

/// Forks pid 1 below a template. A pid namespace is created only from within its parent, which a process enters only by
/// being forked into it: hence two intermediate processes. Pid 1 still becomes a child of this one.
fn fork_below(plan: &Plan, template: &Template, run_init: impl FnOnce()) -> io::Result<i32> {
    let own = std::process::id();
    let mut has_sibling = false;
    let init = process::run_in_vfork(Kin::Child, || {
        join_template(plan, template, own)?;
        let init = process::run_in_vfork(Kin::Sibling, || match process::fork_sibling_into(&NAMESPACES)? {
            Some(init) => Ok(init),
            None => {
                run_init();
                process::exit_now(1)
            }
        });
        has_sibling = init.is_ok();
        flatten(init)
    });
    let pid = flatten(init).and_then(|init| process::pid_of_pidfd(init.as_fd()));
    if has_sibling {
        // Reaps the intermediate sibling, which has ended or is about to; pid 1 has not.
        let ended = wait::wait(Child::Any)?;
        if ended.is_some_and(|ended| pid.as_ref().is_ok_and(|pid| *pid == ended.pid)) {
            return Err(io::Error::other("pid 1 has ended"));
        }
    }
    pid
}

fn flatten<T>(worked: io::Result<Option<io::Result<T>>>) -> io::Result<T> {
    worked?.unwrap_or_else(|| Err(io::Error::other("an intermediate process was killed")))
}

fn join_template(plan: &Plan, template: &Template, supervisor: u32) -> io::Result<()> {
    for namespace in [&template.user, &template.pid, &template.mount] {
        process::join_namespace(namespace.as_fd())?;
    }
    if let Identity::Own { base } = plan.identity {
        let id = base + supervisor;
        identity::clear_groups()?;
        identity::become_user(id, id)?;
    }
    Ok(())
}
