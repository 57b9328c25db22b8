//! Who is at the other end of a request, as far as this server is concerned. The tools and the engine see this and
//! never a header.

use crate::{
    mcp::Offer,
    settings::{Namespaces, OnHangUp, Toolset},
};
use ringfence_store::tokens::{PrincipalRole, TokenEntry};
use ringfence_types::{LimitsRequest, Namespace};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

/// Names of principals without a token of `ringfence token`: no such token can have one of them.
pub(super) const UNAUTHENTICATED: &str = "(unauthenticated)";
pub(super) const API_TOKEN: &str = "(SANDBOX_API_TOKEN)";
/// A process of this user, or of root, by the word of the kernel.
pub(super) const SOCKET: &str = "(socket)";
/// Before the name that a rule gives to the bearer of an access token: no such token has a name with a colon.
pub(super) const OAUTH: &str = "oauth:";

/// Who a request is from, and until when its credentials are good for that.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    pub(super) principal: Arc<Principal>,
    /// None: until they are revoked, or expire by the file of tokens, which is watched.
    pub(super) expires_unix_ms: Option<u64>,
    /// None: for all that the principal may.
    pub(super) scope: Option<PartialScope>,
}

/// Toolsets that a token is good for, of those that its principal may use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartialScope {
    pub(super) toolsets: Vec<Toolset>,
    pub(super) held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Missing,
    /// It brings one that is not good here, or not one token.
    Invalid,
    /// Its token is good, and not for this: the scopes that it has, and the one that is wanted.
    Scope {
        held: Vec<String>,
        wanted: String,
    },
    /// Its token is good, and its bearer is unknown here.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Principal {
    /// As the record names it.
    pub(super) name: Arc<str>,
    /// None: as the server lets its callers choose.
    pub(super) namespaces: Option<Arc<[Namespace]>>,
    /// None: those of the server.
    pub(super) toolsets: Option<Vec<Toolset>>,
    pub(super) rate_per_minute: Option<NonZeroU32>,
    /// After how long its calls are detached, 0: never. None: as the server says.
    pub(super) detach_after_ms: Option<u64>,
    /// The largest of its programs, where they are below the server's.
    pub(super) limits: LimitsRequest,
    pub(super) role: PrincipalRole,
    /// The digest of its token: one that is made anew is another principal.
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

    /// What it is offered of what the server offers.
    pub(super) fn offer(&self, of_server: &Offer) -> Offer {
        let mut offer = of_server.clone();
        // A connection that breaks off leaves the calls of its session; what ends them is a token that is revoked.
        offer.calls.on_disconnect = OnHangUp::Cancel;
        offer.limits = self.limits.clone();
        if let (Some(after_ms), true) = (self.detach_after_ms, offer.calls.keep_results) {
            offer.calls.detach_after = (after_ms > 0).then(|| Duration::from_millis(after_ms));
        }
        if let Some(toolsets) = &self.toolsets {
            offer.toolsets.retain(|toolset| toolsets.contains(toolset));
        } else if *self.name != *SOCKET {
            // The host is for principals whose token or rule names it, whatever their role.
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
