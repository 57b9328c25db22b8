//! The hosts that a program asks for. Here they are texts with a limit; the egress crate gives them their meaning.

use crate::RequestError;
use std::collections::BTreeSet;

/// The most that one request names.
pub const DOMAINS_MAX: usize = 64;
/// The longest, in bytes.
const DOMAIN_BYTES_MAX: usize = 1024;

/// Which hosts a program may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedDomains {
    /// All that the policy gives its namespace.
    #[default]
    Granted,
    /// These of them.
    Only(BTreeSet<String>),
    /// These, without approval of others: named by the operator (never by a tool call).
    Operator(BTreeSet<String>),
}

impl AllowedDomains {
    /// Of a list that a caller gave; none: it gave none.
    pub fn asked(list: Option<Vec<String>>) -> Self {
        list.map_or(Self::Granted, |list| Self::Only(list.into_iter().collect()))
    }

    /// What is named.
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Granted => None,
            Self::Only(names) | Self::Operator(names) => Some(names),
        }
    }

    /// Counts and lengths.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        let names = self.names().into_iter().flatten();
        if names.clone().count() > DOMAINS_MAX {
            return Err(RequestError::invalid(
                format!("there are more than {DOMAINS_MAX} hosts in allowed_domains."),
                "Say with `*.example.com` what many names have in common.",
            ));
        }
        if names.clone().any(|name| name.len() > DOMAIN_BYTES_MAX) {
            return Err(RequestError::invalid(
                format!("a host in allowed_domains is longer than {DOMAIN_BYTES_MAX} bytes."),
                "Write `example.com`, `*.example.com` or `example.com:8443`.",
            ));
        }
        Ok(())
    }
}
