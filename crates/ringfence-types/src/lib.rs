//! Plain words that cross a crate or process boundary: what a caller asks for, what a run gave back, and the
//! errors in between. No policy, no I/O; every constructor that takes a stranger's text checks it.
#![forbid(unsafe_code)]

mod address;
mod check;
mod domains;
mod error;
mod isolation;
mod language;
mod limits;
pub mod nearest;
mod packages;
mod request;
mod result;
mod session;
mod words;

pub use address::Reach;
pub use check::{
    Analysis, Complexity, CsvError, CsvReport, ERRORS_MAX, IMPORTS_MAX, ISSUES_MAX, Issue, JsonError,
    JsonReport, ModuleName, Profile, Rules, Severity, Summary, UnknownWord, Validate, Validation, Verdict,
};
pub use domains::{AllowedDomains, DOMAINS_MAX};
pub use error::{ErrorCode, RequestError};
pub use isolation::{Isolation, LayerState, Tier};
pub use language::Language;
pub use limits::{Limits, LimitsRequest, parse_size};
pub use packages::{REQUIREMENT_CHARS_MAX, REQUIREMENTS_MAX, Requirement, RequirementError, requirements};
pub use request::{
    Argument, CODE_BYTES_MAX, EnvName, EnvValue, ExecuteRequest, FILES_BYTES_MAX, FILES_MAX, InputFile,
    Priority, STDIN_BYTES_MAX, WorkspaceMode, WorkspaceSource,
};
pub use result::{
    Artifact, Denial, Display, ExecutionResult, Exit, ExitKind, Lossy, Phases, ProgramError, ResourceUsage,
    Truncated,
};
pub use session::{Session, SessionEnd, SessionId, SessionRequest, SessionState};
pub use words::{Namespace, ScriptName, WorkspaceName, WorkspacePath};
