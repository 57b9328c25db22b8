//! The toolset `snapshots`.

use super::{Object, operations};
use ringfence_types::SessionId;

operations! {
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
