//! Events of a sandbox's connections, published to the engine as they happen.

use crate::RefusalRule;
use std::{net::IpAddr, sync::Arc};

pub type EventSink = Arc<dyn Fn(EgressEvent) + Send + Sync>;

/// Something that happened to a connection. Texts from the sandbox are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressEvent {
    /// A connection to the outside was opened.
    Connected {
        name: String,
        port: u16,
        address: IpAddr,
    },
    /// Something was refused, for the first time since a report was taken.
    Denied {
        rule: RefusalRule,
        host: Option<String>,
        port: Option<u16>,
        what: String,
        /// The smallest change that would allow it; may be empty.
        hint: String,
    },
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
    /// A connection to the outside has ended.
    Closed {
        name: String,
        port: u16,
        address: IpAddr,
        bytes_out: u64,
        bytes_in: u64,
    },
    /// Events before the next that were left out: there were too many at once.
    Untold { count: u64 },
}
