//! The server over HTTP, tested with raw requests: answers, authentication, and refusals.

mod connecting;
mod oauth;
mod principals;
mod serving;
mod sse;
mod tasks;
mod tenants;
mod tls;
mod unread;

use crate::client::*;
use std::thread::{JoinHandle, spawn};

/// Starts a program that sleeps for so many seconds, waits until it runs, and returns the thread that waits for its
/// answer.
fn spawn_sleep(client: &HttpClient, seconds: &str) -> JoinHandle<HttpReply> {
    let mut client = client.clone();
    let program = json!({"language": "shell", "code": format!("sleep {seconds}")});
    let call = json!({"name": "execute_code", "arguments": program});
    let waits = spawn(move || client.rpc_reply("tools/call", call));
    eventually(|| !processes_with(seconds).is_empty());
    waits
}
