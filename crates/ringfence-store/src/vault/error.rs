//! Why the vault says no. Names and paths are told, values never.

use super::limit::Limit;
use crate::whole_file::FileError;
use ringfence_types::{EnvName, Namespace};
use std::{fmt, path::PathBuf};

/// Why an operation of the vault failed. Nothing has changed then, but see [`VaultError::File`].
#[derive(Debug)]
pub enum VaultError {
    /// The environment's secrets are as the process was started with.
    ReadOnly,
    /// This namespace has none of this name. Whether another has is not told.
    NotFound {
        /// The first of those that were asked for.
        key: EnvName,
    },
    /// No variable of the environment can belong to this namespace.
    NotServed {
        /// It has other characters than `a-z` and `0-9`.
        namespace: Namespace,
    },
    /// A time to live is 1 ms to 100 years.
    Lifetime,
    Full {
        limit: Limit,
    },
    /// A variable names no secret.
    Variable {
        /// Its name, shortened.
        variable: String,
        error: VariableError,
    },
    /// Two variables are the same secret and have different values.
    VariablesDisagree {
        first: String,
        second: String,
    },
    /// A step failed. After `sync the directory` the change is seen and may be lost by a crash of the machine;
    /// after every other step it was not made.
    File(FileError),
    /// The file is no whole vault. It is left as it is.
    Damaged {
        path: PathBuf,
        damage: Damage,
    },
    /// The file was sealed with a key of the other kind, or was made anew since it was opened.
    OtherKey {
        path: PathBuf,
        why: &'static str,
    },
    Key {
        path: PathBuf,
        why: &'static str,
    },
    /// No key comes of the passphrase.
    Derivation {
        path: PathBuf,
        why: String,
    },
}

/// Why a variable names no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableError {
    /// It does not begin as one.
    Prefix,
    /// Up to the first `_` stands no namespace of `A-Z` and `0-9`.
    Namespace,
    /// After it stands no name of a variable.
    Key,
}

/// How a file shows that it is no whole vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It begins otherwise.
    Magic,
    Version(u16),
    /// An unknown derivation, or one that asks for more memory or time than a vault may.
    Derivation,
    /// No vault is as long as that.
    TooLong,
    /// It says how long it is, and it is not.
    Length {
        /// In bytes, by its header.
        expected: u64,
        /// In bytes, as found.
        found: u64,
    },
    /// The key is wrong, or a byte was changed: the cipher cannot tell one from the other.
    Seal,
    /// It was sealed with this key, and what is inside is no vault's contents.
    Contents,
}

impl fmt::Display for VaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly => f.write_str("secrets of the environment cannot be changed"),
            Self::NotFound { key } => write!(f, "there is no secret {} in this namespace", key.as_str()),
            Self::NotServed { namespace } => write!(
                f,
                "the environment has no secrets for the namespace {namespace}: only names of a-z and 0-9 can have some"
            ),
            Self::Lifetime => f.write_str("a secret lives 1 ms to 100 years"),
            Self::Full { limit } => write!(f, "the vault is full: {limit}"),
            Self::Variable { variable, error } => write!(f, "the variable {variable:?}: {error}"),
            Self::VariablesDisagree { first, second } => {
                write!(
                    f,
                    "the variables {first} and {second} are one secret and differ; unset one of them"
                )
            }
            Self::File(error) => write!(f, "cannot {error}"),
            Self::Damaged { path, damage } => write!(f, "the vault {}: {damage}", path.display()),
            Self::OtherKey { path, why } => write!(f, "the vault {} {why}", path.display()),
            Self::Key { path, why } => write!(f, "the vault's key {}: {why}", path.display()),
            Self::Derivation { path, why } => {
                write!(
                    f,
                    "the vault {}: no key comes of the passphrase: {why}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for VaultError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefix => "it does not begin with RINGFENCE_SECRET_",
            Self::Namespace => "its namespace is 1 to 64 of A-Z and 0-9, up to the first `_`",
            Self::Key => "after its namespace and a `_` follows the name that the secret has inside",
        })
    }
}

impl From<FileError> for VaultError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("it is no vault of Ringfence"),
            Self::Version(version) => write!(f, "its version is {version}, which this program does not know"),
            Self::Derivation => f.write_str("it asks for a derivation of its key that is out of bounds"),
            Self::TooLong => f.write_str("it is longer than any vault"),
            Self::Length { expected, found } => {
                write!(
                    f,
                    "it should have {expected} bytes and has {found}: cut short or added to"
                )
            }
            Self::Seal => f.write_str("it does not open: the key is wrong, or the file was changed"),
            Self::Contents => f.write_str("it opens, and what is inside is no vault's contents"),
        }
    }
}
