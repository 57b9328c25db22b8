//! The record, tested through the real binary: no answered call is lost when the server is killed or its disk fails, no
//! secret leaks by any route, and each call leaves exactly the expected records.

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
