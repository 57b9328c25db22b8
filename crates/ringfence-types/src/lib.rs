//! Plain types that cross a crate or process boundary: requests, results and errors. No policy, no I/O; every
//! constructor that takes untrusted text checks it.
#![forbid(unsafe_code)]

mod address;
mod backend;
mod check;
mod difference;
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
mod workspace;
pub mod yaml;

pub use address::Reach;
pub use backend::Backend;
pub use check::{
    Analysis, Complexity, CsvError, CsvReport, ERRORS_MAX, IMPORTS_MAX, ISSUES_MAX, Issue, JsonError,
    JsonReport, ModuleName, Profile, Rules, Severity, Summary, Validate, Validation, Verdict,
};
pub use difference::unified_diff;
pub use domains::{AllowedDomains, DOMAINS_MAX};
pub use error::{ErrorCode, RequestError};
pub use isolation::{Isolation, LayerState, Tier};
pub use language::Language;
pub use limits::{Limits, LimitsRequest, parse_size};
pub use packages::{
    REQUIREMENT_CHARS_MAX, REQUIREMENTS_MAX, Requirement, RequirementError, requirements, with_packages_hint,
};
pub use request::{
    CODE_BYTES_MAX, ExecuteRequest, FILES_BYTES_MAX, FILES_MAX, InputFile, Priority, STDIN_BYTES_MAX,
};
pub use result::{
    Artifact, Denial, Display, ExecutionResult, Exit, ExitKind, Lossy, Phases, ProgramError, ResourceUsage,
    Truncated,
};
pub use session::{Session, SessionEnd, SessionId, SessionRequest, SessionState};
pub use words::{
    Argument, EnvName, EnvValue, Namespace, ScriptName, UnknownWord, WorkspaceName, WorkspacePath,
};
pub use workspace::{WorkspaceMode, WorkspaceSource};
