//! Events of a sandbox's connections, published to the engine as they happen.

use crate::{End, Refusal};
use std::sync::Arc;

pub type EventSink = Arc<dyn Fn(EgressEvent) + Send + Sync>;

/// An event of a sandbox's connections. Texts from the sandbox are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressEvent {
    Connected(End),
    /// A refusal, the first of its kind since the report was last taken.
    Denied(Refusal),
    /// A request that was forwarded, answered or not.
    Request {
        method: String,
        name: String,
        port: u16,
        path: String,
        /// The answer's status; `None`: there was no answer.
        status: Option<u16>,
        /// Names of the secrets written into the request.
        secrets: Vec<String>,
    },
    Closed {
        end: End,
        bytes_out: u64,
        bytes_in: u64,
    },
    /// Number of events left out before the next one, because there were too many at once.
    Untold {
        count: u64,
    },
}
