//! One request from start to finish. The only crate that knows the order of the steps; `execute` tells it.
#![forbid(unsafe_code)]

mod engine;
mod settings;

pub use engine::{Canceller, Engine, Execution, OutputChunk, OutputStream, Runtime, SandboxInfo, Stdin, Submission};
pub use settings::{EngineSettings, PolicySettings, QueueSettings, RuntimeSettings};
