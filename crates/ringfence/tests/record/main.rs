//! The record, proved through the real binary: nothing that was answered is lost when the server is killed or its disk
//! fails, no secret leaves by any route, and each call leaves exactly the records that it should.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment, prints its figures and ends where it is surprised"
)]

mod agent;
mod calls;
#[path = "../stories/client.rs"]
#[expect(
    dead_code,
    reason = "the vocabulary of the stories, of which these need the command line"
)]
mod client;
mod clock;
mod database;
mod disk;
mod forms;
mod kill;
mod lent;
mod routes;
mod segments;
mod state;
mod theft;
