//! What the engine asks of the jail: a sandbox, which knows nothing of any request. It is made for the
//! [claim](crate::Claim) of one, or ahead of it.

use crate::{Known, Layout, Pinned, Quota};
use ringfence_types::{Limits, Tier, WorkspaceMode};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One sandbox, as asked for. [`crate::plan::build`] turns it into a plan.
#[derive(Clone, Debug)]
pub struct JailSpec {
    pub tier: Tier,
    pub layout: Layout,
    /// Directories of the host that the interpreter needs, shown read-only at the same place.
    pub trees: Vec<PathBuf>,
    /// Symbolic links of the host on the way to the interpreter, made again inside.
    pub links: Vec<(PathBuf, String)>,
    pub program: Program,
    /// A directory of the host's behind the workspace that has to be there when the sandbox is made: below an overlay,
    /// and where there is no root of its own. Any other comes with the claim.
    pub host_workspace: Option<HostWorkspace>,
    /// The directory of the host's in which the layers of packages lie; a claim may name one of them (tier `full`).
    pub layers: Option<PathBuf>,
    pub written: Written,
    /// What it may use, until a claim says otherwise.
    pub limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostWorkspace {
    pub directory: Pinned,
    pub mode: WorkspaceMode,
    /// What its limit counts, where it may be written.
    pub quota: Quota,
    /// A file that is locked while the server writes there: what is half written is not the program's.
    pub writing: Option<PathBuf>,
    pub known: Known,
}

impl HostWorkspace {
    /// Of what may be written only.
    pub fn quota(&self) -> Option<Quota> {
        (self.mode == WorkspaceMode::Rw).then_some(self.quota)
    }
}

/// What may be done with files that were written inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    MayRun,
    /// They cannot be executed: for the installer of packages, which unpacks what strangers have made.
    NeverRuns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// An executable that the claim names.
    Claimed,
    /// An executable that is started at once and waits for its part of the claim: what [`Run::Go`] names can be read
    /// from its descriptor 4, to the end. `argv[0]` is also its path; descriptor 3 is the report pipe. It hangs up
    /// descriptor 5 when it is ready, and may tell what it has [imported](crate::wire::Imported) before.
    Ahead {
        argv: Vec<String>,
        environment: Vec<(String, String)>,
    },
    /// Executed at once, and kept as a template: an interpreter that forks a child into each [`Program::Forked`]
    /// sandbox that is made from it. It finds its control connection at descriptor 4; at 5, the filters that a
    /// child installs; and at 6 what forks it, to load.
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

/// The shared object by which an interpreter forks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forker {
    Python,
    Node,
}

/// What a claim says to the program of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Run {
    /// To [`Program::Claimed`]: what to execute. `argv[0]` is also its path. `report`: it gets the report pipe as
    /// descriptor 3.
    Exec {
        argv: Vec<String>,
        #[serde(with = "crate::environment")]
        environment: Vec<(String, String)>,
        report: bool,
    },
    /// To [`Program::Ahead`] and [`Program::Forked`]: what it has been waiting for.
    Go(Part),
    /// To [`Program::Worker`]: its input comes through its standard input.
    Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub offset: u64,
    pub length: u64,
}
