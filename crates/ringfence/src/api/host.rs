//! The toolset `host`: commands and files of the machine that the server runs on.

use super::{Object, operation, read::Whole, response};
use ringfence_types::WorkspacePath;
use schemars::JsonSchema;
use serde::Deserialize;

/// Run a command on the host, if a rule lets its form through; no shell, so one program and its words. For code use
/// execute_code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostExec {
    pub(crate) command: String,
    /// Seconds; 30 if absent.
    #[serde(alias = "timeout_seconds", alias = "timeout_sec")]
    pub(crate) timeout: Option<Whole>,
    /// Absolute; where git and npm look.
    pub(crate) directory: Option<String>,
}
operation!(HostExec => Ran, "host_exec", "Run a host command", Host, Runs);

response!(Ran {
    exit_code: Option<i64>,
    signal: Option<i64>,
    timed_out: bool,
    out_of_memory: bool,
    stdout: String,
    stderr: String,
    stdout_bytes: u64,
    stderr_bytes: u64,
    rule: Option<String>,
    approved_by: Option<String>,
    program: String,
    duration_ms: f64,
});

/// Ask a person to let one exact command run that no rule lets through. Waits for the answer; if pending, call again.
/// Then call host_exec with the same command and directory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestHostAccess {
    /// The command, word for word.
    #[serde(alias = "command")]
    pub(crate) pattern: String,
    /// One sentence for the person.
    #[serde(alias = "justification")]
    pub(crate) reason: Option<String>,
    pub(crate) directory: Option<String>,
    /// At most 50.
    pub(crate) wait_seconds: Option<Whole>,
}
operation!(RequestHostAccess => HostDecided, "request_host_access", "Ask to run a host command", Host, Reaches);

response!(HostDecided {
    pattern: String,
    approved: bool,
    scope: Option<String>,
    /// Not answered yet.
    pending: bool,
    decided_by: Option<String>,
    expires_at: Option<String>,
});

/// List the forms of host commands and the host directories that are open to this namespace, and what was approved.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListHostAccess {}
operation!(ListHostAccess => HostAccess, "list_host_access", "List host access", Host, Reads);

response!(HostAccess {
    rules: Vec<Object>,
    directories: Vec<Object>,
    approved: Vec<Object>,
    missing_walls: Vec<String>,
});

/// Read one file of the host, of up to 1 MiB, by its absolute path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFileRead {
    pub(crate) path: String,
}
operation!(HostFileRead => HostFile, "host_file_read", "Read a host file", Host, Reads);

response!(HostFile {
    path: String,
    content: Option<String>,
    /// Of what is not text.
    content_base64: Option<String>,
    size_bytes: u64,
    mode: String,
    redacted: bool,
});

/// Write one file of the host whole, by its absolute path. Answers with the change as a diff and an undo_id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFileWrite {
    pub(crate) path: String,
    pub(crate) content: String,
    /// Only show the change.
    pub(crate) preview: Option<bool>,
}
operation!(HostFileWrite => HostWritten, "host_file_write", "Write a host file", Host, Replaces);

response!(HostWritten {
    path: String,
    written: bool,
    diff: String,
    undo_id: Option<String>,
    sha256: String,
});

/// List a directory of the host by its absolute path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFileList {
    pub(crate) path: String,
}
operation!(HostFileList => HostListing, "host_file_list", "List a host directory", Host, Reads);

response!(HostListing {
    path: String,
    entries: Vec<Object>,
    /// There is more.
    cut: bool,
});

/// Copy one file of the host into the namespace's workspace, where programs with workspace "namespace" see it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFileCopy {
    /// Absolute, on the host.
    pub(crate) source: String,
    /// In the workspace, such as data/in.csv.
    #[schemars(with = "String")]
    pub(crate) destination: WorkspacePath,
}
operation!(HostFileCopy => HostCopied, "host_file_copy", "Copy a host file", Host, Replaces);

response!(HostCopied {
    source: String,
    destination: String,
    size_bytes: u64,
    sha256: String,
});
