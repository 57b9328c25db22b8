//! Events of a sandbox's connections, published to the engine as they happen.

use crate::RefusalRule;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// Where events go.
pub type EventSink = Arc<dyn Fn(EgressEvent) + Send + Sync>;

/// Something that happened to a connection. Texts from the sandbox are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressEvent {
    /// A connection to the outside was opened.
    Connected {
        /// The name that was asked for, or the address where that was.
        name: String,
        /// Port.
        port: u16,
        /// The address that was dialled.
        address: IpAddr,
    },
    /// Something was refused, for the first time since a report was taken.
    Denied {
        /// The rule.
        rule: RefusalRule,
        /// The destination, if it is known.
        host: Option<String>,
        /// The port, if it is known.
        port: Option<u16>,
        /// What was refused.
        what: String,
        /// The smallest change that would allow it; may be empty.
        hint: String,
    },
    /// A request was passed on, and answered or not.
    Request {
        /// Method.
        method: String,
        /// Host.
        name: String,
        /// Port.
        port: u16,
        /// Path, without the query.
        path: String,
        /// The answer's status; none: there was no answer.
        status: Option<u16>,
        /// Names of the secrets that were put into it.
        secrets: Vec<String>,
    },
    /// A connection to the outside has ended.
    Closed {
        /// As when it was opened.
        name: String,
        /// Port.
        port: u16,
        /// Address.
        address: IpAddr,
        /// Requests that went over it, where it was one that is read.
        requests: u64,
        /// Bytes that left.
        bytes_out: u64,
        /// Bytes that came.
        bytes_in: u64,
        /// How long it was open.
        duration: Duration,
    },
    /// So many events before the next were not told: there were too many at once.
    Untold {
        /// How many.
        count: u64,
    },
}
