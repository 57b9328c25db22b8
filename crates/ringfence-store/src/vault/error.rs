//! Why the vault refuses an operation. Messages have names and paths, never values.

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

/// Why an operation of the vault failed. Nothing has changed then, but see [`VaultError::File`].
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("secrets of the environment cannot be changed")]
    ReadOnly,
    /// The first of the keys that is missing. Whether another namespace has it is not said.
    #[error("there is no secret {} in this namespace", .key.as_str())]
    NotFound { key: EnvName },
    #[error(
        "the environment has no secrets for the namespace {namespace}: only names of a-z and 0-9 can have some"
    )]
    NotServed { namespace: Namespace },
    #[error("a secret lives 1 ms to 100 years")]
    Lifetime,
    #[error("the vault is full: {limit}")]
    Full { limit: Limit },
    #[error("the variable {variable:?}: {error}")]
    Variable { variable: String, error: VariableError },
    #[error("the variables {first} and {second} are one secret and differ; unset one of them")]
    VariablesDisagree { first: String, second: String },
    /// A step failed. After `sync the directory` the change is seen and may be lost by a crash of the machine;
    /// after every other step it was not made.
    #[error("cannot {0}")]
    File(#[from] FileError),
    #[error("the vault {path}: {damage}")]
    Damaged { path: PathBuf, damage: Damage },
    /// The file was sealed with a key of the other kind, or was made anew since it was opened.
    #[error("the vault {path} {why}")]
    OtherKey { path: PathBuf, why: &'static str },
    #[error("the vault's key {path}: {why}")]
    Key { path: PathBuf, why: String },
    #[error("the vault {path}: no key comes of the passphrase: {why}")]
    Derivation { path: PathBuf, why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    #[error("it does not begin with RINGFENCE_SECRET_")]
    Prefix,
    #[error("its namespace is 1 to 64 of A-Z and 0-9, up to the first `_`")]
    Namespace,
    #[error("after its namespace and a `_` follows the name that the secret has inside")]
    Key,
}

/// How a file shows that it is not a whole vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is no vault of Ringfence")]
    Magic,
    #[error("its version is {0}, which this program does not know")]
    Version(u16),
    #[error("it asks for a derivation of its key that is out of bounds")]
    Derivation,
    #[error("it is longer than any vault")]
    TooLong,
    /// `expected` is what its header says.
    #[error("it should have {expected} bytes and has {found}: cut short or added to")]
    Length { expected: u64, found: u64 },
    /// The cipher cannot tell a wrong key from a changed byte.
    #[error("it does not open: the key is wrong, or the file was changed")]
    Seal,
    #[error("it opens, and what is inside is no vault's contents")]
    Contents,
}
