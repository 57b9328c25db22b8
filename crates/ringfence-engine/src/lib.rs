//! One request from start to finish. The only crate that knows the order of the steps; `execute` tells it.
#![forbid(unsafe_code)]

mod artifacts;
mod backend;
mod engine;
mod events;
mod execute;
mod language;
mod log_redactor;
mod meters;
mod observe;
mod picture;
mod policy;
mod prepare;
mod queue;
mod record;
mod report;
mod runtimes;
mod sandbox;
mod secrets;
mod settings;
mod store;
mod warm;
mod worker;

pub use artifacts::{artifact_uri, create_below};
pub use engine::{
    Caller, Canceller, Engine, Execution, OutputChunk, OutputStream, Runtime, SandboxInfo, Stdin, Submission,
};
pub use events::{Ended, Event, EventKind, Hears, Subscriber};
pub use language::{BASIC_MODULES, ProgramReport, read_report};
pub use log_redactor::LogRedactor;
pub use meters::{Counts, Percentiles};
pub use observe::{Inspection, Reload, RunningNow, Stats, Warm};
pub use picture::Picture;
pub use queue::{LineState, QueueState};
pub use ringfence_jail::Outlet;
pub use ringfence_redact::{Personal, SHORTEST_SECRET};
pub use settings::{
    AuditSettings, EngineSettings, OnFailure, PolicySettings, QueueSettings, Rate, RecordSettings,
    RuntimeSettings, SecretRule,
};
pub use warm::WarmSettings;

/// The worker that gives back what it is given: the smallest program that proves a sandbox.
pub(crate) const ECHO: &str = "echo";

/// The functions of this binary that run inside jails; `main` hands them to the helper.
pub fn workers() -> ringfence_jail::helper::Workers {
    &[
        (ECHO, |input: &[u8]| input.to_vec()),
        (prepare::PREPARE, ringfence_check::prepare),
        (picture::PICTURE, ringfence_check::picture),
    ]
}
