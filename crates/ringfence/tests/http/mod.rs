//! The server over HTTP, spoken to in bytes: what it answers, whom it lets in, and what it does not let happen.

mod connecting;
mod oauth;
mod principals;
mod serving;
mod sse;
mod tasks;
mod tenants;
mod tls;

use crate::client::*;
use std::thread::{JoinHandle, spawn};

/// A program of this client's that sleeps for so long; whoever waits for its answer is in a thread.
fn sleeps(client: &HttpClient, seconds: &str) -> JoinHandle<HttpReply> {
    let mut client = client.clone();
    let program = json!({"language": "shell", "code": format!("sleep {seconds}")});
    let call = json!({"name": "execute_code", "arguments": program});
    let waits = spawn(move || client.ask_reply("tools/call", call));
    eventually(|| !processes_with(seconds).is_empty());
    waits
}
