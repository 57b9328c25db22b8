//! The only way out of a sandbox: names, connections and requests, each held against the rules.
//!
//! Why it is built so: `docs/adr/0006-one-identity-for-each-connection.md`.
#![forbid(unsafe_code)]

mod client_hello;
pub mod dns;
mod name;
mod names;
mod path;
mod rule;
mod rules;

pub use client_hello::{ClientHello, HELLO_BYTES_MAX, HELLO_RECORDS_MAX, NoIdentity, Progress};
pub use name::{HostName, NAME_BYTES_MAX, NameError};
pub use names::{BELOW_MAX, Full, NAMES_MAX, Names, RANDOM_MAX};
pub use path::PathError;
pub use rule::{DEFAULT_PORTS, Pattern, RULE_BYTES_MAX, Rule, RuleError};
pub use rules::{RULES_MAX, Rules, RulesError, Verdict, Why};
