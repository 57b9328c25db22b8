//! The vocabulary of all stories: command lines that are run, a server that is spoken to in plain JSON-RPC, what both say,
//! and the host around them.

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
