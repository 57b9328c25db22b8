//! The supervisor of one sandbox: a separate process outside the walls. It creates the cgroup and pid 1, sets their
//! identity and limits, enforces the deadline, watches memory and disk, and kills the process tree at the deadline,
//! over a limit, on the server's order, or when the server disconnects. If the supervisor dies, pid 1 dies with it.

mod orders;
mod usage;

use crate::{
    Claim, Plan,
    attach::Target,
    birth,
    cgroup::{Cgroup, Counted},
    client::{Pipes, Template},
    deadline::{Deadline, Passed},
    egress,
    enter::{self, Inherited},
    failure::step,
    forked::{ForkRequest, Forked},
    identity_map::{map_identity, map_trees},
    init::Init,
    kept_files::KeptFiles,
    plan::Identity,
    quota::{Holders, Known, Quota, Watch, files_max},
    record_locks::RecordLocks,
    sample,
    sweep::RunDirectory,
    tree, uncharged,
    wire::{
        self, Cause, Ending, Event, Failure, ForkEvent, Handle, Imported, InitEvent, InitOrder, Order,
        ProgramEnd,
    },
    worker::Workers,
};
use orders::PendingAccount;
use ringfence_sys::{
    channel, file, mount,
    process::{self, Kill},
    wait::{self, Child},
};
use ringfence_types::{Limits, Tier};
use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) server: OwnedFd,
    pub(crate) plan: File,
    pub(crate) plan_bytes: u64,
    pub(crate) pipes: Pipes,
    pub(crate) template: Option<Template>,
}

pub(crate) fn run(started: Started, workers: Workers) -> ! {
    let reported = match wire::read_head(&started.plan, started.plan_bytes) {
        Ok(plan) => supervise(&plan, started, workers),
        Err(error) => {
            let failure = Failure::new("read plan", &error);
            wire::send(started.server.as_fd(), &Event::Failed(failure), &[])
        }
    };
    process::exit_now(i32::from(reported.is_err()))
}

fn supervise(plan: &Plan, started: Started, workers: Workers) -> io::Result<()> {
    let server = started.server;
    let directory = match prepare(plan) {
        Ok(directory) => directory,
        Err(failure) => return wire::send(server.as_fd(), &Event::Failed(failure), &[]),
    };
    let report = |event| wire::send(server.as_fd(), &event, &[]);
    let reported = match Sandbox::start(plan, started.pipes, started.template, workers) {
        Err(failure) => report(Event::Failed(failure)),
        Ok(mut sandbox) => {
            let reported = match sandbox.serve(server.as_fd()) {
                Ok(ending) => report(Event::Ended(ending)),
                Err(failure) => {
                    sandbox.kill();
                    report(Event::Failed(failure))
                }
            };
            // The server closes the connection once it has read the files left behind and has answered. No request
            // waits for the rest: removing namespaces, mounts and the cgroup takes time.
            while let Ok(Some(_)) = wire::receive::<Order>(server.as_fd()) {}
            sandbox.kill();
            // The kernel frees the rest when this process exits.
            drop(sandbox.cgroup.take());
            std::mem::forget(sandbox);
            reported
        }
    };
    drop(directory);
    reported
}

fn prepare(plan: &Plan) -> Result<Option<RunDirectory>, Failure> {
    let own = std::process::id();
    step("prepare the supervisor", process::set_name("ringfence-super"))?;
    if plan.tier == Tier::Landlock {
        step("prepare the supervisor", process::adopt_orphans())?;
    }
    let owner = match plan.identity {
        Identity::Own { base } => Some(base + own),
        Identity::Server { .. } => None,
    };
    step("directory of the run", RunDirectory::create(&plan.layout, owner))
}

struct Sandbox<'a> {
    plan: &'a Plan,
    init: i32,
    link: OwnedFd,
    cgroup: Option<Cgroup>,
    descriptors: HashMap<Handle, OwnedFd>,
    fork_request: Option<ForkRequest>,
    forked: Option<Forked>,
    target: Option<Target>,
    /// Sockets of its egress, until they are sent to the server.
    sockets: Vec<OwnedFd>,
    counted: Option<Counted>,
    status: Option<i32>,
    quota: Option<Watch>,
    /// Of the directory of the host that is its private disk (tier `landlock`).
    own_disk: Option<Watch>,
    kept: KeptFiles,
    locks: RecordLocks,
    peak: sample::Sample,
    usage: wait::Usage,
    unrouted: u64,
    /// Interrupts that pid 1 has not confirmed.
    interrupts: u32,
    pending_account: Option<PendingAccount>,
    limits: Limits,
}

impl<'a> Sandbox<'a> {
    fn start(
        plan: &'a Plan,
        pipes: Pipes,
        template: Option<Template>,
        workers: Workers,
    ) -> Result<Self, Failure> {
        // Above the lowest numbers, which the program's pipes take while it may still report here why it cannot start.
        let (link, inner) = step("link to pid 1", channel::pair())?;
        let inner = step("link to pid 1", process::duplicate_above(inner, 10))?;
        let proc = file::open_directory(file::current_directory(), Path::new("/proc"));
        let inherited = Inherited {
            mapped_trees: map_trees(plan)?,
            supervisor: std::process::id(),
            proc: step("open /proc", proc)?,
        };
        let cgroup = step("create cgroup", Cgroup::create(&plan.cgroups, &plan.limits))?;
        step("give the program its pipes", pipes.chown_to(plan.identity))?;
        let cgroup_entry = cgroup
            .as_ref()
            .map(|cgroup| birth::cgroup_entry(template.as_ref(), cgroup));
        let cgroup_entry = cgroup_entry.transpose()?;
        // A fork of a template gets the pipes through the template.
        let (init_pipes, fork_pipes) = match template {
            None => (Some(pipes), None),
            Some(_) => (None, Some(pipes)),
        };
        let entry = cgroup_entry.as_ref();
        // Only pid 1 calls this; elsewhere it is dropped.
        let run_init = move || {
            let init = Init {
                plan,
                link: inner,
                workers,
            };
            init.run(inherited, entry, init_pipes)
        };
        let init = birth::fork(plan, template.as_ref(), entry, run_init)?;
        let fork_request = template.zip(fork_pipes).map(|(template, pipes)| ForkRequest {
            template,
            pipes,
            cgroup_entry,
        });
        let mut sandbox = Self {
            plan,
            init,
            link,
            cgroup,
            descriptors: HashMap::new(),
            fork_request,
            forked: None,
            target: None,
            sockets: Vec::new(),
            counted: None,
            status: None,
            quota: None,
            own_disk: None,
            kept: KeptFiles::default(),
            locks: RecordLocks::default(),
            peak: sample::Sample::default(),
            usage: wait::Usage::default(),
            unrouted: 0,
            interrupts: 0,
            pending_account: None,
            limits: plan.limits.clone(),
        };
        if let Err(failure) = sandbox.start_init() {
            sandbox.kill();
            return Err(failure);
        }
        Ok(sandbox)
    }

    /// Gives pid 1 its identity (below a template, pid 1 maps its own) and lets it continue.
    fn start_init(&mut self) -> Result<(), Failure> {
        if self.fork_request.is_none() {
            let proc = Path::new("/proc").join(self.init.to_string());
            if self.plan.tier == Tier::Full {
                step("identity map", map_identity(&proc, self.plan))?;
            }
            // When the host runs out of memory, the sandbox is killed first.
            step("oom score", fs::write(proc.join("oom_score_adj"), "1000"))?;
            // Its limit keeps no dump from a host's `core_pattern` that is a socket: then a dump has no memory in it.
            match fs::write(proc.join("coredump_filter"), "0") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // a kernel without dumps
                written => step("core dump filter", written)?,
            }
        }
        self.order(&InitOrder::Go, &[])
    }

    /// Runs the sandbox from the raising of the walls to the end of the tree.
    fn serve(&mut self, server: BorrowedFd<'_>) -> Result<Ending, Failure> {
        let Some((claim_bytes, payload)) = self.park(server)? else {
            return Ok(self.finish(Cause::Cancelled));
        };
        let mut claim: Claim = step("read the claim", wire::read_head(&payload, claim_bytes))?;
        self.bind(&claim)?;
        if !self.watch_quota(&claim, server)? {
            return Ok(self.finish(Cause::Disk));
        }
        self.order(&InitOrder::Claim { claim_bytes }, &[payload.as_fd()])?;
        claim.wipe_environment();
        drop(payload);
        let cause = self.watch(&claim, server)?;
        if cause != Cause::Program {
            self.receive_late_event(server);
        }
        Ok(self.finish(cause))
    }

    /// Handles an event that pid 1 sent before the end, if the end was noticed first, as on a busy machine: that the
    /// program runs, with the descriptors of its files. The cause of the end is already decided.
    fn receive_late_event(&mut self, server: BorrowedFd<'_>) {
        if let Ok([true]) = wait::readable([Some(self.link.as_fd())], Some(Duration::ZERO)) {
            drop(self.receive_event(server));
        }
    }

    /// Waits until the walls are up and a request has claimed the sandbox, in either order. Returns the claim's length
    /// and its payload, or `None` if the sandbox is no longer wanted.
    fn park(&mut self, server: BorrowedFd<'_>) -> Result<Option<(u64, File)>, Failure> {
        let by = Instant::now() + SETUP_TIMEOUT;
        let mut claimed = None;
        let mut up = false;
        loop {
            let timeout = (!up).then(|| by.saturating_duration_since(Instant::now()));
            // No order is read after the claim; later ones are read once the program runs.
            let orders = claimed.is_none().then_some(server);
            let fork = self.forked.as_ref().and_then(Forked::process);
            let waited_for = [orders, Some(self.link.as_fd()), fork];
            let [ordered, linked, died] = step("wait", wait::readable(waited_for, timeout))?;
            if died {
                let ended = "the program that was forked ahead has ended";
                return Err(Failure::other("wait for a claim", ended));
            }
            if linked {
                let from_init = self.receive_parked()?;
                up = true;
                let imported = self.wait_for_imports(server)?.unwrap_or(from_init);
                let template = self.template().unwrap_or_default();
                // A lost server is noticed at the next receive.
                drop(wire::send(server, &Event::Parked(imported), &template));
            }
            if ordered {
                match wire::receive(server) {
                    Ok(Some((Order::Claim { claim_bytes }, descriptors))) => {
                        let Some(payload) = descriptors.into_iter().next() else {
                            return Ok(None);
                        };
                        claimed = Some((claim_bytes, File::from(payload)));
                    }
                    Ok(Some((Order::Measure, _))) => {
                        let bytes = self.descriptors.get(&Handle::Proc).map_or(0, |proc| {
                            sample::unique_bytes(proc, &tree::processes(proc, self.plan.tier))
                        });
                        drop(wire::send(server, &Event::Measured(bytes), &[]));
                    }
                    Ok(_) | Err(_) => return Ok(None),
                }
            }
            if !up && Instant::now() >= by {
                let timed_out = io::Error::from(io::ErrorKind::TimedOut);
                return Err(Failure::new("wait for the walls", &timed_out));
            }
            if up && claimed.is_some() {
                return Ok(claimed);
            }
        }
    }

    fn receive_parked(&mut self) -> Result<Imported, Failure> {
        let failed = |error: io::Error| Failure::new("wait for the walls", &error);
        let gone = || failed(io::Error::other("pid 1 is gone"));
        let received = wire::receive(self.link.as_fd()).map_err(failed)?;
        let (event, opened) = received.ok_or_else(gone)?;
        let (descriptors, imported) = match event {
            InitEvent::Parked {
                descriptors,
                imported,
            } => (descriptors, imported),
            InitEvent::Failed(failure) => return Err(failure),
            event => return Err(failed(io::Error::other(format!("pid 1 sent {event:?}")))),
        };
        self.descriptors = descriptors.into_iter().zip(opened).collect();
        self.target = Target::of(&mut self.descriptors)?;
        if let Some(fork_request) = self.fork_request.take() {
            self.forked = Some(Forked::request(self.plan, fork_request, &mut self.descriptors)?);
        }
        Ok(imported)
    }

    /// Returns the descriptors for making other sandboxes from this one, if it is a template.
    fn template(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.descriptors.get(&Handle::Control)?;
        let kinds = [Handle::User, Handle::Pid, Handle::Mount, Handle::Control];
        let handed = kinds.map(|kind| self.descriptors.get(&kind));
        Some(handed.into_iter().flatten().map(AsFd::as_fd).collect())
    }

    /// Waits until a template can be forked: it imports first, which takes long on a slow disk. `None` for others.
    fn wait_for_imports(&self, server: BorrowedFd<'_>) -> Result<Option<Imported>, Failure> {
        let Some(control) = self.descriptors.get(&Handle::Control) else {
            return Ok(None);
        };
        let failed = |error: io::Error| Failure::new("wait for the template's imports", &error);
        let waited_for = [Some(control.as_fd()), Some(server), Some(self.link.as_fd())];
        let [reported, left, ended] = wait::readable(waited_for, Some(IMPORT_TIMEOUT)).map_err(failed)?;
        if !reported {
            let timed_out = io::Error::from(io::ErrorKind::TimedOut);
            let gone = || io::Error::other("it has ended, or is no longer wanted");
            return Err(failed(if left || ended { gone() } else { timed_out }));
        }
        let proc = self.descriptors.get(&Handle::Proc);
        if proc.is_some_and(sample::shares_memory) {
            let shares = "a module has made memory that its forks would share";
            return Err(failed(io::Error::other(shares)));
        }
        match wire::receive::<Imported>(control.as_fd()).map_err(failed)? {
            Some((reported, _)) => Ok(Some(reported)),
            None => Err(failed(io::Error::other("it has ended"))),
        }
    }

    /// Applies the claim's limits, and attaches its workspace, packages and ports, before anything of the request runs.
    fn bind(&mut self, claim: &Claim) -> Result<(), Failure> {
        self.limits = claim.limits.clone();
        if let Some(cgroup) = &self.cgroup {
            step("adjust cgroup", cgroup.adjust(&self.plan.limits, &claim.limits))?;
        }
        if let Some(disk) = self.descriptors.get(&Handle::Disk)
            && claim.limits.private_disk_bytes() != self.plan.limits.private_disk_bytes()
        {
            let bytes = claim.limits.private_disk_bytes();
            let (size, files) = (bytes.to_string(), files_max(bytes).to_string());
            let sized = mount::reconfigure(disk.as_fd(), &[("size", &size), ("nr_inodes", &files)]);
            step("size the disk", sized)?;
        }
        if let Some(workspace) = &claim.workspace {
            let root = Target::attach_workspace(self.target.as_ref(), self.plan, workspace)?;
            self.descriptors.insert(Handle::Changes, root);
        }
        if let Some(layer) = &claim.layer {
            Target::attach_layer(self.target.as_ref(), layer)?;
        }
        if let Some(spec) = &claim.egress {
            let mut take = |number| self.descriptors.remove(&Handle::Socket(number));
            self.sockets = (0..egress::SOCKETS_READY).filter_map(&mut take).collect();
            let opened = Target::open_egress(self.target.as_ref(), spec)?;
            self.sockets.extend(opened);
        }
        let program = self.descriptors.get(&Handle::Program).map(AsFd::as_fd);
        let ahead = program.or_else(|| self.forked.as_ref().and_then(Forked::process));
        // By its pidfd: the pid may belong to another process by now.
        match ahead.map(process::pid_of_pidfd).transpose() {
            Ok(Some(pid)) => {
                enter::limit(pid, self.plan, claim)?;
                enter::pin(pid, claim, std::process::id())
            }
            Ok(None) => Ok(()), // pid 1 applies them
            Err(error) => Err(Failure::new("the program that was started ahead", &error)),
        }
    }

    /// Starts to watch the disk quotas of a private disk on the host and of a workspace that has one. Returns false if
    /// the workspace already holds more than it may.
    fn watch_quota(&mut self, claim: &Claim, server: BorrowedFd<'_>) -> Result<bool, Failure> {
        if let Some(files) = &self.plan.layout.host_directory {
            let directory = file::open_listing(file::current_directory(), files);
            let directory = step("open the private disk", directory)?;
            let watch = Watch::begin(&directory, Quota::Own, &claim.limits, None, Known::default());
            let watch = step("measure the private disk", watch)?;
            self.own_disk = Some(watch.heeding(step("orders", orders::look(server))?));
        }
        if let Some(workspace) = claim.workspace.as_ref().or(self.plan.shared.as_ref())
            && let Some(quota) = workspace.quota()
            && let Some(directory) = self.descriptors.get(&Handle::Changes)
        {
            let writing = workspace.writing.as_deref();
            let watch = Watch::begin(directory, quota, &claim.limits, writing, workspace.known);
            let watch = step("measure the workspace", watch)?.heeding(step("orders", orders::look(server))?);
            return Ok(self.quota.insert(watch).has_room());
        }
        Ok(true)
    }

    fn order(&self, order: &InitOrder, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        step("order pid 1", wire::send(self.link.as_fd(), order, descriptors))
    }

    fn watch(&mut self, claim: &Claim, server: BorrowedFd<'_>) -> Result<Cause, Failure> {
        let mut deadline = Deadline::new(claim);
        let mut next_check = Instant::now();
        if !self.must_sample() {
            next_check += uncharged::INTERVAL;
        }
        loop {
            self.send_account(server);
            let now = Instant::now();
            match deadline.passed(now) {
                Passed::Nothing => {}
                // An error means that pid 1 is gone, which the link reports next.
                Passed::Terminate => drop(self.order(&InitOrder::Terminate, &[])),
                Passed::Kill => return Ok(Cause::Timeout),
            }
            if now >= next_check
                && let Some(cause) = self.check_usage(claim, deadline.next(), &mut next_check)
            {
                return Ok(cause);
            }
            let (tier, proc, init) = (self.plan.tier, self.descriptors.get(&Handle::Proc), self.init);
            let disks = [Handle::Output, Handle::Changes].map(|kind| self.descriptors.get(&kind));
            let mut until = deadline.next().saturating_duration_since(now);
            for watch in self.quota.iter_mut().chain(&mut self.own_disk) {
                if watch.is_passed(deadline.next(), || Holders::of(proc?, disks, tier, init)) {
                    return Ok(Cause::Disk);
                }
                until = until.min(watch.next().saturating_duration_since(now));
            }
            if let Some(account) = &self.pending_account {
                until = until.min(account.by.saturating_duration_since(now));
            }
            // A worker hands over no /proc to be sampled, and opens nothing that would have to be.
            if self.descriptors.contains_key(&Handle::Proc) {
                until = until.min(next_check.saturating_duration_since(now));
            }
            let alarm = self.cgroup.as_ref().and_then(Cgroup::memory_alarm);
            let alarm = alarm.map(AsFd::as_fd);
            let fork = self.forked.as_ref().map(Forked::events);
            let dying = self.forked.as_ref().and_then(Forked::process);
            let dying = dying.filter(|_| self.cgroup.is_some() && self.counted.is_none());
            let waited_for = [Some(server), Some(self.link.as_fd()), alarm, fork, dying];
            let readable = wait::readable(waited_for, Some(until));
            let [ordered, linked, alarmed, ended, died] = step("wait", readable)?;
            if died {
                // While its parent reaps it. Processes left behind may add to this; then it is counted again.
                self.counted = self.cgroup.as_ref().map(Cgroup::counted);
            }
            // Memory first: a program that was killed for memory has not ended by itself.
            if alarmed {
                return Ok(Cause::OutOfMemory);
            }
            if ordered {
                match self.handle_order(server)? {
                    Some(cause) => return Ok(cause),
                    None => continue, // it may have received the event
                }
            }
            let cause = match (linked, ended) {
                (true, _) => self.receive_event(server)?,
                (false, true) => self.receive_fork_event()?,
                (false, false) => None,
            };
            if let Some(cause) = cause {
                return Ok(if deadline.is_due() { Cause::Timeout } else { cause });
            }
        }
    }

    fn receive_event(&mut self, server: BorrowedFd<'_>) -> Result<Option<Cause>, Failure> {
        match wire::receive::<InitEvent>(self.link.as_fd()) {
            Ok(Some((InitEvent::Running, _))) => {
                let handed = [Handle::Changes, Handle::Output].map(|kind| self.descriptors.get(&kind));
                let sockets = std::mem::take(&mut self.sockets);
                let handed = handed.into_iter().flatten().chain(&sockets);
                let handed: Vec<BorrowedFd<'_>> = handed.map(AsFd::as_fd).collect();
                step("report to server", wire::send(server, &Event::Running, &handed)).map(|()| None)
            }
            Ok(Some((InitEvent::Interrupted, _))) => {
                self.interrupts = self.interrupts.saturating_sub(1);
                Ok(None)
            }
            Ok(Some((InitEvent::Ended(end), _))) => {
                self.record_end(&end);
                Ok(Some(Cause::Program))
            }
            Ok(Some((InitEvent::Failed(failure), _))) => Err(failure),
            Ok(Some((InitEvent::Parked { .. }, _)) | None) | Err(_) => self.end_without_report().map(Some),
        }
    }

    fn receive_fork_event(&mut self) -> Result<Option<Cause>, Failure> {
        let received = self.forked.as_ref().map(Forked::receive_event);
        let Some(Ok(Some((ForkEvent::Ended(end), _)))) = received else {
            return self.end_without_report().map(Some);
        };
        self.record_end(&end);
        Ok(Some(Cause::Program))
    }

    /// An end without a report: the kernel killed the tree for memory, or, as an error, it ended with its template.
    fn end_without_report(&self) -> Result<Cause, Failure> {
        let cgroup = self.cgroup.as_ref();
        let for_memory = || cgroup.is_some_and(|cgroup| cgroup.counted().out_of_memory);
        if self.forked.is_some() && !for_memory() {
            // The end of a template kills everything below it.
            return Err(Failure::other(wire::TEMPLATE_GONE, "its template has ended"));
        }
        Ok(Cause::Killed)
    }

    fn record_end(&mut self, end: &ProgramEnd) {
        self.status = Some(end.status);
        self.usage = wait::Usage {
            user: Duration::from_micros(end.user_us),
            system: Duration::from_micros(end.system_us),
            max_rss_bytes: end.max_rss_kib.saturating_mul(1024),
        };
    }

    /// True if this process samples the tree: no cgroup counts it, or its `/proc` is the host's (tier `landlock`).
    fn must_sample(&self) -> bool {
        self.descriptors.contains_key(&Handle::Proc)
            && (self.cgroup.is_none() || self.plan.tier == Tier::Landlock)
    }

    fn check_usage(&mut self, claim: &Claim, until: Instant, next_check: &mut Instant) -> Option<Cause> {
        let proc = self.descriptors.get(&Handle::Proc)?;
        let (limits, tier) = (&claim.limits, self.plan.tier);
        if self
            .locks
            .are_too_many(proc, until, || tree::processes(proc, tier))
        {
            return Some(Cause::Locks);
        }
        if !self.must_sample() {
            let seen = uncharged::check(proc, &self.kept, limits.memory_bytes);
            *next_check = Instant::now() + seen.next;
            return seen.is_over.then_some(Cause::OutOfMemory);
        }
        let output = self.descriptors.get(&Handle::Output);
        let seen = match tier {
            Tier::Full | Tier::Gvisor | Tier::Container => {
                sample::measure(proc, output, limits.memory_bytes, until)
            }
            Tier::Landlock => sample::measure_pids(proc, &tree::descendants(), limits.memory_bytes, until),
        };
        self.peak.memory_bytes = self.peak.memory_bytes.max(seen.memory_bytes);
        self.peak.processes = self.peak.processes.max(seen.processes);
        *next_check = Instant::now() + seen.next_interval(limits.memory_bytes, file::processors());
        let is_over = self.cgroup.is_none() && (seen.hidden || seen.memory_bytes > limits.memory_bytes);
        is_over.then_some(Cause::OutOfMemory)
    }

    /// True if pid 1 is the only process of the sandbox; then no other can be started. The cgroup would not show it: a
    /// process of the host may have joined the pid namespace.
    fn only_init_is_left(&self) -> bool {
        let proc = self.descriptors.get(&Handle::Proc);
        let proc = proc.filter(|_| self.plan.tier == Tier::Full);
        proc.is_some_and(|proc| sample::pids(proc) == [Path::new("1")])
    }

    /// Kills the tree. Returns true once every process of it is gone. Pid 1 cannot end before all others have, and one
    /// of them may be stuck in the kernel, or be a zombie whose parent, a process of the host, does not wait for it.
    fn kill(&mut self) -> bool {
        let process = process::open_pidfd(self.init);
        // An error means that it is already gone.
        drop(process::kill(self.init, Kill::Kill));
        if let Ok(process) = &process
            && let Ok([false]) = wait::readable([Some(process.as_fd())], Some(KILL_TIMEOUT))
        {
            return false;
        }
        if let Ok(Some(ended)) = wait::wait(Child::Pid(self.init)) {
            // Includes the processes that pid 1 has reaped; it counts if the program's end was not reported before.
            self.usage = wait::Usage {
                user: self.usage.user.max(ended.usage.user),
                system: self.usage.system.max(ended.usage.system),
                max_rss_bytes: self.usage.max_rss_bytes.max(ended.usage.max_rss_bytes),
            };
        }
        match self.plan.tier {
            // The end of pid 1 has ended its pid namespace.
            Tier::Full | Tier::Gvisor | Tier::Container => true,
            Tier::Landlock => tree::kill_descendants(KILL_TIMEOUT),
        }
    }

    /// Returns the ending, once nothing of the request is alive. If the program has ended and pid 1 is all that is
    /// left, pid 1 is killed later. Before the program starts, pid 1 has its pipes, whose end the server waits for.
    fn finish(&mut self, cause: Cause) -> Ending {
        self.count_unrouted();
        let mut is_stuck = false;
        if cause != Cause::Program || !self.only_init_is_left() {
            is_stuck = !self.kill();
            self.counted = None;
        }
        let now = || self.cgroup.as_ref().map(Cgroup::counted);
        let counted = self.counted.take().or_else(now).unwrap_or_default();
        // Includes what was written since the last check.
        let mut filled = false;
        for watch in self.quota.iter_mut().chain(&mut self.own_disk) {
            filled |= watch.end();
        }
        let mut cause = if filled && cause == Cause::Program {
            Cause::Disk
        } else {
            cause
        };
        let out_of_memory = counted.out_of_memory && matches!(cause, Cause::Program | Cause::Killed);
        let status = self.status.filter(|_| cause == Cause::Program);
        // The program was killed by SIGKILL; or pid 1 was, so that nothing is known.
        if out_of_memory && status.is_none_or(|status| status & 0x7f == 9) {
            cause = Cause::OutOfMemory;
        }
        Ending {
            cause,
            status,
            usage: self.usage_of(counted, self.own_disk.as_ref().map(Watch::bytes)),
            is_stuck,
        }
    }
}
