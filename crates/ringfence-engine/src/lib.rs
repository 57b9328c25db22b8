//! One request from start to finish. The only crate that knows the order of the steps; `execute` tells it.
#![forbid(unsafe_code)]

mod artifacts;
mod backend;
mod engine;
mod execute;
mod language;
mod policy;
mod prepare;
mod queue;
mod report;
mod runtimes;
mod sandbox;
mod settings;
mod warm;

pub use engine::{
    Canceller, Engine, Execution, OutputChunk, OutputStream, Runtime, SandboxInfo, Stdin, Submission,
};
pub use language::{BASIC_MODULES, ProgramReport, read_report};
pub use settings::{EngineSettings, PolicySettings, QueueSettings, RuntimeSettings};
pub use warm::WarmSettings;

/// The worker that gives back what it is given: the smallest program that proves a sandbox.
pub(crate) const ECHO: &str = "echo";

/// The functions of this binary that run inside jails; `main` hands them to the helper.
pub fn workers() -> ringfence_jail::helper::Workers {
    &[
        (ECHO, |input: &[u8]| input.to_vec()),
        (prepare::PREPARE, ringfence_check::prepare),
    ]
}
