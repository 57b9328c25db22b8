//! Saved workspaces: contents in chunks, each stored once in its namespace, and one signed manifest for each snapshot.
//!
//! ```text
//! <directory>/                      mode 0700
//!   namespaces/<namespace>/         nothing is shared between namespaces, so that the time and the room that a
//!                                   snapshot takes do not tell a tenant what others have
//!     packs/<random>.pack           chunks (`blobs::pack`)
//!     manifests/<id>                signed (list.rs)
//!     list                          signed: which manifests there are, with their digests
//!     lock, list.lock
//!   journals/<inode>-<device>       a restore at work, or one that was interrupted
//! ```
//!
//! Invariants: a file of the store is written once, and renamed into place when it is on the disk; a manifest counts
//! only when the signed list has its digest, a chunk only when its bytes have the digest that the manifest names; a
//! collection runs alone and marks from the manifests, so it never takes what a snapshot needs or one that is being
//! made. Workspaces are directories that a stranger writes: they are given as descriptors, and the rules of
//! [`crate::tree`] hold.
//!
//! A file with several names becomes one file for each; one that has a name outside of the workspace is refused.
//! FIFOs, sockets, devices and files that their owner cannot read are left out and named. Owners, access times,
//! extended attributes and set-id bits are not kept. A program that has a file mapped can write to it without a trace
//! in its times for a while; for the exact state, take the snapshot while nothing runs.

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

/// The name of a snapshot: a UUID of version 7, so that names sort by time.
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
        // One spelling only: the id is a file's name.
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

/// The store. Any number of threads and processes may have the same directory open.
#[derive(Debug)]
pub struct SnapshotStore {
    layout: SnapshotsDir,
    signer: Signer,
    limits: SnapshotLimits,
}

/// What is refused. No snapshot is deleted to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Files, directories and links of one snapshot.
    pub entries: usize,
    /// Of all files of one snapshot, holes included.
    pub bytes: u64,
    /// What all snapshots of a namespace take on the disk.
    pub stored_bytes: u64,
    /// What those of all namespaces take together.
    pub total_bytes: u64,
    pub snapshots: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Namespace,
    /// The one of a session: its id, 1 to 64 letters, digits or `-`.
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
    /// Of all files, holes included.
    pub bytes: u64,
    /// Of these, what no other snapshot of the namespace had.
    pub new_bytes: u64,
    /// What that takes on the disk, with the manifest.
    pub stored_bytes: u64,
    pub left_out: Vec<LeftOut>,
}

/// Something that is not in the snapshot; a restore removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub path: PathBuf,
    pub reason: LeftOutReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A FIFO, a socket, a device, or another mount.
    Special,
    Unreadable,
}

impl SnapshotLimits {
    fn too_large(self) -> SnapshotError {
        SnapshotError::too_large("the workspace", self.bytes)
    }

    /// Whether there is room for so much of one namespace, beside what the others have.
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
    /// Opens the store, which is made (mode 0700) if it is missing. A directory that others may enter is refused.
    pub fn open(directory: PathBuf, signer: Signer, limits: SnapshotLimits) -> Result<Self, SnapshotError> {
        let layout = SnapshotsDir::open(directory)?;
        restore::forget_the_dead(&layout.journals)?;
        Ok(Self {
            layout,
            signer,
            limits,
        })
    }

    /// What a namespace's take of the disk.
    pub fn stored_bytes(&self, namespace: &Namespace) -> Result<u64, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => Ok(place.stored_bytes()?),
            None => Ok(0),
        }
    }

    pub fn list(&self, namespace: &Namespace) -> Result<Vec<ListedSnapshot>, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => list::read(&place, &self.signer.public_key()),
            None => Ok(Vec::new()),
        }
    }

    /// The manifest, its digest and signature checked. Another namespace's is `NotFound`, so that no tenant learns what
    /// others have.
    pub fn manifest(&self, id: SnapshotId, namespace: &Namespace) -> Result<Snapshot, SnapshotError> {
        let place = self.place(id, namespace)?;
        let _lock = place.lock_shared()?;
        self.find(&place, id)
    }

    /// Deletes a snapshot; what no other snapshot needs of it goes with the collection that follows, or a later one.
    /// Errors: `NotFound`, `InUse`.
    pub fn delete(&self, id: SnapshotId, namespace: &Namespace) -> Result<(), SnapshotError> {
        let place = self.place(id, namespace)?;
        self.take_off_the_list(&place, id)?;
        self.collect_in(&place).map(drop)
    }

    fn take_off_the_list(&self, place: &NamespaceDir, id: SnapshotId) -> Result<(), SnapshotError> {
        // In this order everywhere. No restore begins while the list is locked.
        let _lock = place.lock_shared()?;
        let _list_lock = place.lock_list()?;
        restore::expect_unused(&self.layout.journals, id)?;
        let mut list = list::read(place, &self.signer.public_key())?;
        let before = list.len();
        list.retain(|listed| listed.id != id);
        if list.len() == before {
            return Err(SnapshotError::NotFound(id));
        }
        list::write(place, &self.signer, &list)
    }

    fn place(&self, id: SnapshotId, namespace: &Namespace) -> Result<NamespaceDir, SnapshotError> {
        let place = self.layout.find(namespace)?;
        place.ok_or(SnapshotError::NotFound(id))
    }

    fn listed(&self, place: &NamespaceDir, id: SnapshotId) -> Result<ListedSnapshot, SnapshotError> {
        let list = list::read(place, &self.signer.public_key())?;
        let found = list.into_iter().find(|listed| listed.id == id);
        found.ok_or(SnapshotError::NotFound(id))
    }

    /// The caller holds the lock.
    fn find(&self, place: &NamespaceDir, id: SnapshotId) -> Result<Snapshot, SnapshotError> {
        let listed = self.listed(place, id)?;
        Snapshot::read(place, id, &listed.digest, &self.signer.public_key())
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
