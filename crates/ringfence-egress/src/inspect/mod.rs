//! Inspected TLS: where rules name methods or paths, where a secret belongs, or for all hosts of a browser. It ends
//! here and a second connection begins, each with its own keys; only requests pass between them, each checked on its
//! own.

mod exchange;
mod frames;
mod handshake;
mod redacted;

pub(crate) use exchange::{InspectedTls, connect, serve};
