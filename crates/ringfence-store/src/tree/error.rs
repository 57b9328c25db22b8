//! Why something about a directory was not done.

use std::{fmt, io, path::PathBuf};

/// Why not. Paths are below the directory in question.
#[derive(Debug)]
pub enum TreeError {
    /// A system call failed.
    Io {
        /// What was being done.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// The path itself is not allowed.
    Path {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Something is there that is not touched.
    Refused {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Nothing is there.
    NotFound(PathBuf),
    /// It is no longer what was shown.
    Stale(PathBuf),
    /// There are more entries than the bound.
    TooMany {
        /// The most.
        entries_max: usize,
    },
    /// Directories lie deeper inside each other than the bound.
    TooDeep {
        /// The first that is too deep.
        path: PathBuf,
        /// The most.
        depth_max: usize,
    },
    /// There are more bytes than the bound.
    TooLarge {
        /// Where the bound was passed.
        path: PathBuf,
        /// The most.
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
            errno => Self::Io {
                step,
                path,
                error: errno.into(),
            },
        }
    }

    /// For `map_err`: the same for an error of the standard library.
    pub(super) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TreeError {
        let path = path.into();
        move |error| Self::Io { step, path, error }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, path, error } => write!(f, "{step} {path:?}: {error}"),
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
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
