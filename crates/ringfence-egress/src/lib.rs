//! The egress of a sandbox: every name, connection and request is checked against its rules; nothing else leaves.
//!
//! `docs/adr/0006-one-identity-for-each-connection.md` gives the reasons for this design. One half decides and does no
//! I/O (`name`, `rule`, `rules`, `dns`, `client_hello`, `destination`, `framing`, `request`); the other half moves
//! bytes and calls the first (`lease`, `listener`, `forward`, `http`, `inspect`, `dial`, `tunnel`).
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

mod approval;
mod client;
mod client_hello;
mod connection;
mod destination;
mod dial;
mod dialer;
pub mod dns;
mod dns_server;
mod events;
mod forward;
mod forwarded;
mod framing;
mod http;
mod idle;
mod inspect;
mod inspection;
mod lease;
mod listener;
mod name;
mod names;
mod observer;
mod path;
mod refusal;
mod report;
mod request;
mod resolve;
mod rule;
mod rules;
mod sandbox;
mod token_bucket;
mod tunnel;
mod upstream;
mod wire;

pub use approval::{ApprovalFuture, ApprovalHook, NotApproved, Unlisted};
pub use client::{ClientLease, ClientStream};
pub use client_hello::{ClientHello, HELLO_BYTES_MAX, HELLO_RECORDS_MAX, NoIdentity, Progress};
pub use destination::{Destination, DestinationError, Host};
pub use dialer::{Dialer, DialerSettings, Limits, Purpose};
pub use events::{EgressEvent, EventSink};
pub use forwarded::Forwarded;
pub use framing::{FramingError, HEAD_BYTES_MAX, HttpFraming};
pub use inspection::{
    BoundSecret, InspectedHosts, Inspection, PlaceError, PlacesFuture, SecretPlace, Trust, TrustError,
};
pub use lease::{Lease, Sockets, open, open_forwarded};
pub use name::{HostName, NAME_BYTES_MAX, NameError};
pub use names::{ASKED_MAX, BELOW_MAX, Full, NAMES_MAX, Names, RANDOM_MAX, REFUSED_MAX};
pub use path::PathError;
pub use refusal::{Refusal, RefusalRule};
pub use report::{EgressReport, End, More, REPORT_LINES_MAX, Reached};
pub use rule::{DEFAULT_PORTS, Pattern, RULE_BYTES_MAX, Rule, RuleError};
pub use rules::{RULES_MAX, Rules, RulesError, Verdict, Why};
pub use sandbox::{EgressOwner, LeaseOptions};
