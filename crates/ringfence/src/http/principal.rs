//! The principal of a request: the authenticated caller. The tools and the engine see it, and never a header.

use crate::{
    mcp::Offer,
    settings::{Namespaces, OnHangUp, Toolset},
};
use ringfence_store::tokens::{PrincipalRole, TokenEntry};
use ringfence_types::{LimitsRequest, Namespace};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

/// Names of principals without a token of `ringfence token`; such a token cannot have one of these names.
pub(super) const UNAUTHENTICATED: &str = "(unauthenticated)";
pub(super) const API_TOKEN: &str = "(SANDBOX_API_TOKEN)";
/// A process of this user or of root, as the kernel reports.
pub(super) const SOCKET: &str = "(socket)";
/// Prefix of the name that a rule gives to the bearer of an access token; names of `ringfence token` have no colon.
pub(super) const OAUTH: &str = "oauth:";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    pub(super) principal: Arc<Principal>,
    /// None: until they are revoked or expire by the token file, which is checked regularly.
    pub(super) expires_unix_ms: Option<u64>,
    /// None: everything that the principal may use.
    pub(super) scope: Option<PartialScope>,
}

/// Toolsets of a token's scopes, of those that its principal may use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartialScope {
    pub(super) toolsets: Vec<Toolset>,
    pub(super) held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Missing,
    /// The token is not valid here, or there is more than one.
    Invalid,
    /// The token is valid, but lacks a scope: the scopes that it has, and the one needed.
    Scope {
        held: Vec<String>,
        wanted: String,
    },
    /// The token is valid, but no rule gives its bearer a principal.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Principal {
    pub(super) name: Arc<str>,
    /// None: the server's rule applies (`namespaces.caller_chooses`).
    pub(super) namespaces: Option<Arc<[Namespace]>>,
    /// None: the server's, except `host` for all but the socket.
    pub(super) toolsets: Option<Vec<Toolset>>,
    pub(super) rate_per_minute: Option<NonZeroU32>,
    /// Time after which calls are detached; 0: never. None: the server's.
    pub(super) detach_after_ms: Option<u64>,
    pub(super) limits: LimitsRequest,
    pub(super) role: PrincipalRole,
    /// SHA-256 of its token: a new token of the same name is another principal.
    pub(super) token: Option<String>,
}

impl Principal {
    pub(super) fn with_everything(name: &str, role: PrincipalRole) -> Self {
        Self {
            name: name.into(),
            namespaces: None,
            toolsets: None,
            rate_per_minute: None,
            detach_after_ms: None,
            limits: LimitsRequest::default(),
            role,
            token: None,
        }
    }

    pub(super) fn of_token(entry: &TokenEntry) -> Result<Self, String> {
        use crate::settings::SettingValue as _;
        let toolsets = entry.toolsets.iter().map(|name| Toolset::read(name));
        let toolsets: Vec<Toolset> = toolsets.collect::<Result<_, _>>()?;
        Ok(Self {
            name: entry.name.as_str().into(),
            namespaces: (!entry.namespaces.is_empty()).then(|| entry.namespaces.clone().into()),
            toolsets: (!toolsets.is_empty()).then_some(toolsets),
            rate_per_minute: NonZeroU32::new(entry.rate_per_minute),
            detach_after_ms: entry.detach_after_ms,
            limits: entry.limits.clone(),
            role: entry.role,
            token: Some(entry.sha256.clone()),
        })
    }

    pub(super) fn offer(&self, of_server: &Offer) -> Offer {
        let mut offer = of_server.clone();
        // Over HTTP a lost connection does not end the calls of its session; a revoked token does.
        offer.calls.on_disconnect = OnHangUp::Cancel;
        offer.limits = self.limits.clone();
        if let (Some(after_ms), true) = (self.detach_after_ms, offer.calls.keep_results) {
            offer.calls.detach_after = (after_ms > 0).then(|| Duration::from_millis(after_ms));
        }
        if let Some(toolsets) = &self.toolsets {
            offer.toolsets.retain(|toolset| toolsets.contains(toolset));
        } else if *self.name != *SOCKET {
            // The toolset `host` is only for principals whose token or rule names it, independent of their role.
            offer.toolsets.retain(|toolset| *toolset != Toolset::Host);
        }
        if let Some(namespaces) = &self.namespaces {
            offer.namespaces = Namespaces::Of(namespaces.clone());
        }
        offer
    }
}

#[cfg(test)]
#[path = "principal_tests.rs"]
pub(super) mod tests;
