//! The toolset `host`: commands and files of the machine that the server runs on.

use super::{Object, operations, read::Whole};
use ringfence_types::WorkspacePath;

operations! {
    /// Run a command on the host, if a rule lets its form through; no shell, so one program and its words. For code use
    /// execute_code.
    "host_exec" "Run a host command" Host Runs
    HostExec {
        command: String,
        /// Seconds; 30 if absent.
        #[serde(alias = "timeout_seconds", alias = "timeout_sec")]
        timeout: Option<Whole>,
        /// Absolute; where git and npm look.
        directory: Option<String>,
    } -> Ran {
        exit_code: Option<i64>, signal: Option<i64>, timed_out: bool, out_of_memory: bool, stdout: String,
        stderr: String, stdout_bytes: u64, stderr_bytes: u64, rule: Option<String>,
        approved_by: Option<String>, program: String, duration_ms: f64,
    }

    /// Ask a person to let one exact command run that no rule lets through. Waits for the answer; if pending, call
    /// again. Then call host_exec with the same command and directory.
    "request_host_access" "Ask to run a host command" Host Reaches
    RequestHostAccess {
        /// The command, word for word.
        #[serde(alias = "command")]
        pattern: String,
        /// One sentence for the person.
        #[serde(alias = "justification")]
        reason: Option<String>,
        directory: Option<String>,
        /// At most 50.
        wait_seconds: Option<Whole>,
    } -> HostDecided {
        pattern: String,
        approved: bool,
        scope: Option<String>,
        /// Not answered yet.
        pending: bool,
        decided_by: Option<String>,
        expires_at: Option<String>,
    }

    /// List the forms of host commands and the host directories that are open to this namespace, and what was approved.
    "list_host_access" "List host access" Host Reads
    ListHostAccess {} -> HostAccess {
        rules: Vec<Object>, directories: Vec<Object>, approved: Vec<Object>, missing_walls: Vec<String>,
    }

    /// Read one file of the host, of up to 1 MiB, by its absolute path.
    "host_file_read" "Read a host file" Host Reads
    HostFileRead {
        path: String,
    } -> HostFile {
        path: String,
        content: Option<String>,
        /// Content that is not text.
        content_base64: Option<String>,
        size_bytes: u64,
        mode: String,
        redacted: bool,
    }

    /// Write one file of the host whole, by its absolute path. Answers with the change as a diff and an undo_id.
    "host_file_write" "Write a host file" Host Replaces
    HostFileWrite {
        path: String,
        content: String,
        /// Only show the change.
        preview: Option<bool>,
    } -> HostWritten { path: String, written: bool, diff: String, undo_id: Option<String>, sha256: String }

    /// List a directory of the host by its absolute path.
    "host_file_list" "List a host directory" Host Reads
    HostFileList {
        path: String,
    } -> HostListing {
        path: String,
        entries: Vec<Object>,
        /// There is more.
        cut: bool,
    }

    /// Copy one file of the host into the namespace's workspace, where programs with workspace "namespace" see it.
    "host_file_copy" "Copy a host file" Host Replaces
    HostFileCopy {
        /// Absolute, on the host.
        source: String,
        /// In the workspace, such as data/in.csv.
        destination: WorkspacePath,
    } -> HostCopied { source: String, destination: String, size_bytes: u64, sha256: String }
}
