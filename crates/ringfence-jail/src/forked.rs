//! The supervisor's side of a program that a template forks: its request, the check of its walls, and its end.

use crate::{
    Plan,
    cgroup::CgroupEntry,
    client::{Pipes, Template},
    init::caught_signals,
    kept_files::number,
    plan::Identity,
    wire::{Failure, ForkEvent, Handle},
};
use ringfence_sys::{
    channel, file,
    process::{self, Kill, WAKE_BIT},
    wait,
};
use std::{
    collections::HashMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Time limit for a template to put a child behind its walls.
const FORK_TIMEOUT: Duration = Duration::from_secs(10);
const STATUS_BYTES_MAX: u64 = 1 << 16;

/// Lines of `/proc/[pid]/status` without which a child is not used.
const WALLS: [&str; 8] = [
    "CapInh:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "CapBnd:\t0000000000000000",
    "CapAmb:\t0000000000000000",
    "NoNewPrivs:\t1",
    "Seccomp:\t2",
    // The child enforces Landlock once it has its claim, which confines only the thread that does so.
    "Threads:\t1",
];

const FILTER_COUNT: &str = "Seccomp_filters:";
/// The filter of the template, and the child's own.
const FILTERS: u64 = 2;

/// The descriptors for a fork, in the order in which the forker of a template receives them: the namespaces user,
/// mount, net, ipc, uts, cgroup and pid, the Landlock rules, the child's descriptors 0 to 4 (only 4 is in this list),
/// the connection for [`ForkEvent`], as many time namespaces as the message says, and files into which the child writes
/// itself (its cgroups). The message is the number of time namespaces in one byte, and the workspace's path.
const FORK_HANDLES: [Handle; 9] = [
    Handle::User,
    Handle::Mount,
    Handle::Net,
    Handle::Ipc,
    Handle::Uts,
    Handle::Cgroup,
    Handle::Pid,
    Handle::Rules,
    Handle::Waits,
];

/// The template that is to fork a program, and what the program gets.
#[derive(Debug)]
pub(crate) struct ForkRequest {
    pub(crate) template: Template,
    pub(crate) pipes: Pipes,
    pub(crate) cgroup_entry: Option<CgroupEntry>,
}

#[derive(Debug)]
pub(crate) struct Forked {
    pub(crate) pid: i32,
    process: Option<OwnedFd>,
    reply: OwnedFd,
}

impl Forked {
    /// Requests a child of the template in this sandbox, and waits until it is behind all walls.
    pub(crate) fn request(
        plan: &Plan,
        ForkRequest {
            template,
            pipes,
            cgroup_entry,
        }: ForkRequest,
        from_pid_1: &mut HashMap<Handle, OwnedFd>,
    ) -> Result<Self, Failure> {
        let cgroups = cgroup_entry.map(CgroupEntry::files).unwrap_or_default();
        let (reply, theirs) = channel::pair().map_err(failed)?;
        let times = from_pid_1.remove(&Handle::Time);
        let taken: Option<Vec<OwnedFd>> = FORK_HANDLES.iter().map(|kind| from_pid_1.remove(kind)).collect();
        let missing = || failed(io::Error::other("pid 1 has not handed over its namespaces"));
        let taken = taken.ok_or_else(missing)?;
        let message = [
            &[u8::from(times.is_some())],
            plan.layout.workspace.as_os_str().as_bytes(),
        ]
        .concat();
        let (namespaces, waits) = taken.split_at(FORK_HANDLES.len() - 1);
        let descriptors: Vec<BorrowedFd<'_>> = namespaces
            .iter()
            .chain(pipes.all())
            .chain(waits)
            .chain([&theirs])
            .chain(&times)
            .map(AsFd::as_fd)
            .chain(cgroups.iter().map(AsFd::as_fd))
            .collect();
        channel::send(template.control.as_fd(), &message, &descriptors).map_err(failed)?;
        drop(theirs);
        let mut forked = Self {
            pid: 0,
            process: None,
            reply,
        };
        forked.wait_until_ready()?;
        forked.check_walls(plan)?;
        Ok(forked)
    }

    /// Checks a ready child's walls by what the kernel says: it was the template's own code that dropped privileges.
    fn check_walls(&self, plan: &Plan) -> Result<(), Failure> {
        let status = status_of(&self.pid.to_string())?;
        let lacks = |wall: &str| Err(failed(io::Error::other(format!("the child lacks `{wall}`"))));
        let is_up = |wall: &str| status.lines().any(|line| line == wall);
        if let Some(wall) = WALLS.iter().find(|wall| !is_up(wall)) {
            return lacks(wall);
        }
        let id = match plan.identity {
            Identity::Own { base } => base + std::process::id(),
            Identity::Server { uid, .. } => uid,
        };
        if !status.contains(&format!("\nUid:\t{id}\t{id}\t{id}\t{id}\n")) {
            return lacks("a user of its own");
        }
        // Older kernels do not count filters.
        match (number(&status, FILTER_COUNT), FILTERS_OF_HOST.get()) {
            (Some(own), Some(Some(of_host))) if own < of_host + FILTERS => lacks("filters of its own"),
            _ => Ok(()),
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let by = Instant::now() + FORK_TIMEOUT;
        let mut ready = false;
        while !ready || self.pid == 0 {
            let timeout = by.saturating_duration_since(Instant::now());
            let [is_readable] = wait::readable([Some(self.reply.as_fd())], Some(timeout)).map_err(failed)?;
            if !is_readable {
                return Err(failed(io::Error::from(io::ErrorKind::TimedOut)));
            }
            match self.receive_event().map_err(failed)? {
                Some((ForkEvent::Forked, descriptors)) => {
                    self.process = descriptors.into_iter().next();
                    let pid = self.process.as_ref().map(|fd| process::pid_of_pidfd(fd.as_fd()));
                    self.pid = pid.transpose().map_err(failed)?.unwrap_or(0);
                }
                Some((ForkEvent::Ready, _)) => ready = true,
                Some((ForkEvent::Failed(failure), _)) => return Err(failure),
                Some((ForkEvent::Ended { .. }, _)) | None => {
                    return Err(failed(io::Error::other("the child has ended")));
                }
            }
        }
        Ok(())
    }

    /// Returns its pidfd, which becomes readable when it has ended, a little before its parent reports how.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Interrupts the program as pid 1 does one of its own, but without the signal for shells, which are not forked.
    pub(crate) fn interrupt(&self) -> io::Result<()> {
        let Some(child) = self.process() else {
            return Ok(());
        };
        let wakes =
            status_of(&self.pid.to_string()).is_ok_and(|status| caught_signals(&status) & WAKE_BIT != 0);
        if wakes {
            process::kill_by_pidfd(child, Kill::Wake)?;
        }
        process::kill_group_by_pidfd(child, Kill::Interrupt)
    }

    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }

    pub(crate) fn receive_event(&self) -> io::Result<Option<(ForkEvent, Vec<OwnedFd>)>> {
        ForkEvent::receive(self.reply.as_fd())
    }
}

/// The number of the host's filters on this process, and so on every sandbox; `None` if the kernel does not count them.
static FILTERS_OF_HOST: OnceLock<Option<u64>> = OnceLock::new();

pub(crate) fn count_filters_of_host() -> Result<(), Failure> {
    let status = status_of("self")?;
    FILTERS_OF_HOST.get_or_init(|| number(&status, FILTER_COUNT));
    Ok(())
}

fn status_of(pid: &str) -> Result<String, Failure> {
    let path = Path::new("/proc").join(pid).join("status");
    file::read_small(file::current_directory(), &path, STATUS_BYTES_MAX).map_err(failed)
}

fn failed(error: io::Error) -> Failure {
    Failure::new("fork of the template", &error)
}
