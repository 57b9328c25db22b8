//! The agent: pid 1 of a container, mounted read-only and statically linked. It starts the program, forwards its
//! streams, listens for its connections, and reports its wait status and usage. The server is at the other end of
//! standard input and output. It has one thread and buffers no more than the streams' windows.
//!
//! Its memory and descriptors are hidden from the program, and it ignores signals: the program cannot impersonate it.
//! The server still trusts it no more than a program.
#![deny(unsafe_code)]

#[path = "../../../ringfence-sys/src/agent_calls.rs"]
#[allow(unsafe_code, reason = "system calls, one function each")]
mod calls;
#[path = "../frame.rs"]
#[allow(dead_code, reason = "the other half is the server's")]
mod frame;
mod listeners;
mod proc;
mod program;
mod stream;

use calls::{Children, Polled, Reaped, User};
use frame::{Decoder, Frame, Kind, Signal, Spec, Used};
use listeners::Listeners;
use program::{Descriptors, Program};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::{Duration, Instant},
};
use stream::Streams;

/// Interval of checks of the tree while a program runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
/// Time for which the end of killed processes is awaited.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence of the server after which the agent, and everything with it, ends. A running server sends more often.
const SERVER_TIMEOUT: Duration = Duration::from_secs(15);
const CHUNK_BYTES: usize = 64 << 10;

fn main() -> ExitCode {
    match Agent::begin().and_then(Agent::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            drop(send(&frame::encode(Kind::Failed, 0, &failure.payload())));
            ExitCode::FAILURE
        }
    }
}

struct Failure {
    step: String,
    error: io::Error,
}

impl Failure {
    fn at(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |error| Self { step, error }
    }

    fn payload(&self) -> Vec<u8> {
        let number = self.error.raw_os_error().unwrap_or(0).to_le_bytes();
        [&number[..], self.step.as_bytes()].concat()
    }
}

fn send(frame: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().as_fd().try_clone_to_owned().map(File::from)?;
    out.write_all(frame)
}

struct Agent {
    input: File,
    output: File,
    children: File,
    decoder: Decoder,
    spec: Vec<u8>,
    streams: Streams,
    listeners: Listeners,
    program: Option<Program>,
    /// Pipe and report of imports of an interpreter that was started ahead, until it closes the pipe.
    imports: Option<(OwnedFd, Vec<u8>)>,
    next_check: Instant,
    last_received: Instant,
    /// User of the program; none: the user of this agent.
    user: Option<User>,
}

/// Reads the agent's only argument, UID:GID.
fn user() -> Option<User> {
    let argument = std::env::args().nth(1)?;
    let (uid, gid) = argument.split_once(':')?;
    Some(User {
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
    })
}

impl Agent {
    fn begin() -> Result<Self, Failure> {
        if std::process::id() != 1 {
            return Err(Failure::at("be pid 1")(io::ErrorKind::Unsupported.into()));
        }
        calls::ignore_signals();
        calls::refuse_dumps().map_err(Failure::at("hide the agent"))?;
        let copy =
            |descriptor: io::Result<OwnedFd>| descriptor.map(File::from).map_err(Failure::at("descriptors"));
        let mut agent = Self {
            input: copy(io::stdin().as_fd().try_clone_to_owned())?,
            output: copy(io::stdout().as_fd().try_clone_to_owned())?,
            children: copy(calls::child_events())?,
            decoder: Decoder::default(),
            spec: Vec::new(),
            streams: Streams::default(),
            listeners: Listeners::open()?,
            program: None,
            imports: None,
            next_check: Instant::now(),
            last_received: Instant::now(),
            user: user(),
        };
        agent.send_frame(Kind::Ready, 0, &[])?;
        Ok(agent)
    }

    fn send_frame(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let bytes = frame::encode(kind, stream, payload);
        self.output
            .write_all(&bytes)
            .map_err(Failure::at("send to the server"))
    }

    /// Serves until the server closes the connection or falls silent.
    fn serve(mut self) -> Result<(), Failure> {
        loop {
            let mut waits = vec![
                Polled::new(&self.input, true, false),
                Polled::new(&self.children, true, false),
            ];
            let imports = self.imports.as_ref().map(|(it, _)| Polled::new(it, true, false));
            let first_listener = waits.len() + usize::from(imports.is_some());
            waits.extend(imports);
            waits.extend(self.listeners.waits(self.streams.has_room()));
            let first_stream = waits.len();
            waits.extend(self.streams.waits());
            let until = match &self.program {
                Some(program) if program.runs() => self.next_check,
                _ => self.last_received + SERVER_TIMEOUT,
            };
            let timeout = until.saturating_duration_since(Instant::now());
            calls::wait(&mut waits, Some(timeout)).map_err(Failure::at("wait"))?;
            for (number, event) in self.streams.serve(&waits[first_stream..]) {
                self.send_frame(event.0, number, &event.1)?;
            }
            for (kind, stream, payload) in self
                .listeners
                .serve(&waits[first_listener..first_stream], &mut self.streams)
            {
                self.send_frame(kind, stream, &payload)?;
            }
            if first_listener == 3 && waits[2].can_read() {
                self.read_imports()?;
            }
            if waits[1].can_read() {
                drop(self.children.read(&mut [0; 512]));
                self.reap()?;
            }
            if Instant::now() >= self.next_check {
                self.check_tree()?;
            }
            if waits[0].can_read() && !self.receive()? || self.last_received.elapsed() > SERVER_TIMEOUT {
                return Ok(());
            }
        }
    }

    /// Receives frames from the server. Returns false if the server has closed the connection.
    fn receive(&mut self) -> Result<bool, Failure> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = self
            .input
            .read(&mut chunk)
            .map_err(Failure::at("receive from the server"))?;
        self.last_received = Instant::now();
        self.decoder.push(&chunk[..count]);
        let malformed = |_| Failure::at("read a frame")(io::ErrorKind::InvalidData.into());
        while let Some(frame) = self.decoder.next().map_err(malformed)? {
            self.handle_frame(frame)?;
        }
        Ok(count > 0)
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<(), Failure> {
        let Frame {
            kind,
            stream,
            payload,
        } = frame;
        match kind {
            Kind::Spec if self.spec.len() + payload.len() <= frame::SPEC_BYTES_MAX => {
                self.spec.extend(payload)
            }
            Kind::Ahead | Kind::Exec | Kind::Go => self.run(kind)?,
            Kind::Signal => self.signal(payload.first().copied()),
            Kind::Listen => {
                let mut ports = payload.as_chunks::<2>().0.iter();
                let failed = ports.find_map(|port| self.listeners.listen(u16::from_le_bytes(*port)).err());
                let reply = failed.map_or(Vec::new(), |failure| failure.payload());
                self.send_frame(Kind::Listens, stream, &reply)?;
            }
            Kind::Account => {
                let used = self.used();
                self.send_frame(Kind::Used, stream, &used.encode())?;
            }
            Kind::Answer => self.listeners.answer(stream, &payload),
            Kind::Data | Kind::Credit | Kind::Close | Kind::Reset => {
                let taken = self.streams.take(kind, stream, payload);
                taken.map_err(Failure::at("a stream past its window"))?;
            }
            _ => return Err(Failure::at("read a frame")(io::ErrorKind::InvalidData.into())),
        }
        Ok(())
    }

    fn run(&mut self, kind: Kind) -> Result<(), Failure> {
        let bytes = std::mem::take(&mut self.spec);
        let malformed = |_| Failure::at("read a program")(io::ErrorKind::InvalidData.into());
        let spec = Spec::decode(&bytes).map_err(malformed)?;
        match (kind, self.program.take()) {
            (Kind::Go, Some(waiting)) => {
                self.program = Some(waiting.go(&spec)?);
                self.send_frame(Kind::Running, 0, &[])?;
            }
            (Kind::Exec, None) => {
                let (program, pipes, _) = Program::start(&spec, Descriptors::Plain, self.user)?;
                self.program = Some(program);
                self.streams.add_program(pipes);
                self.send_frame(Kind::Running, 0, &[])?;
            }
            (Kind::Ahead, None) => {
                let (program, pipes, imports) = Program::start(&spec, Descriptors::WithClaim, self.user)?;
                self.program = Some(program);
                self.streams.add_program(pipes);
                self.imports = imports.map(|pipe| (pipe, Vec::new()));
            }
            _ => {
                return Err(Failure::at("start a program")(
                    io::ErrorKind::AlreadyExists.into(),
                ));
            }
        }
        self.next_check = Instant::now();
        Ok(())
    }

    fn read_imports(&mut self) -> Result<(), Failure> {
        let Some((pipe, mut report)) = self.imports.take() else {
            return Ok(());
        };
        let mut pipe = File::from(pipe);
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = pipe.read(&mut chunk).unwrap_or(0);
        let room = frame::IMPORTED_BYTES_MAX.saturating_sub(report.len()).min(count);
        report.extend_from_slice(&chunk[..room]);
        if count > 0 {
            self.imports = Some((pipe.into(), report));
            return Ok(());
        }
        self.send_frame(Kind::Imported, 0, &report)
    }

    fn signal(&mut self, what: Option<u8>) {
        let Some(program) = &mut self.program else { return };
        match what {
            Some(byte) if byte == Signal::Interrupt as u8 => program.interrupt(),
            // It is not an error if all are gone already.
            Some(byte) if byte == Signal::Terminate as u8 => drop(calls::send_signal(-1, 15)),
            _ => {
                program.is_killed = true;
                drop(calls::send_signal(-1, 9));
            }
        }
    }

    fn used(&mut self) -> Used {
        let (living, unrouted) = (proc::processor_time(), proc::unrouted());
        let Some(program) = &mut self.program else {
            return Used::default();
        };
        program.used(living, unrouted)
    }

    /// Checks memory and processes while a program runs.
    fn check_tree(&mut self) -> Result<(), Failure> {
        self.next_check = Instant::now() + CHECK_INTERVAL;
        let Some(program) = &mut self.program else {
            return Ok(());
        };
        if program.is_over_memory() {
            program.is_out_of_memory = true;
            drop(calls::send_signal(-1, 9));
        }
        Ok(())
    }

    /// Reaps children. When the program has ended, kills and reaps everything and reports the end.
    fn reap(&mut self) -> Result<(), Failure> {
        let mut has_ended = false;
        while let Children::Ended(child) = calls::reap() {
            has_ended |= self.ended(&child);
        }
        if !has_ended {
            return Ok(());
        }
        let by = Instant::now() + KILL_TIMEOUT;
        drop(calls::send_signal(-1, 9));
        loop {
            match calls::reap() {
                Children::Ended(child) => drop(self.ended(&child)),
                Children::None => break,
                Children::Running if Instant::now() >= by => break,
                Children::Running => {
                    drop(calls::send_signal(-1, 9));
                    let mut waits = [Polled::new(&self.children, true, false)];
                    drop(calls::wait(&mut waits, Some(CHECK_INTERVAL)));
                    drop(self.children.read(&mut [0; 512]));
                }
            }
        }
        for (number, event) in self.streams.end_of_program() {
            self.send_frame(event.0, number, &event.1)?;
        }
        let used = self.used();
        self.send_frame(Kind::Ended, 0, &used.encode())
    }

    /// Records the end of a child. Returns true if it was the program.
    fn ended(&mut self, child: &Reaped) -> bool {
        self.program.as_mut().is_some_and(|program| program.ended(child))
    }
}
