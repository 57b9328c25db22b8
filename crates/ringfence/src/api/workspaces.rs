//! The files of a workspace, and its snapshots.

use super::{Object, operations};
use ringfence_types::SessionId;

operations! {
    /// Write one file into the namespace's workspace (see workspace of execute_code), or a session's.
    "put_file" "Write a file" Sessions Replaces
    PutFile {
        path: Option<String>,
        text: Option<String>,
        /// Instead of text.
        base64: Option<String>,
        /// base64 is a tar to unpack at path.
        archive: Option<bool>,
        session_id: Option<SessionId>,
    } -> Put { path: String, files: u64, size_bytes: u64, sha256: String }

    /// Replace a text that is once in a file of the namespace's workspace, or a session's.
    "edit_file" "Edit a file" Sessions Edits
    EditFile {
        path: String,
        old: String,
        new: String,
        /// Everywhere.
        all: Option<bool>,
        session_id: Option<SessionId>,
    } -> Edited { replaced: u64, sha256: String }

    /// Read one file of up to 4 MiB from the namespace's workspace, or a session's.
    "get_file" "Read a file" Sessions Reads
    GetFile {
        path: Option<String>,
        /// A directory, as tar.
        archive: Option<bool>,
        session_id: Option<SessionId>,
    } -> Got {
        path: String, size_bytes: u64, sha256: String, mode: Option<String>, modified_unix_ms: Option<i64>,
        text: Option<String>, base64: Option<String>, left_out: Vec<String>, left_out_count: u64,
    }

    /// List the files of the namespace's workspace, or a session's.
    "list_files" "List files" Sessions Reads
    ListFiles {
        /// A directory.
        path: Option<String>,
        session_id: Option<SessionId>,
    } -> Files { files: Vec<Object> }

    /// Save the files of the namespace's workspace, or a session's.
    "create_state_snapshot" "Save a workspace" Snapshots Adds
    CreateStateSnapshot {
        description: Option<String>,
        session_id: Option<SessionId>,
    } -> Made {
        snapshot_id: String, description: String, created: String, of: String, files: u64, size_bytes: u64,
        new_bytes: u64, stored_bytes: u64, left_out: Vec<String>, left_out_count: u64,
    }

    /// Put a workspace back as it was: later files are deleted, changed and deleted ones restored.
    "restore_state_snapshot" "Put a workspace back" Snapshots Replaces
    RestoreStateSnapshot {
        snapshot_id: String,
        session_id: Option<SessionId>,
    } -> Restored { snapshot_id: String, written: u64, deleted: u64, unchanged: u64 }

    /// List the namespace's snapshots, oldest first.
    "list_state_snapshots" "List saved workspaces" Snapshots Reads
    ListStateSnapshots {} -> Snapshots { snapshots: Vec<Object> }

    /// Delete a snapshot of the namespace for good.
    "delete_state_snapshot" "Delete a saved workspace" Snapshots Replaces
    DeleteStateSnapshot {
        snapshot_id: String,
    } -> Deleted { snapshot_id: String }

    /// Show what changed in a workspace since a snapshot, with diffs; files that the host may later run are flagged.
    "diff_workspace" "Show what has changed" Snapshots Reads
    DiffWorkspace {
        /// Default: the latest.
        snapshot_id: Option<String>,
        session_id: Option<SessionId>,
    } -> Difference {
        base: Option<String>, added: Vec<Object>, changed: Vec<Object>, deleted: Vec<Object>,
        conflicts: Vec<String>, truncated: bool,
    }
}
