//! Pid 1 of a sandbox: raises the walls, waits for the claim, starts the program, reaps orphans, and reports the
//! program's wait status and usage. When it ends, the kernel kills everything in the sandbox. Without a pid namespace
//! (tier `landlock`) it is the subreaper to which orphans return, and the supervisor kills them.

use crate::{
    Claim, Forker, Plan, Program, Run,
    cgroup::CgroupEntry,
    client::Pipes,
    enter::{self, Entered, Inherited},
    failure::step,
    seccomp::{self, DiskLimit},
    wire::{self, Failure, Handle, Imported, InitEvent, InitOrder, ProgramEnd},
    worker::{self, Workers},
};
use ringfence_sys::{
    channel, file, forker, identity,
    landlock::{self, Rules},
    process::{self, ABANDON_BIT, Fork, Kill, WAKE_BIT},
    wait::{self, Child},
};
use ringfence_types::{Tier, WorkspaceMode};
use std::{
    fs::File,
    io::{self, PipeWriter, Read, Write},
    mem,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, process::ExitStatusExt},
    },
    path::Path,
    time::Duration,
};
use zeroize::Zeroizing;

/// Pid 1, from its first instruction until it only watches the program.
pub(crate) struct Init<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) link: OwnedFd,
    pub(crate) workers: Workers,
}

impl Init<'_> {
    pub(crate) fn run(&self, inherited: Inherited, entry: Option<&CgroupEntry>, pipes: Option<Pipes>) -> ! {
        let joined = self.join(entry);
        let alone = joined.and_then(|()| self.close_other_descriptors(&inherited, pipes.as_ref()));
        match alone.and_then(|()| self.serve(inherited, pipes)) {
            Ok(program) => watch(program, self.plan.tier, self.link.as_fd()),
            Err(failure) => {
                // The supervisor sees the end of the link if even this fails.
                drop(wire::send(self.link.as_fd(), &InitEvent::Failed(failure), &[]));
                process::exit_now(1)
            }
        }
    }

    fn serve(&self, inherited: Inherited, pipes: Option<Pipes>) -> Result<i32, Failure> {
        let Entered {
            rules,
            code,
            descriptors,
        } = self.prepare(&inherited)?;
        let children = step("child events", process::child_events())?;
        let mut descriptors = descriptors.by_kind();
        let (mut ahead, mut later, mut fork_rules) = (None, None, None);
        match (&self.plan.program, pipes) {
            (Program::Ahead { argv, environment }, Some(pipes)) => {
                let (started, descriptor) = self.start_ahead(argv, environment, rules, pipes)?;
                descriptors.extend(descriptor.map(|descriptor| (Handle::Program, descriptor)));
                ahead = Some(started);
            }
            (Program::Template { .. }, Some(pipes)) => {
                drop(rules); // they would confine its forks to its own root
                let control = self.start_template(pipes)?;
                descriptors.push((Handle::Control, control));
                descriptors.extend(namespaces(&inherited, &TEMPLATE_NAMESPACES)?);
            }
            (Program::Forked, _) => {
                let (forked, shared) = self.prepare_for_fork(&inherited, rules, &mut descriptors)?;
                ahead = Some(forked);
                fork_rules = Some(shared);
            }
            (Program::Claimed | Program::Worker { .. }, Some(pipes)) => later = Some((rules, pipes)),
            (_, None) => return Err(Failure::other("start the program", "it has no pipes")),
        }
        if self.plan.is_bound_late() && self.plan.program != Program::Forked {
            descriptors.extend(namespaces(&inherited, &CLAIM_NAMESPACES)?);
        }
        let supervisor = inherited.supervisor;
        drop(inherited);
        let imported = ahead.as_mut().map(|ahead| mem::take(&mut ahead.imported));
        self.park(descriptors, imported.unwrap_or_default())?;
        let (mut claim, payload) = self.wait_for_claim(children.as_fd())?;
        enter::write(self.plan, &claim, code.as_ref(), &payload)?;
        let program = match (ahead, later) {
            (Some(ahead), _) => {
                if let Some(rules) = fork_rules {
                    drop(enter::add_workspace_rule(rules, self.plan, &claim)?);
                }
                if self.plan.tier == Tier::Landlock {
                    self.limit_started_program(ahead.program, &claim, supervisor)?;
                }
                self.report_event(&InitEvent::Running, &[])?;
                let program = ahead.go(&claim, &payload)?;
                drop(code); // takes the kernel a while
                program
            }
            (None, Some((rules, pipes))) => {
                drop(code);
                let walls = Walls {
                    rules: Some(enter::add_workspace_rule(rules, self.plan, &claim)?),
                    shared: claim.workspace.as_ref().map(|workspace| workspace.mode),
                    limits: Some(&claim),
                    filter: Filter::OfPid1,
                };
                enter::pin(0, &claim, supervisor)?;
                enter::filter(self.plan)?;
                let program = self.fork_program(walls, pipes, Vec::new(), |init| init.execute(&claim))?;
                claim.wipe_environment();
                self.report_event(&InitEvent::Running, &[])?;
                program
            }
            (None, None) => return Err(Failure::other("start the program", "the claim names no program")),
        };
        Ok(program)
    }

    /// Pid 1 does so in the tier `landlock`, where the supervisor may be another user, without the permission.
    fn limit_started_program(&self, program: i32, claim: &Claim, supervisor: u32) -> Result<(), Failure> {
        enter::limit(program, self.plan, claim)?;
        enter::pin(program, claim, supervisor)?;
        enter::filter(self.plan)
    }

    fn join(&self, entry: Option<&CgroupEntry>) -> Result<(), Failure> {
        step("parent death signal", process::die_with_parent())?;
        step("process name", process::set_name("ringfence-init"))?;
        if self.plan.tier == Tier::Landlock {
            step("adopt orphans", process::adopt_orphans())?;
        }
        step("join cgroup", entry.map_or(Ok(()), CgroupEntry::enter))
    }

    /// Closes the supervisor's own descriptors: the server's connection, the plan, the template, the cgroup.
    fn close_other_descriptors(&self, inherited: &Inherited, pipes: Option<&Pipes>) -> Result<(), Failure> {
        let trees = inherited.mapped_trees.iter().map(|(_, tree)| tree);
        let pipes = pipes.into_iter().flat_map(Pipes::all);
        let own = [&self.link, &inherited.proc].into_iter();
        let kept: Vec<BorrowedFd<'_>> = own.chain(trees).chain(pipes).map(AsFd::as_fd).collect();
        step("descriptors", process::close_all_except(&kept))
    }

    fn prepare(&self, inherited: &Inherited) -> Result<Entered, Failure> {
        if self.plan.program == Program::Forked {
            // The change of identity before the fork has made its own files in `/proc` inaccessible.
            step("dumpable", process::allow_dumps())?;
            enter::map_self(self.plan, inherited)?;
        }
        // Compiled here once, for the program as well, and before there is a claim.
        step("seccomp filter", seccomp::program(self.plan.seccomp))?;
        match self.receive_order()? {
            (InitOrder::Go, _) => {
                let entered = enter::enter(self.plan, inherited)?;
                // Set again, because the change of identity has cleared it.
                step("parent death signal", process::die_with_parent())?;
                Ok(entered)
            }
            (order, _) => Err(Failure::other(
                "wait for the supervisor",
                format!("unexpected order {order:?}"),
            )),
        }
    }

    /// Starts an interpreter behind all walls. It reports its imports by descriptor 5, closes that, and reads
    /// descriptor 4. The supervisor limits it through its pidfd, or else pid 1 does when it has the claim.
    fn start_ahead(
        &self,
        argv: &[String],
        environment: &[(String, String)],
        rules: Rules,
        pipes: Pipes,
    ) -> Result<(Ahead, Option<OwnedFd>), Failure> {
        let (waits, go) = step("pipe for the claim", io::pipe())?;
        let (ready, ready_writer) = step("pipe of the start", io::pipe())?;
        let walls = Walls::ahead(Some(rules));
        let program = self.fork_program(walls, pipes, vec![waits.into(), ready_writer.into()], |_| {
            exec(argv, environment)
        })?;
        let mut descriptor = None;
        if self.plan.tier == Tier::Full {
            // Before the filter, which refuses pidfd_open(2).
            let process = process::open_pidfd(program);
            descriptor = Some(step("descriptor of the program", process)?);
            enter::filter(self.plan)?;
        }
        // If it ends instead, the wait for the claim notices.
        let mut report = Vec::new();
        let read = ready.take(IMPORTED_BYTES_MAX).read_to_end(&mut report);
        step("wait for the interpreter", read)?;
        let imported = serde_json::from_slice(&report).unwrap_or_default();
        let ahead = Ahead {
            program,
            go,
            imported,
        };
        Ok((ahead, descriptor))
    }

    /// Starts the interpreter that will be forked. Landlock does not confine it.
    fn start_template(&self, pipes: Pipes) -> Result<OwnedFd, Failure> {
        let Program::Template {
            argv,
            environment,
            forker,
        } = &self.plan.program
        else {
            return Err(Failure::other("start the template", "the plan has none"));
        };
        let (control, theirs) = step("control connection", channel::pair())?;
        let filters = step("filters of the forks", write_filters())?;
        let image = match forker {
            Forker::Python => forker::OF_PYTHON,
            Forker::Node => forker::OF_NODE,
        };
        let forker = step("forker", in_memory("ringfence-forker", image))?;
        let walls = Walls::ahead(None);
        let extra = vec![theirs, filters, forker];
        self.fork_program(walls, pipes, extra, |_| exec(argv, environment))?;
        step("capabilities", identity::drop_all_capabilities())?;
        enter::filter(self.plan)?;
        Ok(control)
    }

    /// Adds the descriptors that a template's child needs to enter this sandbox. The child enforces the rules when its
    /// claim has come, with the rules that are added to the shared copy until then.
    fn prepare_for_fork(
        &self,
        inherited: &Inherited,
        rules: Rules,
        descriptors: &mut Vec<(Handle, OwnedFd)>,
    ) -> Result<(Ahead, Rules), Failure> {
        let (waits, go) = step("pipe for the claim", io::pipe())?;
        let shared = step("landlock", rules.try_clone())?;
        let rules = rules.into_descriptor();
        let rules = rules.ok_or_else(|| Failure::other("landlock", "no rules"))?;
        descriptors.extend([(Handle::Waits, waits.into()), (Handle::Rules, rules)]);
        descriptors.extend(namespaces(inherited, &SANDBOX_NAMESPACES)?);
        enter::filter(self.plan)?;
        let ahead = Ahead {
            program: 0,
            go,
            imported: Imported::default(),
        };
        Ok((ahead, shared))
    }

    fn park(&self, descriptors: Vec<(Handle, OwnedFd)>, imported: Imported) -> Result<(), Failure> {
        let kinds = descriptors.iter().map(|(name, _)| *name).collect();
        let borrowed = descriptors.iter().map(|(_, descriptor)| descriptor.as_fd());
        let borrowed: Vec<BorrowedFd<'_>> = borrowed.collect();
        let event = InitEvent::Parked {
            descriptors: kinds,
            imported,
        };
        self.report_event(&event, &borrowed)
    }

    fn wait_for_claim(&self, children: BorrowedFd<'_>) -> Result<(Claim, File), Failure> {
        loop {
            let readable = wait::readable([Some(self.link.as_fd()), Some(children)], None);
            let [ordered, ended] = step("wait for a claim", readable)?;
            if ordered {
                break;
            }
            if ended && matches!(wait::wait_nonblocking(Child::Any), Ok(Some(_))) {
                return Err(Failure::other("wait for a claim", "the interpreter has ended"));
            }
        }
        let (InitOrder::Claim { claim_bytes }, descriptors) = self.receive_order()? else {
            return Err(Failure::other("wait for a claim", "another order came"));
        };
        let payload = descriptors.into_iter().next().map(File::from);
        let payload =
            payload.ok_or_else(|| Failure::other("wait for a claim", "it came without its payload"))?;
        let claim = step("read the claim", wire::read_head(&payload, claim_bytes))?;
        Ok((claim, payload))
    }

    /// Forks the program; pid 1 keeps none of its pipes, so that their other ends see the end of the program alone.
    fn fork_program(
        &self,
        walls: Walls<'_>,
        pipes: Pipes,
        extra: Vec<OwnedFd>,
        exec_program: impl FnOnce(&Self) -> Failure,
    ) -> Result<i32, Failure> {
        match step("fork the program", process::fork())? {
            Fork::Child => {
                let failure = match self.become_program(walls, pipes, extra) {
                    Ok(()) => exec_program(self),
                    Err(failure) => failure,
                };
                drop(wire::send(self.link.as_fd(), &InitEvent::Failed(failure), &[]));
                process::exit_now(127)
            }
            Fork::Parent(program) => Ok(program),
        }
    }

    fn become_program(&self, walls: Walls<'_>, pipes: Pipes, extra: Vec<OwnedFd>) -> Result<(), Failure> {
        // Not in pid 1, whose fork would fail if the user's other processes have increased since they were counted.
        if let Some(claim) = walls.limits {
            enter::limit(0, self.plan, claim)?;
        }
        // Before the pipes, because the rules are a descriptor whose number a pipe may need.
        if let Some(rules) = walls.rules {
            step("landlock", landlock::confine(rules))?;
        }
        step("descriptors", self.place_descriptors(pipes, extra))?;
        enter::filter_host_directories(self.plan, walls.shared)?;
        if let Filter::Own = walls.filter {
            enter::filter(self.plan)?;
        }
        match self.plan.program {
            // These still have filters to install.
            Program::Template { .. } | Program::Worker { .. } => Ok(()),
            _ => enter::filter_last(),
        }
    }

    fn place_descriptors(&self, pipes: Pipes, extra: Vec<OwnedFd>) -> io::Result<()> {
        process::new_session()?;
        process::reset_signals()?;
        if !matches!(self.plan.program, Program::Worker { .. }) {
            process::change_directory(&self.plan.layout.workspace)?;
        }
        // Moved above the target numbers first, so that no pipe is overwritten before it is placed.
        let pipes = [pipes.stdin, pipes.stdout, pipes.stderr, pipes.report];
        let all = pipes.into_iter().chain(extra);
        let moved: io::Result<Vec<OwnedFd>> = all.map(|pipe| process::duplicate_above(&pipe, 10)).collect();
        let moved = moved?;
        for (number, pipe) in (0..).zip(&moved) {
            process::place_descriptor(pipe, number)?;
        }
        process::close_on_exec_from(u32::try_from(moved.len()).unwrap_or(u32::MAX))
    }

    /// Executes what the claim names. Returns only when that fails.
    fn execute(&self, claim: &Claim) -> Failure {
        match (&self.plan.program, &claim.run) {
            (
                Program::Claimed,
                Run::Exec {
                    argv,
                    environment,
                    report,
                },
            ) => {
                if !report && let Err(error) = process::close_on_exec_from(3) {
                    return Failure::new("descriptors", &error);
                }
                exec(argv, environment)
            }
            (Program::Worker { name }, Run::Work) => {
                match self.workers.iter().find(|(known, _)| known == name) {
                    Some((_, work)) => worker::run(*work),
                    None => Failure::other("worker", format!("there is no worker {name}")),
                }
            }
            _ => Failure::other("claim", "it is for another kind of program"),
        }
    }

    fn receive_order(&self) -> Result<(InitOrder, Vec<OwnedFd>), Failure> {
        step("wait for the supervisor", wire::receive(self.link.as_fd()))?
            .ok_or_else(|| Failure::other("wait for the supervisor", "it is gone"))
    }

    fn report_event(&self, event: &InitEvent, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        let sent = wire::send(self.link.as_fd(), event, descriptors);
        step("report to the supervisor", sent)
    }
}

struct Walls<'a> {
    /// `None` for a template, which Landlock does not confine.
    rules: Option<Rules>,
    /// The mode in which its claim shares a directory of the host.
    shared: Option<WorkspaceMode>,
    /// The claim with its limits, if there is one already.
    limits: Option<&'a Claim>,
    filter: Filter,
}

/// The origin of a program's seccomp filter.
enum Filter {
    /// Pid 1 has installed it, and the program inherits it.
    OfPid1,
    /// Pid 1 needs more calls once it has forked the program.
    Own,
}

impl Walls<'_> {
    fn ahead(rules: Option<Rules>) -> Self {
        Self {
            rules,
            shared: None,
            limits: None,
            filter: Filter::Own,
        }
    }
}

const USER: (Handle, &str) = (Handle::User, "user");
const MOUNT: (Handle, &str) = (Handle::Mount, "mnt");
const NET: (Handle, &str) = (Handle::Net, "net");
const PID: (Handle, &str) = (Handle::Pid, "pid");

/// The namespaces for making sandboxes from a template, except that of its mounts.
const TEMPLATE_NAMESPACES: [(Handle, &str); 2] = [USER, PID];

/// The namespaces in which a layer is attached and ports of the egress are opened.
const CLAIM_NAMESPACES: [(Handle, &str); 3] = [USER, MOUNT, NET];

const SANDBOX_NAMESPACES: [(Handle, &str); 8] = [
    USER,
    MOUNT,
    NET,
    (Handle::Ipc, "ipc"),
    (Handle::Uts, "uts"),
    (Handle::Cgroup, "cgroup"),
    PID,
    (Handle::Time, "time_for_children"),
];

/// Opens this process's own namespaces; only the file of the time namespace may be missing (older kernels).
fn namespaces(inherited: &Inherited, names: &[(Handle, &str)]) -> Result<Vec<(Handle, OwnedFd)>, Failure> {
    let own = file::open_directory(inherited.proc.as_fd(), Path::new("self/ns"));
    let own = step("open own namespaces", own)?;
    let mut opened = Vec::new();
    for (kind, name) in names {
        match file::open_namespace(own.as_fd(), Path::new(name)) {
            Ok(namespace) => opened.push((*kind, namespace)),
            Err(error) if *kind == Handle::Time && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::new(format!("open namespace {name}"), &error)),
        }
    }
    Ok(opened)
}

/// Writes the filters as a template reads them, each as its number of instructions and these: that of every fork, those
/// for a directory of the host that may only be read and for another, and the last of every fork.
fn write_filters() -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    let all = [
        seccomp::fork_filter()?,
        seccomp::host_directory_filter(Some(WorkspaceMode::Ro), DiskLimit::Absent)?,
        seccomp::host_directory_filter(Some(WorkspaceMode::Rw), DiskLimit::Measured)?,
        seccomp::final_filter()?.clone(),
    ];
    for filter in all {
        let instructions = filter.instructions();
        bytes.extend(u32::try_from(instructions.len()).unwrap_or(0).to_ne_bytes());
        for (code, if_true, if_false, operand) in instructions {
            bytes.extend(code.to_ne_bytes());
            bytes.extend([if_true, if_false]);
            bytes.extend(operand.to_ne_bytes());
        }
    }
    in_memory("ringfence-filters", &bytes)
}

fn in_memory(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = file::memory_file(name)?;
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// An interpreter started before its claim, or a fork of a template (`program` is 0: pid 1 does not wait for it).
struct Ahead {
    program: i32,
    go: PipeWriter,
    imported: Imported,
}

const IMPORTED_BYTES_MAX: u64 = 64 << 10;

impl Ahead {
    /// Sends the program its part of the claim. If it has ended, its end reports that, not this function.
    fn go(mut self, claim: &Claim, payload: &File) -> Result<i32, Failure> {
        let Run::Go(part) = claim.run else {
            return Err(Failure::other("claim", "it is for another kind of program"));
        };
        // The environment is in it.
        let mut input = Zeroizing::new(vec![0; usize::try_from(part.length).unwrap_or(0)]);
        step("read the claim", payload.read_exact_at(&mut input, part.offset))?;
        match self.go.write_all(&input) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new("go", &error)),
            _ => Ok(self.program),
        }
    }
}

fn exec(argv: &[String], environment: &[(String, String)]) -> Failure {
    let Some(path) = argv.first() else {
        return Failure::other("exec", "no program is named");
    };
    let error = process::execve(Path::new(path), argv, environment);
    Failure::new(format!("exec {path}"), &error)
}

/// Processes that pid 1 reaps between two looks for an order: a program may end more and more of them.
const REAPED_MAX: u32 = 64;

/// Waits for the program's end, reaping orphans meanwhile.
fn watch(program: i32, tier: Tier, link: BorrowedFd<'_>) -> ! {
    let Ok(children) = process::child_events() else {
        process::exit_now(1)
    };
    loop {
        let mut reaped = 0;
        while reaped < REAPED_MAX
            && let Ok(Some(ended)) = wait::wait_nonblocking(Child::Any)
        {
            reaped += 1;
            if ended.pid == program {
                let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                let event = InitEvent::Ended(ProgramEnd {
                    status: ended.status.into_raw(),
                    user_us: micros(ended.usage.user),
                    system_us: micros(ended.usage.system),
                    max_rss_kib: ended.usage.max_rss_bytes / 1024,
                });
                if wire::send(link, &event, &[]).is_err() {
                    process::exit_now(1);
                }
            }
        }
        let timeout = (reaped == REAPED_MAX).then_some(Duration::ZERO);
        let Ok([ordered, _]) = wait::readable([Some(link), Some(children.as_fd())], timeout) else {
            process::exit_now(1)
        };
        if ordered {
            match wire::receive::<InitOrder>(link) {
                Ok(Some((InitOrder::Terminate, _))) => terminate(program, tier),
                Ok(Some((InitOrder::Interrupt, _))) => {
                    interrupt(program);
                    drop(wire::send(link, &InitEvent::Interrupted, &[]));
                }
                _ => process::exit_now(1), // the supervisor is gone, and the sandbox ends
            }
        }
        drain(&children);
    }
}

/// Interrupts the program as Ctrl-C does: it leads a process group of its own. If it has ended, its end reports that.
///
/// bash loses an interrupt if the command that it waits for ends by itself, and hangs if one comes as it begins to wait
/// (docs/adr/0004). A shell that catches the signal of `ABANDON_BIT` gets that one; the interrupt is then for its
/// command, and is sent only while the shell sleeps. Node.js takes the interrupt for running, `WAKE_BIT` for waiting
/// code.
fn interrupt(program: i32) {
    let status = std::fs::read_to_string(format!("/proc/{program}/status")).unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let field = |name: &str| value(name).map(str::trim);
    let caught = caught_signals(&status);
    let abandons = caught & ABANDON_BIT != 0;
    if abandons {
        drop(process::kill(program, Kill::Abandon));
    }
    if caught & WAKE_BIT != 0 {
        drop(process::kill(program, Kill::Wake));
    }
    if !abandons || field("State:").is_some_and(|state| state.starts_with('S')) {
        drop(process::kill_group(program, Kill::Interrupt));
    }
}

/// Returns the signals for which a process has handlers, from its status in `/proc`.
pub(crate) fn caught_signals(status: &str) -> u64 {
    let mut lines = status.lines();
    let bits = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

/// Sends SIGTERM; it is not an error if the processes are already gone.
fn terminate(program: i32, tier: Tier) {
    drop(match tier {
        Tier::Full | Tier::Gvisor | Tier::Container => process::kill_all_others(Kill::Terminate),
        Tier::Landlock => process::kill(program, Kill::Terminate),
    });
}

fn drain(children: &OwnedFd) {
    let mut buffer = [0; 512];
    while file::read(children.as_fd(), &mut buffer).is_ok_and(|count| count > 0) {}
}
