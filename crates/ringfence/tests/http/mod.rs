//! The server over HTTP, spoken to in bytes: what it answers, whom it lets in, and what it does not let happen.

mod connecting;
mod principals;
mod serving;
mod tenants;
mod tls;
