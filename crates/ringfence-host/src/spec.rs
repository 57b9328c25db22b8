//! What the child is told, and what it says: plain data, and the descriptors that come with it.

use ringfence_jail::cgroup::Parent;
use serde::{Deserialize, Serialize};
use std::{io, os::fd::OwnedFd, path::PathBuf};

/// Which walls this host has for commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    pub landlock: bool,
    /// Namespaces; the error says what is refused.
    pub namespaces: Result<(), String>,
}

/// What the child does, decided beforehand.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: PathBuf,
    pub(crate) deadline_ms: u64,
    pub(crate) namespaces: bool,
    /// The host's network.
    pub(crate) network: bool,
    /// The host's mounts, read-only, instead of a root of its own.
    pub(crate) host_view: bool,
    pub(crate) landlock: bool,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) grants: Vec<(Source, Grant)>,
    pub(crate) identity: Option<(u32, u32)>,
    /// It may start programs.
    pub(crate) executes: bool,
    /// It may speak to the sockets that it sees.
    pub(crate) sockets: bool,
    pub(crate) own_proc: bool,
    pub(crate) cgroups: Parent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    Path(PathBuf),
    /// One that was handed over, by its number.
    Descriptor(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Grant {
    View,
    List,
    Run,
    Keep,
    Device,
}

/// A tree or a file of its root.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mount {
    pub(crate) source: Source,
    pub(crate) target: PathBuf,
    pub(crate) grant: Grant,
}

impl Mount {
    pub(crate) fn new(source: Source, target: PathBuf, grant: Grant) -> Self {
        Self {
            source,
            target,
            grant,
        }
    }
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The kernel's word on the program's end.
    Ended {
        status: i32,
    },
    Failed {
        step: String,
        detail: String,
    },
    TimedOut,
    OutOfMemory,
}

pub(crate) type Step<T> = Result<T, Report>;

pub(crate) fn step<T>(name: &str, result: io::Result<T>) -> Step<T> {
    result.map_err(|error| Report::Failed {
        step: name.to_owned(),
        detail: error.to_string(),
    })
}

pub(crate) struct Handed {
    pub(crate) spec: Spec,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Handed {
    pub(crate) fn descriptor(&self, number: usize) -> Step<&OwnedFd> {
        let missing = || io::Error::from_raw_os_error(libc::EBADF);
        step("descriptors", self.descriptors.get(number).ok_or_else(missing))
    }
}
