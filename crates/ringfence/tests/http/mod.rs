//! The server over HTTP, spoken to in bytes: what it answers, whom it lets in, and what it does not let happen.

mod connecting;
mod oauth;
mod principals;
mod serving;
mod sse;
mod tasks;
mod tenants;
mod tls;
