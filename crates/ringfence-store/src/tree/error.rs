//! Errors of operations on a directory.

use crate::whole_file::FileError;
use rustix::io::Errno;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// A failed operation. Paths are relative to the directory.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("{} {:?}: {}", .0.step, .0.path, .0.error)]
    Io(#[source] FileError),
    #[error("the path {path:?} is not allowed: {what}")]
    Path { path: PathBuf, what: &'static str },
    /// The entry at the path, or on the way to it, may not be opened or replaced.
    #[error("{path:?} is refused: {what}")]
    Refused { path: PathBuf, what: &'static str },
    #[error("there is no {0:?}")]
    NotFound(PathBuf),
    #[error("{0:?} has changed since it was shown")]
    Stale(PathBuf),
    #[error("there are more than {entries_max} entries")]
    TooMany { entries_max: usize },
    #[error("{path:?} lies more than {depth_max} directories deep")]
    TooDeep { path: PathBuf, depth_max: usize },
    #[error("{path:?}: more than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path:?}: not done after {} seconds", .time_max.as_secs())]
    TooSlow { path: PathBuf, time_max: Duration },
    /// The server runs as root, cannot act as the owner, and does not use root's own rights there.
    #[error("the server cannot act as the owner of the directory, the user {uid}: {error}")]
    Owner { uid: u32, error: Errno },
}

impl TreeError {
    /// For `map_err`: converts the error of a system call on this path.
    pub(super) fn of(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(Errno) -> TreeError {
        let path = path.into();
        move |errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound(path),
            Errno::LOOP => Self::refused(path, "a symbolic link is on the way"),
            Errno::XDEV => Self::refused(path, "it is on another file system"),
            Errno::NXIO | Errno::OPNOTSUPP => Self::refused(path, "it is a socket or a device"),
            Errno::NAMETOOLONG => {
                let what = "a name is too long for the file system";
                Self::Path { path, what }
            }
            errno => Self::Io(FileError::at(step, path)(errno)),
        }
    }

    pub(super) fn refused(path: impl Into<PathBuf>, what: &'static str) -> Self {
        let path = path.into();
        Self::Refused { path, what }
    }

    pub(crate) fn is_permission_denied(&self) -> bool {
        matches!(self, Self::Io(FileError { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    pub(super) fn too_large(path: &Path, bytes_max: u64) -> Self {
        let path = path.to_owned();
        Self::TooLarge { path, bytes_max }
    }

    /// For `map_err`: converts an error of the standard library.
    pub(super) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TreeError {
        let failed = FileError::at(step, path);
        move |error| Self::Io(failed(error))
    }
}
