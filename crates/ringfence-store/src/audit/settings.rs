//! Where the record is kept, and what it survives.

use super::AuditError;
use std::path::PathBuf;

/// Where the record is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A database file. Its directory exists, and is its owner's alone.
    File(PathBuf),
    /// As long as the process.
    Memory,
}

/// What a record that was reported as written survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process.
    Process,
    /// A loss of power too; every commit waits for the disk.
    Power,
}

impl Place {
    /// The same wherever this process may go afterwards.
    pub(super) fn absolute(self) -> Result<Self, AuditError> {
        match self {
            Self::File(path) => match std::path::absolute(&path) {
                Ok(path) => Ok(Self::File(path)),
                Err(error) => Err(AuditError::of_io(&path, "looking for it", &error)),
            },
            Self::Memory => Ok(self),
        }
    }

    /// For messages.
    pub(super) fn shown(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory => PathBuf::from(":memory:"),
        }
    }
}
