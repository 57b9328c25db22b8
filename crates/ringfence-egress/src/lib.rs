//! The only way out of a sandbox: names, connections and requests, each held against the rules.
//!
//! Why it is built so: `docs/adr/0006-one-identity-for-each-connection.md`. One part decides and touches nothing (`name`,
//! `rule`, `rules`, `dns`, `client_hello`, `destination`, `shape`, `request`); the other moves bytes and asks it (`lease`,
//! `door`, `connection`, `http`, `inspect`, `dial`, `tunnel`).
#![forbid(unsafe_code)]

mod asks;
mod border;
mod carried;
mod client_hello;
mod connection;
mod course;
mod destination;
mod dial;
pub mod dns;
mod door;
mod http;
mod inspect;
mod lease;
mod name;
mod names;
mod observer;
mod outside;
mod pace;
mod path;
mod questions;
mod refusal;
mod request;
mod resolve;
mod rule;
mod rules;
mod shape;
mod traffic;
mod tunnel;
mod wire;

pub use asks::{Answering, Asks, NotApproved, Unnamed};
pub use border::Tell;
pub use client_hello::{ClientHello, HELLO_BYTES_MAX, HELLO_RECORDS_MAX, NoIdentity, Progress};
pub use destination::{Destination, DestinationError, Host};
pub use inspect::{BoundSecret, Inspection, PlaceError, SecretPlace, Trust, TrustError};
pub use lease::{Happened, Lease, Sockets, Who, open};
pub use name::{HostName, NAME_BYTES_MAX, NameError};
pub use names::{ASKED_MAX, BELOW_MAX, Full, NAMES_MAX, Names, RANDOM_MAX};
pub use outside::{Limits, Outside, OutsideError, OutsideSettings};
pub use path::PathError;
pub use refusal::RefusalRule;
pub use rule::{DEFAULT_PORTS, Pattern, RULE_BYTES_MAX, Rule, RuleError};
pub use rules::{RULES_MAX, Rules, RulesError, Verdict, Why};
pub use shape::{HEAD_BYTES_MAX, Misshape, Shape};
pub use traffic::{More, Reached, TOLD_MAX, Traffic};
