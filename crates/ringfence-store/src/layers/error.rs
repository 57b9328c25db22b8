//! Why the layers did not do it.

use crate::{tree::TreeError, whole_file::FileError};
use std::{fmt, io, path::PathBuf};

/// Why not.
#[derive(Debug)]
pub enum LayerError {
    Io(FileError),
    /// What an installer has left cannot be a layer; the text says why.
    Refused(String),
    TooLarge {
        bytes_max: u64,
    },
    /// What lies here is not what was signed.
    Damaged {
        /// The layer, or the record of a set.
        name: String,
        what: String,
    },
}

impl LayerError {
    pub(super) fn io<E: Into<io::Error>>(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let failed = FileError::at(step, path);
        move |error| Self::Io(failed(error))
    }

    pub(super) fn damaged(name: &str, what: impl Into<String>) -> Self {
        Self::Damaged {
            name: name.to_owned(),
            what: what.into(),
        }
    }
}

impl From<FileError> for LayerError {
    fn from(error: FileError) -> Self {
        Self::Io(error)
    }
}

impl From<TreeError> for LayerError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Io(error) => Self::Io(error),
            TreeError::TooMany { entries_max } => Self::Refused(format!("more than {entries_max} files")),
            TreeError::TooDeep { depth_max, .. } => {
                Self::Refused(format!("more than {depth_max} directories inside each other"))
            }
            other => Self::Refused(other.to_string()),
        }
    }
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the layers of packages: {error}"),
            Self::Refused(what) => write!(f, "what was installed cannot be kept: {what}"),
            Self::TooLarge { bytes_max } => write!(f, "the packages have more than {bytes_max} bytes"),
            Self::Damaged { name, what } => write!(f, "the layer {name} is not what was signed: {what}"),
        }
    }
}

impl std::error::Error for LayerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
