//! Landlock, through its official library. Rights are asked for at the newest version that the library knows, and the
//! caller learns which version the kernel really enforces.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// What may be done below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read, list, execute.
    Read,
    /// Everything that is not a device.
    Write,
    /// The same, but for executing.
    Keep,
    /// Read and write device nodes and speak to them.
    Device,
    /// Read and list, and execute nothing.
    View,
    /// List, and read no content.
    List,
}

/// The version of Landlock in force. `ENOSYS`: the kernel has none; `EOPNOTSUPP`: it was not enabled at boot.
/// (`landlock_create_ruleset` with the version flag.)
pub fn version() -> io::Result<i32> {
    const VERSION_FLAG: u32 = 1;
    // SAFETY: with the version flag the kernel wants a null attribute of size 0 and only returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            VERSION_FLAG,
        )
    };
    match i32::try_from(version) {
        Ok(version) if version > 0 => Ok(version),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether TCP sockets may bind and connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tcp {
    /// Another layer guards the network.
    Unguarded,
    /// No bind and no connect.
    Refused,
}

const NEWEST: ABI = ABI::V9;

fn access(right: Right) -> BitFlags<AccessFs> {
    match right {
        Right::Read => AccessFs::from_read(NEWEST),
        Right::Write => {
            AccessFs::from_all(NEWEST) & !AccessFs::IoctlDev & !AccessFs::MakeChar & !AccessFs::MakeBlock
        }
        Right::Keep => access(Right::Write) & !AccessFs::Execute,
        Right::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::ReadDir,
        Right::View => AccessFs::ReadFile | AccessFs::ReadDir,
        Right::List => AccessFs::ReadDir.into(),
    }
}

/// Rules that are ready to be put in force.
#[derive(Debug)]
pub struct Rules(RulesetCreated);

/// Rules by which files are confined to `rules`, signals and abstract sockets to their own domain, TCP as `tcp` says.
pub fn prepare(rules: &[(PathBuf, Right)], tcp: Tcp) -> io::Result<Rules> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .map_err(failed)?;
    if tcp == Tcp::Refused {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST))
            .map_err(failed)?;
    }
    let mut created = ruleset
        .scope(Scope::from_all(NEWEST))
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    for (path, right) in rules {
        created = add_rule(created, path, *right)?;
    }
    Ok(Rules(created))
}

fn failed(error: impl fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn add_rule(rules: RulesetCreated, path: &Path, right: Right) -> io::Result<RulesetCreated> {
    let opened = PathFd::new(path).map_err(failed)?;
    let rule = PathBeneath::new(opened, narrowed(path, access(right))?);
    rules.add_rule(rule).map_err(failed)
}

impl Rules {
    /// The same rules once more: what is added to one copy, the other has as well, until they are put in force.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// One more rule, about what is at `path` now.
    pub fn add(self, path: &Path, right: Right) -> io::Result<Self> {
        add_rule(self.0, path, right).map(Self)
    }

    /// The descriptor by which another process can put them in force; `None`: this kernel has no Landlock.
    pub fn into_descriptor(self) -> Option<OwnedFd> {
        self.0.into()
    }
}

/// Confines this process and its children to come. A kernel without Landlock is an error; `no_new_privs` must be set.
///
/// Nothing that is denied is written to the host's audit log (`LANDLOCK_RESTRICT_SELF_LOG_*`, ABI 7), which a program
/// could fill: by default the kernel logs until the next execve(2), which a worker never makes, and what a program is
/// denied by rules of its own.
pub fn confine(rules: Rules) -> io::Result<()> {
    let quiet = rules
        .0
        .log_same_exec(false)
        .and_then(|rules| rules.log_subdomains(false));
    let status = quiet.and_then(RulesetCreated::restrict_self).map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// Directory rights on a plain file are an error of Landlock's; only those that fit it are kept.
fn narrowed(path: &Path, access: BitFlags<AccessFs>) -> io::Result<BitFlags<AccessFs>> {
    Ok(if std::fs::metadata(path)?.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    })
}
