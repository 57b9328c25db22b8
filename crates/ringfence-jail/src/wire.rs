//! The messages between server, helper, supervisor and pid 1. Each is one datagram of JSON on a `SOCK_SEQPACKET`
//! socket, at most [`MESSAGE_BYTES_MAX`]; descriptors travel beside it. Whoever reads one treats it as a stranger's.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, io, os::fd::BorrowedFd, os::fd::OwnedFd, time::Duration};

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The longest plan (in the payload, not in a message).
pub const PLAN_BYTES_MAX: u64 = 4 << 20;

/// Server to helper. Descriptors: run socket, payload, stdin, stdout, stderr, report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The plan is the first so many bytes of the payload.
    pub plan_bytes: u64,
}

/// Server to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Order {
    /// Kill the tree. The end of the connection means the same.
    Cancel,
}

/// Supervisor to server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Event {
    /// The walls are up and the program was started. Descriptors: workspace, output directory.
    Running,
    /// The tree is dead.
    Ended(Ending),
    /// No program ran.
    Failed(Failure),
}

/// Supervisor to pid 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InitOrder {
    /// The identity is mapped: raise the walls.
    Go,
    /// Ask every process to end.
    Terminate,
}

/// Pid 1 to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InitEvent {
    /// Descriptors: the sandbox's `/proc`, workspace, output directory.
    Running,
    /// The program ended, with this wait status.
    Ended {
        /// As wait4(2) gives it.
        status: i32,
    },
    /// A step of the set-up failed.
    Failed(Failure),
}

/// A step of the set-up that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Which step.
    pub step: String,
    /// The error number; 0 when there is none.
    pub errno: i32,
    /// In words.
    pub detail: String,
}

impl Failure {
    /// From an error of a system call.
    pub fn new(step: impl Into<String>, error: &io::Error) -> Self {
        Self {
            step: step.into(),
            errno: error.raw_os_error().unwrap_or(0),
            detail: error.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.detail)
    }
}

/// How a tree came to its end, and what it used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    /// Why.
    pub cause: Cause,
    /// Wait status of the program, where it ended by itself.
    pub status: Option<i32>,
    /// Processor time in user mode.
    pub cpu_user: Duration,
    /// Processor time in the kernel.
    pub cpu_system: Duration,
    /// Peak memory of the tree.
    pub memory_peak_bytes: u64,
    /// Peak of processes and threads, where it is known.
    pub processes_peak: Option<u64>,
    /// Private disk in use at the end.
    pub disk_bytes: u64,
}

/// Why a tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The program ended.
    Program,
    /// The wall deadline.
    Timeout,
    /// More memory than allowed.
    OutOfMemory,
    /// More disk than allowed (where no file system enforces it).
    Disk,
    /// The server asked, or vanished.
    Cancelled,
    /// Something outside killed pid 1.
    Killed,
}

/// Sends one message.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    ringfence_sys::channel::send(socket, &bytes, descriptors)
}

/// Receives one message; `None` at the end of the connection.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let (length, descriptors) = ringfence_sys::channel::receive(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((decode(&buffer[..length])?, descriptors)))
}

/// Reads one message from its bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    Ok(serde_json::from_slice(bytes)?)
}
