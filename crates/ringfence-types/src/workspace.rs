//! The directory behind `/workspace`, as a request names it.

use crate::{WorkspaceName, closed_words};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, str::FromStr};

/// The directory behind `/workspace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkspaceSource {
    /// Empty, in memory, discarded afterwards.
    Private,
    /// The directory that the server keeps for the namespace, read-write.
    Namespace,
    /// A host directory that the operator has listed, by its name in that list.
    Listed(WorkspaceName),
    /// A host directory, named by the operator (never by a tool call).
    Host {
        /// Canonical path.
        directory: PathBuf,
        /// Mode of the mount.
        mode: WorkspaceMode,
    },
}

/// Mode of a host directory in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// Read-only.
    Ro,
    /// Read-write: the program changes the host's files.
    Rw,
    /// Reads the host's files, writes to a private layer that is discarded afterwards.
    Overlay,
}

impl WorkspaceSource {
    /// True if files that programs write there are in the sandbox's memory.
    pub fn is_in_memory(&self) -> bool {
        let is_shared = matches!(
            self,
            Self::Namespace
                | Self::Host {
                    mode: WorkspaceMode::Rw,
                    ..
                }
        );
        !is_shared
    }
}

closed_words!(WorkspaceMode: Ro = "ro", Rw = "rw", Overlay = "overlay");

/// Parses `private`, `namespace`, or the name of a directory that the operator has listed.
impl FromStr for WorkspaceSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "private" => Ok(Self::Private),
            "namespace" => Ok(Self::Namespace),
            name => WorkspaceName::from_str(name).map(Self::Listed),
        }
    }
}
