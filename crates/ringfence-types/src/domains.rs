//! The hosts that a request names. Here they are texts with a limit; the egress crate interprets them.

use crate::RequestError;
use std::collections::BTreeSet;

/// Maximum number of hosts in one request.
pub const DOMAINS_MAX: usize = 64;
/// Maximum length of a host, in bytes.
const DOMAIN_BYTES_MAX: usize = 1024;

/// Hosts that a program may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedDomains {
    /// All that the policy grants its namespace.
    #[default]
    Granted,
    /// These of them.
    Only(BTreeSet<String>),
    /// These, without approval of others: named by the operator (never by a tool call).
    Operator(BTreeSet<String>),
}

impl AllowedDomains {
    /// Creates it from the list of a caller, if there is one.
    pub fn from_request(list: Option<Vec<String>>) -> Self {
        list.map_or(Self::Granted, |list| Self::Only(list.into_iter().collect()))
    }

    /// Returns the hosts that are named.
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Granted => None,
            Self::Only(names) | Self::Operator(names) => Some(names),
        }
    }

    /// Checks count and lengths.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        let names = self.names().into_iter().flatten();
        if names.clone().count() > DOMAINS_MAX {
            return Err(RequestError::invalid(
                format!("there are more than {DOMAINS_MAX} hosts in allowed_domains."),
                "Use a pattern such as `*.example.com` for many names.",
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
