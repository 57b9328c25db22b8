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
/// The longest plan or claim (in the payload, not in a message).
pub const PLAN_BYTES_MAX: u64 = 4 << 20;

/// Server to helper. Descriptors: run socket, plan, stdin, stdout, stderr, report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub plan_bytes: u64,
    /// The sandbox is made from a template. Four more descriptors: its user, pid and mount namespaces, and its control
    /// connection.
    pub from_template: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Order {
    /// A request claims the sandbox; the claim waits until the sandbox is ready. Descriptor: the payload.
    Claim {
        /// The claim is the first so many bytes of the payload.
        claim_bytes: u64,
    },
    /// Show the program these packages in the place of those that it had; it may be running.
    Layer(LayerName),
    /// Open more ports of the running sandbox's egress.
    Egress(EgressSpec),
    /// Say what the sandbox, which is not claimed yet, takes of the host's memory.
    Measure,
    /// Interrupt the program that runs, and whatever it runs in its process group, as Ctrl-C does.
    Interrupt,
    /// Say what the tree has used so far. The number comes back.
    Account(u64),
    /// From now on the tree has this share of the processors. Where no cgroup gives it out, that is a failure.
    Share {
        /// Thousandths of one.
        cpu_millicores: u32,
    },
    Cancel,
}

/// Supervisor to server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Event {
    /// The walls are up; from now on a claim takes effect at once. Descriptors, of a template: see [`Start`].
    Parked(Imported),
    /// So many bytes of memory that are not shared with other sandboxes.
    Measured(u64),
    /// What the tree has used so far.
    Account(u64, Usage),
    /// The claim is bound and the program runs. Descriptors: workspace, output directory, the sockets of the claim's
    /// egress.
    Running,
    Layered,
    /// They are not; the program goes on without them.
    NotLayered(Failure),
    /// The ports of the egress are open. Descriptors: the sockets.
    EgressOpened,
    /// They are not; the program goes on without them.
    EgressNotOpened(Failure),
    Ended(Ending),
    Failed(Failure),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InitOrder {
    Go,
    /// The limits of the claim are in force: do its part. Descriptor: the payload.
    Claim {
        /// The claim is the first so many bytes of the payload.
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
    /// The process of a program that was started ahead.
    Program,
    /// A socket of its egress, by its place in the order of [`crate::EgressSockets`].
    Socket(u8),
    /// From which a fork will read what it waits for.
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
    /// A namespace, of children to come.
    Time,
}

/// Template to the supervisor of its own sandbox, once: it may be asked for forks. It says nothing of other sandboxes.
/// Also an interpreter that was started ahead, to pid 1.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imported {
    /// Those of the wanted modules that there are.
    pub wanted: Vec<String>,
    /// The first names of all that came with them, in one string, separated by spaces.
    pub loaded: String,
    /// Why a template cannot be forked; empty: it can.
    #[serde(default)]
    pub refused: String,
}

/// The forker's replies, each five numbers: which it is, and what it says.
#[derive(Debug)]
pub enum ForkEvent {
    /// There is a child. Descriptor: its process.
    Forked,
    Ready,
    /// The fork failed, or the child could not raise a wall.
    Failed(Failure),
    Ended(ProgramEnd),
}

impl ForkEvent {
    const BYTES: usize = 40;

    /// The next one; `None`: the template is gone.
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

/// What the kernel can refuse a forker, by its number there.
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

/// The end of a program in the kernel's words, as wait4(2) gives them to its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramEnd {
    pub status: i32,
    /// Processor time in user mode, of it and of those it waited for.
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
        /// By an interpreter that was started ahead.
        imported: Imported,
    },
    Running,
    Ended(ProgramEnd),
    Failed(Failure),
}

/// The step of a [`Failure`] that says that a running program has ended with its template.
pub const TEMPLATE_GONE: &str = "follow the program";

/// How a tree came to its end, and what it used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    pub cause: Cause,
    /// Wait status of the program, where it ended by itself.
    pub status: Option<i32>,
    pub usage: Usage,
    /// Processes of it are still there, though all have been killed: the kernel, or one of the host's, holds them.
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
    Cancelled,
    Killed,
}

/// The plan or claim at the beginning of a payload. Its text, which may hold secrets, is wiped.
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
    // Not on the heap, whose pages a process that has just been forked would have to copy.
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
