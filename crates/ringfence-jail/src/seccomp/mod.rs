//! Which system calls a program may make. An allowlist with a reason beside every group; what is not on it answers "no
//! such system call", so that libraries fall back to what is, and what is known to be dangerous answers "not
//! permitted". The tables are in [`table`], the argument rules in [`arguments`].

mod arguments;
mod table;


use ringfence_sys::seccomp::{self, Answer, EAFNOSUPPORT, ENOMEM, ENOSYS, EPERM, Program, Rule};
use serde::{Deserialize, Serialize};
use std::{io, sync::OnceLock};

/// Which filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Tier `full`. Without a memory cgroup, the calls whose memory no look at the tree would see are refused.
    Full {
        /// Does a cgroup count memory.
        memory_cgroup: bool,
    },
    /// Tier `landlock`: there is no network namespace, so there are no sockets.
    Landlock {
        /// Does a cgroup count memory.
        memory_cgroup: bool,
    },
}

impl Profile {
    fn memory_cgroup(self) -> bool {
        match self {
            Self::Full { memory_cgroup } | Self::Landlock { memory_cgroup } => memory_cgroup,
        }
    }

    fn number(self) -> usize {
        usize::from(self.memory_cgroup()) + if matches!(self, Self::Full { .. }) { 2 } else { 0 }
    }
}

/// The filters of a profile, in the order in which they are installed. Compiled once in a process; the helper does it
/// before it forks, so that a sandbox finds them ready.
pub fn programs(profile: Profile) -> io::Result<&'static [Program]> {
    static COMPILED: [OnceLock<Vec<Program>>; 4] = [const { OnceLock::new() }; 4];
    let slot = &COMPILED[profile.number()];
    match slot.get() {
        Some(compiled) => Ok(compiled),
        None => {
            let compiled = compile(profile)?;
            Ok(slot.get_or_init(|| compiled))
        }
    }
}

/// Install order matters: among refusals the kernel takes the errno of the filter that was installed last, so the
/// general "no such call" comes first and the particular answers after it.
fn compile(profile: Profile) -> io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    if cfg!(target_arch = "x86_64") {
        programs.push(seccomp::refuse_x32());
    }
    programs.push(seccomp::compile(&allowed(profile), Answer::Allow, Answer::Errno(ENOSYS))?);
    programs.push(seccomp::compile(&refused(), Answer::Errno(EPERM), Answer::Allow)?);
    let families = arguments::sockets(matches!(profile, Profile::Full { .. }));
    programs.push(seccomp::compile(&families, Answer::Errno(EAFNOSUPPORT), Answer::Allow)?);
    if !profile.memory_cgroup() {
        programs.push(seccomp::compile(&arguments::uncounted_memory(), Answer::Errno(ENOMEM), Answer::Allow)?);
    }
    Ok(programs)
}

fn any(number: i64) -> Rule {
    Rule { number, tests: Vec::new() }
}

fn allowed(profile: Profile) -> Vec<Rule> {
    let counted = if profile.memory_cgroup() { table::COUNTED_MEMORY } else { &[] };
    let groups = table::ALLOWED.iter().chain(counted);
    groups.flat_map(|group| group.calls).map(|(_, number)| any(*number)).collect()
}

fn refused() -> Vec<Rule> {
    let whole = table::REFUSED.iter().flat_map(|group| group.calls).map(|(_, number)| any(*number));
    whole.chain(arguments::refused()).collect()
}
