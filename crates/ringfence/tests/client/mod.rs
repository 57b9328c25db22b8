//! The helpers of all tests: running the command line, plain JSON-RPC clients of a server, assertions on their output,
//! and the host's state, processes and users.

mod caller;
mod command;
mod facts;
mod host;
mod http;
mod server;
mod terminal;

pub use caller::*;
pub use command::*;
pub use facts::*;
pub use host::*;
pub use http::*;
pub use serde_json::{Value, json};
pub use server::*;
pub use terminal::*;
