//! Why something about a directory was not done.

use crate::whole_file::FileError;
use std::{fmt, io, path::PathBuf};

/// Why not. Paths are below the directory in question.
#[derive(Debug)]
pub enum TreeError {
    Io(FileError),
    Path {
        path: PathBuf,
        what: &'static str,
    },
    /// Something is there that is not touched.
    Refused {
        path: PathBuf,
        what: &'static str,
    },
    NotFound(PathBuf),
    /// It is no longer what was shown.
    Stale(PathBuf),
    /// There are more entries than the bound.
    TooMany {
        entries_max: usize,
    },
    /// Directories lie deeper inside each other than the bound.
    TooDeep {
        /// The first that is too deep.
        path: PathBuf,
        depth_max: usize,
    },
    /// There are more bytes than the bound.
    TooLarge {
        /// Where the bound was passed.
        path: PathBuf,
        bytes_max: u64,
    },
}

impl TreeError {
    /// For `map_err`: what a system call about this path said, the refusals among it by their kind.
    pub(super) fn of(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(rustix::io::Errno) -> TreeError {
        use rustix::io::Errno;
        let path = path.into();
        move |errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound(path),
            Errno::LOOP => Self::Refused {
                path,
                what: "a symbolic link is on the way",
            },
            Errno::XDEV => Self::Refused {
                path,
                what: "it is on another file system",
            },
            Errno::NXIO | Errno::OPNOTSUPP => Self::Refused {
                path,
                what: "it is a socket or a device",
            },
            Errno::NAMETOOLONG => Self::Path {
                path,
                what: "a name is too long for the file system",
            },
            errno => Self::Io(FileError::at(step, path)(errno)),
        }
    }

    pub(super) fn too_large(path: &std::path::Path, bytes_max: u64) -> Self {
        Self::TooLarge {
            path: path.to_owned(),
            bytes_max,
        }
    }

    /// For `map_err`: the same for an error of the standard library.
    pub(super) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TreeError {
        let failed = FileError::at(step, path);
        move |error| Self::Io(failed(error))
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(FileError { step, path, error }) => write!(f, "{step} {path:?}: {error}"),
            Self::Path { path, what } => write!(f, "the path {path:?} is not allowed: {what}"),
            Self::Refused { path, what } => write!(f, "{path:?} is refused: {what}"),
            Self::NotFound(path) => write!(f, "there is no {path:?}"),
            Self::Stale(path) => write!(f, "{path:?} has changed since it was shown"),
            Self::TooMany { entries_max } => write!(f, "there are more than {entries_max} entries"),
            Self::TooDeep { path, depth_max } => {
                write!(f, "{path:?} lies more than {depth_max} directories deep")
            }
            Self::TooLarge { path, bytes_max } => write!(f, "{path:?}: more than {bytes_max} bytes"),
        }
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
