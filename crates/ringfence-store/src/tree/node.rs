//! The entry at one path of a tree.

use super::{EntryKind, Stamp, Timestamp, TreeEntry};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: EntryKind,
    /// Permissions with set-id and sticky bits (`07777`).
    pub mode: u32,
    pub size: u64,
    /// Modification time; ignored by comparisons.
    pub mtime: Timestamp,
    /// SHA-256 of a file's content, if known; always known for a changed file.
    pub sha256: Option<[u8; 32]>,
    /// Stamp of a live file, None if only described. With equal stamps both sides are one file, which is not read.
    pub stamp: Option<Stamp>,
}

impl From<TreeEntry> for Node {
    fn from(entry: TreeEntry) -> Self {
        Self {
            stamp: Some(entry.stamp),
            kind: entry.kind,
            mode: entry.mode,
            size: entry.size,
            mtime: entry.mtime,
            sha256: None,
        }
    }
}

impl Node {
    pub(super) fn of_program(entry: TreeEntry) -> (PathBuf, Self) {
        let path = entry.path.clone();
        let is_hard_linked = entry.kind == EntryKind::File && entry.links > 1;
        let mut node = Self::from(entry);
        if is_hard_linked {
            node.kind = EntryKind::Other;
        }
        (path, node)
    }
}
