//! The engine's door.

use crate::settings::EngineSettings;
use ringfence_types::{ExecuteRequest, ExecutionResult, Isolation, Language, Limits, RequestError};
use serde::Serialize;
use std::path::PathBuf;
use tokio::io::AsyncRead;

/// A running engine; clones share it.
#[derive(Clone)]
pub struct Engine {}

/// One request with what is not plain data.
pub struct Submission {
    /// What to run.
    pub request: ExecuteRequest,
    /// Where its standard input comes from.
    pub stdin: Stdin,
    /// True: output is offered through [`Execution::next_output`] as it comes. The program waits for a slow reader.
    pub live: bool,
    /// Copy artifacts into this directory (created when absent).
    pub artifacts_to: Option<PathBuf>,
}

/// Standard input of a program.
pub enum Stdin {
    /// `request.stdin`, then end of file.
    FromRequest,
    /// Copied as it comes.
    Stream(Box<dyn AsyncRead + Send + Unpin>),
}

/// Which of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes as the program wrote them: hostile.
#[derive(Clone, Debug)]
pub struct OutputChunk {
    /// Which stream.
    pub stream: OutputStream,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
}

/// A submitted request. The engine owns the task: dropping this loses nothing and stops nothing.
pub struct Execution {}

/// Stops one execution; may be cloned and kept.
#[derive(Clone)]
pub struct Canceller {}

/// One language on this host.
#[derive(Clone, Debug, Serialize)]
pub struct Runtime {
    /// Language.
    pub language: Language,
    /// Can it run.
    pub available: bool,
    /// Interpreter.
    pub path: Option<PathBuf>,
    /// As the interpreter says it, inside the sandbox.
    pub version: Option<String>,
    /// Backends that can run it.
    pub backends: Vec<String>,
    /// Tier it runs in.
    pub tier: String,
    /// Is a warm sandbox kept for it.
    pub warm: bool,
    /// Packages imported ahead.
    pub preloaded: Vec<String>,
    /// Why it cannot run.
    pub reason: Option<String>,
}

/// The static facts about this server's sandboxes.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxInfo {
    /// Tier and layers that a run with default limits gets.
    pub isolation: Isolation,
    /// For requests that say nothing.
    pub defaults: Limits,
    /// The most that any request gets.
    pub caps: Limits,
}

impl Engine {
    /// Starts the helper, checks the floor, sweeps what an earlier server left. `BelowFloor` when the host lacks a
    /// layer of the tier.
    pub async fn start(_settings: EngineSettings) -> Result<Self, RequestError> {
        unimplemented!()
    }
    /// Accepts a request; validation errors come out of [`Execution::finish`].
    pub fn submit(&self, _submission: Submission) -> Execution {
        unimplemented!()
    }
    /// The languages, each asked inside a sandbox for its version (cached).
    pub async fn runtimes(&self) -> Vec<Runtime> {
        unimplemented!()
    }
    /// Facts for `get_sandbox_info`.
    pub fn info(&self) -> SandboxInfo {
        unimplemented!()
    }
    /// Kills what runs and waits until nothing is left.
    pub async fn shutdown(&self) {
        unimplemented!()
    }
}

impl Execution {
    /// Its id.
    pub fn id(&self) -> &str {
        unimplemented!()
    }
    /// A handle that stops it.
    pub fn canceller(&self) -> Canceller {
        unimplemented!()
    }
    /// The next piece of live output; `None` when the program has ended.
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        unimplemented!()
    }
    /// The result. Live output that was not taken is dropped.
    pub async fn finish(self) -> Result<ExecutionResult, RequestError> {
        unimplemented!()
    }
}

impl Canceller {
    /// Stops the execution; the tree is dead within a second.
    pub fn cancel(&self) {
        unimplemented!()
    }
}
