//! The control socket, through which the commands of this user reach running servers. Each `ringfence serve` has one,
//! in the state directory, and several may share that directory; a `ringfence run` has one where its script may have to
//! wait for an approval.
//!
//! Only processes of the same user, outside of sandboxes, have access. Three things keep others out: the directory has
//! mode 0700 and the socket 0600; the kernel reports the user of the peer, and another user is refused; and no sandbox
//! has the state directory in its tree. The socket has a name in the file system and never an abstract one, which every
//! process of a network namespace could reach. In the `landlock` tier, where the tree is the host's, no program gets a
//! Unix socket at all (`ringfence-jail/src/seccomp/arguments.rs`).

mod approvals;
mod client;
mod executions;
mod server;
mod sessions;
mod socket_dir;
mod wire;

pub(crate) use client::{ServerReply, Update, ask_all, ask_one, expect_one, follow_one, servers, watch};
pub(crate) use server::{Socket, open, open_for_approvals, perform};
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
/// Time limit for a client to send its request, and for it to read nothing of the answer.
const IDLE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason for not answering: a refusal, or `None` if the command has hung up.
type Unanswered = Option<RequestError>;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
