//! How much a vault holds.

use super::value::SecretValue;
use std::fmt;

/// The most secrets of one namespace.
pub const NAMESPACE_SECRETS_MAX: usize = 1_000;
/// The most secrets in all.
pub const SECRETS_MAX: usize = 10_000;
/// All values of one namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 256 << 10;
/// All values, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// What a vault can run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    NamespaceSecrets,
    Secrets,
    NamespaceBytes,
    Bytes,
}

/// What is counted against the limits.
#[derive(Clone, Copy, Default)]
pub(super) struct Total {
    pub(super) secrets: usize,
    bytes: usize,
}

impl Total {
    pub(super) fn add(&mut self, value: &SecretValue) {
        self.secrets += 1;
        self.bytes += value.len();
    }

    pub(super) fn remove(&mut self, value: &SecretValue) {
        self.secrets -= 1;
        self.bytes -= value.len();
    }
}

impl Limit {
    /// The first limit that a namespace with so much, in a vault with so much, has passed.
    pub(super) fn passed(own: Total, all: Total) -> Option<Self> {
        let limits = [
            (own.secrets > NAMESPACE_SECRETS_MAX, Self::NamespaceSecrets),
            (own.bytes > NAMESPACE_BYTES_MAX, Self::NamespaceBytes),
            (all.secrets > SECRETS_MAX, Self::Secrets),
            (all.bytes > BYTES_MAX, Self::Bytes),
        ];
        limits
            .into_iter()
            .find_map(|(passed, limit)| passed.then_some(limit))
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
