//! Saved workspaces: contents in chunks, each stored once per namespace, and one signed manifest per snapshot.
//!
//! ```text
//! <directory>/                      mode 0700
//!   namespaces/<namespace>/         namespaces share nothing, so that the time and the space that a snapshot takes
//!                                   reveal nothing about the contents of other tenants
//!     packs/<random>.pack           chunks (`blobs::pack`)
//!     manifests/<id>                signed (list.rs)
//!     list                          signed: the manifests and their digests
//!     lock, list.lock
//!   journals/<inode>-<device>       a restore in progress or interrupted
//! ```
//!
//! Invariants: a pack, manifest or list is written once and renamed into place when it is on the disk; a manifest is
//! valid only if the signed list has its digest, a chunk only if its bytes have the digest in the manifest; a
//! collection runs alone and marks from the manifests, so it never removes chunks of a snapshot, finished or in
//! progress. Workspaces are untrusted directories, passed as descriptors; the rules of [`crate::tree`] apply.
//!
//! A file with several hard links is saved as one file for each; a file with a hard link outside the workspace is
//! refused. FIFOs, sockets, devices and files that their owner cannot read are left out and reported. Owners, access
//! times, extended attributes and set-id bits are not kept. A program can write to a mapped file for a while without
//! changing its times; for an exact state, take the snapshot while no program runs.

mod collect;
mod content;
mod create;
mod error;
mod export;
mod layout;
mod list;
mod manifest;
mod restore;

pub use collect::Collected;
pub use error::SnapshotError;
pub use list::ListedSnapshot;
pub use manifest::{FileContent, Snapshot, SnapshotEntry, SnapshotKind};
pub use restore::{Restored, Resumed};

use crate::Signer;
use layout::{NamespaceDir, SnapshotsDir};
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

pub const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The id of a snapshot: a UUID of version 7, so that ids sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(uuid::Uuid);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl std::str::FromStr for SnapshotId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = uuid::Uuid::try_parse(text).ok().map(Self);
        // Only the canonical spelling: the id is also a file name.
        let plain = parsed.filter(|id| id.to_string() == text);
        plain.ok_or_else(|| "a snapshot's id is a UUID in lower case with hyphens".to_owned())
    }
}

impl TryFrom<String> for SnapshotId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SnapshotId> for String {
    fn from(id: SnapshotId) -> Self {
        id.to_string()
    }
}

/// A store of snapshots. Any number of threads and processes may have the same directory open.
#[derive(Debug)]
pub struct SnapshotStore {
    layout: SnapshotsDir,
    signer: Signer,
    limits: SnapshotLimits,
}

/// Limits of a store. Snapshots over a limit are refused; no snapshot is deleted to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Files, directories and symbolic links of one snapshot.
    pub entries: usize,
    /// Total size of the files of one snapshot, holes included.
    pub bytes: u64,
    /// Disk space of all snapshots of a namespace.
    pub stored_bytes: u64,
    /// Disk space of the snapshots of all namespaces together.
    pub total_bytes: u64,
    pub snapshots: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Namespace,
    /// The workspace of the session with this id: 1 to 64 letters, digits or `-`.
    Session(String),
}

#[derive(Clone, Debug)]
pub struct About {
    pub namespace: Namespace,
    pub description: String,
    pub source: Source,
    pub time_unix_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: SnapshotId,
    pub files: u64,
    /// Total size of the files, holes included.
    pub bytes: u64,
    /// The bytes among these that no other snapshot of the namespace had.
    pub new_bytes: u64,
    /// Disk space of the new bytes and of the manifest.
    pub stored_bytes: u64,
    pub left_out: Vec<LeftOut>,
}

/// A path that was not saved; a restore removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub path: PathBuf,
    pub reason: LeftOutReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A FIFO, a socket, a device or a mount point.
    Special,
    Unreadable,
}

impl SnapshotLimits {
    fn too_large(self) -> SnapshotError {
        SnapshotError::too_large("the workspace", self.bytes)
    }

    fn check_room(self, own: u64, others: u64) -> Result<(), SnapshotError> {
        let (stored, total) = (self.stored_bytes, self.total_bytes);
        if own > stored {
            return Err(SnapshotError::Full { limit: stored });
        }
        if own.saturating_add(others) > total {
            return Err(SnapshotError::StoreFull { limit: total });
        }
        Ok(())
    }
}

impl SnapshotStore {
    /// Opens the store; creates it (mode 0700) if it is missing. A directory that other users may enter is refused.
    pub fn open(directory: PathBuf, signer: Signer, limits: SnapshotLimits) -> Result<Self, SnapshotError> {
        let layout = SnapshotsDir::open(directory)?;
        restore::remove_orphaned_journals(&layout.journals, None)?;
        Ok(Self {
            layout,
            signer,
            limits,
        })
    }

    pub fn stored_bytes(&self, namespace: &Namespace) -> Result<u64, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(dir) => Ok(dir.stored_bytes()?),
            None => Ok(0),
        }
    }

    pub fn list(&self, namespace: &Namespace) -> Result<Vec<ListedSnapshot>, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(dir) => list::read(&dir, &self.signer.public_key()),
            None => Ok(Vec::new()),
        }
    }

    /// Reads a manifest, digest and signature checked. Another namespace's is `NotFound`: no tenant learns of it.
    pub fn manifest(&self, id: SnapshotId, namespace: &Namespace) -> Result<Snapshot, SnapshotError> {
        let dir = self.namespace_dir(id, namespace)?;
        let _lock = dir.lock_shared()?;
        self.find(&dir, id)
    }

    /// Deletes a snapshot; this or a later collection removes chunks that no other needs, even if another snapshot is
    /// damaged. Errors: `NotFound`, `InUse`.
    pub fn delete(&self, id: SnapshotId, namespace: &Namespace) -> Result<(), SnapshotError> {
        let dir = self.namespace_dir(id, namespace)?;
        self.remove_from_list(&dir, id)?;
        self.clean_up(namespace);
        Ok(())
    }

    fn remove_from_list(&self, dir: &NamespaceDir, id: SnapshotId) -> Result<(), SnapshotError> {
        // The same order of locks everywhere. No restore begins while the list is locked.
        let _lock = dir.lock_shared()?;
        let _list_lock = dir.lock_list()?;
        let mut list = list::read(dir, &self.signer.public_key())?;
        let before = list.len();
        list.retain(|listed| listed.id != id);
        if list.len() == before {
            return Err(SnapshotError::NotFound(id));
        }
        restore::expect_unused(&self.layout.journals, id)?;
        list::write(dir, &self.signer, &list)
    }

    fn namespace_dir(&self, id: SnapshotId, namespace: &Namespace) -> Result<NamespaceDir, SnapshotError> {
        let dir = self.layout.find(namespace)?;
        dir.ok_or(SnapshotError::NotFound(id))
    }

    fn listed(&self, dir: &NamespaceDir, id: SnapshotId) -> Result<ListedSnapshot, SnapshotError> {
        let list = list::read(dir, &self.signer.public_key())?;
        let found = list.into_iter().find(|listed| listed.id == id);
        found.ok_or(SnapshotError::NotFound(id))
    }

    /// Reads a manifest. The caller holds the lock.
    fn find(&self, dir: &NamespaceDir, id: SnapshotId) -> Result<Snapshot, SnapshotError> {
        let listed = self.listed(dir, id)?;
        Snapshot::read(dir, id, &listed.digest, &self.signer.public_key())
    }
}

#[cfg(test)]
mod tests {
    pub(super) mod crash;
    mod fixture;
    mod measure;
    mod property;
    mod stories;
    mod tamper;
}
