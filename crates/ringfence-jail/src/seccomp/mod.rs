//! The system calls that a program may make: an allowlist with a reason beside every group. A call that is not on it
//! fails with ENOSYS, so that libraries fall back to one that is, and a call that is known to be dangerous fails with
//! EPERM. The tables are in [`table`], the argument rules in [`arguments`].

pub mod arguments;
mod container;
pub mod table;

pub use container::container_profile;

use arguments::Refusal;
use ringfence_sys::seccomp::{
    self, Answer, EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, Program, Refusals, Rule,
};
use ringfence_types::WorkspaceMode;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, sync::OnceLock};
use table::CallGroup;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Tier `full`. Without a memory cgroup, the calls whose memory no sample of the tree would find are refused.
    Full { memory_cgroup: bool },
    /// A template of the tier `full`: it may also join namespaces and hold pidfds of its children. Its forks give that
    /// up by the filter [`fork_filter`], and are then as confined as `Full`.
    Template { memory_cgroup: bool },
    /// Pid 1 of a sandbox whose program a template forks: what `Full` allows of its own calls, in a filter a fifth as
    /// long.
    Init { memory_cgroup: bool },
    /// Tier `landlock`: there is no network namespace, so there are no sockets but Unix pairs; no ipc namespace, so
    /// there is no System V IPC; no pid namespace, so a program sets limits and priorities of itself only.
    Landlock {
        memory_cgroup: bool,
        /// True if the program is the server's user, so that only Landlock guards its files: their modes, owners, times
        /// and attributes cannot be changed then.
        servers_user: bool,
    },
}

impl Profile {
    fn memory_cgroup(self) -> bool {
        match self {
            Self::Full { memory_cgroup }
            | Self::Template { memory_cgroup }
            | Self::Init { memory_cgroup }
            | Self::Landlock { memory_cgroup, .. } => memory_cgroup,
        }
    }

    fn own_ipc(self) -> bool {
        !matches!(self, Self::Landlock { .. })
    }

    fn is_servers_user(self) -> bool {
        matches!(
            self,
            Self::Landlock {
                servers_user: true,
                ..
            }
        )
    }

    fn number(self) -> usize {
        let kind = match self {
            Self::Landlock { servers_user, .. } => 2 * usize::from(servers_user),
            Self::Full { .. } => 4,
            Self::Template { .. } => 6,
            Self::Init { .. } => 8,
        };
        kind + usize::from(self.memory_cgroup())
    }
}

/// Returns the filter of a profile, compiled once per process; the helper does so for `Full` and `Init` before it
/// forks.
pub fn program(profile: Profile) -> io::Result<&'static Program> {
    static COMPILED: [OnceLock<Program>; 10] = [const { OnceLock::new() }; 10];
    once(&COMPILED[profile.number()], || {
        let Ruleset { numbers, refused } = ruleset(profile)?;
        seccomp::compile(&numbers, &refused, Answer::Errno(ENOSYS))
    })
}

fn once(
    slot: &'static OnceLock<Program>,
    compile: impl FnOnce() -> io::Result<Program>,
) -> io::Result<&'static Program> {
    match slot.get() {
        Some(compiled) => Ok(compiled),
        None => compile().map(|compiled| slot.get_or_init(|| compiled)),
    }
}

/// The limit of what programs write into directories of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskLimit {
    /// It is measured.
    Measured,
    Absent,
}

#[derive(Debug)]
pub struct Ruleset {
    /// The answer of each number; one that is missing answers `ENOSYS`.
    pub numbers: BTreeMap<u32, Answer>,
    /// Refused uses. The last one that refuses a call decides the error.
    pub refused: [Refusals; 5],
}

pub fn ruleset(profile: Profile) -> io::Result<Ruleset> {
    let mut numbers = by_number(profile)?;
    let mut refused = refused_uses(profile).map(|(all, errno)| refusals(all, errno));
    if let Profile::Init { .. } = profile {
        let own = table::COMPUTING.iter().chain(table::INIT);
        let own = answers(own.map(|(_, call)| (*call, Answer::Allow)))?;
        numbers.retain(|number, _| own.contains_key(number));
        let is_own = |rule: &Rule| u32::try_from(rule.number).is_ok_and(|number| own.contains_key(&number));
        refused
            .iter_mut()
            .for_each(|refused| refused.rules.retain(is_own));
    }
    Ok(Ruleset { numbers, refused })
}

pub fn refused_uses(profile: Profile) -> [(Vec<Refusal>, i32); 5] {
    [
        (arguments::refused(profile), EPERM),
        (arguments::families(profile), EAFNOSUPPORT),
        (arguments::uncounted_memory(profile), ENOMEM),
        (arguments::unknown_flags(profile), EINVAL),
        (arguments::no_op_uses(), NO_OP),
    ]
}

/// Errno 0: the call returns success without being made.
pub const NO_OP: i32 = 0;

/// Calls that a template may make and its forks may not, with the answer of `Full`.
const TEMPLATE_CALLS: [(i64, Answer); 2] = [
    (libc::SYS_setns, Answer::Errno(EPERM)),
    (libc::SYS_pidfd_open, Answer::Errno(ENOSYS)),
];

/// Returns the filter that a fork of a template installs on top of the template's.
pub fn fork_filter() -> io::Result<Program> {
    seccomp::compile(&answers(TEMPLATE_CALLS)?, &[], Answer::Allow)
}

/// Returns the filter that every program installs last: it may install no filter of its own. All programs of the host
/// share the memory for compiled filters (net.core.bpf_jit_limit), and without it no sandbox can start.
pub fn final_filter() -> io::Result<&'static Program> {
    static COMPILED: OnceLock<Program> = OnceLock::new();
    once(&COMPILED, || {
        let refused = [refusals(arguments::own_filters(), EINVAL)];
        seccomp::compile(&BTreeMap::new(), &refused, Answer::Allow)
    })
}

/// The filter of a process of ours that only computes, reads and writes what is open; other calls fail with EPERM.
pub fn compute_filter() -> io::Result<Program> {
    let computing = table::COMPUTING.iter().map(|(_, call)| (*call, Answer::Allow));
    seccomp::compile(&answers(computing)?, &[], Answer::Errno(EPERM))
}

/// Returns one more filter, for programs that see a directory of the host: a shared one, or, in the tier `landlock`,
/// their own. If the profile refuses the same, the error is the same: either may be first.
pub fn host_directory_filter(shared: Option<WorkspaceMode>, disk_limit: DiskLimit) -> io::Result<Program> {
    let mut refused = vec![refusals(arguments::set_id_bits(), EPERM)];
    if disk_limit == DiskLimit::Measured {
        refused.push(refusals(arguments::uncounted_space(), EOPNOTSUPP));
    }
    if shared.is_some() {
        refused.push(refusals(arguments::unix_sockets(), EAFNOSUPPORT));
    }
    if shared == Some(WorkspaceMode::Ro) {
        refused.push(refusals(arguments::locks(), EOPNOTSUPP));
    }
    // The mode of openat2 is behind a pointer; libraries fall back to openat.
    let openat2 = answers([(libc::SYS_openat2, Answer::Errno(ENOSYS))])?;
    seccomp::compile(&openat2, &refused, Answer::Allow)
}

fn refusals(all: Vec<Refusal>, errno: i32) -> Refusals {
    Refusals {
        rules: all.into_iter().map(Refusal::rule).collect(),
        answer: Answer::Errno(errno),
    }
}

fn by_number(profile: Profile) -> io::Result<BTreeMap<u32, Answer>> {
    let allowed = allowed(profile).map(|group| (group, Answer::Allow));
    let refused = table::REFUSED.iter().map(|group| (group, Answer::Errno(EPERM)));
    let done = table::NO_OP.iter().map(|group| (group, Answer::Errno(NO_OP)));
    let groups = allowed.chain(refused).chain(done);
    let groups = groups.flat_map(|(group, answer)| group.calls.iter().map(move |(_, call)| (*call, answer)));
    let is_template = matches!(profile, Profile::Template { .. });
    let of_templates = TEMPLATE_CALLS.into_iter().filter(|_| is_template);
    answers(groups.chain(of_templates.map(|(call, _)| (call, Answer::Allow))))
}

/// Maps the answers by number; the last answer of a call counts.
fn answers(calls: impl IntoIterator<Item = (i64, Answer)>) -> io::Result<BTreeMap<u32, Answer>> {
    let number = |call| u32::try_from(call).map_err(io::Error::other);
    let calls = calls.into_iter();
    calls.map(|(call, answer)| Ok((number(call)?, answer))).collect()
}

/// Returns the groups that need the ipc namespace or the memory cgroup, with the reason for those that are absent.
pub fn conditional(profile: Profile) -> [(&'static [CallGroup], Option<&'static str>); 2] {
    let uncounted = (!profile.memory_cgroup()).then_some("no cgroup counts its memory");
    let shared = (!profile.own_ipc()).then_some("no ipc namespace: it would be the host's");
    [
        (table::COUNTED, uncounted),
        (table::OWN_COUNTED_IPC, shared.or(uncounted)),
    ]
}

pub fn allowed(profile: Profile) -> impl Iterator<Item = &'static CallGroup> {
    let conditional = conditional(profile)
        .into_iter()
        .filter(|(_, lacking)| lacking.is_none())
        .flat_map(|(groups, _)| groups);
    table::ALLOWED.iter().chain(conditional)
}
