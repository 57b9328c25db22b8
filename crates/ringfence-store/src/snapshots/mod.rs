//! Saved workspaces: contents in chunks, each stored once in its namespace, and one signed manifest for each snapshot.
//!
//! ```text
//! <directory>/                      mode 0700
//!   namespaces/<namespace>/         nothing is shared between namespaces, so that the time and the room that a
//!                                   snapshot takes do not tell a tenant what others have
//!     packs/<random>.pack           chunks (`blobs::pack`)
//!     manifests/<id>                signed (sealed.rs)
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
mod id;
mod layout;
mod list;
mod manifest;
mod restore;
mod sealed;

pub use collect::Collected;
pub use error::SnapshotError;
pub use id::SnapshotId;
pub use list::ListedSnapshot;
pub use manifest::{FileContent, Snapshot, SnapshotEntry, SnapshotKind, Source};
pub use restore::{Restored, Resumed};

use crate::{
    Signer,
    blobs::pack::{Index, PackReader},
};
use layout::{NamespaceDir, SnapshotsDir};
use restore::Lifetime;
use ringfence_types::Namespace;
use std::{
    fmt, io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

/// The longest description.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
const SESSION_ID_BYTES_MAX: usize = 64;

/// The store. Any number of threads and processes may have the same directory open.
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

/// Whose snapshot is made.
#[derive(Clone, Debug)]
pub struct About {
    pub namespace: Namespace,
    /// At most 1024 bytes.
    pub description: String,
    pub source: Source,
    pub time_unix_ms: u64,
}

/// What was saved.
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

/// Why something is not in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A FIFO, a socket, a device, or another mount.
    Special,
    /// A file that this user may not read.
    Unreadable,
}

impl SnapshotLimits {
    fn too_large(self) -> SnapshotError {
        SnapshotError::TooLarge {
            what: "the workspace",
            limit: self.bytes,
        }
    }

    /// Is there room for so much of one namespace, beside what the others have.
    fn check_room(self, own: u64, others: u64) -> Result<(), SnapshotError> {
        if own > self.stored_bytes {
            return Err(SnapshotError::Full {
                limit: self.stored_bytes,
            });
        }
        if own.saturating_add(others) > self.total_bytes {
            return Err(SnapshotError::StoreFull {
                limit: self.total_bytes,
            });
        }
        Ok(())
    }
}

impl fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotStore").field(&self.layout.path()).finish()
    }
}

impl SnapshotStore {
    /// Opens the store, which is made (mode 0700) when there is none. A directory that others may enter is refused.
    pub fn open(directory: PathBuf, signer: Signer, limits: SnapshotLimits) -> Result<Self, SnapshotError> {
        let layout = SnapshotsDir::open(directory)?;
        restore::forget_the_dead(&layout)?;
        Ok(Self {
            layout,
            signer,
            limits,
        })
    }

    fn public_key(&self) -> [u8; 32] {
        self.signer.public_key()
    }

    /// Saves the workspace. An interrupted restore of it is resumed first. What a failure has written is collected.
    /// Errors: `TooMany`, `TooLarge`, `Full`, `StoreFull`, `Changed` for a file that is written to all the time,
    /// `Linked`, `Refused`.
    pub fn create(&self, root: BorrowedFd<'_>, about: About) -> Result<Created, SnapshotError> {
        check(&about)?;
        self.resume(root)?;
        let namespace = about.namespace.clone();
        let before = self.stored_bytes(&namespace)?;
        let first = create::create(self, root, about.clone());
        let Err(SnapshotError::Full { .. } | SnapshotError::StoreFull { .. }) = first else {
            return first.inspect_err(|_| self.clean_up(&namespace));
        };
        self.clean_up(&namespace);
        if self.stored_bytes(&namespace)? >= before {
            return first;
        }
        // The collection has made room.
        create::create(self, root, about).inspect_err(|_| self.clean_up(&namespace))
    }

    /// What a namespace's take of the disk.
    pub fn stored_bytes(&self, namespace: &Namespace) -> Result<u64, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => Ok(place.stored_bytes()?),
            None => Ok(0),
        }
    }

    fn clean_up(&self, namespace: &Namespace) {
        match self.collect(namespace) {
            Ok(collected) if !collected.busy => {}
            Ok(_) => tracing::debug!("what a failed snapshot has written stays until the next collection"),
            Err(error) => tracing::warn!(%error, "what a failed snapshot has written was not collected"),
        }
    }

    /// Makes the workspace what the snapshot says: what is not in it is deleted, what differs is written, and every
    /// time and mode is restored; set-id bits never. All of it or nothing, also through a crash: see
    /// [`Self::resume`]. Errors: `NotFound`, `Damaged`, `Busy`, and `Io` that [`SnapshotError::is_no_space`] with the
    /// workspace as it was.
    pub fn restore(
        &self,
        id: SnapshotId,
        namespace: &Namespace,
        root: BorrowedFd<'_>,
    ) -> Result<Restored, SnapshotError> {
        restore::restore(self, id, namespace, root, Lifetime::Permanent)
    }

    /// The same for the workspace of a session, which ends with this process: its restore is never resumed.
    pub fn restore_session(
        &self,
        id: SnapshotId,
        namespace: &Namespace,
        root: BorrowedFd<'_>,
    ) -> Result<Restored, SnapshotError> {
        restore::restore(self, id, namespace, root, Lifetime::Process)
    }

    /// Ends what a crash interrupted: to be called whenever a workspace is opened, before any program sees it. None:
    /// nothing was interrupted.
    pub fn resume(&self, root: BorrowedFd<'_>) -> Result<Option<Resumed>, SnapshotError> {
        restore::resume(self, root)
    }

    /// Ends an interrupted restore for good: completes it, or gives it up where its snapshot is damaged or gone. What
    /// it has changed by then stays as it is.
    pub fn settle(&self, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
        restore::settle(self, root)
    }

    /// Gives up an interrupted restore: to be called before a workspace is deleted, and when a session ends.
    pub fn forget(&self, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
        restore::forget(self, root)
    }

    /// The snapshots of a namespace, oldest first.
    pub fn list(&self, namespace: &Namespace) -> Result<Vec<ListedSnapshot>, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => list::read(&place, &self.public_key()),
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

    /// The content of a file, each chunk checked. Errors: `NoFile`, `TooLarge`, `Damaged`; `NotFound` when the snapshot
    /// was deleted since.
    pub fn read(&self, snapshot: &Snapshot, path: &Path, bytes_max: u64) -> Result<Vec<u8>, SnapshotError> {
        let place = self.place(snapshot.id, &snapshot.namespace)?;
        let _lock = place.lock_shared()?;
        self.listed(&place, snapshot.id)?;
        let index = Index::read(&place.packs)?;
        let entry = snapshot.entry(path).map(|entry| &entry.kind);
        let Some(SnapshotKind::File(content)) = entry else {
            return Err(SnapshotError::NoFile(path.to_owned()));
        };
        export::content(
            &mut PackReader::new(&place.packs, &index),
            content,
            path,
            bytes_max,
        )
    }

    /// The whole snapshot as one JSON text, a file at a time. Contents are UTF-8 text (`content`) or base64
    /// (`content_b64`). More than `bytes_max` bytes of content are refused before anything is written.
    pub fn export(
        &self,
        id: SnapshotId,
        namespace: &Namespace,
        bytes_max: u64,
        writer: impl io::Write,
    ) -> Result<(), SnapshotError> {
        let place = self.place(id, namespace)?;
        let _lock = place.lock_shared()?;
        let snapshot = self.find(&place, id)?;
        let index = Index::read(&place.packs)?;
        export::export(
            &mut PackReader::new(&place.packs, &index),
            &snapshot,
            bytes_max,
            writer,
        )
    }

    /// Deletes a snapshot; what no other snapshot needs of it goes with the collection that follows, or a later one.
    /// Errors: `NotFound`, `InUse`.
    pub fn delete(&self, id: SnapshotId, namespace: &Namespace) -> Result<(), SnapshotError> {
        let place = self.place(id, namespace)?;
        self.take_off_the_list(&place, id)?;
        collect::collect(self, &place)?;
        Ok(())
    }

    fn take_off_the_list(&self, place: &NamespaceDir, id: SnapshotId) -> Result<(), SnapshotError> {
        // In this order everywhere. No restore begins while the list is locked.
        let _lock = place.lock_shared()?;
        let _list_lock = place.lock_list()?;
        restore::expect_unused(self, id)?;
        let mut list = list::read(place, &self.public_key())?;
        let before = list.len();
        list.retain(|listed| listed.id != id);
        if list.len() == before {
            return Err(SnapshotError::NotFound(id));
        }
        list::write(place, &self.signer, &list)
    }

    /// Removes what no snapshot of the namespace needs. When one is made or read at this moment, nothing is done
    /// and [`Collected::busy`] says so.
    pub fn collect(&self, namespace: &Namespace) -> Result<Collected, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => collect::collect(self, &place),
            None => Ok(Collected::default()),
        }
    }

    fn place(&self, id: SnapshotId, namespace: &Namespace) -> Result<NamespaceDir, SnapshotError> {
        let place = self.layout.find(namespace)?;
        place.ok_or(SnapshotError::NotFound(id))
    }

    fn listed(&self, place: &NamespaceDir, id: SnapshotId) -> Result<ListedSnapshot, SnapshotError> {
        let list = list::read(place, &self.public_key())?;
        let found = list.into_iter().find(|listed| listed.id == id);
        found.ok_or(SnapshotError::NotFound(id))
    }

    /// The caller holds the lock.
    fn find(&self, place: &NamespaceDir, id: SnapshotId) -> Result<Snapshot, SnapshotError> {
        let listed = self.listed(place, id)?;
        Snapshot::read(place, id, &listed.digest, &self.public_key())
    }
}

fn check(about: &About) -> Result<(), SnapshotError> {
    if about.description.len() > DESCRIPTION_BYTES_MAX {
        return Err(SnapshotError::Refused(format!(
            "a description has at most {DESCRIPTION_BYTES_MAX} bytes"
        )));
    }
    let Source::Session(id) = &about.source else {
        return Ok(());
    };
    let plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if plain && (1..=SESSION_ID_BYTES_MAX).contains(&id.len()) {
        return Ok(());
    }
    Err(SnapshotError::Refused(format!(
        "a session's id is 1 to {SESSION_ID_BYTES_MAX} letters, digits or `-`"
    )))
}

#[cfg(test)]
mod tests {
    mod crash;
    mod fixture;
    mod measure;
    mod property;
    mod stories;
    mod tamper;
}
