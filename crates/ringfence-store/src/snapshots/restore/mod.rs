//! Making a workspace what a snapshot says, all or nothing.
//!
//! 1. The workspace is compared with the manifest; nothing is changed.
//! 2. A journal outside the workspace says that a restore begins.
//! 3. Everything new is staged beneath the workspace, in `.ringfence-restore-<random>`: when there is no room, it is
//!    found here, the staging goes, and the workspace is as it was. What is staged is on the disk before
//! 4. the journal says that the restore is decided. Then what is unwanted is moved into the staging, what is new is
//!    moved to its place, times and modes are set, directories last; and all that is on the disk before
//! 5. the journal says that only the staging is left to remove.
//!
//! Root does all of this as the owner of the workspace, as [`crate::tree`] does; the store's own files it opens as
//! root.
//!
//! After a crash, [`SnapshotStore::resume`] undoes what was not decided and does again what was: a restore of a half
//! restored workspace is a restore like any other.

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
pub(super) use journal::{expect_unused, forget_the_dead};
use ringfence_types::Namespace;
use rustix::fs::AtFlags;
use stage::Staging;
use std::os::fd::BorrowedFd;

/// What the owner of a workspace needs to work in it.
const OWNER: u32 = 0o700;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Files, directories and links that were made or replaced.
    pub written: u64,
    /// Files, directories and links that were removed.
    pub deleted: u64,
    /// Files, directories and links that were right, or of which only times or modes were not.
    pub unchanged: u64,
    /// Of the files that were written, holes not counted.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It had not been decided: the workspace is as it was before.
    Undone(SnapshotId),
    /// It had been decided: the workspace is what the snapshot says.
    Done(SnapshotId, Restored),
}

impl SnapshotStore {
    /// Makes the workspace what the snapshot says: what is not in it is deleted, what differs is written, and every
    /// time and mode is restored; set-id bits never. All of it or nothing, also through a crash: see
    /// [`Self::resume`]. Errors: `NotFound`, `Damaged`, `Busy`, and `Io` that [`SnapshotError::is_no_space`] with the
    /// workspace as it was. The workspace of a session ends with this process: its restore is never resumed.
    pub fn restore(
        &self,
        into: &Source,
        id: SnapshotId,
        namespace: &Namespace,
        root: BorrowedFd<'_>,
    ) -> Result<Restored, SnapshotError> {
        let place = self.place(id, namespace)?;
        match self.resume(root) {
            // This one takes the place of what cannot be had any more.
            Err(SnapshotError::Unfinished { id: lost, .. }) if lost != id => self.settle(root)?,
            resumed => drop(resumed?),
        }
        let _lock = place.lock_shared()?;
        let (snapshot, journal) = {
            // The snapshot must not be deleted between the look at the list and the journal that needs it.
            let _list_lock = place.lock_list()?;
            let snapshot = self.find(&place, id)?;
            let journal = Journal::begin(&self.layout.journals, root, &snapshot, into)?;
            (snapshot, journal)
        };
        step::reached();
        let staging = journal.record.staging.clone();
        let staged = Index::read(&place.packs)
            .map_err(SnapshotError::from)
            .and_then(|index| {
                let mut reader = PackReader::new(&place.packs, &index);
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

    /// Ends what a crash interrupted: to be called whenever a workspace is opened, before any program sees it. None:
    /// nothing was interrupted.
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

    /// Does again what was decided.
    fn complete(&self, root: BorrowedFd<'_>, journal: Journal<'_>) -> Result<Restored, SnapshotError> {
        let id = journal.record.snapshot;
        let place = self.place(id, &journal.record.namespace)?;
        let _lock = place.lock_shared()?;
        let snapshot = self.find(&place, id)?;
        if journal.stage == RestoreStage::Finishing {
            return Ok(Restored {
                deleted: finish(root, &snapshot, journal)?,
                ..Restored::default()
            });
        }
        let index = Index::read(&place.packs)?;
        let mut reader = PackReader::new(&place.packs, &index);
        // What was staged and not yet moved gives its room back before it is staged again.
        let staging = journal.record.staging.clone();
        stage::clear(root, &staging)?;
        let staged = stage_all(root, &snapshot, &mut reader, &staging)?;
        decide(root, &snapshot, journal, staged)
    }

    /// Ends an interrupted restore for good: completes it, or gives it up where its snapshot is damaged or gone. What
    /// it has changed by then stays as it is.
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

    /// Gives up an interrupted restore: to be called before a workspace is deleted, and when a session ends.
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
    // A program may have closed its workspace to its own owner.
    set_root_mode(root, OWNER)?;
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

/// The staging goes, and with it what was moved there.
fn finish(root: BorrowedFd<'_>, snapshot: &Snapshot, journal: Journal<'_>) -> Result<u64, SnapshotError> {
    let deleted = stage::clear(root, &journal.record.staging)?;
    step::reached();
    set_root_mtime(root, snapshot.root_mtime)?;
    set_root_mode(root, snapshot.root_mode | OWNER)?;
    step::reached();
    journal.remove()?;
    Ok(deleted)
}

fn undo(root: BorrowedFd<'_>, journal: Journal<'_>) -> Result<(), SnapshotError> {
    stage::clear(root, &journal.record.staging)?;
    set_root_mtime(root, journal.record.root_mtime)?;
    Ok(journal.remove()?)
}

/// Of the workspace's own directory, which stays open to its owner, whatever a program made of it.
fn set_root_mode(root: BorrowedFd<'_>, mode: u32) -> Result<(), SnapshotError> {
    let found = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
    if found.st_mode & MODE_MASK == mode {
        return Ok(());
    }
    stage::chmod(root, mode).map_err(SnapshotError::io("set the mode of", "."))
}

fn set_root_mtime(root: BorrowedFd<'_>, mtime: Timestamp) -> Result<(), SnapshotError> {
    let set = rustix::fs::utimensat(root, ".", &mtime.to_set(), AtFlags::SYMLINK_NOFOLLOW);
    set.map_err(SnapshotError::io("set the times of", "."))
}
