//! Landlock, through its official library. Rights are requested at the newest ABI that the library knows; [`version`]
//! returns the one that the kernel really enforces.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Access that is allowed below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read, list, execute.
    Read,
    /// Everything but making device nodes and ioctl(2) on them.
    Write,
    /// As `Write`, without executing.
    Keep,
    /// Read and write device nodes, call ioctl(2) on them, list.
    Device,
    /// Read and list, without executing.
    View,
    /// List, without reading content.
    List,
}

/// Returns the Landlock ABI of the kernel (`landlock_create_ruleset` with the version flag). `ENOSYS`: the kernel has
/// no Landlock; `EOPNOTSUPP`: it was not enabled at boot.
pub fn version() -> io::Result<i32> {
    const VERSION_FLAG: u32 = 1;
    // SAFETY: with the version flag the kernel requires a null attribute of size 0, as here, and only returns a number.
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

/// Restriction of bind and connect for TCP sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tcp {
    /// Not restricted here: another layer guards the network.
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

/// A ruleset that is ready to be enforced.
#[derive(Debug)]
pub struct Rules(RulesetCreated);

/// Creates a ruleset that confines files to `rules`, signals and abstract sockets to their own domain, TCP by `tcp`.
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
    let rule = PathBeneath::new(opened, applicable_rights(path, access(right))?);
    rules.add_rule(rule).map_err(failed)
}

impl Rules {
    /// Returns a second handle to the same ruleset: rules that are added through one count for both until enforcement.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Adds a rule for the file or directory that is at `path` now.
    pub fn add(self, path: &Path, right: Right) -> io::Result<Self> {
        add_rule(self.0, path, right).map(Self)
    }

    /// Returns the descriptor with which another process can enforce the ruleset; `None`: this kernel has no Landlock.
    pub fn into_descriptor(self) -> Option<OwnedFd> {
        self.0.into()
    }
}

/// Confines this process and its future children. A kernel without Landlock is an error; `no_new_privs` must be set.
///
/// Denials are not written to the host's audit log (`LANDLOCK_RESTRICT_SELF_LOG_*`, ABI 7), which a program could fill:
/// by default the kernel logs those until the next execve(2), which a worker never calls, and those by rules that a
/// program sets for itself.
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

/// Drops the rights of directories if `path` is not a directory: Landlock refuses them there.
fn applicable_rights(path: &Path, access: BitFlags<AccessFs>) -> io::Result<BitFlags<AccessFs>> {
    Ok(if std::fs::metadata(path)?.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    })
}
