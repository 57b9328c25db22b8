//! Where connections come from: the caller judges each destination, and says why it refuses one.

use crate::Target;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, before TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, DialError>> + Send + 'a>>;

/// Opens connections to what its rules allow.
pub trait Dial: Send + Sync {
    /// Judges host, port, method and path, then every address that the host has, and connects to one that passed.
    fn connect<'a>(&'a self, to: &'a Target, method: &'a str) -> ConnectFuture<'a>;
}

/// A connection that was refused or could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DialError {
    /// The rule that it would have broken; `egress.unreachable` if it was allowed.
    pub rule: String,
    /// What was refused, without a full stop.
    pub what: String,
    pub hint: String,
}

impl DialError {
    /// Allowed, and not reached, or not as itself.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.rule.as_str(), "egress.unreachable" | "egress.certificate")
    }
}
