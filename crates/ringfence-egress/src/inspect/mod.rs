//! TLS that is inspected: where rules name methods or paths, or where a secret belongs. The connection ends here and
//! another begins, each with its own keys; what passes between them is requests, each judged by itself.

mod exchange;
mod frames;
mod handshake;
mod redacted;

pub(crate) use exchange::{InspectedTls, meet, serve};
