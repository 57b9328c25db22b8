//! Why the artifact store did not do it.

use crate::whole_file::FileError;
use std::fmt;

/// Why not. Nothing that was in the store is lost by any of these.
#[derive(Debug)]
pub enum ArtifactError {
    Io(FileError),
    /// An argument is not allowed; the text says which.
    Refused(String),
    /// The execution of this id has been published.
    Taken(String),
    /// The content of the artifact of this name is no longer in the store: hand it in again.
    Gone(String),
    /// More was written than the bound, or a write failed before: the content is not whole.
    Incomplete,
    /// It has more bytes than the caller can take.
    TooLarge {
        bytes_max: u64,
    },
    /// What the store holds is not what was signed.
    Damaged {
        execution_id: String,
        what: String,
    },
}

impl From<FileError> for ArtifactError {
    fn from(error: FileError) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ArtifactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the artifact store: {error}"),
            Self::Refused(what) => write!(f, "refused: {what}"),
            Self::TooLarge { bytes_max } => write!(f, "the artifact has more than {bytes_max} bytes"),
            Self::Taken(execution_id) => write!(f, "the execution {execution_id} has its artifacts already"),
            Self::Gone(name) => write!(f, "the content of {name:?} is no longer in the store"),
            Self::Incomplete => f.write_str("the artifact was not written to its end"),
            Self::Damaged { execution_id, what } => {
                write!(f, "the artifacts of {execution_id} are damaged: {what}")
            }
        }
    }
}

impl std::error::Error for ArtifactError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
