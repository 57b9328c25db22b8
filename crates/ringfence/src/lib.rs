//! Runs untrusted code behind walls that the Linux kernel enforces.
//!
//! ```no_run
//! use ringfence::{ExecuteRequest, Sandbox};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     ringfence::init(); // first of all: this program is also the helper that makes sandboxes
//!     tokio::runtime::Runtime::new()?.block_on(async {
//!         let sandbox = Sandbox::local().await?;
//!         let result = sandbox
//!             .execute(ExecuteRequest::python("print('hello sandbox')"))
//!             .await?;
//!         println!("{}", result.stdout);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! - [`Sandbox::execute`] runs a program to its end; [`Sandbox::start`] streams its output and returns a handle that
//!   stops it. A failing program is an [`ExecutionResult`]; a [`RequestError`] is a refusal or a fault, with a hint.
//! - [`ExecuteRequest`] holds the code, its arguments, files, limits and secrets, and its [`Namespace`]: a tenant with
//!   its own queue, secrets, limits and artifacts.
//! - [`Sandbox::validate_code`] checks code, [`Sandbox::validate_json`] and [`Sandbox::validate_csv`] check data,
//!   without running anything; [`ExecuteRequest::validate`] and [`ExecuteRequest::profile`] check code before a run.
//! - [`Sandbox::create_session`] keeps an interpreter alive between programs. [`Sandbox::workspace`] writes, reads and
//!   saves the files that outlive a run, [`Sandbox::snapshots`] restores them, and [`Sandbox::install`] installs
//!   packages.
//! - [`Sandbox::secrets`] stores secrets: programs may use them, and output is redacted. [`Sandbox::artifacts`] and
//!   [`artifact`] read and verify the signed files that programs leave. [`Sandbox::audit`] reads the audit record,
//!   [`Sandbox::events`] subscribes to events as they happen.
//! - [`Sandbox::warm_up`] keeps sandboxes ready, so that a run starts in about a millisecond.
//! - Settings are those of the command line and the server: [`Sandbox::local`] uses the defaults, [`Sandbox::from_env`]
//!   and [`Sandbox::from_yaml`] read them, [`Sandbox::builder`] sets them. `docs/reference.md` lists them all.
//!
//! [`ExecutionResult::isolation`] lists the walls of a run. SECURITY.md states the claims.
#![forbid(unsafe_code)]

mod api;
pub mod artifact;
mod cli;
mod control;
#[cfg(test)]
#[path = "document_tests.rs"]
mod documents;
mod embed;
mod executable;
#[cfg(test)]
#[path = "golden_tests.rs"]
mod golden;
mod http;
mod lock;
mod log;
mod mcp;
mod metrics;
mod outgoing;
mod process_setup;
#[cfg(test)]
#[path = "reference_tests.rs"]
mod reference;
mod reload;
mod render;
mod sentence;
mod settings;
mod telemetry;
mod terminal;
mod time;
mod utf8;

pub use embed::SandboxBuilder;
pub use embed::{Approvals, Artifacts, Sandbox, Secrets, Sessions, Snapshots, Workspace};
pub use executable::init;
pub use ringfence_engine::{
    ApprovalFacts, Base, Bridged, BridgedValue, Canceller, Changed, CodeRequest, ContainerRuntime, Counts,
    CsvQuestion, Difference, DirectoryGot, DirectoryPut, Ended, Event, EventKind, Execution, FileFacts,
    Fixing, Hears, Images, Installed, Lay, LineState, OutputChunk, OutputStream, Package, Percentiles,
    QueueState, RiskFacts, Runtime, SandboxInfo, SchemaChoice, SnapshotFacts, SnapshotMade, Stats,
    Subscriber, Warm,
};
pub use ringfence_store::snapshots::Restored as SnapshotRestored;
pub use ringfence_types::{
    Analysis, Argument, Artifact, Backend, Complexity, CsvError, CsvReport, Denial, Display, EnvName,
    EnvValue, ErrorCode, ExecuteRequest, ExecutionResult, Exit, ExitKind, InputFile, Isolation, Issue,
    JsonError, JsonReport, Language, LayerState, Limits, LimitsRequest, Lossy, ModuleName, Namespace, Phases,
    Priority, Profile, ProgramError, RequestError, Requirement, ResourceUsage, ScriptName, Session,
    SessionEnd, SessionId, SessionRequest, SessionState, Severity, Summary, Tier, Truncated, Validate,
    Validation, Verdict, WorkspaceMode, WorkspaceName, WorkspacePath, WorkspaceSource, requirements,
};

/// Requests for approval, and their answers.
pub mod approval {
    pub use ringfence_engine::{
        Answer, ApprovalRequest as Request, ApprovalVerdict as Verdict, ApprovalWatch as Watch, Decision,
        DeniedBy, HostRequest, REASON_CHARS_MAX, Scope, ScopeChoice,
    };
}

/// Types of the audit record.
pub mod audit {
    pub use ringfence_store::audit::{Action, Actions, Outcome, Page, Query, Record};
    pub use ringfence_types::UnknownWord;
}

/// Metadata of a secret, without its value.
pub mod vault {
    pub use ringfence_store::vault::SecretEntry;
}

// For the binary and for fuzzing.
#[doc(hidden)]
pub use cli::main;
#[doc(hidden)]
pub use http::serve_fixtures;
#[doc(hidden)]
pub use settings::parse_config;
