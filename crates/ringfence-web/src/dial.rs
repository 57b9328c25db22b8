//! The source of connections: the caller judges each destination, and gives the reason for a refusal.

use crate::Target;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, before TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, DialError>> + Send + 'a>>;

/// Opens connections to destinations that its rules allow.
pub trait Dial: Send + Sync {
    /// Judges host, port, method and path, then every address of the host, and connects to an allowed one.
    fn connect<'a>(&'a self, to: &'a Target, method: &'a str) -> ConnectFuture<'a>;
}

/// A connection that was refused or could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DialError {
    /// The rule that refused it. `egress.unreachable` or `egress.certificate`: it was allowed.
    pub rule: String,
    /// The refused action, without a full stop.
    pub what: String,
    pub hint: String,
}

impl DialError {
    /// True if the destination was allowed, but was not reached or had no valid certificate.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.rule.as_str(), "egress.unreachable" | "egress.certificate")
    }
}
