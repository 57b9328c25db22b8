//! Pid 1 of a sandbox: raises the walls, waits for the claim, starts the program, buries orphans, and reports the program's end in the
//! kernel's words. When it ends, the kernel ends everything in the sandbox. Without a pid namespace (tier `landlock`)
//! it is the process to which orphans return, and the supervisor ends them.

use crate::{
    Claim, Plan, Program, Run,
    cgroup::Entrance,
    enter::{self, Entered, Handed, step},
    helper::Workers,
    plan::Identity,
    seccomp,
    wire::{self, Door, Failure, InitEvent, InitOrder, ProgramEnd},
    worker,
};
use ringfence_sys::{
    channel, file, identity,
    landlock::{self, Rules},
    process::{self, Fork, Kill},
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{
    fs::File,
    io::{self, PipeWriter, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, process::ExitStatusExt},
    },
    path::Path,
    time::Duration,
};

/// The program's descriptors 0 to 3.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
}

impl Pipes {
    /// Makes them the sandbox's of this supervisor: a program may open its own streams anew (`/dev/stdin`,
    /// `/proc/self/fd/1`), and they are the server's until then.
    pub(crate) fn give_to(&self, identity: Identity) -> io::Result<()> {
        let Identity::Own { base } = identity else {
            return Ok(());
        };
        let id = base + std::process::id();
        [&self.stdin, &self.stdout, &self.stderr, &self.report]
            .into_iter()
            .try_for_each(|pipe| file::hand_to(pipe.as_fd(), id, id))
    }
}

/// Pid 1, from its first instruction until the program is its only business.
pub(crate) struct Init<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) link: OwnedFd,
    pub(crate) workers: Workers,
}

impl Init<'_> {
    /// Its whole life. Does not return.
    pub(crate) fn live(&self, handed: Handed, entrance: Option<Entrance>, pipes: Option<Pipes>) -> ! {
        match self.serve(handed, entrance, pipes) {
            Ok(program) => watch(program, self.plan.tier, self.link.as_fd()),
            Err(failure) => {
                // The supervisor sees the end of the link if even this fails.
                drop(wire::send(self.link.as_fd(), &InitEvent::Failed(failure), &[]));
                process::exit_now(1)
            }
        }
    }

    fn serve(
        &self,
        handed: Handed,
        entrance: Option<Entrance>,
        pipes: Option<Pipes>,
    ) -> Result<i32, Failure> {
        let Entered { rules, code, doors } = self.prepare(&handed, entrance)?;
        let children = step("child events", process::child_events())?;
        let mut doors = doors.named();
        let mut ahead = None;
        let mut later = None;
        match (&self.plan.program, pipes) {
            (Program::Ahead { argv, environment }, Some(pipes)) => {
                let (started, descriptor) = self.start_ahead(argv, environment, rules, pipes)?;
                doors.push((Door::Program, descriptor));
                ahead = Some(started);
            }
            (Program::Template { argv, environment }, Some(pipes)) => {
                let control = self.start_template(argv, environment, rules, pipes)?;
                doors.push((Door::Control, control));
                doors.extend(namespaces(&handed, &OF_A_TEMPLATE)?);
            }
            (Program::Forked, _) => {
                let (waits, go) = step("pipe for the claim", io::pipe())?;
                doors.push((Door::Waits, waits.into()));
                ahead = Some(Ahead { program: 0, go });
                let rules = rules
                    .into_descriptor()
                    .ok_or_else(|| nothing("landlock", "no rules"))?;
                doors.push((Door::Rules, rules));
                doors.extend(namespaces(&handed, &OF_A_SANDBOX)?);
                enter::filter(self.plan)?;
            }
            (Program::Claimed | Program::Worker { .. }, Some(pipes)) => later = Some((rules, pipes)),
            (_, None) => return Err(nothing("start the program", "it has no pipes")),
        }
        if self.plan.is_bound_late() && self.plan.program != Program::Forked {
            doors.extend(namespaces(&handed, &OF_A_CLAIM)?);
        }
        let supervisor = handed.supervisor;
        drop(handed);
        self.park(doors)?;
        let (claim, payload) = self.wait_for_claim(children.as_fd())?;
        enter::write(self.plan, &claim, code.as_ref(), &payload)?;
        let program = match (ahead, later) {
            (Some(ahead), _) => {
                self.tell(&InitEvent::Running, &[])?;
                let program = ahead.go(&claim, &payload)?;
                drop(code); // which takes the kernel a while
                program
            }
            (None, Some((rules, pipes))) => {
                drop(code);
                enter::limit(0, self.plan, &claim, supervisor)?;
                let program =
                    self.fork_program(Some(rules), pipes, Vec::new(), |init| init.execute(&claim))?;
                enter::filter(self.plan)?;
                self.tell(&InitEvent::Running, &[])?;
                program
            }
            (None, None) => return Err(nothing("start the program", "there is none")),
        };
        Ok(program)
    }

    fn prepare(&self, handed: &Handed, entrance: Option<Entrance>) -> Result<Entered, Failure> {
        step("parent death signal", process::die_with_parent())?;
        step("process name", process::set_name("ringfence-init"))?;
        if self.plan.tier == Tier::Landlock {
            step("adopt orphans", process::adopt_orphans())?;
        }
        if let Some(entrance) = entrance {
            step("join cgroup", entrance.enter())?;
        }
        if self.plan.program == Program::Forked {
            enter::map_self(self.plan, handed)?;
        }
        match self.hear()? {
            (InitOrder::Go, _) => {
                let entered = enter::enter(self.plan, handed)?;
                // Once more, because the change of identity has cleared it.
                step("parent death signal", process::die_with_parent())?;
                Ok(entered)
            }
            (order, _) => Err(nothing("wait for the supervisor", &format!("it said {order:?}"))),
        }
    }

    /// The interpreter comes up behind all walls, hangs up descriptor 5, and reads descriptor 4.
    fn start_ahead(
        &self,
        argv: &[String],
        environment: &[(String, String)],
        rules: Rules,
        pipes: Pipes,
    ) -> Result<(Ahead, OwnedFd), Failure> {
        let (waits, go) = step("pipe for the claim", io::pipe())?;
        let (up, comes_up) = step("pipe of the start", io::pipe())?;
        let program = self.fork_program(Some(rules), pipes, vec![waits.into(), comes_up.into()], |_| {
            exec(argv, environment)
        })?;
        // Before the filter, which refuses it.
        let descriptor = step("descriptor of the program", process::descriptor_of(program))?;
        enter::filter(self.plan)?;
        // One that ends instead is noticed by whoever waits for the claim.
        step(
            "wait for the interpreter",
            wait::readable([Some(up.as_fd())], None),
        )?;
        Ok((Ahead { program, go }, descriptor))
    }

    /// The interpreter that will be forked. It has no Landlock, whose rules would bind its forks to its own root.
    fn start_template(
        &self,
        argv: &[String],
        environment: &[(String, String)],
        rules: Rules,
        pipes: Pipes,
    ) -> Result<OwnedFd, Failure> {
        drop(rules);
        let (control, theirs) = step("control connection", channel::pair())?;
        let filters = step("filters of the forks", write_filters())?;
        self.fork_program(None, pipes, vec![theirs, filters], |_| exec(argv, environment))?;
        step("capabilities", identity::drop_all_capabilities())?;
        enter::filter(self.plan)?;
        Ok(control)
    }

    fn park(&self, doors: Vec<(Door, OwnedFd)>) -> Result<(), Failure> {
        let names = doors.iter().map(|(name, _)| *name).collect();
        let descriptors: Vec<BorrowedFd<'_>> = doors.iter().map(|(_, door)| door.as_fd()).collect();
        self.tell(&InitEvent::Parked { doors: names }, &descriptors)
    }

    fn wait_for_claim(&self, children: BorrowedFd<'_>) -> Result<(Claim, File), Failure> {
        loop {
            let [ordered, ended] = step(
                "wait for a claim",
                wait::readable([Some(self.link.as_fd()), Some(children)], None),
            )?;
            if ordered {
                break;
            }
            if ended && matches!(wait::wait_now(Child::Any), Ok(Some(_))) {
                return Err(nothing("wait for a claim", "the interpreter has ended"));
            }
        }
        let (InitOrder::Claim { claim_bytes }, descriptors) = self.hear()? else {
            return Err(nothing("wait for a claim", "another order came"));
        };
        let payload = descriptors
            .into_iter()
            .next()
            .map(File::from)
            .ok_or_else(|| nothing("wait for a claim", "it came without its payload"))?;
        let claim = step("read the claim", wire::read_head(&payload, claim_bytes))?;
        Ok((claim, payload))
    }

    /// Forks the program; pid 1 keeps none of its pipes, so that their other ends see the program's and nobody else's
    /// end.
    fn fork_program(
        &self,
        rules: Option<Rules>,
        pipes: Pipes,
        more: Vec<OwnedFd>,
        act: impl FnOnce(&Self) -> Failure,
    ) -> Result<i32, Failure> {
        match step("fork the program", process::fork())? {
            Fork::Child => {
                let failure = match self.become_program(rules, pipes, more) {
                    Ok(()) => act(self),
                    Err(failure) => failure,
                };
                drop(wire::send(self.link.as_fd(), &InitEvent::Failed(failure), &[]));
                process::exit_now(127)
            }
            Fork::Parent(program) => Ok(program),
        }
    }

    /// The last steps but one, in the program's own process.
    fn become_program(&self, rules: Option<Rules>, pipes: Pipes, more: Vec<OwnedFd>) -> Result<(), Failure> {
        // First, because the rules are a descriptor whose number may be wanted.
        if let Some(rules) = rules {
            step("landlock", landlock::confine(rules))?;
        }
        step("descriptors", self.place(pipes, more))?;
        enter::filter(self.plan)
    }

    /// The pipes at 0 to 3, and more from 4.
    fn place(&self, pipes: Pipes, more: Vec<OwnedFd>) -> io::Result<()> {
        process::new_session()?;
        process::reset_signals()?;
        if !matches!(self.plan.program, Program::Worker { .. }) {
            process::change_directory(&self.plan.layout.workspace)?;
        }
        // Out of the way first, so that no pipe is overwritten before it is placed.
        let pipes = [pipes.stdin, pipes.stdout, pipes.stderr, pipes.report];
        let moved: io::Result<Vec<OwnedFd>> = pipes
            .into_iter()
            .chain(more)
            .map(|pipe| process::duplicate_above(&pipe, 10))
            .collect();
        let moved = moved?;
        for (number, pipe) in (0..).zip(&moved) {
            process::place_descriptor(pipe, number)?;
        }
        process::close_on_exec_from(u32::try_from(moved.len()).unwrap_or(u32::MAX))
    }

    /// Becomes what the claim names. Returns only when that fails.
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
                    Some((_, work)) => process::exit_now(worker::run(*work)),
                    None => nothing("worker", &format!("there is no worker {name}")),
                }
            }
            _ => nothing("claim", "it is for another kind of program"),
        }
    }

    fn hear(&self) -> Result<(InitOrder, Vec<OwnedFd>), Failure> {
        step("wait for the supervisor", wire::receive(self.link.as_fd()))?
            .ok_or_else(|| nothing("wait for the supervisor", "it is gone"))
    }

    fn tell(&self, event: &InitEvent, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        step(
            "tell the supervisor",
            wire::send(self.link.as_fd(), event, descriptors),
        )
    }
}

/// The namespaces by which places are made from a template.
const OF_A_TEMPLATE: [(Door, &str); 3] = [(Door::User, "user"), (Door::Pid, "pid"), (Door::Mount, "mnt")];

/// Those in which a layer is attached, and a way out opened.
const OF_A_CLAIM: [(Door, &str); 3] = [(Door::User, "user"), (Door::Mount, "mnt"), (Door::Net, "net")];

/// Those that a fork has to join.
const OF_A_SANDBOX: [(Door, &str); 8] = [
    (Door::User, "user"),
    (Door::Mount, "mnt"),
    (Door::Net, "net"),
    (Door::Ipc, "ipc"),
    (Door::Uts, "uts"),
    (Door::Cgroup, "cgroup"),
    (Door::Pid, "pid"),
    (Door::Time, "time_for_children"),
];

/// This process's own; a kernel without one of them has no such file, which only time namespaces may lack.
fn namespaces(handed: &Handed, names: &[(Door, &str)]) -> Result<Vec<(Door, OwnedFd)>, Failure> {
    let mut opened = Vec::new();
    for (door, name) in names {
        let path = Path::new("self/ns").join(name);
        match file::open_namespace(handed.proc.as_fd(), &path) {
            Ok(namespace) => opened.push((*door, namespace)),
            Err(error) if *door == Door::Time && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::new(format!("open namespace {name}"), &error)),
        }
    }
    Ok(opened)
}

/// The filters as a template reads them: for each the number of its instructions, and these.
fn write_filters() -> io::Result<OwnedFd> {
    let filter = seccomp::of_forks()?;
    let instructions = filter.instructions();
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(instructions.len()).unwrap_or(0).to_ne_bytes());
    for (code, if_true, if_false, operand) in instructions {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([if_true, if_false]);
        bytes.extend(operand.to_ne_bytes());
    }
    let mut file = file::memory_file("ringfence-filters")?;
    file.write_all(&bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// An interpreter that was started before its claim. A fork of a template is not pid 1's to wait for: its number is 0.
struct Ahead {
    program: i32,
    go: PipeWriter,
}

impl Ahead {
    /// Gives it what it waits for. That it has ended is told by its end, not here.
    fn go(mut self, claim: &Claim, payload: &File) -> Result<i32, Failure> {
        let Run::Go(part) = claim.run else {
            return Err(nothing("claim", "it is for another kind of program"));
        };
        let mut word = vec![0; usize::try_from(part.length).unwrap_or(0)];
        step("read the claim", payload.read_exact_at(&mut word, part.offset))?;
        match self.go.write_all(&word) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new("go", &error)),
            _ => Ok(self.program),
        }
    }
}

fn exec(argv: &[String], environment: &[(String, String)]) -> Failure {
    let Some(path) = argv.first() else {
        return nothing("exec", "no program is named");
    };
    let error = process::execve(Path::new(path), argv, environment);
    Failure::new(format!("exec {path}"), &error)
}

/// A failure that is not the kernel's.
fn nothing(step: &str, detail: &str) -> Failure {
    Failure {
        step: step.to_owned(),
        errno: 0,
        detail: detail.to_owned(),
    }
}

/// Waits for the program's end, burying orphans meanwhile.
fn watch(program: i32, tier: Tier, link: BorrowedFd<'_>) -> ! {
    let Ok(children) = process::child_events() else {
        process::exit_now(1)
    };
    loop {
        while let Ok(Some(ended)) = wait::wait_now(Child::Any) {
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
        let Ok([ordered, _]) = wait::readable([Some(link), Some(children.as_fd())], None) else {
            process::exit_now(1)
        };
        if ordered {
            match wire::receive::<InitOrder>(link) {
                Ok(Some((InitOrder::Terminate, _))) => terminate(program, tier),
                // It leads a group of its own; one that has ended is told by its end.
                Ok(Some((InitOrder::Interrupt, _))) => drop(process::kill_group(program, Kill::Interrupt)),
                _ => process::exit_now(1), // the supervisor is gone: so is the sandbox
            }
        }
        drain(&children);
    }
}

/// The polite signal; processes that are gone already are no error.
fn terminate(program: i32, tier: Tier) {
    drop(match tier {
        Tier::Full => process::kill_all_others(Kill::Terminate),
        Tier::Landlock => process::kill(program, Kill::Terminate),
    });
}

/// Empties the event descriptor; the waiting itself is done by `wait_now`.
fn drain(children: &OwnedFd) {
    let mut buffer = [0; 512];
    while file::read(children.as_fd(), &mut buffer).is_ok_and(|count| count > 0) {}
}
