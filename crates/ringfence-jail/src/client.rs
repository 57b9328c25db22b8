//! The server's side of the jail: starting the helper, and asking it for a run. Nothing here waits longer than a
//! `send`; the engine does the waiting.

use crate::{
    Plan,
    helper::HELPER_WORD,
    wire::{self, Start},
};
use ringfence_sys::{channel, file};
use std::{
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
};

/// The helper's process and the connection to it. Dropping the connection ends the helper and every run.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    control: OwnedFd,
}

/// The server's ends of one run.
#[derive(Debug)]
pub struct Run {
    /// Events come from here; [`wire::Order`] goes there; hanging up kills the tree.
    pub events: OwnedFd,
    /// Write end.
    pub stdin: OwnedFd,
    /// Read end.
    pub stdout: OwnedFd,
    /// Read end.
    pub stderr: OwnedFd,
    /// Read end of the program's descriptor 3.
    pub report: OwnedFd,
}

impl Helper {
    /// Starts the helper: `binary` re-executed, with an empty environment and the control connection as its input.
    pub fn start(binary: &Path) -> io::Result<Self> {
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
        Ok(Self { child, control })
    }

    /// Asks for one run. `blobs` is what the parts of the plan point into: it follows the plan in the payload, and the
    /// plan's offsets count from the beginning of the payload (see [`BLOBS_AT`]).
    pub fn run(&self, plan: &[u8], blobs: &[&[u8]]) -> io::Result<Run> {
        let mut payload = file::memory_file("ringfence-payload")?;
        payload.write_all(plan)?;
        io::Seek::seek(&mut payload, io::SeekFrom::Start(BLOBS_AT))?;
        for blob in blobs {
            payload.write_all(blob)?;
        }
        let (events, theirs) = channel::pair()?;
        channel::set_nonblocking(events.as_fd())?;
        let (stdin_read, stdin) = io::pipe()?;
        let (stdout, stdout_write) = io::pipe()?;
        let (stderr, stderr_write) = io::pipe()?;
        let (report, report_write) = io::pipe()?;
        let descriptors: [BorrowedFd<'_>; crate::helper::START_DESCRIPTORS] = [
            theirs.as_fd(),
            payload.as_fd(),
            stdin_read.as_fd(),
            stdout_write.as_fd(),
            stderr_write.as_fd(),
            report_write.as_fd(),
        ];
        let start = Start {
            plan_bytes: plan.len() as u64,
        };
        wire::send(self.control.as_fd(), &start, &descriptors)?;
        Ok(Run {
            events,
            stdin: stdin.into(),
            stdout: stdout.into(),
            stderr: stderr.into(),
            report: report.into(),
        })
    }

    /// Hangs up and waits until the helper is gone; its supervisors end by the same sign.
    pub fn stop(self) -> io::Result<()> {
        let Self { mut child, control } = self;
        drop(control);
        child.wait()?;
        Ok(())
    }

    /// The helper's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Where the blobs begin in a payload: a fixed place (the hole costs nothing), so that the plan can name offsets before
/// its own length is known.
pub const BLOBS_AT: u64 = wire::PLAN_BYTES_MAX;

/// The plan as it travels.
pub fn encode(plan: &Plan) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(plan)?;
    if bytes.len() as u64 > wire::PLAN_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the plan is longer than 4 MiB",
        ));
    }
    Ok(bytes)
}
