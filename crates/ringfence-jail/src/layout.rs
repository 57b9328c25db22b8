//! The directories of a sandbox as the program sees them.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The directories of one sandbox. In the tier `full` they are the same for all; without a root of its own (tier
/// `landlock`) they lie below a directory of the host that lives as long as the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub workspace: PathBuf,
    pub output: PathBuf,
    pub tmp: PathBuf,
    pub home: PathBuf,
    pub code: PathBuf,
    pub host_directory: Option<PathBuf>,
}

impl Layout {
    pub fn own_root() -> Self {
        Self {
            workspace: "/workspace".into(),
            output: "/output".into(),
            tmp: "/tmp".into(),
            home: "/home/sandbox".into(),
            code: "/code".into(),
            host_directory: None,
        }
    }

    pub fn below(directory: &Path) -> Self {
        Self {
            workspace: directory.join("workspace"),
            output: directory.join("output"),
            tmp: directory.join("tmp"),
            home: directory.join("home"),
            code: directory.join("code"),
            host_directory: Some(directory.to_owned()),
        }
    }

    pub fn writable(&self) -> [&Path; 4] {
        [&self.workspace, &self.output, &self.tmp, &self.home]
    }
}
