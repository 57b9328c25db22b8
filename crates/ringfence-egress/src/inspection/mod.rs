//! TLS inspection of one sandbox: its own certificate authority, the authorities that the host trusts, and the secrets
//! written into requests. `docs/adr/0007-tls-that-is-read.md` explains why each sandbox has its own authority.

mod authority;
mod secret;
mod trust;

pub use secret::{BoundSecret, PlaceError, PlacesFuture, SecretPlace};
pub(crate) use secret::{Unwritable, fill};
pub use trust::{Trust, TrustError};

use crate::{Destination, Host, HostName};
use authority::Authority;
use ringfence_redact::Redactor;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Hosts whose TLS is inspected, in addition to hosts with rules that depend on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedHosts {
    WithSecrets,
    All,
}

/// The inspection of one sandbox, whose programs have to trust [`Inspection::authorities`].
pub struct Inspection {
    trust: Arc<Trust>,
    authority: Authority,
    secrets: Vec<BoundSecret>,
    redactor: Redactor,
    hosts: InspectedHosts,
}

impl Inspection {
    /// Fails if no key can be made. `redactor` removes the secrets' values from the answers of their hosts.
    pub fn new(trust: Arc<Trust>, secrets: Vec<BoundSecret>, redactor: Redactor) -> Result<Self, String> {
        Ok(Self {
            trust,
            authority: Authority::new().map_err(|error| error.to_string())?,
            secrets,
            redactor,
            hosts: InspectedHosts::WithSecrets,
        })
    }

    /// Without secrets, for a browser. Fails if no key can be made.
    pub fn for_browser(trust: Arc<Trust>, hosts: InspectedHosts) -> Result<Self, String> {
        let inspection = Self::new(trust, Vec::new(), Redactor::none())?;
        Ok(Self { hosts, ..inspection })
    }

    pub fn secrets(&self) -> &[BoundSecret] {
        &self.secrets
    }

    /// Returns a file of certificates (PEM): the sandbox's own authority and those that the host trusts.
    pub fn authorities(&self) -> String {
        [self.authority.pem(), self.trust.pem()].concat()
    }

    /// Returns the public key of the certificates for the sandbox's connections (SubjectPublicKeyInfo, DER).
    pub fn public_key(&self) -> Vec<u8> {
        self.authority.public_key()
    }

    /// True if TLS to `to` is inspected even if its rules do not require it. The authority signs only for names.
    pub(crate) fn inspects(&self, to: &Destination) -> bool {
        self.has_secret_for(to) || (self.hosts == InspectedHosts::All && matches!(to.host, Host::Name(_)))
    }

    pub(crate) fn has_secret_for(&self, to: &Destination) -> bool {
        self.secrets.iter().any(|secret| secret.belongs_to(to))
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn client(&self, protocols: Vec<Vec<u8>>) -> Result<ClientConfig, rustls::Error> {
        self.trust.client(protocols)
    }

    pub(crate) fn server(&self, name: &HostName, protocol: Option<Vec<u8>>) -> Result<ServerConfig, String> {
        self.authority.server(self.trust.provider(), name, protocol)
    }
}
