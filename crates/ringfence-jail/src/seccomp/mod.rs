//! Which system calls a program may make. An allowlist with a reason beside every group; a call that is not on
//! it fails with "no such system call", so that libraries fall back to one that is, and a call that is known to be
//! dangerous fails with "not permitted". The tables are in [`table`], the argument rules in [`arguments`].

pub mod arguments;
mod container;
pub mod table;

pub use container::profile_of_containers;

use arguments::Refusal;
use ringfence_sys::seccomp::{
    self, Answer, EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, Program, Refusals,
};
use ringfence_types::WorkspaceMode;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, sync::OnceLock};
use table::CallGroup;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Tier `full`. Without a memory cgroup, the calls whose memory no look at the tree would see are refused.
    Full { memory_cgroup: bool },
    /// A template of the tier `full`: it may also join namespaces and hold descriptors of its children. What it forks
    /// gives that up by the filter [`of_forks`], and is then where `Full` is.
    Template { memory_cgroup: bool },
    /// Tier `landlock`: there is no network namespace, so there are no sockets; no ipc namespace, so there is no System
    /// V; no pid namespace, so limits and priorities are set of oneself only.
    Landlock {
        memory_cgroup: bool,
        /// Whether the program is the server's user, so that only Landlock guards its files: then their modes,
        /// owners, times and attributes stay.
        servers_user: bool,
    },
}

impl Profile {
    fn memory_cgroup(self) -> bool {
        match self {
            Self::Full { memory_cgroup }
            | Self::Template { memory_cgroup }
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
        };
        kind + usize::from(self.memory_cgroup())
    }
}

/// The filter of a profile. Compiled once in a process; the helper does it before it forks, so that a sandbox finds it
/// ready.
pub fn program(profile: Profile) -> io::Result<&'static Program> {
    static COMPILED: [OnceLock<Program>; 8] = [const { OnceLock::new() }; 8];
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

/// What the filter of a profile is made of.
#[derive(Debug)]
pub struct Ruleset {
    /// What each number answers; one that is not there answers `ENOSYS`.
    pub numbers: BTreeMap<u32, Answer>,
    /// Refused uses. The last that refuses a call says with which error.
    pub refused: [Refusals; 5],
}

pub fn ruleset(profile: Profile) -> io::Result<Ruleset> {
    Ok(Ruleset {
        numbers: by_number(profile)?,
        refused: refused_uses(profile).map(|(all, errno)| refusals(all, errno)),
    })
}

/// With their errors.
pub fn refused_uses(profile: Profile) -> [(Vec<Refusal>, i32); 5] {
    [
        (arguments::refused(profile), EPERM),
        (arguments::families(profile), EAFNOSUPPORT),
        (arguments::uncounted_memory(profile), ENOMEM),
        (arguments::unknown_flags(profile), EINVAL),
        (arguments::without_effect(), DONE),
    ]
}

/// "Success": the call is not made.
pub const DONE: i32 = 0;

/// Calls that a template may make and its forks may not, with the answer that `Full` gives.
const OF_TEMPLATES: [(i64, Answer); 2] = [
    (libc::SYS_setns, Answer::Errno(EPERM)),
    (libc::SYS_pidfd_open, Answer::Errno(ENOSYS)),
];

/// What a fork of a template installs on top of the template's filter.
pub fn of_forks() -> io::Result<Program> {
    seccomp::compile(&answers(OF_TEMPLATES)?, &[], Answer::Allow)
}

/// What every program installs last: it may install no filter of its own. The code that the kernel compiles for filters
/// is of a size that all programs of the host share (net.core.bpf_jit_limit), and without it no sandbox can start.
pub fn of_programs() -> io::Result<&'static Program> {
    static COMPILED: OnceLock<Program> = OnceLock::new();
    once(&COMPILED, || {
        let refused = [refusals(arguments::own_filters(), EINVAL)];
        seccomp::compile(&BTreeMap::new(), &refused, Answer::Allow)
    })
}

/// What a process of ours installs that is to compute and nothing else: it reads and writes what is open, has memory,
/// and ends. Whatever else it tries fails.
pub fn of_computing() -> io::Result<Program> {
    let computing = table::COMPUTING.iter().map(|(_, call)| (*call, Answer::Allow));
    seccomp::compile(&answers(computing)?, &[], Answer::Errno(EPERM))
}

/// Filters more, for programs that see a directory of the host: one that is shared, or, in the tier `landlock`, their
/// own. The second is for one that may only be read. Where the profile's filter refuses the same, it is with the same
/// error: either may be installed first.
pub fn of_host_directories(shared: Option<WorkspaceMode>) -> io::Result<Vec<Program>> {
    let mut written = vec![refusals(arguments::set_id_bits(), EPERM)];
    if shared.is_some() {
        written.push(refusals(arguments::unix_sockets(), EAFNOSUPPORT));
    }
    // Its mode is behind a pointer; libraries fall back to openat.
    let openat2 = answers([(libc::SYS_openat2, Answer::Errno(ENOSYS))])?;
    let mut programs = vec![seccomp::compile(&openat2, &written, Answer::Allow)?];
    if shared == Some(WorkspaceMode::Ro) {
        let read = [refusals(arguments::locks(), EOPNOTSUPP)];
        programs.push(seccomp::compile(&BTreeMap::new(), &read, Answer::Allow)?);
    }
    Ok(programs)
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
    let done = table::DONE.iter().map(|group| (group, Answer::Errno(DONE)));
    let groups = allowed.chain(refused).chain(done);
    let groups = groups.flat_map(|(group, answer)| group.calls.iter().map(move |(_, call)| (*call, answer)));
    let is_template = matches!(profile, Profile::Template { .. });
    let of_templates = OF_TEMPLATES.into_iter().filter(|_| is_template);
    answers(groups.chain(of_templates.map(|(call, _)| (call, Answer::Allow))))
}

/// By number; the last answer of a call counts.
fn answers(calls: impl IntoIterator<Item = (i64, Answer)>) -> io::Result<BTreeMap<u32, Answer>> {
    let number = |call| u32::try_from(call).map_err(io::Error::other);
    let calls = calls.into_iter();
    calls.map(|(call, answer)| Ok((number(call)?, answer))).collect()
}

/// Groups that depend on what the profile's walls divide and count, and why they are absent, where they are.
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
