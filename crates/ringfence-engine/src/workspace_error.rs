//! The errors of workspaces, their files and snapshots, as callers see them.

use crate::{error::Result, store::fault};
use ringfence_store::{
    FileError,
    snapshots::{SnapshotError, SnapshotId},
    tree::TreeError,
};
use ringfence_types::{ErrorCode, RequestError};
use std::io;

pub(crate) fn of_tree(error: TreeError) -> RequestError {
    let new = |code, hint: &str| RequestError::new(code, format!("{error}."), hint);
    match &error {
        TreeError::Io(FileError { error: why, .. }) if is_denied(why) => new(ErrorCode::PolicyDenied, CLOSED),
        TreeError::NotFound(_) => new(ErrorCode::NotFound, "`list_files` names what is there."),
        TreeError::Refused { .. } => new(
            ErrorCode::PolicyDenied,
            "Only plain files with one name are read and replaced from outside; links are not followed.",
        ),
        TreeError::Path { .. } => new(
            ErrorCode::InvalidArgument,
            "Name it below the workspace, as data/in.csv.",
        ),
        TreeError::TooMany { .. } | TreeError::TooDeep { .. } | TreeError::TooSlow { .. } => new(
            ErrorCode::InvalidArgument,
            "Name a directory further down, or remove some files.",
        ),
        TreeError::Owner { .. } => new(
            ErrorCode::PolicyDenied,
            "Run the server as the directory's owner, or give it CAP_SETUID and CAP_SETGID.",
        ),
        TreeError::TooLarge { .. } => new(ErrorCode::InvalidArgument, "Use smaller pieces."),
        TreeError::Stale(_) => new(
            ErrorCode::Busy,
            "It has changed since it was looked at; nothing was written. Look again.",
        ),
        TreeError::Io(FileError { error: io, .. }) if is_full(io) => new(ErrorCode::PolicyDenied, FULL),
        TreeError::Io(_) => fault(error),
    }
}

/// The hint for a file or directory that cannot be opened.
const CLOSED: &str = "It is closed to the owner of the workspace: have a program open it again (`chmod -R u+rwX .`), or restore a snapshot; what is another user's stays closed.";

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The hint for a full disk, also below the workspace's limit.
pub(crate) const FULL: &str = "The disk of the workspace is full: what is replaced takes room until the new is whole. Remove something, or ask for more `max_disk_mb`.";

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

pub(crate) fn of_snapshot(error: SnapshotError) -> RequestError {
    let new = |code, hint: &str| RequestError::new(code, format!("{error}."), hint);
    match &error {
        SnapshotError::NotFound(_) => no_snapshot(),
        SnapshotError::NoFile(_) => new(ErrorCode::NotFound, "`diff_workspace` names its files."),
        SnapshotError::TooMany { .. } | SnapshotError::TooLarge { .. } | SnapshotError::Full { .. } => new(
            ErrorCode::PolicyDenied,
            "Delete snapshots that are no longer needed, or have the operator raise `snapshots.max` and `snapshots.max_mb`.",
        ),
        SnapshotError::StoreFull { .. } => new(
            ErrorCode::PolicyDenied,
            "Delete snapshots that are no longer needed, or have the operator raise `snapshots.total_mb`.",
        ),
        SnapshotError::Changed { .. } | SnapshotError::Busy => {
            let mut busy = new(
                ErrorCode::Busy,
                "Try again when less is going on in the workspace.",
            );
            busy.retry_after_ms = Some(1000);
            busy
        }
        SnapshotError::InUse(_) => new(
            ErrorCode::Busy,
            "Use its workspace once, which completes the restore.",
        ),
        SnapshotError::Linked { .. } | SnapshotError::Refused(_) => {
            new(ErrorCode::InvalidArgument, "See what the message names.")
        }
        SnapshotError::Damaged { .. } => new(
            ErrorCode::StoreFault,
            "It is not given out; the operator can delete it with `ringfence snapshot delete`.",
        ),
        SnapshotError::Unfinished { .. } => new(
            ErrorCode::StoreFault,
            "Restore another snapshot with `restore_state_snapshot`, or delete this one; the workspace is usable again then.",
        ),
        // Paths of the store are absolute; relative ones are in the workspace.
        SnapshotError::Io(FileError { path, .. }) if error.is_no_space() && path.is_relative() => {
            new(ErrorCode::PolicyDenied, FULL)
        }
        SnapshotError::Io(FileError { path, error: why, .. }) if is_denied(why) && path.is_relative() => {
            new(ErrorCode::PolicyDenied, CLOSED)
        }
        SnapshotError::Io(_) if error.is_no_space() => disk_full(),
        SnapshotError::Io(_) => fault(error),
    }
}

fn no_snapshot() -> RequestError {
    RequestError::not_found(
        "there is no such snapshot in this namespace.",
        "`list_state_snapshots` names those there are.",
    )
}

/// Parses the id of a snapshot. An invalid id is answered like one that does not exist.
pub(crate) fn snapshot_id(id: &str) -> Result<SnapshotId> {
    id.parse().map_err(|_| no_snapshot())
}

/// The error for a full file system of the host, independent of limits.
pub(crate) fn disk_full() -> RequestError {
    RequestError::store_fault(
        "the disk of the server is full.",
        "The operator makes room on it; nothing was written.",
    )
}
