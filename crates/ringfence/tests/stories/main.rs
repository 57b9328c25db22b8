//! Stories told through the real binary: what a person at the command line and an agent on the other end of a pipe meet.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its environment"
)]

mod client;
mod limits;
mod run;
mod serve;
mod workspace;
