//! Everything that is shown through the real binary and the library, but for attacks, leaks and programs with Ringfence
//! inside, which need a process of their own.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment, prints its figures and ends where it is surprised"
)]

mod client;
mod egress;
mod http;
mod library;
mod packages;
mod profiles;
mod record;
mod stories;
