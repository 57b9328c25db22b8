//! The server's side of the jail: starts the helper, requests sandboxes of it, and claims them. Apart from starting and
//! stopping the helper, nothing here waits longer than a `send`; the engine does the waiting.

use crate::{
    Plan,
    plan::{Claim, Identity},
    refused::HELPER_WORD,
    wire::{self, Order, Start},
};
use ringfence_sys::{channel, file, resource, wait};
use serde::Serialize;
use std::{
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    process::{Command, Stdio},
};
use zeroize::Zeroizing;

pub use ringfence_sys::channel::unread;

/// The helper's process and the connection to it; once that is dropped, it ends as soon as its supervisors have.
#[derive(Debug)]
pub struct Helper {
    pub(crate) pid: i32,
    pub(crate) control: OwnedFd,
}

#[derive(Debug)]
pub struct SandboxEnds {
    /// Receives events, and sends [`wire::Order`]; closing it kills the tree.
    pub events: OwnedFd,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Read end of the program's descriptor 3.
    pub report: OwnedFd,
}

/// The other side of [`SandboxEnds`], for the supervisor of the sandbox.
#[derive(Debug)]
pub struct SupervisorEnds {
    /// Receives orders, and sends [`wire::Event`].
    pub server: OwnedFd,
    pub pipes: Pipes,
}

#[derive(Debug)]
pub struct Pipes {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub report: OwnedFd,
}

impl Pipes {
    /// Gives them to the user of this supervisor's sandbox: a program may reopen its own streams (`/dev/stdin`,
    /// `/proc/self/fd/1`), which until then belong to the server.
    pub(crate) fn chown_to(&self, identity: Identity) -> io::Result<()> {
        let Identity::Own { base } = identity else {
            return Ok(());
        };
        let id = base + std::process::id();
        let mut pipes = self.all().into_iter();
        pipes.try_for_each(|pipe| file::change_owner(pipe.as_fd(), id, id))
    }

    pub(crate) fn all(&self) -> [&OwnedFd; 4] {
        [&self.stdin, &self.stdout, &self.stderr, &self.report]
    }
}

/// Makes both sides of a sandbox's connections: the server's and the supervisor's.
pub fn ends() -> io::Result<(SandboxEnds, SupervisorEnds)> {
    let (events, server) = channel::pair()?;
    channel::set_nonblocking(events.as_fd())?;
    let (stdin_read, stdin) = io::pipe()?;
    let (stdout, stdout_write) = io::pipe()?;
    let (stderr, stderr_write) = io::pipe()?;
    let (report, report_write) = io::pipe()?;
    let ends = SandboxEnds {
        events,
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: stderr.into(),
        report: report.into(),
    };
    let pipes = Pipes {
        stdin: stdin_read.into(),
        stdout: stdout_write.into(),
        stderr: stderr_write.into(),
        report: report_write.into(),
    };
    Ok((ends, SupervisorEnds { server, pipes }))
}

/// The descriptors for making sandboxes from a template, which has to outlive them: its end kills them.
#[derive(Debug)]
pub struct Template {
    pub(crate) user: OwnedFd,
    pub(crate) pid: OwnedFd,
    pub(crate) mount: OwnedFd,
    pub(crate) control: OwnedFd,
}

impl Template {
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [user, pid, mount, control]: [OwnedFd; 4] = descriptors.try_into().ok()?;
        Some(Self {
            user,
            pid,
            mount,
            control,
        })
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [&self.user, &self.pid, &self.mount, &self.control].map(AsFd::as_fd)
    }
}

impl Helper {
    /// Starts the helper: `binary` re-executed, with an empty environment and the control connection as its stdin.
    pub fn start(binary: &Path) -> io::Result<Self> {
        // The kernel counts in-flight descriptors by user, against the limit of the sender.
        resource::raise_open_files()?;
        let (control, theirs) = channel::pair()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a process of the host is started"
        )]
        let child = Command::new(binary)
            .arg(HELPER_WORD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let pid = child.id().cast_signed();
        Ok(Self { pid, control })
    }

    /// Requests one sandbox, on its own or made from a template. The walls go up while the caller continues.
    pub fn start_sandbox(&self, plan: &Plan, template: Option<&Template>) -> io::Result<SandboxEnds> {
        let plan = within_bounds(to_json(plan)?)?;
        let mut payload = file::memory_file("ringfence-plan")?;
        payload.write_all(&plan)?;
        let (ends, supervisor) = ends()?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![supervisor.server.as_fd(), payload.as_fd()];
        descriptors.extend(supervisor.pipes.all().map(AsFd::as_fd));
        descriptors.extend(template.iter().flat_map(|template| template.descriptors()));
        let start = Start {
            plan_bytes: plan.len() as u64,
            from_template: template.is_some(),
        };
        wire::send(self.control.as_fd(), &start, &descriptors)?;
        Ok(ends)
    }

    /// Closes the connection and waits for the helper, which waits until the runs' own connections are closed.
    pub fn stop(self) -> io::Result<()> {
        let Self { pid, control } = self;
        drop(control);
        // The kernel waits for the helper's end even if this process ignores SIGCHLD.
        wait::wait(wait::Child::Pid(pid)).map(drop)
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Claims a sandbox for one request, ready or not. `blobs` is the data of the claim's parts: it follows the claim in
/// the payload, and offsets count from the beginning of the payload (see [`BLOBS_AT`]).
pub fn claim(events: BorrowedFd<'_>, claim: &Claim, blobs: &[impl AsRef<[u8]>]) -> io::Result<()> {
    // The claim may hold secrets.
    let claim = within_bounds(Zeroizing::new(to_json(claim)?))?;
    let mut payload = file::memory_file("ringfence-payload")?;
    payload.write_all(&claim)?;
    io::Seek::seek(&mut payload, io::SeekFrom::Start(BLOBS_AT))?;
    for blob in blobs {
        payload.write_all(blob.as_ref())?;
    }
    let claim_bytes = claim.len() as u64;
    wire::send(events, &Order::Claim { claim_bytes }, &[payload.as_fd()])
}

/// The offset of the blobs in a payload: fixed (the hole costs nothing), so that a claim of unknown length can name it.
pub const BLOBS_AT: u64 = wire::PLAN_BYTES_MAX;

/// Serializes twice, first for the length: a buffer that grows would leave copies of secrets behind.
pub fn to_json(what: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, what)?;
    let mut bytes = Vec::with_capacity(length.0);
    serde_json::to_writer(&mut bytes, what)?;
    Ok(bytes)
}

fn within_bounds<T: AsRef<[u8]>>(json: T) -> io::Result<T> {
    if json.as_ref().len() as u64 > wire::PLAN_BYTES_MAX {
        let what = "a plan or claim is longer than 4 MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(json)
}

struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
