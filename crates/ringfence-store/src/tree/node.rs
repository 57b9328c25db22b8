//! What lies at one path of a tree.

use super::{EntryKind, Stamp, Timestamp, TreeEntry};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: EntryKind,
    /// Permissions with set-id and sticky bits (`07777`).
    pub mode: u32,
    pub size: u64,
    /// Not a difference by itself.
    pub mtime: Timestamp,
    /// Of a file's content, when it is known; that of a changed file always is.
    pub sha256: Option<[u8; 32]>,
    /// The same on both sides: it is the same file, and nothing is read. None for what is no live file.
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
        let second_name = entry.kind == EntryKind::File && entry.links > 1;
        let mut node = Self::from(entry);
        if second_name {
            node.kind = EntryKind::Other;
        }
        (path, node)
    }
}
