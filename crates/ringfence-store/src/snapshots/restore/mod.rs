//! Restoring a workspace from a snapshot, all or nothing.
//!
//! 1. A journal outside the workspace records that a restore begins.
//! 2. The workspace is compared with the manifest; nothing in it is changed.
//! 3. All new entries are staged below the workspace, in `.ringfence-restore-<random>`, and synced. If the disk is
//!    full, this step fails, the staging directory is removed, and the workspace is unchanged; its own directory gets
//!    the permissions of its owner (0700) where they were missing.
//! 4. The journal records that the restore is decided. Then unwanted entries are moved into the staging directory, new
//!    ones are moved into place, times and modes are set, those of directories last, and everything is synced.
//! 5. The journal records that only the staging directory is left to remove.
//!
//! A server that runs as root does all of this as the owner of the workspace, as [`crate::tree`] does; it opens the
//! store's own files as root.
//!
//! After a crash, [`SnapshotStore::resume`] undoes a restore that was not decided and repeats one that was: restoring a
//! half restored workspace is an ordinary restore.

mod apply;
mod compare;
mod journal;
mod stage;
mod step;

use super::{Snapshot, SnapshotError, SnapshotId, SnapshotStore, Source, manifest::MODE_MASK};
use crate::{
    blobs::pack::{Index, PackReader},
    tree::Timestamp,
};
use journal::{Journal, RestoreStage};
pub(super) use journal::{expect_unused, remove_orphaned_journals};
use ringfence_types::Namespace;
use rustix::fs::AtFlags;
use stage::Staging;
use std::os::fd::BorrowedFd;

/// The permissions that the owner of a workspace needs to work in it.
const OWNER: u32 = 0o700;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Files, directories and links that were created or replaced.
    pub written: u64,
    pub deleted: u64,
    /// Files, directories and links with the right content; times and modes may have been corrected.
    pub unchanged: u64,
    /// Bytes of the written files, without holes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The restore had not been decided: the workspace is as it was before.
    Undone(SnapshotId),
    /// The restore had been decided: the workspace is now as in the snapshot.
    Done(SnapshotId, Restored),
}

impl SnapshotStore {
    /// Restores the workspace from the snapshot: deletes what is not in it, writes what differs, and sets every time
    /// and mode, but never set-id bits. All or nothing, also through a crash: see [`Self::resume`]. Errors: `NotFound`,
    /// `Damaged`, `Busy`, and `Io`, the workspace unchanged if [`SnapshotError::is_no_space`]. The workspace of a
    /// session ends with this process: no later one resumes its restore.
    pub fn restore(
        &self,
        into: &Source,
        id: SnapshotId,
        namespace: &Namespace,
        root: BorrowedFd<'_>,
    ) -> Result<Restored, SnapshotError> {
        let dir = self.namespace_dir(id, namespace)?;
        match self.resume(root) {
            // This restore replaces one that cannot be completed.
            Err(SnapshotError::Unfinished { id: lost, .. }) if lost != id => self.settle(root)?,
            resumed => drop(resumed?),
        }
        let _lock = dir.lock_shared()?;
        let (snapshot, journal) = {
            // The snapshot must not be deleted after the list is read and before the journal names it.
            let _list_lock = dir.lock_list()?;
            let snapshot = self.find(&dir, id)?;
            let journal = Journal::begin(&self.layout.journals, root, &snapshot, into)?;
            (snapshot, journal)
        };
        step::reached();
        let staging = journal.record.staging.clone();
        let staged = Index::read(&dir.packs)
            .map_err(SnapshotError::from)
            .and_then(|index| {
                let mut reader = PackReader::new(&dir.packs, &index);
                stage_all(root, &snapshot, &mut reader, &staging)
            });
        match staged {
            Ok(staged) => decide(root, &snapshot, journal, staged),
            Err(error) => {
                undo(root, journal)?;
                Err(error)
            }
        }
    }

    /// Ends a restore that a crash interrupted, if any. Call it when a workspace is opened, before any program sees it.
    pub fn resume(&self, root: BorrowedFd<'_>) -> Result<Option<Resumed>, SnapshotError> {
        let Some(journal) = Journal::find(&self.layout.journals, root)? else {
            return Ok(None);
        };
        let id = journal.record.snapshot;
        if journal.stage == RestoreStage::Staging {
            undo(root, journal)?;
            return Ok(Some(Resumed::Undone(id)));
        }
        match self.complete(root, journal) {
            Err(error @ (SnapshotError::Damaged { .. } | SnapshotError::NotFound(_))) => {
                let error = Box::new(error);
                Err(SnapshotError::Unfinished { id, error })
            }
            restored => Ok(Some(Resumed::Done(id, restored?))),
        }
    }

    fn complete(&self, root: BorrowedFd<'_>, journal: Journal<'_>) -> Result<Restored, SnapshotError> {
        let id = journal.record.snapshot;
        let dir = self.namespace_dir(id, &journal.record.namespace)?;
        let _lock = dir.lock_shared()?;
        let snapshot = self.find(&dir, id)?;
        if journal.stage == RestoreStage::Finishing {
            return Ok(Restored {
                deleted: finish(root, &snapshot, journal)?,
                ..Restored::default()
            });
        }
        let index = Index::read(&dir.packs)?;
        let mut reader = PackReader::new(&dir.packs, &index);
        // Entries that were staged and not moved free their space before they are staged again.
        let staging = journal.record.staging.clone();
        stage::clear(root, &staging)?;
        let staged = stage_all(root, &snapshot, &mut reader, &staging)?;
        decide(root, &snapshot, journal, staged)
    }

    /// Completes an interrupted restore, or abandons it, with its changes so far, if its snapshot is damaged or gone.
    pub fn settle(&self, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
        match self.resume(root) {
            Err(SnapshotError::Unfinished { .. }) => {}
            resumed => return resumed.map(drop),
        }
        if let Some(journal) = Journal::find(&self.layout.journals, root)? {
            stage::clear(root, &journal.record.staging)?;
            journal.remove()?;
        }
        Ok(())
    }

    /// Abandons interrupted restores of this snapshot into workspaces that are no longer its namespace's. Call it after
    /// [`Self::settle`].
    pub fn abandon(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        remove_orphaned_journals(&self.layout.journals, Some(id))
    }

    /// Abandons an interrupted restore. Call it before a workspace is deleted and when a session ends.
    pub fn forget(&self, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
        let left = Journal::find(&self.layout.journals, root)?;
        Ok(left.map_or(Ok(()), Journal::remove)?)
    }
}

struct Staged<'a> {
    staging: Staging<'a>,
    plan: compare::Plan<'a>,
    bytes: u64,
}

fn stage_all<'a>(
    root: BorrowedFd<'a>,
    snapshot: &'a Snapshot,
    reader: &mut PackReader<'_>,
    staging: &'a str,
) -> Result<Staged<'a>, SnapshotError> {
    // A program may have removed the owner's own permissions.
    set_root_mode(root, |mode| mode | OWNER)?;
    let plan = compare::compare(root, snapshot, staging)?;
    step::reached();
    let mut staging = Staging::make(root, staging)?;
    step::reached();
    let bytes = staging.fill(&plan.make, reader)?;
    Ok(Staged { staging, plan, bytes })
}

fn decide(
    root: BorrowedFd<'_>,
    snapshot: &Snapshot,
    mut journal: Journal<'_>,
    staged: Staged<'_>,
) -> Result<Restored, SnapshotError> {
    journal.advance(RestoreStage::Decided)?;
    step::reached();
    let (mut staging, plan) = (staged.staging, staged.plan);
    apply::apply(root, snapshot, &plan, &mut staging)?;
    drop(staging);
    journal.advance(RestoreStage::Finishing)?;
    step::reached();
    let deleted = finish(root, snapshot, journal)?;
    Ok(Restored {
        written: plan.make.len() as u64,
        deleted,
        unchanged: plan.unchanged,
        bytes: staged.bytes,
    })
}

/// Removes the staging directory with everything that was moved there, and the journal.
fn finish(root: BorrowedFd<'_>, snapshot: &Snapshot, journal: Journal<'_>) -> Result<u64, SnapshotError> {
    let deleted = stage::clear(root, &journal.record.staging)?;
    step::reached();
    set_root_mtime(root, snapshot.root_mtime)?;
    set_root_mode(root, |_| snapshot.root_mode | OWNER)?;
    step::reached();
    journal.remove()?;
    Ok(deleted)
}

fn undo(root: BorrowedFd<'_>, journal: Journal<'_>) -> Result<(), SnapshotError> {
    stage::clear(root, &journal.record.staging)?;
    set_root_mtime(root, journal.record.root_mtime)?;
    Ok(journal.remove()?)
}

/// Sets the mode of the workspace's own directory. Callers include [`OWNER`], so that its owner can work in it.
fn set_root_mode(root: BorrowedFd<'_>, change: impl Fn(u32) -> u32) -> Result<(), SnapshotError> {
    let found = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
    let mode = change(found.st_mode & MODE_MASK);
    if found.st_mode & MODE_MASK == mode {
        return Ok(());
    }
    stage::chmod(root, mode).map_err(SnapshotError::io("set the mode of", "."))
}

fn set_root_mtime(root: BorrowedFd<'_>, mtime: Timestamp) -> Result<(), SnapshotError> {
    let set = rustix::fs::utimensat(root, ".", &mtime.to_set(), AtFlags::SYMLINK_NOFOLLOW);
    set.map_err(SnapshotError::io("set the times of", "."))
}
