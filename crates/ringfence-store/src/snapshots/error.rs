//! Why the store of snapshots did not do it.

use super::id::SnapshotId;
use crate::{blobs::pack::PackError, tree::TreeError, whole_file::FileError};
use std::{fmt, io, path::PathBuf};

/// Why not. No snapshot is lost by any of these.
#[derive(Debug)]
pub enum SnapshotError {
    Io(FileError),
    /// The namespace has no snapshot of this id.
    NotFound(SnapshotId),
    /// The snapshot has no file of this path.
    NoFile(PathBuf),
    /// What the store holds is not what was signed.
    Damaged {
        what: String,
    },
    /// There is more of it than is allowed.
    TooMany {
        what: &'static str,
        limit: u64,
    },
    /// It has more bytes than are allowed.
    TooLarge {
        what: &'static str,
        limit: u64,
    },
    /// All snapshots of the namespace together would take more on the disk than is allowed.
    Full {
        limit: u64,
    },
    /// All snapshots of all namespaces together would take more on the disk than is allowed.
    StoreFull {
        limit: u64,
    },
    /// It is written to all the time.
    Changed {
        path: PathBuf,
    },
    /// The file has another name outside of the workspace.
    Linked {
        path: PathBuf,
    },
    Busy,
    /// A restore of this snapshot was interrupted and has to be resumed first.
    InUse(SnapshotId),
    /// The snapshot of an interrupted restore is damaged or gone. See [`super::SnapshotStore::settle`].
    Unfinished {
        id: SnapshotId,
        error: Box<SnapshotError>,
    },
    /// An argument is not allowed; the text says which.
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

    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// The file system has no room. The old state is as it was.
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io(FileError { error, .. }) if full.contains(&error.kind()))
    }
}

impl From<FileError> for SnapshotError {
    fn from(error: FileError) -> Self {
        Self::Io(error)
    }
}

impl From<PackError> for SnapshotError {
    fn from(error: PackError) -> Self {
        match error {
            PackError::File(error) => error.into(),
            PackError::Damaged(what) => Self::damaged(format!("a chunk {what}")),
        }
    }
}

impl From<TreeError> for SnapshotError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Io(error) => Self::Io(error),
            TreeError::TooMany { entries_max } => Self::TooMany {
                what: "entries",
                limit: entries_max as u64,
            },
            TreeError::TooDeep { depth_max, .. } => Self::TooMany {
                what: "directories inside each other",
                limit: depth_max as u64,
            },
            TreeError::TooLarge { bytes_max, .. } => Self::TooLarge {
                what: "the workspace",
                limit: bytes_max,
            },
            TreeError::NotFound(path) | TreeError::Refused { path, .. } => Self::Changed { path },
            other => Self::Refused(other.to_string()),
        }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "snapshots: {error}"),
            Self::NotFound(id) => write!(f, "there is no snapshot {id}"),
            Self::NoFile(path) => write!(f, "the snapshot has no file {path:?}"),
            Self::Damaged { what } => write!(f, "damaged: {what}"),
            Self::TooMany { what, limit } => write!(f, "more than {limit} {what}"),
            Self::TooLarge { what, limit } => write!(f, "{what}: more than {limit} bytes"),
            Self::Full { limit } => write!(f, "all snapshots of this namespace: more than {limit} bytes"),
            Self::StoreFull { limit } => {
                write!(f, "all snapshots of all namespaces: more than {limit} bytes")
            }
            Self::Changed { path } => write!(f, "{path:?} changes while it is worked on"),
            Self::Linked { path } => write!(f, "{path:?} has another name outside of the workspace"),
            Self::Busy => f.write_str("another restore works on this workspace"),
            Self::InUse(id) => write!(
                f,
                "an interrupted restore needs the snapshot {id}; resume it first"
            ),
            Self::Unfinished { id, error } => write!(
                f,
                "the interrupted restore of the snapshot {id} cannot be completed: {error}"
            ),
            Self::Refused(what) => write!(f, "refused: {what}"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
