//! Errors of the vault. Messages have names and paths, never values.

use crate::whole_file::FileError;
use ringfence_types::{EnvName, Namespace};
use std::path::PathBuf;

pub const NAMESPACE_SECRETS_MAX: usize = 1_000;
pub const SECRETS_MAX: usize = 10_000;
pub const NAMESPACE_BYTES_MAX: usize = 256 << 10;
pub const BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("a namespace has at most {} secrets", NAMESPACE_SECRETS_MAX)]
    NamespaceSecrets,
    #[error("there are at most {} secrets", SECRETS_MAX)]
    Secrets,
    #[error("a namespace has at most {} bytes of secrets", NAMESPACE_BYTES_MAX)]
    NamespaceBytes,
    #[error("there are at most {} bytes of secrets", BYTES_MAX)]
    Bytes,
}

/// A failed operation of the vault. Nothing has changed, but see [`VaultError::File`].
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("secrets of the environment cannot be changed")]
    ReadOnly,
    /// The first missing key. The error does not tell if another namespace has it.
    #[error("there is no secret {} in this namespace", .key.as_str())]
    NotFound { key: EnvName },
    #[error(
        "the environment has no secrets for the namespace {namespace}: only names of a-z and 0-9 can have some"
    )]
    NotServed { namespace: Namespace },
    #[error("a secret's time to live is 1 ms to 100 years")]
    Lifetime,
    #[error("the vault is full: {limit}")]
    Full { limit: Limit },
    #[error("the variable {variable:?}: {error}")]
    Variable { variable: String, error: VariableError },
    #[error("the variables {first} and {second} are the same secret and differ; unset one of them")]
    VariablesDisagree { first: String, second: String },
    /// A failed step. If it is `sync the directory`, the change was made and may be lost in a crash of the machine;
    /// with every other step it was not made.
    #[error("cannot {0}")]
    File(#[from] FileError),
    #[error("the vault {path}: {damage}")]
    Damaged { path: PathBuf, damage: Damage },
    /// The file was sealed with a key of the other kind, or was created again since it was opened.
    #[error("the vault {path} {why}")]
    OtherKey { path: PathBuf, why: &'static str },
    #[error("the vault's key {path}: {why}")]
    Key { path: PathBuf, why: String },
    #[error("the vault {path}: cannot derive a key from the passphrase: {why}")]
    Derivation { path: PathBuf, why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    #[error("it does not begin with RINGFENCE_SECRET_")]
    Prefix,
    #[error("its namespace is 1 to 64 of A-Z and 0-9, up to the first `_`")]
    Namespace,
    #[error("its namespace must be followed by `_` and the secret's name")]
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is not a Ringfence vault")]
    Magic,
    #[error("its version is {0}, which this program does not know")]
    Version(u16),
    #[error("the parameters of its key derivation are out of bounds")]
    Derivation,
    #[error("it is longer than any vault")]
    TooLong,
    /// `expected` is the length in the header.
    #[error("it should have {expected} bytes and has {found}: truncated or extended")]
    Length { expected: u64, found: u64 },
    /// The cipher cannot tell a wrong key from a changed byte.
    #[error("it does not open: the key is wrong, or the file was changed")]
    Seal,
    #[error("it opens, but its contents are not those of a vault")]
    Contents,
}
