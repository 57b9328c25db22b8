//! The only way out of a sandbox: names, connections and requests, each held against the rules.
//!
//! Why it is built so: `docs/adr/0006-one-identity-for-each-connection.md`.
