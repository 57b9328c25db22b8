//! Errors of the store of snapshots.

use super::SnapshotId;
use crate::{blobs::pack::PackError, tree::TreeError, whole_file::FileError};
use std::{io, path::PathBuf};

/// A failed operation of the store. No snapshot is lost by any of these.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("snapshots: {0}")]
    Io(#[from] FileError),
    #[error("there is no snapshot {0}")]
    NotFound(SnapshotId),
    #[error("the snapshot has no file {0:?}")]
    NoFile(PathBuf),
    /// The stored data are not what was signed.
    #[error("damaged: {what}")]
    Damaged { what: String },
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: u64 },
    #[error("{what}: more than {limit} bytes")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("all snapshots of this namespace: more than {limit} bytes")]
    Full { limit: u64 },
    #[error("all snapshots of all namespaces: more than {limit} bytes")]
    StoreFull { limit: u64 },
    #[error("{path:?} changed during the operation")]
    Changed { path: PathBuf },
    #[error("{path:?} has a hard link outside the workspace")]
    Linked { path: PathBuf },
    #[error("another restore of this workspace is running")]
    Busy,
    #[error("an interrupted restore needs the snapshot {0}; resume it first")]
    InUse(SnapshotId),
    /// The snapshot is damaged or no longer exists. See [`super::SnapshotStore::settle`].
    #[error("the interrupted restore of the snapshot {id} cannot be completed: {error}")]
    Unfinished {
        id: SnapshotId,
        error: Box<SnapshotError>,
    },
    #[error("refused: {0}")]
    Refused(String),
}

impl SnapshotError {
    pub(super) fn io<E: Into<io::Error>>(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let failed = FileError::at(step, path);
        move |error| Self::Io(failed(error))
    }

    pub(super) fn too_many(what: &'static str, limit: usize) -> Self {
        let limit = limit as u64;
        Self::TooMany { what, limit }
    }

    pub(super) fn too_large(what: &'static str, limit: u64) -> Self {
        Self::TooLarge { what, limit }
    }

    pub(super) fn changed(path: &std::path::Path) -> Self {
        let path = path.to_owned();
        Self::Changed { path }
    }

    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// True if the file system is full or a disk quota is exceeded.
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io(FileError { error, .. }) if full.contains(&error.kind()))
    }
}

impl From<PackError> for SnapshotError {
    fn from(error: PackError) -> Self {
        match error {
            PackError::File(error) => error.into(),
            PackError::Damaged(_) => Self::damaged(error.to_string()),
        }
    }
}

impl From<TreeError> for SnapshotError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Io(error) => Self::Io(error),
            TreeError::TooMany { entries_max } => Self::too_many("entries", entries_max),
            TreeError::TooDeep { depth_max, .. } => {
                Self::too_many("directories inside each other", depth_max)
            }
            TreeError::TooLarge { bytes_max, .. } => Self::too_large("the workspace", bytes_max),
            TreeError::NotFound(path) | TreeError::Refused { path, .. } => Self::Changed { path },
            other => Self::Refused(other.to_string()),
        }
    }
}
