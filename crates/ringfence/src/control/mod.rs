//! The control socket: how the commands of this user reach servers that already run. Each `ringfence serve` has one, in
//! the state directory, and several may share that directory; a `ringfence run` has one where its script may have to wait for
//! an approval.
//!
//! Who may talk to it: processes of the same user, and nobody in a sandbox. Three things keep others out: the directory
//! has mode 0700 and the socket 0600; the kernel says who is at the other end, and another user is refused; and no
//! sandbox has the state directory in its tree. The socket has a name in the file system and never an abstract one, which
//! every process of a network namespace could reach. In the `landlock` tier, where the tree is the host's, no program gets
//! a Unix socket at all (`ringfence-jail/src/seccomp/arguments.rs`).

mod approvals;
mod client;
mod place;
mod server;
mod sessions;
mod wire;
mod workspaces;

pub(crate) use approvals::{HostWish, News};
pub(crate) use client::{
    Answered, Heard, Piece, ask_all, ask_one, expect_one, follow_one, hear, request_egress, servers,
};
pub(crate) use server::{Socket, open, open_for_questions};
pub(crate) use sessions::{Call, Wish};
pub(crate) use wire::{Bytes, Question, Request, Value};

use std::time::Duration;

/// The longest request: a program, escaped, with its standard input or a file in base64.
const REQUEST_BYTES_MAX: usize = 96 << 20;
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Connections that are served at once; others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take to send its request, and how long it may read nothing of the answer.
const IDLE: Duration = Duration::from_secs(5);
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The user that this process acts as.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
