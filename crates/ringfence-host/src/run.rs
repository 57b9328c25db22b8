//! The server's side of a command: starts the child, hands over what it needs, reads its output up to a limit, and
//! waits for its report. It blocks; the engine calls it on a thread of its own.

use crate::{
    child::CHILD_WORD,
    spec::{Report, Support},
    wall::{self, Command},
};
use ringfence_jail::{cgroup::Parent, wire};
use ringfence_sys::{channel, file, wait};
use ringfence_types::RequestError;
use std::{
    io::{self, PipeReader, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

/// How long a child may take to end everything and report.
const REPORT: Duration = Duration::from_secs(10);
/// Bytes of each stream that are kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    Signal(i32),
    /// Its time was up, or its caller was gone.
    Timeout,
    OutOfMemory,
}

/// A stream, as far as it was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its beginning: hostile, and not redacted.
    pub bytes: Vec<u8>,
    /// All that was written.
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub ending: Ending,
    pub stdout: Output,
    pub stderr: Output,
}

#[derive(Clone, Debug)]
pub struct Canceller(Arc<OwnedFd>);

impl Canceller {
    /// Ends it, if it has not ended yet.
    pub fn cancel(&self) {
        // It may be gone.
        rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both).ok();
    }
}

#[derive(Debug)]
pub struct Running {
    control: Arc<OwnedFd>,
    child: std::process::Child,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    /// When it is given up: its own deadline, and time to report.
    patience: Duration,
}

impl Drop for Running {
    /// Ends what was never waited for, and takes the child's status.
    fn drop(&mut self) {
        Canceller(self.control.clone()).cancel();
        drop(self.child.wait());
    }
}

impl Command {
    /// Starts it: `binary` is re-executed as the child.
    pub fn start(&self, binary: &Path) -> Result<Running, RequestError> {
        self.check_files()?;
        self.spawn(binary)
            .map_err(|error| fault("start the command", &error))
    }

    fn spawn(&self, binary: &Path) -> io::Result<Running> {
        let (control, theirs) = channel::pair()?;
        let (stdout, stdout_write) = io::pipe()?;
        let (stderr, stderr_write) = io::pipe()?;
        let mut payload = file::memory_file("ringfence-host-command")?;
        payload.write_all(&serde_json::to_vec(&self.spec)?)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a command of the host is started"
        )]
        let child = std::process::Command::new(binary)
            .arg(CHILD_WORD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(stdout_write)
            .stderr(stderr_write)
            .spawn()?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![payload.as_fd()];
        descriptors.extend(self.descriptors());
        channel::send(control.as_fd(), b"start", &descriptors)?;
        Ok(Running {
            control: Arc::new(control),
            child,
            stdout: Some(stdout),
            stderr: Some(stderr),
            patience: self.deadline + REPORT,
        })
    }
}

impl Running {
    /// By which it is ended from elsewhere.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.control.clone())
    }

    /// Until it has ended, with all that it started.
    pub fn wait(mut self) -> Result<Outcome, RequestError> {
        let fault_of_pipe = |error: io::Error| fault("read from the command", &error);
        let (ended, lives) = io::pipe().map_err(fault_of_pipe)?;
        let reader = |pipe: Option<PipeReader>| {
            let ended = ended.try_clone().map_err(fault_of_pipe)?;
            Ok(thread::spawn(move || {
                pipe.map(|pipe| drain(pipe, &ended)).unwrap_or_default()
            }))
        };
        let (of_stdout, of_stderr) = (reader(self.stdout.take())?, reader(self.stderr.take())?);
        let ready = wait::readable([Some(self.control.as_fd())], Some(self.patience));
        if !matches!(ready, Ok([true])) {
            // What it has started dies with it.
            drop(self.child.kill());
            let silent = io::Error::from(io::ErrorKind::TimedOut);
            return Err(fault("hear the end of the command", &silent));
        }
        let report = wire::receive::<Report>(self.control.as_fd());
        // Where this process ignores its children there is nothing to wait for.
        drop(self.child.wait());
        drop(lives);
        let (stdout, stderr) = (
            of_stdout.join().unwrap_or_default(),
            of_stderr.join().unwrap_or_default(),
        );
        let ending = match report {
            Ok(Some((report, _))) => ending(report)?,
            // The server hung up on it.
            Ok(None) => Ending::Timeout,
            Err(error) => return Err(fault("follow the command", &error)),
        };
        Ok(Outcome {
            ending,
            stdout,
            stderr,
        })
    }
}

fn ending(report: Report) -> Result<Ending, RequestError> {
    Ok(match report {
        Report::Ended { status } => {
            let status = ExitStatus::from_raw(status);
            match (status.code(), status.signal()) {
                (Some(code), _) => Ending::Code(code),
                (None, signal) => Ending::Signal(signal.unwrap_or_default()),
            }
        }
        Report::TimedOut => Ending::Timeout,
        Report::OutOfMemory => Ending::OutOfMemory,
        Report::Failed { step, detail } => {
            return Err(RequestError::fault(
                format!("the command was not run: {step}: {detail}."),
                "`ringfence doctor` says which walls this host has.",
            ));
        }
    })
}

/// All of it, so that a command never waits; its beginning is kept. `ended` hangs up when the command has ended: then
/// what the pipe holds is all, though a program may have left its writing end where no process has it (unix(7)).
fn drain(mut pipe: PipeReader, ended: &PipeReader) -> Output {
    let mut output = Output::default();
    let mut buffer = vec![0; 64 << 10];
    while let Ok([is_readable, has_ended]) = wait::readable([Some(pipe.as_fd()), Some(ended.as_fd())], None) {
        if has_ended {
            let left = channel::unread(pipe.as_fd()).unwrap_or(0);
            let mut rest = pipe.take(left);
            while output.take_from(&mut rest, &mut buffer) {}
            break;
        }
        // Neither: a signal.
        if is_readable && !output.take_from(&mut pipe, &mut buffer) {
            break;
        }
    }
    output
}

impl Output {
    /// False: there is no more.
    fn take_from(&mut self, from: &mut impl Read, buffer: &mut [u8]) -> bool {
        let Ok(read @ 1..) = from.read(buffer) else {
            return false;
        };
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.bytes.len()).min(read);
        self.bytes.extend_from_slice(&buffer[..room]);
        self.total += read as u64;
        true
    }
}

fn fault(what: &str, error: &io::Error) -> RequestError {
    RequestError::fault(format!("could not {what}: {error}."), "Run `ringfence doctor`.")
}

/// Which walls this host has: they are tried with a program that does nothing.
pub fn probe(binary: &Path, cgroups: &Parent) -> Support {
    let landlock = ringfence_sys::landlock::version().is_ok();
    let full = Support {
        landlock,
        namespaces: Ok(()),
    };
    let namespaces = try_out(&full, binary, cgroups).map_err(|error| error.message);
    Support { landlock, namespaces }
}

fn try_out(support: &Support, binary: &Path, cgroups: &Parent) -> Result<(), RequestError> {
    let words = crate::Words::read("true")?;
    let rules = crate::Rules::default();
    let refused = |refused: crate::Refused| RequestError::denied(refused.what, "");
    let mut allowed = rules.approved(&words).map_err(refused)?;
    allowed.effect.runs.clear();
    let context = wall::CallContext {
        namespace: "default",
        directory: None,
        timeout: Duration::from_secs(10),
        support,
        cgroups,
    };
    let command = wall::prepare(&rules, &allowed, &context)?;
    match command.start(binary)?.wait()?.ending {
        Ending::Code(0) => Ok(()),
        other => Err(RequestError::fault(format!("`true` ended as {other:?}"), "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_held_open_ends_with_its_command() {
        let (pipe, mut held) = io::pipe().unwrap();
        let (ended, lives) = io::pipe().unwrap();
        let looked_at = pipe.try_clone().unwrap();
        held.write_all(b"early ").unwrap();
        let drained = thread::spawn(move || drain(pipe, &ended));
        while channel::unread(looked_at.as_fd()).unwrap() > 0 {
            thread::yield_now();
        }
        assert!(!drained.is_finished(), "the control: it waits for more");
        held.write_all(b"late").unwrap();
        drop(lives);
        assert_eq!(drained.join().unwrap().bytes, b"early late");
        drop(held);
    }
}
