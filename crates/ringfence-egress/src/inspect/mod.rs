//! TLS that is read: where rules name methods or paths, or where a secret belongs. The connection ends here and another begins,
//! each with its own keys; what passes between them is requests, each judged by itself.
//!
//! Why there is an authority for each sandbox: `docs/adr/0007-tls-that-is-read.md`.

mod authority;
mod exchange;
mod handshake;
mod secret;
mod trust;
mod veiled;

pub(crate) use exchange::{Meeting, meet, serve};
pub use secret::{BoundSecret, PlaceError, SecretPlace};
pub use trust::{Trust, TrustError};

use crate::Destination;
use authority::Authority;
use ringfence_redact::Redactor;
use std::{fmt, sync::Arc};

/// What one sandbox's TLS is read with. Its programs have to believe [`Inspection::authorities`].
pub struct Inspection {
    trust: Arc<Trust>,
    authority: Authority,
    secrets: Vec<BoundSecret>,
    redactor: Redactor,
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection")
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
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
        })
    }

    /// The secrets.
    pub fn secrets(&self) -> &[BoundSecret] {
        &self.secrets
    }

    /// A file of certificates (PEM): the host's authorities and the sandbox's own.
    pub fn authorities(&self) -> String {
        [self.authority.pem(), self.trust.pem()].concat()
    }

    /// Whether a secret belongs to `to`, so that what is said there is read.
    pub(crate) fn concerns(&self, to: &Destination) -> bool {
        self.secrets.iter().any(|secret| secret.belongs_to(to))
    }
}
