//! Events of a sandbox's connections, published to the engine as they happen.

use crate::{End, Refusal};
use std::sync::Arc;

pub type EventSink = Arc<dyn Fn(EgressEvent) + Send + Sync>;

/// Something that happened to a connection. Texts from the sandbox are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressEvent {
    Connected(End),
    /// Something was refused, for the first time since a report was taken.
    Denied(Refusal),
    /// A request was passed on, and answered or not.
    Request {
        method: String,
        name: String,
        port: u16,
        path: String,
        /// The answer's status; none: there was no answer.
        status: Option<u16>,
        /// Names of the secrets that were put into it.
        secrets: Vec<String>,
    },
    Closed {
        end: End,
        bytes_out: u64,
        bytes_in: u64,
    },
    /// Events before the next that were left out: there were too many at once.
    Untold {
        count: u64,
    },
}
