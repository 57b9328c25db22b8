//! The record, proved through the real binary: nothing that was answered is lost when the server is killed or its disk
//! fails, no secret leaves by any route, and each call leaves exactly the records that it should.

mod agent;
mod calls;
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
