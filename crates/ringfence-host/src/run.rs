//! The server's side of a command: starts the child, sends it the plan and descriptors, keeps its output up to a limit,
//! and waits for its report. It blocks; the engine calls it on a separate thread.

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

/// Time that a child has, after its deadline, to end everything and report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of each stream that are kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
    /// Its deadline passed, or it was cancelled.
    Timeout,
    OutOfMemory,
}

/// An output stream, cut at the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Beginning of the stream; hostile, and not redacted.
    pub bytes: Vec<u8>,
    /// Number of bytes written.
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
    /// Ends the command if it has not ended yet.
    pub fn cancel(&self) {
        // An error means that the child has ended.
        rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both).ok();
    }
}

#[derive(Debug)]
pub struct Running {
    control: Arc<OwnedFd>,
    child: std::process::Child,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    /// Maximum wait for the report: the deadline of the command and time to report.
    report_timeout: Duration,
}

impl Drop for Running {
    /// Ends a command that nothing waited for, and reaps the child.
    fn drop(&mut self) {
        Canceller(self.control.clone()).cancel();
        drop(self.child.wait());
    }
}

impl Command {
    /// Starts the command; `binary` is executed as the child.
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
            report_timeout: self.deadline + REPORT_TIMEOUT,
        })
    }
}

impl Running {
    /// Returns a handle that ends the command from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.control.clone())
    }

    /// Waits until the command has ended with all processes that it started.
    pub fn wait(mut self) -> Result<Outcome, RequestError> {
        let fault_of_pipe = |error: io::Error| fault("read from the command", &error);
        let (ended, ended_writer) = io::pipe().map_err(fault_of_pipe)?;
        let reader = |pipe: Option<PipeReader>| {
            let ended = ended.try_clone().map_err(fault_of_pipe)?;
            Ok(thread::spawn(move || {
                pipe.map(|pipe| drain(pipe, &ended)).unwrap_or_default()
            }))
        };
        let (of_stdout, of_stderr) = (reader(self.stdout.take())?, reader(self.stderr.take())?);
        let ready = wait::readable([Some(self.control.as_fd())], Some(self.report_timeout));
        if !matches!(ready, Ok([true])) {
            // The processes that it has started die with it.
            drop(self.child.kill());
            let timeout = io::Error::from(io::ErrorKind::TimedOut);
            return Err(fault("get the report of the command", &timeout));
        }
        let report = wire::receive::<Report>(self.control.as_fd());
        // Fails if this process ignores SIGCHLD: then the kernel has reaped the child.
        drop(self.child.wait());
        drop(ended_writer);
        let (stdout, stderr) = (
            of_stdout.join().unwrap_or_default(),
            of_stderr.join().unwrap_or_default(),
        );
        let ending = match report {
            Ok(Some((report, _))) => ending(report)?,
            // The child closed the socket without a report, as after a cancellation.
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

/// Reads the whole stream, so that the command never blocks, and keeps its beginning. `ended` hangs up when the command
/// has ended; then only the bytes in the pipe are read: its writing end may be in flight in a lost socket (unix(7)).
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
        // Neither of them after a signal.
        if is_readable && !output.take_from(&mut pipe, &mut buffer) {
            break;
        }
    }
    output
}

impl Output {
    /// Reads once. Returns false at the end of the stream or on an error.
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

/// Finds out which walls this host has, by running `true` behind them.
pub fn probe(binary: &Path, cgroups: &Parent) -> Support {
    let landlock = ringfence_sys::landlock::version().is_ok();
    let full = Support {
        landlock,
        namespaces: Ok(()),
    };
    let namespaces = try_walls(&full, binary, cgroups).map_err(|error| error.message);
    Support { landlock, namespaces }
}

fn try_walls(support: &Support, binary: &Path, cgroups: &Parent) -> Result<(), RequestError> {
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
    fn output_pipe_held_open_ends_with_its_command() {
        let (pipe, mut held) = io::pipe().unwrap();
        let (ended, ended_writer) = io::pipe().unwrap();
        let observer = pipe.try_clone().unwrap();
        held.write_all(b"early ").unwrap();
        let drained = thread::spawn(move || drain(pipe, &ended));
        while channel::unread(observer.as_fd()).unwrap() > 0 {
            thread::yield_now();
        }
        assert!(!drained.is_finished(), "the control: it waits for more");
        held.write_all(b"late").unwrap();
        drop(ended_writer);
        assert_eq!(drained.join().unwrap().bytes, b"early late");
        drop(held);
    }
}
