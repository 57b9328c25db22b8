//! What lies at one path of a tree.

use super::{EntryKind, Timestamp, TreeEntry};
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
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

/// By what a live file is known: a program can set none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    pub(crate) ctime: Timestamp,
    inode: u64,
    device: u64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            ctime: Timestamp::of_change(stat),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }

    pub(crate) fn of_entry(entry: &TreeEntry) -> Self {
        Self {
            ctime: entry.ctime,
            inode: entry.inode,
            device: entry.device,
        }
    }
}

impl From<TreeEntry> for Node {
    fn from(entry: TreeEntry) -> Self {
        Self {
            stamp: Some(Stamp::of_entry(&entry)),
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
