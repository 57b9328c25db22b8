//! The supervisor of one run: a process of its own on the host's side of the walls. It makes the cgroup and pid 1,
//! gives them identity and limits, keeps the clock, watches memory, and ends the tree on deadline, on memory, on the
//! server's order, or when the server vanishes. Whatever happens to it, pid 1 dies with it.

use crate::{
    Plan,
    cgroup::{Cgroup, Entrance},
    enter::Handed,
    helper::Workers,
    init::{self, Pipes},
    plan::{Identity, Tree},
    sample,
    sweep::RunDirectory,
    tree,
    wire::{self, Cause, Ending, Event, Failure, InitEvent, InitOrder, Order},
};
use ringfence_sys::{
    channel, file, mount,
    process::{self, Fork, Kill, NamespaceKind},
    resource,
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    time::{Duration, Instant},
};

/// How long a killed tree may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);

/// The namespaces that pid 1 is born into; cgroup and time follow once it has been placed.
const NAMESPACES: [NamespaceKind; 6] = [
    NamespaceKind::User,
    NamespaceKind::Mount,
    NamespaceKind::Pid,
    NamespaceKind::Net,
    NamespaceKind::Ipc,
    NamespaceKind::Uts,
];

/// What came with a start message.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) server: OwnedFd,
    pub(crate) payload: File,
    pub(crate) plan_bytes: u64,
    pub(crate) pipes: Pipes,
}

/// The supervisor's whole life. Does not return.
pub(crate) fn live(started: Started, workers: Workers) -> ! {
    let Started {
        server,
        payload,
        plan_bytes,
        pipes,
    } = started;
    let told = match read_plan(&payload, plan_bytes) {
        Ok(plan) => supervise(&plan, &server, payload, pipes, workers),
        Err(error) => wire::send(
            server.as_fd(),
            &Event::Failed(Failure::new("read plan", &error)),
            &[],
        ),
    };
    process::exit_now(i32::from(told.is_err()))
}

fn read_plan(payload: &File, plan_bytes: u64) -> io::Result<Plan> {
    if plan_bytes > wire::PLAN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "plan too long"));
    }
    let mut bytes = vec![0; usize::try_from(plan_bytes).unwrap_or(0)];
    payload.read_exact_at(&mut bytes, 0)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn supervise(plan: &Plan, server: &OwnedFd, payload: File, pipes: Pipes, workers: Workers) -> io::Result<()> {
    let directory = match prepare(plan) {
        Ok(directory) => directory,
        Err(failure) => return wire::send(server.as_fd(), &Event::Failed(failure), &[]),
    };
    let event = match Sandbox::start(plan, payload, pipes, workers) {
        Err(failure) => Event::Failed(failure),
        Ok(mut sandbox) => match sandbox.watch(plan, server.as_fd()) {
            Ok(cause) => Event::Ended(sandbox.finish(plan, cause)),
            Err(failure) => {
                sandbox.kill();
                Event::Failed(failure)
            }
        },
    };
    let told = wire::send(server.as_fd(), &event, &[]);
    if directory.is_some() {
        // The server still reads the files that were left; it hangs up when it has them.
        drop(wire::receive::<Order>(server.as_fd()));
    }
    told
}

fn prepare(plan: &Plan) -> Result<Option<RunDirectory>, Failure> {
    let own = std::process::id();
    let name = |error: io::Error| Failure::new("prepare the supervisor", &error);
    process::set_name("ringfence-super").map_err(name)?;
    if plan.tier == Tier::Landlock {
        process::adopt_orphans().map_err(name)?;
    }
    let owner = match plan.identity {
        Identity::Own { base } => Some(base + own),
        Identity::Server { .. } => None,
    };
    RunDirectory::create(&plan.layout, owner).map_err(|error| Failure::new("directory of the run", &error))
}

/// A started tree, seen from outside.
struct Sandbox {
    init: i32,
    link: OwnedFd,
    cgroup: Option<Cgroup>,
    proc: Option<OwnedFd>,
    disk: Option<OwnedFd>,
    status: Option<i32>,
    peak: sample::Sample,
    buried: Option<wait::Ended>,
}

impl Sandbox {
    fn start(plan: &Plan, payload: File, pipes: Pipes, workers: Workers) -> Result<Self, Failure> {
        let (link, inner) = channel::pair().map_err(|e| Failure::new("link to pid 1", &e))?;
        let mapped_trees = map_trees(plan)?;
        let handed = Handed {
            payload,
            mapped_trees,
            supervisor: std::process::id(),
        };
        let cgroup =
            Cgroup::create(&plan.cgroups, &plan.limits).map_err(|e| Failure::new("create cgroup", &e))?;
        let entrance = cgroup
            .as_ref()
            .map(Cgroup::entrance)
            .transpose()
            .map_err(|e| Failure::new("open cgroup", &e))?;
        let namespaces = match plan.tier {
            Tier::Full => NAMESPACES.as_slice(),
            Tier::Landlock => &[],
        };
        let forked = match &entrance {
            Some(Entrance::Birth(directory)) => process::fork_into_cgroup(namespaces, directory.as_fd()),
            _ => process::fork_into(namespaces),
        };
        match forked.map_err(|error| Failure::new("new namespaces", &error))? {
            Fork::Child => {
                // Not dropped: the directory is the supervisor's to remove.
                std::mem::forget(cgroup);
                drop(link);
                init::live(plan, handed, entrance, pipes, &inner, workers)
            }
            Fork::Parent(init) => {
                drop((inner, handed, entrance, pipes));
                let mut sandbox = Self {
                    init,
                    link,
                    cgroup,
                    proc: None,
                    disk: None,
                    status: None,
                    peak: sample::Sample::default(),
                    buried: None,
                };
                match sandbox.wake(plan) {
                    Ok(()) => Ok(sandbox),
                    Err(failure) => {
                        sandbox.kill();
                        Err(failure)
                    }
                }
            }
        }
    }

    /// Gives pid 1 its identity and lets it go on.
    fn wake(&mut self, plan: &Plan) -> Result<(), Failure> {
        let proc = Path::new("/proc").join(self.init.to_string());
        if plan.tier == Tier::Full {
            map_identity(&proc, plan.identity).map_err(|error| Failure::new("identity map", &error))?;
        }
        // The host's memory runs out on the sandbox first.
        fs::write(proc.join("oom_score_adj"), "1000").map_err(|error| Failure::new("oom score", &error))?;
        wire::send(self.link.as_fd(), &InitOrder::Go, &[]).map_err(|error| Failure::new("wake pid 1", &error))
    }

    /// Until the tree has to end, or has ended.
    fn watch(&mut self, plan: &Plan, server: BorrowedFd<'_>) -> Result<Cause, Failure> {
        let mut deadline = Deadline::new(plan);
        let mut next_look = Instant::now();
        loop {
            let now = Instant::now();
            match deadline.passed(now) {
                Passed::Nothing => {}
                Passed::Polite => {
                    // Failure means that pid 1 is gone, which the link tells next.
                    drop(wire::send(self.link.as_fd(), &InitOrder::Terminate, &[]));
                }
                Passed::Final => return Ok(Cause::Timeout),
            }
            if now >= next_look
                && let Some(cause) = self.look(plan, &mut next_look)
            {
                return Ok(cause);
            }
            let mut until = deadline.next().saturating_duration_since(now);
            if self.samples(plan) {
                until = until.min(next_look.saturating_duration_since(now));
            }
            let alarm = self
                .cgroup
                .as_ref()
                .and_then(Cgroup::memory_alarm)
                .map(AsFd::as_fd);
            let [ordered, linked, alarmed] =
                wait::readable([Some(server), Some(self.link.as_fd()), alarm], Some(until))
                    .map_err(|error| Failure::new("wait", &error))?;
            // Memory first: the end of a program that was killed for memory is not the program's own.
            if alarmed {
                return Ok(Cause::OutOfMemory);
            }
            if ordered {
                return Ok(Cause::Cancelled);
            }
            if linked && let Some(cause) = self.hear(server)? {
                return Ok(if deadline.began() { Cause::Timeout } else { cause });
            }
        }
    }

    /// One message of pid 1.
    fn hear(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        match wire::receive::<InitEvent>(self.link.as_fd()) {
            Ok(Some((InitEvent::Running, descriptors))) => {
                let mut descriptors = descriptors.into_iter();
                self.proc = descriptors.next();
                let doors: Vec<OwnedFd> = descriptors.collect();
                let lent: Vec<BorrowedFd<'_>> = doors.iter().map(AsFd::as_fd).collect();
                wire::send(server, &Event::Running, &lent)
                    .map_err(|error| Failure::new("tell the server", &error))?;
                self.disk = doors.into_iter().nth(1);
                Ok(None)
            }
            Ok(Some((InitEvent::Ended { status }, _))) => {
                self.status = Some(status);
                Ok(Some(Cause::Program))
            }
            Ok(Some((InitEvent::Failed(failure), _))) => Err(failure),
            Ok(None) | Err(_) => Ok(Some(Cause::Killed)),
        }
    }

    /// Must this process look at the tree itself.
    fn samples(&self, plan: &Plan) -> bool {
        self.proc.is_some() && (self.cgroup.is_none() || plan.tier == Tier::Landlock)
    }

    fn look(&mut self, plan: &Plan, next_look: &mut Instant) -> Option<Cause> {
        if !self.samples(plan) {
            return None;
        }
        let proc = self.proc.as_ref()?;
        let seen = if plan.tier == Tier::Full {
            sample::look(proc, self.disk.as_ref(), plan.limits.memory_bytes)
        } else {
            sample::look_at(proc, &tree::descendants(), plan.limits.memory_bytes)
        };
        self.peak.memory_bytes = self.peak.memory_bytes.max(seen.memory_bytes);
        self.peak.processes = self.peak.processes.max(seen.processes);
        *next_look = Instant::now() + seen.next_look(plan.limits.memory_bytes, file::processors());
        if self.cgroup.is_none() && seen.memory_bytes > plan.limits.memory_bytes {
            return Some(Cause::OutOfMemory);
        }
        let files = plan.layout.host_directory.as_deref()?;
        (sample::directory_bytes(files) > plan.limits.disk_bytes).then_some(Cause::Disk)
    }

    /// Ends the tree. When this returns, every process of it is gone.
    fn kill(&mut self) {
        // Already gone is what we want.
        drop(process::kill(self.init, Kill::Kill));
        if let Ok(Some(ended)) = wait::wait(Child::Pid(self.init)) {
            self.buried = Some(ended);
        }
        tree::kill_descendants(DEATH_PATIENCE);
    }

    fn finish(&mut self, plan: &Plan, cause: Cause) -> Ending {
        let counted_before = self.cgroup.as_ref().map(Cgroup::counted);
        self.kill();
        let counted = self
            .cgroup
            .as_ref()
            .map(Cgroup::counted)
            .or(counted_before)
            .unwrap_or_default();
        let usage = self.buried.map(|ended| ended.usage).unwrap_or_default();
        let (cpu_user, cpu_system) = counted.cpu.unwrap_or((usage.user, usage.system));
        let disk = match &plan.layout.host_directory {
            Some(files) => sample::directory_bytes(files),
            None => self
                .disk
                .as_ref()
                .and_then(|disk| resource::space_used(disk.as_fd()).ok())
                .map_or(0, |used| used.0),
        };
        let out_of_memory = counted.out_of_memory && matches!(cause, Cause::Program | Cause::Killed);
        let status = self.status.filter(|_| cause == Cause::Program);
        Ending {
            cause: if out_of_memory && killed(status) {
                Cause::OutOfMemory
            } else {
                cause
            },
            status,
            cpu_user,
            cpu_system,
            memory_peak_bytes: counted
                .memory_peak_bytes
                .max(self.peak.memory_bytes)
                .max(usage.max_rss_bytes),
            processes_peak: counted
                .processes_peak
                .or((self.peak.processes > 0).then_some(self.peak.processes)),
            disk_bytes: disk,
        }
    }
}

/// Was the program ended by SIGKILL (or was pid 1, so that nothing is known).
fn killed(status: Option<i32>) -> bool {
    status.is_none_or(|status| status & 0x7f == 9)
}

/// The wall clock of one run.
struct Deadline {
    polite: Instant,
    last: Instant,
    asked: bool,
}

enum Passed {
    Nothing,
    Polite,
    Final,
}

impl Deadline {
    fn new(plan: &Plan) -> Self {
        let polite = Instant::now() + Duration::from_millis(plan.limits.timeout_ms);
        Self {
            polite,
            last: polite + Duration::from_millis(plan.grace_ms),
            asked: false,
        }
    }

    fn passed(&mut self, now: Instant) -> Passed {
        if now >= self.last {
            Passed::Final
        } else if now >= self.polite && !self.asked {
            self.asked = true;
            Passed::Polite
        } else {
            Passed::Nothing
        }
    }

    fn next(&self) -> Instant {
        if self.asked { self.last } else { self.polite }
    }

    fn began(&self) -> bool {
        self.asked
    }
}

/// Maps the one id inside to one outside. An unprivileged server must give up `setgroups` first (user_namespaces(7)).
fn map_identity(proc: &Path, identity: Identity) -> io::Result<()> {
    let (uid, gid) = match identity {
        Identity::Own { base } => (base + std::process::id(), base + std::process::id()),
        Identity::Server { uid, gid } => (uid, gid),
    };
    if matches!(identity, Identity::Server { .. }) {
        fs::write(proc.join("setgroups"), "deny")?;
    }
    fs::write(
        proc.join("gid_map"),
        format!("{} {gid} 1\n", crate::plan::INSIDE_ID),
    )?;
    fs::write(
        proc.join("uid_map"),
        format!("{} {uid} 1\n", crate::plan::INSIDE_ID),
    )
}

/// Opens the trees whose owner has to appear as the sandbox's user, which only real root may do.
fn map_trees(plan: &Plan) -> Result<Vec<(usize, OwnedFd)>, Failure> {
    let Identity::Own { base } = plan.identity else {
        return Ok(Vec::new());
    };
    let numbered = plan.trees.iter().enumerate().filter(|(_, tree)| tree.map_owner);
    numbered
        .map(|(number, tree)| {
            let mapped = map_tree(tree, base + std::process::id());
            let name = || format!("map the owner of {}", tree.source.display());
            mapped
                .map(|opened| (number, opened))
                .map_err(|error| Failure::new(name(), &error))
        })
        .collect()
}

fn map_tree(tree: &Tree, id: u32) -> io::Result<OwnedFd> {
    let (uid, gid) = file::owner(&tree.source)?;
    let opened = mount::clone_tree(file::current_directory(), &tree.source)?;
    mount::map_ids(opened.as_fd(), id_mapping(uid, gid, id)?.as_fd())?;
    Ok(opened)
}

/// A user namespace that shows `uid` and `gid` of the disk as `id`. It is held by a process that does nothing else.
fn id_mapping(uid: u32, gid: u32, id: u32) -> io::Result<OwnedFd> {
    let (ours, theirs) = channel::pair()?;
    match process::fork_into(&[NamespaceKind::User])? {
        Fork::Child => {
            drop(ours);
            // Held until the parent hangs up.
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
