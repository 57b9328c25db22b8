//! End-to-end tests through the real binary and the library. Attacks, leaks and programs that embed Ringfence are other
//! test binaries, because they need a process of their own.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment, prints its figures and panics on surprises"
)]

mod client;
mod egress;
mod http;
mod library;
mod packages;
mod profiles;
mod record;
mod stories;
