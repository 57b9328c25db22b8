//! The toolset `snapshots`.

use super::{Object, operation, response};
use ringfence_types::SessionId;
use schemars::JsonSchema;
use serde::Deserialize;

/// Save the files of the namespace's workspace, or a session's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateStateSnapshot {
    pub(crate) description: Option<String>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(CreateStateSnapshot => Made, "create_state_snapshot", "Save a workspace", Snapshots, Adds);

response!(Made {
    snapshot_id: String,
    description: String,
    created: String,
    of: String,
    files: u64,
    size_bytes: u64,
    new_bytes: u64,
    stored_bytes: u64,
    left_out: Vec<String>,
    left_out_count: u64,
});

/// Put a workspace back as it was: later files are deleted, changed and deleted ones restored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreStateSnapshot {
    pub(crate) snapshot_id: String,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(RestoreStateSnapshot => Restored, "restore_state_snapshot", "Put a workspace back", Snapshots, Replaces);

response!(Restored {
    snapshot_id: String,
    written: u64,
    deleted: u64,
    unchanged: u64
});

/// List the namespace's snapshots, oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListStateSnapshots {}
operation!(ListStateSnapshots => Snapshots, "list_state_snapshots", "List saved workspaces", Snapshots, Reads);

response!(Snapshots { snapshots: Vec<Object> });

/// Delete a snapshot of the namespace for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteStateSnapshot {
    pub(crate) snapshot_id: String,
}
operation!(DeleteStateSnapshot => Deleted, "delete_state_snapshot", "Delete a saved workspace", Snapshots, Replaces);

response!(Deleted { snapshot_id: String });

/// Show what changed in a workspace since a snapshot, with diffs; files that the host may later run are flagged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffWorkspace {
    /// Default: the latest.
    pub(crate) snapshot_id: Option<String>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(DiffWorkspace => Difference, "diff_workspace", "Show what has changed", Snapshots, Reads);

response!(Difference {
    base: Option<String>,
    added: Vec<Object>,
    changed: Vec<Object>,
    deleted: Vec<Object>,
    conflicts: Vec<String>,
    truncated: bool,
});
