//! Walks into the jail: performs a plan in the process that becomes pid 1, step by step and in order. The first step
//! that the kernel refuses ends the run; nothing of the program has been executed then.

mod own_root;

use crate::{
    Part,
    plan::{INSIDE_ID, Identity, PathRight, Plan, Rlimit},
    seccomp,
    wire::Failure,
};
use ringfence_sys::{
    channel, file, identity, landlock,
    landlock::{Right, Tcp},
    process::{self, NamespaceKind},
    resource::{self, Limit},
};
use ringfence_types::Tier;
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
};

/// What is handed to the process that enters.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Plan, code and files, as bytes.
    pub(crate) payload: File,
    /// Trees that only the supervisor could open, by number.
    pub(crate) mapped_trees: Vec<(usize, OwnedFd)>,
    /// The supervisor's pid.
    pub(crate) supervisor: u32,
}

/// Directories that the supervisor and the server look into from outside.
#[derive(Debug)]
pub(crate) struct Doors {
    /// The sandbox's `/proc`.
    pub(crate) proc: OwnedFd,
    /// Where the program's changes are found.
    pub(crate) changes: OwnedFd,
    /// `$RINGFENCE_OUTPUT_DIR`.
    pub(crate) output: OwnedFd,
}

type Step<T> = Result<T, Failure>;

/// Names a step, so that a failure says where it was.
pub(crate) fn step<T>(name: impl Into<String>, result: io::Result<T>) -> Step<T> {
    result.map_err(|error| Failure::new(name, &error))
}

/// Every wall, in order. Afterwards only `exec` is missing.
pub(crate) fn enter(plan: &Plan, handed: &Handed) -> Step<Option<Doors>> {
    match plan.tier {
        Tier::Full => own_root::enter(plan, handed)?,
        Tier::Landlock => {
            take_identity(plan, handed)?;
            // Before Landlock makes the directory read-only.
            write_code(plan, handed)?;
        }
    }
    file::set_umask(0o022);
    for (limit, value) in &plan.rlimits {
        step(
            format!("limit {limit:?}"),
            resource::lower_limit(limit_of(*limit), *value, *value),
        )?;
    }
    if let Some(count) = plan.processors {
        let first = usize::try_from(handed.supervisor).unwrap_or(0);
        step("processor affinity", resource::pin_to_processors(first, count))?;
    }
    step("capabilities", identity::drop_all_capabilities())?;
    step("no new privileges", identity::refuse_new_privileges())?;
    step("not dumpable", process::refuse_dumps())?;
    confine(plan)?;
    write_files(plan, handed)?;
    let doors = open_doors(plan)?;
    let filters = step("seccomp filters", seccomp::programs(plan.seccomp))?;
    if plan.refuse_unix_sockets {
        let filter = step("seccomp filters", seccomp::refuse_unix_sockets())?;
        step("seccomp", ringfence_sys::seccomp::install(&[filter]))?;
    }
    step("seccomp", ringfence_sys::seccomp::install(filters))?;
    Ok(doors)
}

/// Becomes the sandbox's own user, where the server is root; else stays who it is.
fn take_identity(plan: &Plan, handed: &Handed) -> Step<()> {
    let Identity::Own { base } = plan.identity else {
        return Ok(());
    };
    step("groups", identity::leave_groups())?;
    let id = match plan.tier {
        Tier::Full => INSIDE_ID,
        Tier::Landlock => base + handed.supervisor,
    };
    step("identity", identity::become_user(id, id))
}

fn confine(plan: &Plan) -> Step<()> {
    let rules: Vec<(PathBuf, Right)> = plan
        .landlock
        .iter()
        .map(|(path, right)| {
            let right = match right {
                PathRight::Read => Right::Read,
                PathRight::Write => Right::Write,
                PathRight::Device => Right::Device,
            };
            (path.clone(), right)
        })
        .collect();
    let tcp = match plan.tier {
        Tier::Full => Tcp::Unguarded,
        Tier::Landlock => Tcp::Refused,
    };
    step("landlock", landlock::confine(&rules, tcp))
}

/// The code of a sandbox without a root of its own, in its directory of the host.
fn write_code(plan: &Plan, handed: &Handed) -> Step<()> {
    let Some((path, part)) = &plan.code else {
        return Ok(());
    };
    let target = step("code", file::make_file(file::current_directory(), path, 0o444))?;
    step("code", copy_part(&handed.payload, *part, &target))
}

/// Input files are written by the confined process itself: whatever their names, they land where the program could
/// have written them.
fn write_files(plan: &Plan, handed: &Handed) -> Step<()> {
    if plan.files.is_empty() {
        return Ok(());
    }
    let workspace = step(
        "open workspace",
        file::open_directory(file::current_directory(), &plan.layout.workspace),
    )?;
    for (path, part) in &plan.files {
        let name = || format!("write file {}", path.display());
        let mut above = PathBuf::new();
        for component in path.parent().into_iter().flat_map(Path::components) {
            above.push(component);
            step(name(), file::make_directory_beneath(workspace.as_fd(), &above))?;
        }
        let target = step(name(), file::create_beneath(workspace.as_fd(), path))?;
        step(name(), copy_part(&handed.payload, *part, &target))?;
    }
    Ok(())
}

pub(crate) fn copy_part(payload: &File, part: Part, target: &File) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut done = 0;
    while done < part.length {
        let room = usize::try_from((part.length - done).min(buffer.len() as u64)).unwrap_or(buffer.len());
        payload.read_exact_at(&mut buffer[..room], part.offset + done)?;
        target.write_all_at(&buffer[..room], done)?;
        done += room as u64;
    }
    Ok(())
}

fn open_doors(plan: &Plan) -> Step<Option<Doors>> {
    if matches!(plan.program, crate::Program::Worker { .. }) {
        return Ok(None);
    }
    let open = |path: &Path| {
        step(
            format!("open {}", path.display()),
            file::open_directory(file::current_directory(), path),
        )
    };
    let proc = step(
        "open /proc",
        file::open_listing(file::current_directory(), Path::new("/proc")),
    )?;
    Ok(Some(Doors {
        proc,
        changes: open(&plan.changes)?,
        output: open(&plan.layout.output)?,
    }))
}

fn limit_of(limit: Rlimit) -> Limit {
    match limit {
        Rlimit::Core => Limit::Core,
        Rlimit::Cpu => Limit::Cpu,
        Rlimit::FileSize => Limit::FileSize,
        Rlimit::LockedMemory => Limit::LockedMemory,
        Rlimit::MessageQueue => Limit::MessageQueue,
        Rlimit::Nice => Limit::Nice,
        Rlimit::OpenFiles => Limit::OpenFiles,
        Rlimit::PendingSignals => Limit::PendingSignals,
        Rlimit::Processes => Limit::Processes,
        Rlimit::RealtimePriority => Limit::RealtimePriority,
        Rlimit::Stack => Limit::Stack,
    }
}

/// Own clocks for the processes to come: the sandbox was "booted" now, so that the host's uptime does not show.
fn own_clocks() -> io::Result<()> {
    process::unshare(&[NamespaceKind::Time])?;
    let (monotonic, boot) = resource::clock_seconds();
    std::fs::write(
        "/proc/self/timens_offsets",
        format!("monotonic -{monotonic} 0\nboottime -{boot} 0\n"),
    )
}

/// A name and a network of its own.
fn own_host() -> Step<()> {
    step("host name", identity::set_host_name("sandbox"))?;
    step("loopback", channel::loopback_up())
}
