//! What the engine asks of the jail for one run.

use crate::Layout;
use ringfence_types::{Limits, Tier, WorkspaceMode, WorkspacePath};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One sandbox, as asked for. [`crate::plan::build`] turns it into a plan.
#[derive(Clone, Debug)]
pub struct JailSpec {
    /// Strength.
    pub tier: Tier,
    /// Where things are inside.
    pub layout: Layout,
    /// Directories of the host that the interpreter needs, shown read-only at the same place.
    pub trees: Vec<PathBuf>,
    /// Symbolic links of the host on the way to the interpreter, made again inside.
    pub links: Vec<(PathBuf, String)>,
    /// What runs.
    pub program: Program,
    /// The program's environment, complete.
    pub environment: Vec<(String, String)>,
    /// A directory of the host's behind the workspace.
    pub host_workspace: Option<(PathBuf, WorkspaceMode)>,
    /// The code file's name, and its bytes in the payload.
    pub code: Option<(String, Part)>,
    /// Files to write into the workspace.
    pub files: Vec<(WorkspacePath, Part)>,
    /// What it may use.
    pub limits: Limits,
    /// Between the polite and the final signal, in milliseconds.
    pub grace_ms: u64,
}

/// What runs inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// An executable; `argv[0]` is also its path. `report`: it gets the report pipe as descriptor 3.
    Exec {
        /// Words.
        argv: Vec<String>,
        /// Descriptor 3.
        report: bool,
    },
    /// A function of this binary, by name: standard input in, standard output out.
    Worker {
        /// Name in the helper's table.
        name: String,
    },
}

/// A stretch of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}
