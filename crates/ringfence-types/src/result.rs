//! The result of a run, with the fields of the contract.

use crate::{Isolation, Language, Validation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of one execution. A failing program is a result with `success: false`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionResult {
    /// Unique for this execution.
    pub execution_id: String,
    /// The same id, under the name that older callers use.
    pub request_id: String,
    /// Tenant.
    pub namespace: String,
    /// Session in which it ran.
    pub session_id: Option<String>,
    /// Reason for which the session has ended with it; null if the session is still open, or without one.
    pub session_ended: Option<String>,
    /// Language of the program.
    pub language: Language,
    /// Backend that created the sandbox: `native`.
    pub backend: String,
    /// True when the program ended by itself with status 0 and its language reported no error.
    pub success: bool,
    /// End of the program, as the kernel reports it.
    pub exit: Exit,
    /// The status, or 128 + signal, or 124 for a timeout, 137 for out of memory.
    pub exit_code: i32,
    /// Kept output.
    pub stdout: String,
    /// Kept output.
    pub stderr: String,
    /// Bytes written by the program, kept or not, counted after redaction.
    pub stdout_bytes: u64,
    /// Bytes written by the program, kept or not, counted after redaction.
    pub stderr_bytes: u64,
    /// Streams whose output past the limit was dropped.
    pub truncated: Truncated,
    /// Streams whose output was not UTF-8; the text has U+FFFD in its place.
    pub lossy: Lossy,
    /// Value of the last expression, else of `result`, `_` or `output`; JSON if possible. An integer of more than 64
    /// bits is a string of its digits.
    pub result: Option<serde_json::Value>,
    /// `repr` of the result, at most 64 KiB.
    pub result_repr: Option<String>,
    /// Displays of the result, and figures that were left open. They are the program's own: render them without trust.
    pub display: Vec<Display>,
    /// Names that the program defined.
    pub variables: Vec<String>,
    /// The language-level error that ended the program.
    pub error: Option<ProgramError>,
    /// Files that the program left.
    pub artifacts: Vec<Artifact>,
    /// Time from acceptance to result.
    pub duration_ms: f64,
    /// Time of each phase.
    pub phases: Phases,
    /// Resources that the program used.
    pub resource_usage: ResourceUsage,
    /// Isolation of the sandbox.
    pub isolation: Isolation,
    /// Actions that were refused, and how to allow them.
    pub denials: Vec<Denial>,
    /// Events of interest to a security team.
    pub security_events: Vec<Denial>,
    /// Findings about the code; null: it was not checked.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub validation: Option<Validation>,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// Kind of end.
    pub kind: ExitKind,
    /// Status, if it exited.
    pub code: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Name of the limit, if one ended it.
    pub limit: Option<String>,
}

/// Kinds of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    /// Ended by itself, with a status.
    Code,
    /// Ended by a signal.
    Signal,
    /// The wall deadline passed.
    Timeout,
    /// The tree needed more memory than its limit.
    OutOfMemory,
    /// Another limit ended it; `limit` has its name.
    Limit,
    /// The caller cancelled or disconnected.
    Cancelled,
}

/// Streams whose output was truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Truncated {
    /// True if output past the limit was dropped.
    pub stdout: bool,
    /// True if output past the limit was dropped.
    pub stderr: bool,
}

/// Streams whose bytes that are not UTF-8 were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lossy {
    /// True if bytes were replaced by U+FFFD.
    pub stdout: bool,
    /// True if bytes were replaced by U+FFFD.
    pub stderr: bool,
}

/// An error of the language, as the program's runtime reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramError {
    /// Type of the error, such as `ZeroDivisionError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Text of the error.
    pub message: String,
    /// Traceback, with the caller's file name, line numbers and source lines.
    pub traceback: String,
    /// Line of the caller's code, from 1.
    pub line: Option<u32>,
}

/// Writes the type, and the message if there is one.
impl fmt::Display for ProgramError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(to, "{}", self.kind),
            message => write!(to, "{}: {message}", self.kind),
        }
    }
}

impl ProgramError {
    /// True if the program imports a module that is missing and that a package may provide: not a file of its own.
    pub fn is_missing_module(&self) -> bool {
        let of_node = ["Cannot find module '", "Cannot find package '"];
        let named = of_node
            .iter()
            .find_map(|beginning| self.message.strip_prefix(beginning));
        self.kind == "ModuleNotFoundError" || named.is_some_and(|name| !name.starts_with(['.', '/', '\'']))
    }
}

/// Something to show. Its content is either here or in an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Display {
    /// One of [`Display::MIMES`].
    pub mime: String,
    /// Name of the artifact with the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// The content itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Display {
    /// All supported MIME types.
    pub const MIMES: [&str; 7] = [
        "image/png",
        "image/jpeg",
        "image/svg+xml",
        "text/html",
        "text/markdown",
        "text/latex",
        "application/json",
    ];
}

/// A file that the program left in `/workspace` or in `$RINGFENCE_OUTPUT_DIR`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Path below the directory it was found in; `output/...` for the output directory.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the content, in lower-case hex.
    pub sha256: String,
    /// MIME type, by the content or else by the file extension.
    pub mime: String,
    /// Ed25519 signature of id, name, size and digest, in base64; null if it was not kept.
    pub signature: Option<String>,
    /// URI to read it from; null if it was not kept.
    pub uri: Option<String>,
    /// Content of a small file, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_b64: Option<String>,
}

/// Milliseconds of each phase of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Waiting in the queue.
    pub queued_ms: f64,
    /// Creating the sandbox, until the program's first instruction.
    pub start_ms: f64,
    /// Running the program.
    pub run_ms: f64,
    /// Collecting the program's results and files.
    pub finish_ms: f64,
}

/// Resources that the whole tree of processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUsage {
    /// Processor time in user mode.
    pub cpu_user_ms: f64,
    /// Processor time in the kernel.
    pub cpu_system_ms: f64,
    /// Peak memory of the cgroup if there is one, else the largest sample of the tree.
    pub max_rss_bytes: u64,
    /// Most processes and threads at once; null if they were not counted.
    pub processes_peak: Option<u64>,
    /// Private disk in use at the end.
    pub disk_bytes: u64,
}

/// A refused action: rule, layer, and the smallest change that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Id of the rule.
    pub rule: String,
    /// Name of the layer.
    pub layer: String,
    /// The refused action.
    pub what: String,
    /// The smallest change that would allow it.
    pub hint: String,
}

impl Denial {
    /// True if a limit was reached.
    pub fn is_limit(&self) -> bool {
        self.rule.starts_with("limit.")
    }
}
