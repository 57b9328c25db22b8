//! The control socket: how the commands of this user reach servers that already run. Each `ringfence serve` has one, in
//! the state directory, and several may share that directory; a `ringfence run` has one where its script may have to
//! wait for an approval.
//!
//! Who may talk to it: processes of the same user, outside of sandboxes. Three things keep others out: the directory
//! has mode 0700 and the socket 0600; the kernel says who is at the other end, and another user is refused; and no
//! sandbox has the state directory in its tree. The socket has a name in the file system and never an abstract one,
//! which every process of a network namespace could reach. In the `landlock` tier, where the tree is the host's, no
//! program gets a Unix socket at all (`ringfence-jail/src/seccomp/arguments.rs`).

mod approvals;
mod client;
mod executions;
mod server;
mod sessions;
mod socket_dir;
mod wire;

pub(crate) use client::{Heard, ServerReply, ask_all, ask_one, expect_one, follow_one, hear, servers};
pub(crate) use server::{Socket, open, open_for_questions, perform};
pub(crate) use sessions::snapshots;
pub(crate) use wire::{
    AuditQuery, Bytes, EgressRequest, News, Request, Response, SessionAction, SessionCall, SessionOptions,
    SnapshotAction, Value,
};

use ringfence_types::RequestError;
use std::time::Duration;

/// The longest request: a program, escaped, with its standard input or a file in base64.
const REQUEST_BYTES_MAX: usize = 96 << 20;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Connections that are served at once; others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take to send its request, and how long it may read nothing of the answer.
const IDLE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer to give: a refusal, or nothing where the command has hung up.
type Unanswered = Option<RequestError>;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
