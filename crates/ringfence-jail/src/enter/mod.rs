//! Performs a plan in the process that becomes pid 1, step by step and in order. The first step that the kernel refuses
//! ends the run, before anything of the program is executed.

pub(crate) mod own_root;

use crate::{
    Part, Program, egress,
    failure::{StepResult, step},
    plan::{Claim, INSIDE_ID, Identity, PathRight, Plan, Rlimit},
    sample,
    seccomp::{self, DiskLimit},
    tree, uncharged,
    wire::Handle,
};
use ringfence_sys::{
    file, identity, landlock,
    landlock::{Right, Rules, Tcp},
    network,
    process::{self, NamespaceKind},
    resource::{self, Limit},
};
use ringfence_types::{Tier, WorkspaceMode};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

#[derive(Debug)]
pub(crate) struct Inherited {
    /// Trees that only the supervisor could open, by their number in the plan.
    pub(crate) mapped_trees: Vec<(usize, OwnedFd)>,
    pub(crate) supervisor: u32,
    pub(crate) proc: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) rules: Rules,
    pub(crate) code: Option<OwnedFd>,
    pub(crate) descriptors: Handles,
}

/// Descriptors by which the supervisor, and in part the server, reach into the sandbox from outside. A worker has none.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    pub(crate) changes: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) proc: Option<OwnedFd>,
    /// The private disk, for changing its size (tier `full`).
    pub(crate) disk: Option<OwnedFd>,
    /// The sockets of its egress (tier `full`).
    pub(crate) sockets: Vec<OwnedFd>,
    /// All layers of packages. None of them is visible inside until a claim names it.
    pub(crate) layers: Option<OwnedFd>,
    /// The mount namespace that the sandboxes of a template copy.
    pub(crate) mount: Option<OwnedFd>,
}

impl Handles {
    pub(crate) fn by_kind(self) -> Vec<(Handle, OwnedFd)> {
        let sockets = (0_u8..).map(Handle::Socket).zip(self.sockets);
        let others = [
            (Handle::Changes, self.changes),
            (Handle::Output, self.output),
            (Handle::Proc, self.proc),
            (Handle::Disk, self.disk),
            (Handle::Layers, self.layers),
            (Handle::Mount, self.mount),
        ];
        let others = others.into_iter();
        let there = others.filter_map(|(kind, descriptor)| Some((kind, descriptor?)));
        there.chain(sockets).collect()
    }
}

/// Raises every wall that pid 1 and the program share, in order. Nothing of the request is known yet.
pub(crate) fn enter(plan: &Plan, inherited: &Inherited) -> StepResult<Entered> {
    let (code, mut descriptors) = match plan.tier {
        Tier::Full | Tier::Gvisor | Tier::Container => {
            let built = own_root::enter(plan, inherited)?;
            (built.code, built.handles)
        }
        Tier::Landlock => {
            take_identity(plan, inherited)?;
            (Some(open(&plan.layout.code)?), Handles::default())
        }
    };
    file::set_umask(0o022);
    for (limit, value) in &plan.rlimits {
        let lowered = resource::lower_limit(0, limit_of(*limit), *value);
        step(format!("limit {limit:?}"), lowered)?;
    }
    // A template moves its forks into their namespaces; over anything but those it has no power.
    let capabilities = match plan.program {
        Program::Template { .. } => identity::keep_one_capability(identity::CAP_SYS_ADMIN),
        // The program is the template's child, and pid 1 executes no other.
        Program::Forked => identity::drop_own_capabilities(),
        _ => identity::drop_all_capabilities(),
    };
    step("capabilities", capabilities)?;
    step("no new privileges", identity::set_no_new_privileges())?;
    step("not dumpable", process::refuse_dumps())?;
    open_descriptors(plan, &mut descriptors)?;
    Ok(Entered {
        rules: rules(plan)?,
        code,
        descriptors,
    })
}

/// Adds the program's rights in the workspace of its claim: rules apply to directories, not to paths.
pub(crate) fn add_workspace_rule(rules: Rules, plan: &Plan, claim: &Claim) -> StepResult<Rules> {
    match &claim.workspace {
        Some(shared) if shared.mode == WorkspaceMode::Rw => {
            step("landlock", rules.add(&plan.layout.workspace, Right::Write))
        }
        _ => Ok(rules),
    }
}

/// Installs the filter of pid 1 and of what it starts from then on.
pub(crate) fn filter(plan: &Plan) -> StepResult<()> {
    let filter = step("seccomp filter", seccomp::program(plan.seccomp))?;
    step("seccomp", ringfence_sys::seccomp::install(filter))
}

/// Installs the program's additional filter for a directory of the host, in which pid 1 does nothing. `claimed`: the
/// mode in which its claim shares one.
pub(crate) fn filter_host_directories(plan: &Plan, claimed: Option<WorkspaceMode>) -> StepResult<()> {
    let shared = claimed.or_else(|| plan.shared_mode());
    let disk_limit = match (plan.tier, shared) {
        (Tier::Full, None) => return Ok(()),
        (Tier::Full, Some(WorkspaceMode::Ro | WorkspaceMode::Overlay)) => DiskLimit::Absent,
        _ => DiskLimit::Measured,
    };
    let filter = step(
        "seccomp filter",
        seccomp::host_directory_filter(shared, disk_limit),
    )?;
    step("seccomp", ringfence_sys::seccomp::install(&filter))
}

/// Installs the last filter of a program, after which it can install no other.
pub(crate) fn filter_last() -> StepResult<()> {
    let filter = step("seccomp filter", seccomp::final_filter())?;
    step("seccomp", ringfence_sys::seccomp::install(filter))
}

/// Applies the claim's limits to one process (0: this one), and to all that it starts.
pub(crate) fn limit(pid: i32, plan: &Plan, claim: &Claim) -> StepResult<()> {
    for (limit, value) in &claim.rlimits {
        // Without a user namespace of its own, all processes of the user count.
        let others = match (plan.tier, &plan.identity, limit) {
            (Tier::Landlock, Identity::Server { uid, .. }, Rlimit::Processes) => {
                sample::threads_of(*uid) + claim.others
            }
            _ => 0,
        };
        let lowered = resource::lower_limit(pid, limit_of(*limit), *value + others);
        step(format!("limit {limit:?}"), lowered)?;
    }
    Ok(())
}

/// Pins one process (0: this one), and all that it starts, to the claim's processors. The filter refuses this.
pub(crate) fn pin(pid: i32, claim: &Claim, supervisor: u32) -> StepResult<()> {
    let Some(count) = claim.processors else {
        return Ok(());
    };
    let first = usize::try_from(supervisor).unwrap_or(0);
    // An interpreter that was started before its claim may have several threads.
    let pinned = tree::threads(pid).and_then(|threads| {
        let pin = |thread| resource::pin_to_processors(thread, first, count);
        threads.into_iter().try_for_each(pin)
    });
    step("processor affinity", pinned)
}

/// Maps the one id inside to this process's own outside, as any process may (user_namespaces(7)), and makes the sandbox
/// the first to be killed when the host runs out of memory. For pid 1 of a sandbox that is made from a template.
pub(crate) fn map_self(plan: &Plan, inherited: &Inherited) -> StepResult<()> {
    let (uid, gid) = match plan.identity {
        Identity::Own { base } => (base + inherited.supervisor, base + inherited.supervisor),
        Identity::Server { uid, gid } => (uid, gid),
    };
    let own = file::open_directory(inherited.proc.as_fd(), Path::new("self/."));
    let own = step("open own process", own)?;
    for (name, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{INSIDE_ID} {uid} 1\n")),
        ("gid_map", format!("{INSIDE_ID} {gid} 1\n")),
        ("oom_score_adj", "1000".to_owned()),
    ] {
        step(name, file::write_small(own.as_fd(), Path::new(name), &text))?;
    }
    Ok(())
}

/// Becomes the sandbox's own user, if the server is root; else keeps the server's.
fn take_identity(plan: &Plan, inherited: &Inherited) -> StepResult<()> {
    let Identity::Own { base } = plan.identity else {
        return Ok(());
    };
    if !matches!(plan.program, Program::Forked) {
        step("groups", identity::clear_groups())?;
    }
    let id = match (plan.tier, &plan.program) {
        (Tier::Full, Program::Template { .. }) | (Tier::Landlock, _) => base + inherited.supervisor,
        (Tier::Full | Tier::Gvisor | Tier::Container, _) => INSIDE_ID,
    };
    step("identity", identity::become_user(id, id))
}

fn rules(plan: &Plan) -> StepResult<Rules> {
    // Kept open until the rules are made from it.
    let workspace = match plan.tier {
        Tier::Full | Tier::Gvisor | Tier::Container => None,
        Tier::Landlock => Some(open_inside(plan, &plan.layout.workspace)?),
    };
    let rule = |(path, right): &(PathBuf, PathRight)| {
        let right = match right {
            PathRight::Read => Right::Read,
            PathRight::Write => Right::Write,
            PathRight::Keep => Right::Keep,
            PathRight::Device => Right::Device,
        };
        let path = match &workspace {
            Some(open) if *path == plan.layout.workspace => {
                format!("/proc/self/fd/{}", open.as_raw_fd()).into()
            }
            _ => path.clone(),
        };
        (path, right)
    };
    let rules: Vec<(PathBuf, Right)> = plan.landlock.iter().map(rule).collect();
    let tcp = match plan.tier {
        Tier::Full | Tier::Gvisor | Tier::Container => Tcp::Unguarded,
        Tier::Landlock => Tcp::Refused,
    };
    step("landlock", landlock::prepare(&rules, tcp))
}

/// Writes the files of the claim: the code to a place that the program cannot write, and the input files, under any
/// names, where the program could have written them (no link is followed, nothing outside the workspace is reached).
pub(crate) fn write(plan: &Plan, claim: &Claim, code: Option<&OwnedFd>, payload: &File) -> StepResult<()> {
    for ((name, part), directory) in claim.code.iter().zip(code.into_iter().cycle()) {
        let written = file::make_file(directory.as_fd(), Path::new(name), 0o444)
            .and_then(|target| copy_part(payload, *part, &target));
        step("code", written)?;
    }
    if claim.files.is_empty() {
        return Ok(());
    }
    let workspace = open_inside(plan, &plan.layout.workspace)?;
    for (path, part) in &claim.files {
        let path = Path::new(path.as_str());
        let name = || format!("write file {}", path.display());
        let mut above = PathBuf::new();
        for component in path.parent().into_iter().flat_map(Path::components) {
            above.push(component);
            step(name(), file::make_directory_beneath(workspace.as_fd(), &above))?;
        }
        let target = step(name(), file::create_beneath(workspace.as_fd(), path))?;
        step(name(), copy_part(payload, *part, &target))?;
    }
    Ok(())
}

fn copy_part(payload: &File, part: Part, target: &File) -> io::Result<()> {
    let bytes = usize::try_from(part.length).unwrap_or(usize::MAX);
    let mut buffer = Zeroizing::new(vec![0; bytes.min(64 << 10)]);
    let mut done = 0;
    while done < part.length {
        let room = usize::try_from((part.length - done).min(buffer.len() as u64)).unwrap_or(buffer.len());
        payload.read_exact_at(&mut buffer[..room], part.offset + done)?;
        target.write_all_at(&buffer[..room], done)?;
        done += room as u64;
    }
    Ok(())
}

fn open_descriptors(plan: &Plan, descriptors: &mut Handles) -> StepResult<()> {
    if matches!(plan.program, Program::Worker { .. }) {
        return Ok(());
    }
    let proc = file::open_listing(file::current_directory(), Path::new("/proc"));
    descriptors.proc = Some(step("open /proc", proc)?);
    descriptors.changes = Some(open_inside(plan, &plan.changes)?);
    descriptors.output = Some(open(&plan.layout.output)?);
    Ok(())
}

/// Opens a directory of the program's; in the tier `landlock` it may be one of the host's, under its own path.
fn open_inside(plan: &Plan, path: &Path) -> StepResult<OwnedFd> {
    match plan.shared_at(path).filter(|_| plan.tier == Tier::Landlock) {
        Some(shared) => step(format!("open {}", path.display()), shared.reopen()),
        None => open(path),
    }
}

fn open(path: &Path) -> StepResult<OwnedFd> {
    let opened = file::open_directory(file::current_directory(), path);
    step(format!("open {}", path.display()), opened)
}

fn limit_of(limit: Rlimit) -> Limit {
    match limit {
        Rlimit::Core => Limit::Core,
        Rlimit::Cpu => Limit::Cpu,
        Rlimit::FileSize => Limit::Fsize,
        Rlimit::LockedMemory => Limit::Memlock,
        Rlimit::MessageQueue => Limit::Msgqueue,
        Rlimit::Nice => Limit::Nice,
        Rlimit::OpenFiles => Limit::Nofile,
        Rlimit::PendingSignals => Limit::Sigpending,
        Rlimit::Processes => Limit::Nproc,
        Rlimit::RealtimePriority => Limit::Rtprio,
        Rlimit::Stack => Limit::Stack,
    }
}

/// Creates a time namespace for future children, "booted" now, so that the host's uptime does not show.
fn new_time_namespace(proc: BorrowedFd<'_>) -> io::Result<()> {
    let path = Path::new("self/timens_offsets");
    // Offsets count from the host's clocks, and this process may be in a time namespace already, which may be ahead.
    let inherited = file::read_small(proc, path, 4096)?;
    process::unshare(&[NamespaceKind::Time])?;
    let (monotonic, boot) = resource::clock_seconds();
    file::write_small(proc, path, &offsets_to_zero(&inherited, monotonic, boot))
}

/// Returns the offsets that set clocks that show these seconds, by these offsets, to the beginning of second 0.
fn offsets_to_zero(inherited: &str, monotonic: i64, boot: i64) -> String {
    let line = |name: &str, now: i64| {
        let words = inherited.lines().find_map(|line| line.trim().strip_prefix(name));
        let mut words = words.unwrap_or_default().split_whitespace();
        let seconds: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        format!("{name} {} {}\n", seconds - now, words.next().unwrap_or("0"))
    };
    line("monotonic", monotonic) + &line("boottime", boot)
}

/// Sets the host name, keeps the buffers of sockets small, and opens the sockets of the egress.
fn set_up_host_name_and_network(plan: &Plan, proc: BorrowedFd<'_>) -> StepResult<Vec<OwnedFd>> {
    if !plan.refused.host_name {
        step("host name", identity::set_host_name("sandbox"))?;
    }
    for (name, value) in uncharged::SETTINGS {
        match file::write_small(proc, &Path::new("sys/net").join(name), value) {
            Err(error) if name == uncharged::OPTIONS && error.kind() == io::ErrorKind::NotFound => {}
            set => step(name, set)?,
        }
    }
    step("loopback", network::loopback_up())?;
    if !plan.is_bound_late() {
        return Ok(Vec::new());
    }
    step("sockets of the egress", egress::open_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_start_at_zero_in_any_time_namespace() {
        let check = |inherited: &str, expect: &str| {
            assert_eq!(offsets_to_zero(inherited, 500, 600), expect, "{inherited:?}");
        };
        check(
            "monotonic           0         0\nboottime            0         0\n",
            "monotonic -500 0\nboottime -600 0\n",
        );
        check(
            "monotonic  -20 7\nboottime 100000 9\n",
            "monotonic -520 7\nboottime 99400 9\n",
        );
        check("", "monotonic -500 0\nboottime -600 0\n");
    }
}
