//! Why the layers did not do it.

use std::{fmt, io, path::PathBuf};

/// Why not.
#[derive(Debug)]
pub enum LayerError {
    /// A system call failed.
    Io {
        /// What was being done.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// What an installer has left cannot be a layer; the text says why.
    Refused(String),
    /// It is larger than the bound.
    TooLarge {
        /// The most.
        bytes_max: u64,
    },
    /// What lies here is not what was signed.
    Damaged {
        /// The layer, or the record of a set.
        name: String,
        /// What is wrong.
        what: String,
    },
}

impl LayerError {
    pub(super) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { step, path, error }
    }

    pub(super) fn damaged(name: &str, what: impl Into<String>) -> Self {
        Self::Damaged {
            name: name.to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, path, error } => {
                write!(f, "the layers of packages: {step} {}: {error}", path.display())
            }
            Self::Refused(what) => write!(f, "what was installed cannot be kept: {what}"),
            Self::TooLarge { bytes_max } => write!(f, "the packages have more than {bytes_max} bytes"),
            Self::Damaged { name, what } => write!(f, "the layer {name} is not what was signed: {what}"),
        }
    }
}

impl std::error::Error for LayerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
