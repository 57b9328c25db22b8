//! The messages between the server and the child: plain data, and the descriptors sent with it.

use ringfence_jail::cgroup::Parent;
use serde::{Deserialize, Serialize};
use std::{io, os::fd::OwnedFd, path::PathBuf};

/// Walls that this host has for commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    pub landlock: bool,
    /// `Err`: why namespaces are not available.
    pub namespaces: Result<(), String>,
}

/// The plan that the child carries out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: PathBuf,
    pub(crate) deadline_ms: u64,
    pub(crate) namespaces: bool,
    /// True: it has the host's network.
    pub(crate) network: bool,
    /// True: it sees the host's mounts, read-only, instead of its own root.
    pub(crate) host_view: bool,
    pub(crate) landlock: bool,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) grants: Vec<(Source, Grant)>,
    pub(crate) identity: Option<(u32, u32)>,
    /// True: it may start programs.
    pub(crate) executes: bool,
    /// True: it may connect to the sockets that it sees.
    pub(crate) sockets: bool,
    pub(crate) own_proc: bool,
    pub(crate) cgroups: Parent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    Path(PathBuf),
    /// Index of a descriptor that was sent with the plan.
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

/// A tree or a file in the root of the command.
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

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The program ended with this wait status.
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
