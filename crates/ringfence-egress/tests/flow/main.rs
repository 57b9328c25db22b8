//! The way out from end to end: real sockets in a network of its own, an Internet of a few addresses on its loopback, and
//! programs that try what `SECURITY.md` says they cannot do. Each story runs in a process of its own, below `unshare`.
#![allow(clippy::expect_used, reason = "a story that goes wrong is told by its panic")]

mod approvals;
mod bytes;
mod http;
mod limits;
mod listeners;
mod proxy;
mod servers;
mod tls;
mod world;
