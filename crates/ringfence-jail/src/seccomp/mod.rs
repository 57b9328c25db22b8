//! Which system calls a program may make. An allowlist with a reason beside every group; what is not on it answers "no
//! such system call", so that libraries fall back to what is, and what is known to be dangerous answers "not
//! permitted". The tables are in [`table`], the argument rules in [`arguments`]; [`describe`] reads them aloud.

mod arguments;
mod describe;
mod table;

pub use describe::{Row, Verdict, describe};

use arguments::Refusal;
use ringfence_sys::seccomp::{self, Answer, EAFNOSUPPORT, ENOMEM, ENOSYS, EPERM, Program, Rule};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, sync::OnceLock};
use table::Group;

/// Which filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Tier `full`. Without a memory cgroup, the calls whose memory no look at the tree would see are refused.
    Full {
        /// Does a cgroup count memory.
        memory_cgroup: bool,
    },
    /// A template of the tier `full`: it may also join namespaces and hold descriptors of its children. What it forks gives
    /// that up by the filter [`of_forks`], and is then where `Full` is.
    Template {
        /// Does a cgroup count memory.
        memory_cgroup: bool,
    },
    /// Tier `landlock`: there is no network namespace, so there are no sockets; no ipc namespace, so there is no System V
    /// and no message queue; no pid namespace, so limits and priorities are set of oneself only.
    Landlock {
        /// Does a cgroup count memory.
        memory_cgroup: bool,
    },
}

impl Profile {
    fn memory_cgroup(self) -> bool {
        match self {
            Self::Full { memory_cgroup }
            | Self::Template { memory_cgroup }
            | Self::Landlock { memory_cgroup } => memory_cgroup,
        }
    }

    fn own_ipc(self) -> bool {
        !matches!(self, Self::Landlock { .. })
    }

    fn number(self) -> usize {
        let kind = match self {
            Self::Landlock { .. } => 0,
            Self::Full { .. } => 2,
            Self::Template { .. } => 4,
        };
        kind + usize::from(self.memory_cgroup())
    }
}

/// The filters of a profile, in the order in which they are installed. Compiled once in a process; the helper does it
/// before it forks, so that a sandbox finds them ready.
pub fn programs(profile: Profile) -> io::Result<&'static [Program]> {
    static COMPILED: [OnceLock<Vec<Program>>; 6] = [const { OnceLock::new() }; 6];
    let slot = &COMPILED[profile.number()];
    match slot.get() {
        Some(compiled) => Ok(compiled),
        None => {
            let compiled = compile(profile)?;
            Ok(slot.get_or_init(|| compiled))
        }
    }
}

/// Calls that a template may make and its forks may not, with the answer that `Full` gives.
const OF_TEMPLATES: [(i64, Answer); 2] = [
    (libc::SYS_setns, Answer::Errno(EPERM)),
    (libc::SYS_pidfd_open, Answer::Errno(ENOSYS)),
];

/// What a fork of a template installs on top of the template's filters.
pub fn of_forks() -> io::Result<Program> {
    let mut answers = BTreeMap::new();
    for (call, answer) in OF_TEMPLATES {
        answers.insert(u32::try_from(call).map_err(io::Error::other)?, answer);
    }
    seccomp::compile_numbers(&answers, Answer::Allow)
}

/// What a process of ours installs that is to compute and nothing else: it reads and writes what is open, has memory, and ends.
/// Whatever else it tries fails.
pub fn of_computing() -> io::Result<Program> {
    let mut answers = BTreeMap::new();
    for (_, call) in table::COMPUTING {
        answers.insert(u32::try_from(*call).map_err(io::Error::other)?, Answer::Allow);
    }
    seccomp::compile_numbers(&answers, Answer::Errno(EPERM))
}

/// Filters more, for sandboxes that see a directory of the host.
pub fn of_shared_directories() -> io::Result<Vec<Program>> {
    let rules = |refusals: Vec<Refusal>| refusals.into_iter().map(Refusal::rule).collect::<Vec<Rule>>();
    // Its mode is behind a pointer; libraries fall back to openat.
    let openat2 = BTreeMap::from([(
        u32::try_from(libc::SYS_openat2).map_err(io::Error::other)?,
        Answer::Errno(ENOSYS),
    )]);
    Ok(vec![
        seccomp::compile(
            &rules(arguments::unix_sockets()),
            Answer::Errno(EAFNOSUPPORT),
            Answer::Allow,
        )?,
        seccomp::compile(
            &rules(arguments::set_id_bits()),
            Answer::Errno(EPERM),
            Answer::Allow,
        )?,
        seccomp::compile_numbers(&openat2, Answer::Allow)?,
    ])
}

/// Install order matters: among refusals the kernel takes the errno of the filter that was installed last. The first
/// filter answers by number; those after it refuse uses of what it allows, and do not overlap.
fn compile(profile: Profile) -> io::Result<Vec<Program>> {
    let mut programs = vec![seccomp::compile_numbers(
        &by_number(profile)?,
        Answer::Errno(ENOSYS),
    )?];
    let by_argument = [
        (arguments::refused(profile), EPERM),
        (arguments::families(profile), EAFNOSUPPORT),
        (arguments::uncounted_memory(profile), ENOMEM),
    ];
    for (refusals, errno) in by_argument {
        let rules: Vec<Rule> = refusals.into_iter().map(Refusal::rule).collect();
        programs.push(seccomp::compile(&rules, Answer::Errno(errno), Answer::Allow)?);
    }
    Ok(programs)
}

fn by_number(profile: Profile) -> io::Result<BTreeMap<u32, Answer>> {
    let allowed = allowed(profile).map(|group| (group, Answer::Allow));
    let refused = table::REFUSED.iter().map(|group| (group, Answer::Errno(EPERM)));
    let mut answers = BTreeMap::new();
    for (group, answer) in allowed.chain(refused) {
        for (_, number) in group.calls {
            answers.insert(u32::try_from(*number).map_err(io::Error::other)?, answer);
        }
    }
    if matches!(profile, Profile::Template { .. }) {
        for (call, _) in OF_TEMPLATES {
            answers.insert(u32::try_from(call).map_err(io::Error::other)?, Answer::Allow);
        }
    }
    Ok(answers)
}

/// Groups that depend on what the profile's walls divide and count.
struct Conditional {
    groups: &'static [Group],
    present: bool,
    /// Why they are absent, where they are.
    lacking: &'static str,
}

fn conditional(profile: Profile) -> [Conditional; 3] {
    let (counted, own) = (profile.memory_cgroup(), profile.own_ipc());
    let own_counted = match own {
        true => "no cgroup counts its memory",
        false => "no ipc namespace: it would be the host's",
    };
    [
        Conditional {
            groups: table::COUNTED,
            present: counted,
            lacking: "no cgroup counts its memory",
        },
        Conditional {
            groups: table::OWN_IPC,
            present: own,
            lacking: "no ipc namespace: it would be the host's",
        },
        Conditional {
            groups: table::OWN_COUNTED_IPC,
            present: own && counted,
            lacking: own_counted,
        },
    ]
}

fn allowed(profile: Profile) -> impl Iterator<Item = &'static Group> {
    let conditional = conditional(profile)
        .into_iter()
        .filter(|c| c.present)
        .flat_map(|c| c.groups);
    table::ALLOWED.iter().chain(conditional)
}
