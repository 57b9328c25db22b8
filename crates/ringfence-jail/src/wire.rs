//! The messages between server, helper, supervisor and pid 1. Each is one datagram of JSON on a `SOCK_SEQPACKET`
//! socket, at most [`MESSAGE_BYTES_MAX`]; descriptors travel beside it. The reader of a message trusts nothing in it.

pub use crate::failure::Failure;

use crate::{EgressSpec, LayerName};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::File,
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::Duration,
};
use zeroize::Zeroizing;

pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a plan or claim (in the payload, not in a message).
pub const PLAN_BYTES_MAX: u64 = 4 << 20;

/// Server to helper. Descriptors: run socket, plan, stdin, stdout, stderr, report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub plan_bytes: u64,
    /// Made from a template. Four more descriptors: its user, pid and mount namespaces, and its control connection.
    pub from_template: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Order {
    /// A request claims the sandbox; the claim waits until it is ready. Descriptor: the payload, which begins with it.
    Claim {
        claim_bytes: u64,
    },
    /// Show the program these packages in place of those that it had; it may be running.
    Layer(LayerName),
    Egress(EgressSpec),
    /// Report the host memory that the sandbox, which is not claimed yet, takes.
    Measure,
    /// Interrupt the running program, and all that it runs in its process group, as Ctrl-C does.
    Interrupt,
    /// Report what the tree has used so far. The number is returned.
    Account(u64),
    /// Change the tree's share of the processors: fails without a cgroup, and has no effect if it has no cpu limit.
    Share {
        cpu_millicores: u32,
    },
    Cancel,
}

/// Supervisor to server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Event {
    /// The walls are up; from now on a claim takes effect at once. Descriptors, for a template: see [`Start`].
    Parked(Imported),
    /// Bytes of memory that are not shared with other sandboxes.
    Measured(u64),
    Account(u64, Usage),
    /// The claim is bound and the program runs. Descriptors: workspace, output directory, sockets of its egress.
    Running,
    Layered,
    /// The packages could not be shown; the program continues without them.
    NotLayered(Failure),
    /// The ports of the egress are open. Descriptors: the sockets.
    EgressOpened,
    /// The ports could not be opened; the program continues without them.
    EgressNotOpened(Failure),
    Ended(Ending),
    Failed(Failure),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InitOrder {
    Go,
    /// The limits of the claim are in force: pid 1 does its part. Descriptor: the payload.
    Claim {
        claim_bytes: u64,
    },
    Terminate,
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Handle {
    /// The program's changes: the workspace, or an upper layer.
    Changes,
    Output,
    Proc,
    Disk,
    Layers,
    /// The pidfd of a program that was started before its claim.
    Program,
    /// A socket of its egress, by its place in the order of [`crate::EgressSockets`].
    Socket(u8),
    /// The pipe from which a fork reads its input.
    Waits,
    Control,
    Rules,
    User,
    Mount,
    Net,
    Ipc,
    Uts,
    Cgroup,
    Pid,
    /// The time namespace of future children.
    Time,
}

/// Sent once, by a template to the supervisor of its own sandbox: it can be forked now. It says nothing of other
/// sandboxes. Also sent by an interpreter that was started before its claim, to pid 1.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imported {
    /// The wanted modules that exist.
    pub wanted: Vec<String>,
    /// The first names of all modules that were loaded with them, in one string, separated by spaces.
    pub loaded: String,
    /// Why a template cannot be forked; empty if it can.
    #[serde(default)]
    pub refused: String,
}

/// The forker's replies, each five numbers: the kind, and four values.
#[derive(Debug)]
pub enum ForkEvent {
    /// The child exists. Descriptor: its pidfd.
    Forked,
    Ready,
    /// The fork failed, or the child could not raise a wall.
    Failed(Failure),
    Ended(ProgramEnd),
}

impl ForkEvent {
    const BYTES: usize = 40;

    /// Receives the next one; `None` if the template is gone.
    pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Self, Vec<OwnedFd>)>> {
        let mut buffer = [0; Self::BYTES];
        let (length, descriptors) = ringfence_sys::channel::receive(socket, &mut buffer)?;
        match length {
            0 => Ok(None),
            Self::BYTES => Ok(Some((Self::read(&buffer)?, descriptors))),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    fn read(bytes: &[u8; Self::BYTES]) -> io::Result<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let [kind, first, second, third, fourth] = [0, 1, 2, 3, 4].map(|at| u64::from_ne_bytes(words[at]));
        let number = |word: u64| i32::try_from(word).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        Ok(match kind {
            0 => Self::Forked,
            1 => Self::Ready,
            2 => {
                let step = usize::try_from(first).ok().and_then(|at| FORK_STEPS.get(at));
                let error = io::Error::from_raw_os_error(number(second)?);
                Self::Failed(Failure::new(*step.unwrap_or(&"fork of the template"), &error))
            }
            3 => Self::Ended(ProgramEnd {
                status: number(first)?,
                user_us: second,
                system_us: third,
                max_rss_kib: fourth,
            }),
            _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
        })
    }
}

/// The steps of a forker that the kernel can refuse, by their number there.
const FORK_STEPS: [&str; 9] = [
    "fork of the template",
    "cgroup of the fork",
    "namespaces of the fork",
    "capabilities of the fork",
    "identity of the fork",
    "workspace of the fork",
    "descriptors of the fork",
    "seccomp filters of the fork",
    "landlock of the fork",
];

/// The end of a program, as wait4(2) reports it to its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramEnd {
    pub status: i32,
    /// Processor time in user mode, of the program and of the children it waited for.
    pub user_us: u64,
    pub system_us: u64,
    pub max_rss_kib: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InitEvent {
    /// The walls are up. Descriptors: these.
    Parked {
        descriptors: Vec<Handle>,
        /// Reported by an interpreter that was started before its claim.
        imported: Imported,
    },
    Running,
    /// An interrupt was sent to the program.
    Interrupted,
    Ended(ProgramEnd),
    Failed(Failure),
}

/// The step of a [`Failure`] that reports that a running program has ended with its template.
pub const TEMPLATE_GONE: &str = "follow the program";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    pub cause: Cause,
    /// Wait status of the program, if it ended by itself.
    pub status: Option<i32>,
    pub usage: Usage,
    /// Processes of it still exist, though all have been killed: the kernel, or a process of the host, holds them.
    #[serde(default)]
    pub is_stuck: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    pub cpu_user: Duration,
    pub cpu_system: Duration,
    pub memory_peak_bytes: u64,
    pub processes_peak: Option<u64>,
    pub disk_bytes: u64,
    pub workspace: Option<crate::quota::Count>,
    pub unrouted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    Program,
    Timeout,
    OutOfMemory,
    Disk,
    /// Too many record locks.
    Locks,
    Cancelled,
    Killed,
}

/// Reads the plan or claim at the beginning of a payload. Its text, which may hold secrets, is wiped.
pub fn read_head<T: DeserializeOwned>(payload: &File, bytes: u64) -> io::Result<T> {
    if bytes > PLAN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "plan too long"));
    }
    let mut head = Zeroizing::new(vec![0; usize::try_from(bytes).unwrap_or(0)]);
    payload.read_exact_at(&mut head, 0)?;
    Ok(serde_json::from_slice(&head)?)
}

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

pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // Not on the heap, whose pages a newly forked process would have to copy.
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let (length, descriptors) = ringfence_sys::channel::receive(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((decode(&buffer[..length])?, descriptors)))
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    Ok(serde_json::from_slice(bytes)?)
}
