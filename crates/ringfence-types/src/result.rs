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
    /// The same; the name that older callers use.
    pub request_id: String,
    /// Tenant.
    pub namespace: String,
    /// The session that it ran in.
    pub session_id: Option<String>,
    /// Why the session has ended with it; null while it lives, or without a session.
    pub session_ended: Option<String>,
    /// Language of the program.
    pub language: Language,
    /// What made the sandbox: `native`.
    pub backend: String,
    /// True when the program ended by itself with status 0 and its language reported no error.
    pub success: bool,
    /// How it ended, by the kernel's word.
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
    /// Whether output was dropped past the limit.
    pub truncated: Truncated,
    /// Whether output was not UTF-8; the text then holds U+FFFD in its place.
    pub lossy: Lossy,
    /// Value of the last expression, else of `result`, `_` or `output`; JSON where it can be. An integer that 64 bits
    /// do not hold is told as its digits, in a string.
    pub result: Option<serde_json::Value>,
    /// Its repr, at most 64 KiB.
    pub result_repr: Option<String>,
    /// What the result looks like, and figures that were left open. The program's own: to be rendered without trust.
    pub display: Vec<Display>,
    /// Names that the program defined.
    pub variables: Vec<String>,
    /// The language-level error that ended the program.
    pub error: Option<ProgramError>,
    /// Files that the program left.
    pub artifacts: Vec<Artifact>,
    /// From acceptance to result.
    pub duration_ms: f64,
    /// Where that time went.
    pub phases: Phases,
    /// What the program used.
    pub resource_usage: ResourceUsage,
    /// The walls that were up.
    pub isolation: Isolation,
    /// What was refused, and how to allow it.
    pub denials: Vec<Denial>,
    /// Events that a security team would want to see.
    pub security_events: Vec<Denial>,
    /// What was found of the code; null: it was not looked at.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub validation: Option<Validation>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// The manner.
    pub kind: ExitKind,
    /// Status, where it exited.
    pub code: Option<i32>,
    /// Signal number, where one ended it.
    pub signal: Option<i32>,
    /// Name of the limit, where one ended it.
    pub limit: Option<String>,
}

/// The manner of an end.
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
    /// Another limit ended it; `limit` says which.
    Limit,
    /// The caller cancelled, or vanished.
    Cancelled,
}

/// Whether output was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Truncated {
    /// Past the limit.
    pub stdout: bool,
    /// Past the limit.
    pub stderr: bool,
}

/// Whether bytes that are not UTF-8 were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lossy {
    /// Replaced by U+FFFD.
    pub stdout: bool,
    /// Replaced by U+FFFD.
    pub stderr: bool,
}

/// An error of the language, as the program's runtime told it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramError {
    /// `ZeroDivisionError`, `TypeError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    pub message: String,
    /// With the caller's file name, line numbers and source lines.
    pub traceback: String,
    /// Line of the caller's code, from 1.
    pub line: Option<u32>,
}

/// Its type, and its text where it has one.
impl fmt::Display for ProgramError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(to, "{}", self.kind),
            message => write!(to, "{}: {message}", self.kind),
        }
    }
}

impl ProgramError {
    /// The program asked for a module that is not there, and that a package may bring: not a file of its own.
    pub fn is_missing_module(&self) -> bool {
        let of_node = ["Cannot find module '", "Cannot find package '"];
        let named = of_node
            .iter()
            .find_map(|beginning| self.message.strip_prefix(beginning));
        self.kind == "ModuleNotFoundError" || named.is_some_and(|name| !name.starts_with(['.', '/', '\'']))
    }
}

/// Something to show. Its content is either here or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Display {
    /// One of [`Display::MIMES`].
    pub mime: String,
    /// Name of the artifact that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// Itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Display {
    /// All that there are.
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
    /// Size.
    pub size_bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// By content first, by ending second.
    pub mime: String,
    /// Ed25519 over id, name, size and digest, in base64; null where it was not kept.
    pub signature: Option<String>,
    /// Where it can be read; null where it was not kept.
    pub uri: Option<String>,
    /// The content of a small one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_b64: Option<String>,
}

/// Milliseconds of each phase of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Waiting for a place.
    pub queued_ms: f64,
    /// Making the sandbox, until the program's first instruction.
    pub start_ms: f64,
    /// The program.
    pub run_ms: f64,
    /// Collecting what it left.
    pub finish_ms: f64,
}

/// What the whole tree used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUsage {
    /// Processor time in user mode.
    pub cpu_user_ms: f64,
    /// Processor time in the kernel.
    pub cpu_system_ms: f64,
    /// Peak memory: of the cgroup where there is one, else the largest sample of the tree.
    pub max_rss_bytes: u64,
    /// Most processes and threads at once; null where no cgroup counts them.
    pub processes_peak: Option<u64>,
    /// Private disk in use at the end.
    pub disk_bytes: u64,
}

/// Something refused: by which rule, in which layer, and the smallest change that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Rule id.
    pub rule: String,
    /// Layer name.
    pub layer: String,
    /// What was refused.
    pub what: String,
    /// The smallest change.
    pub hint: String,
}

impl Denial {
    /// A limit was met.
    pub fn is_limit(&self) -> bool {
        self.rule.starts_with("limit.")
    }
}
