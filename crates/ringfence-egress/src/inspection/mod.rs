//! What one sandbox's TLS is inspected with: its own certificate authority, the authorities that the host trusts, and
//! the secrets that are put into requests. `docs/adr/0007-tls-that-is-read.md` says why each sandbox has an authority
//! of its own.

mod authority;
mod secret;
mod trust;

pub use secret::{BoundSecret, PlaceError, SecretPlace};
pub(crate) use secret::{Unwritable, fill};
pub use trust::{Trust, TrustError};

use crate::{Destination, Host, HostName};
use authority::Authority;
use ringfence_redact::Redactor;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Whose TLS is read, beside that to hosts whose rules depend on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedHosts {
    OfSecrets,
    All,
}

/// What one sandbox's TLS is read with. Its programs have to believe [`Inspection::authorities`].
pub struct Inspection {
    trust: Arc<Trust>,
    authority: Authority,
    secrets: Vec<BoundSecret>,
    redactor: Redactor,
    hosts: InspectedHosts,
}

impl Inspection {
    /// With an authority of its own. `redactor` takes the secrets' values out of what their hosts answer.
    ///
    /// # Errors
    /// No key could be made.
    pub fn new(trust: Arc<Trust>, secrets: Vec<BoundSecret>, redactor: Redactor) -> Result<Self, String> {
        Ok(Self {
            trust,
            authority: Authority::new().map_err(|error| error.to_string())?,
            secrets,
            redactor,
            hosts: InspectedHosts::OfSecrets,
        })
    }

    /// Without secrets, for a browser.
    ///
    /// # Errors
    /// No key could be made.
    pub fn of_browser(trust: Arc<Trust>, hosts: InspectedHosts) -> Result<Self, String> {
        let inspection = Self::new(trust, Vec::new(), Redactor::none())?;
        Ok(Self { hosts, ..inspection })
    }

    pub fn secrets(&self) -> &[BoundSecret] {
        &self.secrets
    }

    /// A file of certificates (PEM): the host's authorities and the sandbox's own.
    pub fn authorities(&self) -> String {
        [self.authority.pem(), self.trust.pem()].concat()
    }

    /// The key that the sandbox's connections are answered with (SubjectPublicKeyInfo, DER).
    pub fn public_key(&self) -> Vec<u8> {
        self.authority.public_key()
    }

    /// Whether what is said to `to` is read whatever its rules are. Certificates of ours are for names.
    pub(crate) fn reads(&self, to: &Destination) -> bool {
        self.concerns(to) || (self.hosts == InspectedHosts::All && matches!(to.host, Host::Name(_)))
    }

    pub(crate) fn concerns(&self, to: &Destination) -> bool {
        self.secrets.iter().any(|secret| secret.belongs_to(to))
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// For one connection to the outside, which speaks one of these protocols.
    pub(crate) fn client(&self, protocols: Vec<Vec<u8>>) -> Result<ClientConfig, rustls::Error> {
        self.trust.client(protocols)
    }

    /// For one connection from the sandbox, which is answered as `name`.
    pub(crate) fn server(&self, name: &HostName, protocol: Option<Vec<u8>>) -> Result<ServerConfig, String> {
        self.authority.server(self.trust.provider(), name, protocol)
    }
}
