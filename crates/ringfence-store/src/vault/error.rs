//! Why the vault says no. Names and paths are told, values never.

use super::{
    contents::{BYTES_MAX, NAMESPACE_BYTES_MAX, NAMESPACE_SECRETS_MAX, SECRETS_MAX},
    environment::VariableError,
};
use ringfence_types::{EnvName, Namespace};
use std::{fmt, io, path::PathBuf};

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
    /// There is no room.
    Full {
        /// What is used up.
        limit: Limit,
    },
    /// A variable names no secret.
    Variable {
        /// Its name, shortened.
        variable: String,
        /// What is wrong with it.
        error: VariableError,
    },
    /// Two variables are the same secret and have different values.
    VariablesDisagree {
        /// One of the two.
        first: String,
        /// The other.
        second: String,
    },
    /// A step failed. After `sync the directory` the change is seen and may be lost by a crash of the machine;
    /// after every other step it was not made.
    File {
        /// What it was done to.
        path: PathBuf,
        /// A verb, as in "cannot read".
        step: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The file is no whole vault. It is left as it is.
    Damaged {
        /// The vault.
        path: PathBuf,
        /// How it shows.
        damage: Damage,
    },
    /// The file was sealed with a key of the other kind, or was made anew since it was opened.
    OtherKey {
        /// The vault.
        path: PathBuf,
        /// How it is.
        why: &'static str,
    },
    /// The key file cannot be used.
    Key {
        /// The key file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No key comes of the passphrase.
    Derivation {
        /// The vault.
        path: PathBuf,
        /// What the derivation said.
        why: String,
    },
}

/// What a vault can run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Secrets of one namespace.
    NamespaceSecrets,
    /// Secrets in all.
    Secrets,
    /// Bytes of one namespace's values.
    NamespaceBytes,
    /// Bytes of all values.
    Bytes,
}

/// How a file shows that it is no whole vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It begins otherwise.
    Magic,
    /// Another version wrote it.
    Version(u16),
    /// A derivation that nobody knows, or one that asks for more memory or time than a vault may.
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
            Self::File { path, step, error } => write!(f, "cannot {step} {}: {error}", path.display()),
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
            Self::File { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamespaceSecrets => write!(f, "a namespace has at most {NAMESPACE_SECRETS_MAX} secrets"),
            Self::Secrets => write!(f, "there are at most {SECRETS_MAX} secrets"),
            Self::NamespaceBytes => write!(
                f,
                "a namespace has at most {NAMESPACE_BYTES_MAX} bytes of secrets"
            ),
            Self::Bytes => write!(f, "there are at most {BYTES_MAX} bytes of secrets"),
        }
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
