//! Stories told through the real binary: what a person at the command line and an agent on the other end of a pipe meet.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment and ends where it is surprised"
)]

mod client;
mod display;
mod limits;
mod operator;
mod record;
mod run;
mod serve;
mod warm;
mod workspace;
