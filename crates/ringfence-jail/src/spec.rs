//! The engine's request to the jail: a sandbox, made for the [claim](crate::Claim) of a request, or ahead of it.

use crate::{Known, Layout, Pinned, Quota};
use ringfence_types::{Limits, Tier, WorkspaceMode};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One sandbox, which knows nothing of any request. [`crate::plan::build`] turns it into a plan.
#[derive(Clone, Debug)]
pub struct JailSpec {
    pub tier: Tier,
    pub layout: Layout,
    /// Directories of the host that the interpreter needs, shown read-only at the same place.
    pub trees: Vec<PathBuf>,
    /// Symbolic links of the host on the path to the interpreter, made again inside.
    pub links: Vec<(PathBuf, String)>,
    pub program: Program,
    /// A directory of the host behind the workspace that has to be there when the sandbox is made: below an overlay,
    /// and in a tier without a root of its own. Any other comes with the claim.
    pub host_workspace: Option<HostWorkspace>,
    /// The directory of the host that holds the layers of packages; a claim may name one of them (tier `full`).
    pub layers: Option<PathBuf>,
    pub written: Written,
    /// Its limits, until a claim changes them.
    pub limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostWorkspace {
    pub directory: Pinned,
    pub mode: WorkspaceMode,
    /// The meaning of its limit, if it may be written.
    pub quota: Quota,
    /// A file that is locked while the server writes there: its incomplete files do not count as the program's.
    pub writing: Option<PathBuf>,
    pub known: Known,
}

impl HostWorkspace {
    pub fn quota(&self) -> Option<Quota> {
        (self.mode == WorkspaceMode::Rw).then_some(self.quota)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    MayRun,
    /// They cannot be executed: for the installer of packages, which unpacks untrusted files.
    NeverRuns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// An executable that the claim names.
    Claimed,
    /// An executable that is started at once and waits for its part of the claim: it reads what [`Run::Go`] names from
    /// its descriptor 4, to the end. `argv[0]` is also its path; descriptor 3 is the report pipe. It closes descriptor
    /// 5 when it is ready, and may write to it what it has [imported](crate::wire::Imported) before.
    Ahead {
        argv: Vec<String>,
        environment: Vec<(String, String)>,
    },
    /// An interpreter, executed at once, that forks a child into each [`Program::Forked`] sandbox made from it.
    /// Descriptor 4: its control connection; 5: the filters that a child installs; 6: the shared object that forks it,
    /// to load.
    Template {
        argv: Vec<String>,
        environment: Vec<(String, String)>,
        forker: Forker,
    },
    /// A fork of the template that the sandbox is made from. It reads its part of the claim as [`Program::Ahead`] does.
    Forked,
    /// A function of this binary, by name: standard input in, standard output out.
    Worker { name: String },
}

/// The shared object with which an interpreter forks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forker {
    Python,
    Node,
}

/// The message of a claim to the program of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Run {
    /// For [`Program::Claimed`]: `argv[0]` is also the path; `report`: it gets the report pipe as descriptor 3.
    Exec {
        argv: Vec<String>,
        #[serde(with = "crate::environment")]
        environment: Vec<(String, String)>,
        report: bool,
    },
    /// For [`Program::Ahead`] and [`Program::Forked`]: the input that they wait for.
    Go(Part),
    /// For [`Program::Worker`], whose input comes through its standard input.
    Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub offset: u64,
    pub length: u64,
}
