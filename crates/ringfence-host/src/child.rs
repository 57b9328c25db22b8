//! The process that a command runs in: this binary, re-executed with one thread. It receives plan and descriptors over
//! the socket on its standard input, creates the namespaces, and stays outside as the supervisor: at the deadline, or
//! when the server closes the socket, it ends everything inside. Pid 1 inside is also this binary; it puts up the walls
//! in order, each step named, starts the program and reports its wait status.

use crate::{
    mounts,
    spec::{Grant, Handed, Report, Source, Spec, Step, step},
};
use ringfence_jail::{
    cgroup::{Cgroup, CgroupEntry},
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

/// First argument of this process's command line.
pub const CHILD_WORD: &str = "__host-command";

const MEMORY_BYTES: u64 = 512 << 20;
const PROCESSES: u32 = 64;
/// RLIMIT_DATA of each process, which also holds without a cgroup; more than the libraries of an interpreter need.
const DATA_BYTES: u64 = 2 << 30;
const OPEN_FILES: u64 = 1024;
const FILE_BYTES: u64 = 64 << 20;
const SPEC_BYTES_MAX: u64 = 1 << 20;
/// Time for killing the remaining processes of a command that has no pid namespace.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the whole child process; `main` calls it when the first argument is [`CHILD_WORD`]. Returns the exit status.
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
    process::stop_ignoring_children()?;
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
    // An error means that the server has closed the socket.
    drop(wire::send(control.as_fd(), &report, &[]));
    Ok(())
}

/// Creates the namespaces and their pid 1, and waits until it ends.
fn supervise(handed: Handed, control: &OwnedFd) -> Step<Report> {
    let spec = &handed.spec;
    let (deadline, namespaces) = (Duration::from_millis(spec.deadline_ms), namespaces(spec));
    let group = step("cgroup", Cgroup::create(&spec.cgroups, &limits(spec)))?;
    let cgroup_entry = step("cgroup", group.as_ref().map(Cgroup::entry).transpose())?;
    let (ours, theirs) = step("channel", ringfence_sys::channel::pair())?;
    step("adopt orphans", process::adopt_orphans())?;
    let events = step("child events", process::child_events())?;
    let forked = match &cgroup_entry {
        Some(CgroupEntry::AtClone(directory)) => process::fork_into_cgroup(&namespaces, directory.as_fd()),
        _ => process::fork_into(&namespaces),
    };
    let pid = match step("namespaces", forked)? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            drop(ours);
            let report = inside(&handed, cgroup_entry, &theirs);
            drop(wire::send(theirs.as_fd(), &report, &[]));
            process::exit_now(0)
        }
    };
    drop((theirs, cgroup_entry));
    let spec = handed.spec;
    drop(handed.descriptors);
    let sealed = match namespaces.contains(&NamespaceKind::User) {
        true => step("identity map", map_self(pid)),
        false => Ok(()),
    };
    // Not earlier: without the dumpable attribute root owns the files of /proc that map the ids.
    step("not dumpable", process::refuse_dumps())?;
    // From now on only the program holds the writing ends of the output pipes.
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
        let [reported, hung_up, _, memory] = match wait::readable(polled, Some(left)) {
            Ok(ready) => ready,
            Err(error) => return step::<()>("wait", Err(error)).err().unwrap_or(Report::TimedOut),
        };
        if memory {
            return Report::OutOfMemory;
        }
        if reported {
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

/// Kills everything: pid 1 of the pid namespace, or without one the process group and all descendants.
fn end(pid: i32, spec: &Spec) {
    drop(process::kill(pid, Kill::Kill));
    if spec.namespaces {
        // The kernel ends the whole pid namespace with its pid 1.
        while matches!(wait::wait(Child::Any), Ok(Some(_))) {}
        return;
    }
    drop(process::kill_group(pid, Kill::Kill));
    ringfence_jail::kill_descendants(KILL_TIMEOUT);
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

/// Maps the effective ids to the same ids inside (user_namespaces(7)).
fn map_self(pid: i32) -> io::Result<()> {
    let (uid, gid) = identity::effective_ids();
    let proc = Path::new("/proc").join(pid.to_string());
    fs::write(proc.join("setgroups"), "deny")?;
    fs::write(proc.join("gid_map"), format!("{gid} {gid} 1\n"))?;
    fs::write(proc.join("uid_map"), format!("{uid} {uid} 1\n"))
}

/// Pid 1: puts up the walls, starts the program and waits for its end.
fn inside(handed: &Handed, cgroup_entry: Option<CgroupEntry>, supervisor: &OwnedFd) -> Report {
    match enter(handed, cgroup_entry, supervisor) {
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

fn enter(handed: &Handed, cgroup_entry: Option<CgroupEntry>, supervisor: &OwnedFd) -> Step<i32> {
    let spec = &handed.spec;
    step("die with the supervisor", process::die_with_parent())?;
    if let Some(cgroup_entry) = &cgroup_entry {
        step("enter the cgroup", cgroup_entry.enter())?;
    }
    // The supervisor sends this once the ids are mapped.
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
        step("groups", identity::clear_groups())?;
        step("identity", identity::become_user(uid, gid))?;
    }
    step("die with the supervisor", process::die_with_parent())?;
    for (limit, value) in rlimits(spec) {
        step("limits", resource::lower_limit(0, limit, value))?;
    }
    step("capabilities", identity::drop_all_capabilities())?;
    step("no new privileges", identity::set_no_new_privileges())?;
    step("not dumpable", process::refuse_dumps())?;
    if let Some(rules) = rules {
        step("landlock", landlock::confine(rules))?;
    }
    match step("fork", process::fork())? {
        Fork::Parent(pid) => {
            // Only the program keeps the output pipes.
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
        (Limit::Core, 1), // not 0, which is ignored when core_pattern is a pipe (core(5))
        (Limit::Fsize, FILE_BYTES),
        (Limit::Nofile, OPEN_FILES),
        (Limit::Cpu, spec.deadline_ms.div_ceil(1000) + 1),
        (Limit::Data, DATA_BYTES),
        (Limit::Msgqueue, 0),
        (Limit::Memlock, 64 << 10),
    ];
    // RLIMIT_NPROC counts all processes of a user, so another user's limit is wider.
    if spec.identity.is_none() && spec.namespaces {
        // In its own user namespace only the command's processes count.
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

/// Landlock rules refer to files, not to paths: they are made before the root changes and hold inside the new root.
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

/// Executes the program in this process. Returns only on failure.
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
    /// Above the descriptor numbers that programs are given by default.
    const PROGRAM: i32 = 900;
    let program = handed.descriptor(0)?;
    let program = step("program", process::duplicate_above(program, PROGRAM))?;
    step("descriptors", process::close_on_exec_from(3))?;
    step("signals", process::reset_signals())?;
    for filter in step("seccomp filter", filters(&handed.spec, program.as_raw_fd()))? {
        step("seccomp", ringfence_sys::seccomp::install(&filter))?;
    }
    // Last, because after it no filter can be installed.
    let last = step("seccomp filter", seccomp::final_filter())?;
    step("seccomp", ringfence_sys::seccomp::install(last))?;
    Ok(program)
}

/// The filter of sandboxes that see a directory of the host (no set-id bits, and no Unix sockets unless the rule names
/// a socket), then the command's own filter. No limit of a disk is measured here.
fn filters(spec: &Spec, program: i32) -> io::Result<[ringfence_sys::seccomp::Program; 2]> {
    let shared = (!spec.sockets).then_some(WorkspaceMode::Rw);
    let first = seccomp::host_directory_filter(shared, seccomp::DiskLimit::Absent)?;
    Ok([first, filter(spec, program)?])
}

/// The jail's filter, and in addition: execution of this program only, unless the command may start programs; and
/// without the host's network no sockets, or only Unix sockets where the rule names one.
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
        // A datagram socket of a pair can send to any path.
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
