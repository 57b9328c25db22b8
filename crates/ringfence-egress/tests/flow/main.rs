//! Egress from end to end: real sockets in a network namespace of its own, servers at a few public-looking addresses on
//! its loopback, and programs that try what `SECURITY.md` says they cannot do. Each test runs in a process of its own,
//! below `unshare`.
#![allow(clippy::expect_used, reason = "a failing test is reported by its panic")]

mod approvals;
mod bytes;
mod http;
mod limits;
mod listeners;
mod proxy;
mod servers;
mod tls;
mod world;
