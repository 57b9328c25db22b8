//! The process that a command runs in: this binary, re-executed with one thread. It receives the plan and descriptors
//! over the socket on its standard input, makes the namespaces, and stays outside as the supervisor: when the time is
//! up or the server hangs up, everything inside ends. Inside, pid 1 is ours; it puts up the walls in order, each step
//! named, starts the program and reports how the kernel says that it ended.

use crate::{
    mounts,
    spec::{Grant, Handed, Report, Source, Spec, Step, step},
};
use ringfence_jail::{
    cgroup::{Cgroup, Entrance},
    seccomp::{self, Profile},
    wire,
};
use ringfence_sys::{
    file, identity,
    landlock::{self, Right, Tcp},
    process::{self, Fork, Kill, NamespaceKind},
    resource::{self, Limit},
    seccomp::{Answer, EAFNOSUPPORT, EPERM, Refusals, Rule, Test},
    wait::{self, Child},
};
use ringfence_types::{Limits, WorkspaceMode};
use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The first word of this process's command line.
pub const CHILD_WORD: &str = "__host-command";

const MEMORY_BYTES: u64 = 512 << 20;
const PROCESSES: u32 = 64;
/// Of one process, also where no cgroup counts: more than the libraries of an interpreter take.
const DATA_BYTES: u64 = 2 << 30;
const OPEN_FILES: u64 = 1024;
const FILE_BYTES: u64 = 64 << 20;
const SPEC_BYTES_MAX: u64 = 1 << 20;
/// How often, where no namespace holds them together, what is left of a command is looked for.
const HUNTS: usize = 100;
const HUNT_PAUSE: Duration = Duration::from_millis(10);

/// The whole life of the process; `main` calls it when its first argument is [`CHILD_WORD`]. Returns its exit status.
pub fn run() -> i32 {
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ringfence host command: {error}");
            1
        }
    }
}

fn serve() -> io::Result<()> {
    if process::thread_count()? != 1 {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    process::set_name("ringfence-host")?;
    process::new_session()?;
    process::mind_children()?;
    let control = process::duplicate_above(file::inherited(0)?, 3)?;
    let null = File::open("/dev/null")?;
    process::place_descriptor(&null, 0)?;
    let mut first = [0; 8];
    let (length, mut descriptors) = ringfence_sys::channel::receive(control.as_fd(), &mut first)?;
    if length == 0 || descriptors.is_empty() {
        return Ok(());
    }
    let mut text = Vec::new();
    let mut payload = File::from(descriptors.remove(0));
    payload.rewind()?;
    payload.take(SPEC_BYTES_MAX).read_to_end(&mut text)?;
    let spec = serde_json::from_slice(&text)?;
    let handed = Handed { spec, descriptors };
    let report = match supervise(handed, &control) {
        Ok(report) | Err(report) => report,
    };
    // The server may be gone.
    drop(wire::send(control.as_fd(), &report, &[]));
    Ok(())
}

/// Makes the inside and waits for its end.
fn supervise(handed: Handed, control: &OwnedFd) -> Step<Report> {
    let spec = &handed.spec;
    let (deadline, namespaces) = (Duration::from_millis(spec.deadline_ms), namespaces(spec));
    let group = step("cgroup", Cgroup::create(&spec.cgroups, &limits(spec)))?;
    let entrance = step("cgroup", group.as_ref().map(Cgroup::entrance).transpose())?;
    let (ours, theirs) = step("channel", ringfence_sys::channel::pair())?;
    step("adopt orphans", process::adopt_orphans())?;
    let events = step("child events", process::child_events())?;
    let forked = match &entrance {
        Some(Entrance::Birth(directory)) => process::fork_into_cgroup(&namespaces, directory.as_fd()),
        _ => process::fork_into(&namespaces),
    };
    let pid = match step("namespaces", forked)? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            drop(ours);
            let report = inside(&handed, entrance, &theirs);
            drop(wire::send(theirs.as_fd(), &report, &[]));
            process::exit_now(0)
        }
    };
    drop((theirs, entrance));
    let spec = handed.spec;
    drop(handed.descriptors);
    let sealed = match namespaces.contains(&NamespaceKind::User) {
        true => step("identity map", map_self(pid)),
        false => Ok(()),
    };
    // Not before: the files by which the inside gets its identity would be root's.
    step("not dumpable", process::refuse_dumps())?;
    // Its end of the pipes is the program's alone from now on.
    let nulled = File::options().write(true).open("/dev/null").and_then(|null| {
        process::place_descriptor(&null, 1)?;
        process::place_descriptor(&null, 2)
    });
    let report = match sealed
        .and(step("streams", nulled))
        .and_then(|()| step("start", wire::send(ours.as_fd(), &(), &[])))
    {
        Ok(()) => watch(&ours, control, &events, group.as_ref(), deadline),
        Err(failed) => failed,
    };
    end(pid, &spec);
    Ok(report)
}

fn watch(
    inside: &OwnedFd,
    control: &OwnedFd,
    events: &OwnedFd,
    group: Option<&Cgroup>,
    deadline: Duration,
) -> Report {
    let ends = Instant::now() + deadline;
    let alarm = group.and_then(Cgroup::memory_alarm);
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Report::TimedOut;
        }
        let polled = [
            Some(inside.as_fd()),
            Some(control.as_fd()),
            Some(events.as_fd()),
            alarm.map(AsFd::as_fd),
        ];
        let [told, hung_up, _, memory] = match wait::readable(polled, Some(left)) {
            Ok(ready) => ready,
            Err(error) => return step::<()>("wait", Err(error)).err().unwrap_or(Report::TimedOut),
        };
        if memory {
            return Report::OutOfMemory;
        }
        if told {
            let report = wire::receive::<Report>(inside.as_fd()).ok().flatten();
            let out_of_memory = || group.is_some_and(|group| group.counted().out_of_memory);
            return match report {
                Some((Report::Ended { status }, _)) if status & 0x7f == 9 && out_of_memory() => {
                    Report::OutOfMemory
                }
                Some((report, _)) => report,
                None if out_of_memory() => Report::OutOfMemory,
                None => Report::Failed {
                    step: "follow the program".to_owned(),
                    detail: "it was killed".to_owned(),
                },
            };
        }
        if hung_up {
            return Report::TimedOut;
        }
    }
}

/// Ends everything: with a pid namespace by its pid 1, else by hunting down what this process has adopted.
fn end(pid: i32, spec: &Spec) {
    drop(process::kill(pid, Kill::Kill));
    if spec.namespaces {
        // With pid 1 everything inside has ended.
        while matches!(wait::wait(Child::Any), Ok(Some(_))) {}
        return;
    }
    drop(process::kill_group(pid, Kill::Kill));
    for _ in 0..HUNTS {
        let children = format!("/proc/self/task/{}/children", std::process::id());
        let children = fs::read_to_string(children).unwrap_or_default();
        let mut children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse::<i32>().ok())
            .peekable();
        if children.peek().is_none() {
            return;
        }
        children.for_each(|child| drop(process::kill(child, Kill::Kill)));
        while matches!(wait::wait_now(Child::Any), Ok(Some(_))) {}
        std::thread::sleep(HUNT_PAUSE);
    }
}

fn namespaces(spec: &Spec) -> Vec<NamespaceKind> {
    use NamespaceKind::{Ipc, Mount, Net, Pid, User, Uts};
    if !spec.namespaces {
        return Vec::new();
    }
    let mut kinds = vec![Mount, Pid, Ipc, Uts];
    if !identity::has_capability(identity::CAP_SYS_ADMIN) {
        kinds.push(User);
    }
    if !spec.network {
        kinds.push(Net);
    }
    kinds
}

fn limits(spec: &Spec) -> Limits {
    Limits {
        memory_bytes: MEMORY_BYTES,
        cpu_millicores: 1000,
        timeout_ms: spec.deadline_ms,
        processes: PROCESSES,
        output_bytes: 0,
        disk_bytes: 0,
    }
}

/// The same id inside as outside (user_namespaces(7)).
fn map_self(pid: i32) -> io::Result<()> {
    let (uid, gid) = identity::effective_ids();
    let proc = Path::new("/proc").join(pid.to_string());
    fs::write(proc.join("setgroups"), "deny")?;
    fs::write(proc.join("gid_map"), format!("{gid} {gid} 1\n"))?;
    fs::write(proc.join("uid_map"), format!("{uid} {uid} 1\n"))
}

/// Pid 1: the walls, the program, its end.
fn inside(handed: &Handed, entrance: Option<Entrance>, supervisor: &OwnedFd) -> Report {
    match enter(handed, entrance, supervisor) {
        Ok(pid) => {
            let mut status = None;
            while let Ok(Some(ended)) = wait::wait(Child::Any) {
                if ended.pid == pid {
                    status = Some(ended.status.into_raw());
                    break;
                }
            }
            status.map_or(Report::TimedOut, |status| Report::Ended { status })
        }
        Err(report) => report,
    }
}

fn enter(handed: &Handed, entrance: Option<Entrance>, supervisor: &OwnedFd) -> Step<i32> {
    let spec = &handed.spec;
    step("die with the supervisor", process::die_with_parent())?;
    if let Some(entrance) = &entrance {
        step("enter the cgroup", entrance.enter())?;
    }
    // Until the identity is mapped.
    let go = step("wait for the supervisor", wire::receive::<()>(supervisor.as_fd()))?;
    if go.is_none() {
        process::exit_now(0);
    }
    let null = step("null device", File::options().write(true).open("/dev/null"))?;
    let rules = prepare_rules(handed)?;
    if spec.namespaces {
        mounts::build(handed)?;
    } else {
        step("directory", process::change_directory(&spec.directory))?;
    }
    let rules = match (rules, spec.own_proc && spec.namespaces) {
        (Some(rules), true) => Some(step("landlock", rules.add(Path::new("/proc"), Right::View))?),
        (rules, _) => rules,
    };
    if let Some((uid, gid)) = spec.identity {
        step("groups", identity::leave_groups())?;
        step("identity", identity::become_user(uid, gid))?;
    }
    step("die with the supervisor", process::die_with_parent())?;
    for (limit, value) in rlimits(spec) {
        step("limits", resource::lower_limit(0, limit, value))?;
    }
    step("capabilities", identity::drop_all_capabilities())?;
    step("no new privileges", identity::refuse_new_privileges())?;
    step("not dumpable", process::refuse_dumps())?;
    if let Some(rules) = rules {
        step("landlock", landlock::confine(rules))?;
    }
    match step("fork", process::fork())? {
        Fork::Parent(pid) => {
            // The pipes are the program's.
            step("streams", process::place_descriptor(&null, 1))?;
            step("streams", process::place_descriptor(&null, 2))?;
            Ok(pid)
        }
        Fork::Child => {
            let failed = execute(handed);
            drop(wire::send(supervisor.as_fd(), &failed, &[]));
            process::exit_now(127)
        }
    }
}

fn rlimits(spec: &Spec) -> Vec<(Limit, u64)> {
    let mut limits = vec![
        (Limit::Core, 1), // not 0, which a core_pattern that is a pipe ignores (core(5))
        (Limit::Fsize, FILE_BYTES),
        (Limit::Nofile, OPEN_FILES),
        (Limit::Cpu, spec.deadline_ms.div_ceil(1000) + 1),
        (Limit::Data, DATA_BYTES),
        (Limit::Msgqueue, 0),
        (Limit::Memlock, 64 << 10),
    ];
    // Of another user all that it has running counts.
    if spec.identity.is_none() && spec.namespaces {
        // In a user namespace of its own it is counted alone.
        limits.push((Limit::Nproc, u64::from(PROCESSES)));
    }
    if spec.identity.is_some_and(|(uid, _)| uid != 0) {
        limits.push((Limit::Nproc, u64::from(PROCESSES) * 4));
    }
    limits
}

fn right(grant: Grant) -> Right {
    match grant {
        Grant::View => Right::View,
        Grant::List => Right::List,
        Grant::Run => Right::Read,
        Grant::Keep => Right::Keep,
        Grant::Device => Right::Device,
    }
}

/// Rules are about files, not about paths: they are made before the root changes, and hold in it.
fn prepare_rules(handed: &Handed) -> Step<Option<landlock::Rules>> {
    if !handed.spec.landlock {
        return Ok(None);
    }
    let mut rules = Vec::new();
    for (source, grant) in &handed.spec.grants {
        let path = match source {
            Source::Path(path) => path.clone(),
            Source::Descriptor(number) => {
                let open = handed.descriptor(*number)?;
                PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
            }
        };
        rules.push((path, right(*grant)));
    }
    let tcp = match handed.spec.network {
        true => Tcp::Unguarded,
        false => Tcp::Refused,
    };
    step("landlock rules", landlock::prepare(&rules, tcp)).map(Some)
}

/// The program takes this process's place. Returns only with a failure.
fn execute(handed: &Handed) -> Report {
    match prepare_execution(handed) {
        Ok(program) => {
            let spec = &handed.spec;
            let error = process::execute_descriptor(program.as_fd(), &spec.arguments, &spec.environment);
            step::<()>("execute the program", Err(error))
                .err()
                .unwrap_or(Report::TimedOut)
        }
        Err(report) => report,
    }
}

fn prepare_execution(handed: &Handed) -> Step<OwnedFd> {
    /// Above every number that programs get by themselves.
    const PROGRAM: i32 = 900;
    let program = handed.descriptor(0)?;
    let program = step("program", process::duplicate_above(program, PROGRAM))?;
    step("descriptors", process::close_on_exec_from(3))?;
    step("signals", process::reset_signals())?;
    for filter in step("seccomp filter", filters(&handed.spec, program.as_raw_fd()))? {
        step("seccomp", ringfence_sys::seccomp::install(&filter))?;
    }
    // The last one: it allows no more.
    let last = step("seccomp filter", seccomp::of_programs())?;
    step("seccomp", ringfence_sys::seccomp::install(last))?;
    Ok(program)
}

/// What sandboxes have that see a directory of the host: no set-id bits, and no sockets by their path unless its rule
/// names one. Then the command's own.
fn filters(spec: &Spec, program: i32) -> io::Result<Vec<ringfence_sys::seccomp::Program>> {
    let shared = (!spec.sockets).then_some(WorkspaceMode::Rw);
    let mut filters = seccomp::of_host_directories(shared)?;
    filters.push(filter(spec, program)?);
    Ok(filters)
}

/// The jail's filter, and upon it: no program but this one, unless it may start some; no socket, or none but of the
/// kind that it may use.
fn filter(spec: &Spec, program: i32) -> io::Result<ringfence_sys::seccomp::Program> {
    let profile = match spec.namespaces || spec.sockets {
        true => Profile::Full { memory_cgroup: true },
        false => Profile::Landlock {
            memory_cgroup: true,
            servers_user: true,
        },
    };
    let ruleset = seccomp::ruleset(profile)?;
    let mut refused = ruleset.refused.to_vec();
    let rule = |number: i64, tests: Vec<Test>| Rule { number, tests };
    if !spec.executes {
        let number = program.unsigned_abs();
        let flags = libc::AT_EMPTY_PATH.unsigned_abs();
        let rules = vec![
            rule(libc::SYS_execve, Vec::new()),
            rule(libc::SYS_execveat, vec![Test::IsNot(0, number)]),
            rule(libc::SYS_execveat, vec![Test::IsNot(4, flags)]),
        ];
        refused.push(Refusals {
            rules,
            answer: Answer::Errno(EPERM),
        });
    }
    let unix = libc::AF_UNIX.unsigned_abs();
    let sockets = match (spec.network, spec.sockets) {
        (true, _) => Vec::new(),
        (false, true) => vec![rule(libc::SYS_socket, vec![Test::IsNot(0, unix)])],
        // A pair of datagram sockets can send to any path.
        (false, false) => vec![
            rule(libc::SYS_socket, Vec::new()),
            rule(libc::SYS_socketpair, Vec::new()),
        ],
    };
    if !sockets.is_empty() {
        refused.push(Refusals {
            rules: sockets,
            answer: Answer::Errno(EAFNOSUPPORT),
        });
    }
    ringfence_sys::seccomp::compile(&ruleset.numbers, &refused, Answer::Errno(libc::ENOSYS))
}
