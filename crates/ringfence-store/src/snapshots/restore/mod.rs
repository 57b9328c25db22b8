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
//! After a crash, [`resume`] undoes what was not decided and does again what was: a restore of a half restored
//! workspace is a restore like any other.

mod apply;
mod compare;
mod journal;
mod stage;
mod step;
mod together;

use super::{Snapshot, SnapshotError, SnapshotId, SnapshotStore, layout::SnapshotsDir, manifest::MODE_MASK};
use crate::{
    blobs::pack::{Index, PackReader},
    tree::Timestamp,
};
pub(super) use journal::Lifetime;
use journal::{Journal, RestoreStage};
use ringfence_types::Namespace;
use rustix::fs::AtFlags;
use stage::Staging;
use std::os::fd::BorrowedFd;

/// What the owner of a workspace needs to work in it.
const OWNER: u32 = 0o700;

/// What a restore did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// How an interrupted restore was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It had not been decided: the workspace is as it was before.
    Undone(SnapshotId),
    /// It had been decided: the workspace is what the snapshot says.
    Done(SnapshotId, Restored),
}

pub(super) fn restore(
    store: &SnapshotStore,
    id: SnapshotId,
    namespace: &Namespace,
    root: BorrowedFd<'_>,
    lifetime: Lifetime,
) -> Result<Restored, SnapshotError> {
    let place = store.place(id, namespace)?;
    match resume(store, root) {
        // This one takes the place of what cannot be had any more.
        Err(SnapshotError::Unfinished { id: lost, .. }) if lost != id => settle(store, root)?,
        resumed => drop(resumed?),
    }
    let _lock = place.lock_shared()?;
    let (snapshot, journal) = {
        // The snapshot must not be deleted between the look at the list and the journal that needs it.
        let _list_lock = place.lock_list()?;
        let snapshot = store.find(&place, id)?;
        let journal = Journal::begin(&store.layout.journals, root, &snapshot, lifetime)?;
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

pub(super) fn resume(store: &SnapshotStore, root: BorrowedFd<'_>) -> Result<Option<Resumed>, SnapshotError> {
    let Some(journal) = Journal::find(&store.layout.journals, root)? else {
        return Ok(None);
    };
    let id = journal.record.snapshot;
    if journal.stage == RestoreStage::Staging {
        undo(root, journal)?;
        return Ok(Some(Resumed::Undone(id)));
    }
    complete(store, root, journal)
        .map(Some)
        .map_err(|error| match error {
            SnapshotError::Damaged { .. } | SnapshotError::NotFound(_) => SnapshotError::Unfinished {
                id,
                error: Box::new(error),
            },
            error => error,
        })
}

/// Does again what was decided.
fn complete(
    store: &SnapshotStore,
    root: BorrowedFd<'_>,
    journal: Journal<'_>,
) -> Result<Resumed, SnapshotError> {
    let id = journal.record.snapshot;
    let namespace = journal.record.namespace.clone();
    let place = store.place(id, &namespace)?;
    let _lock = place.lock_shared()?;
    let snapshot = store.find(&place, id)?;
    if journal.stage == RestoreStage::Finishing {
        let deleted = finish(root, &snapshot, journal)?;
        let restored = Restored {
            deleted,
            ..Restored::default()
        };
        return Ok(Resumed::Done(id, restored));
    }
    let index = Index::read(&place.packs)?;
    let mut reader = PackReader::new(&place.packs, &index);
    // What was staged and not yet moved gives its room back before it is staged again.
    let staging = journal.record.staging.clone();
    stage::clear(root, &staging)?;
    let staged = stage_all(root, &snapshot, &mut reader, &staging)?;
    Ok(Resumed::Done(id, decide(root, &snapshot, journal, staged)?))
}

pub(super) fn settle(store: &SnapshotStore, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
    match resume(store, root) {
        Err(SnapshotError::Unfinished { .. }) => {}
        resumed => return resumed.map(drop),
    }
    let Some(journal) = Journal::find(&store.layout.journals, root)? else {
        return Ok(());
    };
    stage::clear(root, &journal.record.staging)?;
    Ok(journal.remove()?)
}

pub(super) fn forget(store: &SnapshotStore, root: BorrowedFd<'_>) -> Result<(), SnapshotError> {
    match Journal::find(&store.layout.journals, root)? {
        Some(journal) => Ok(journal.remove()?),
        None => Ok(()),
    }
}

/// Workspaces that died with their server need nothing any more.
pub(super) fn forget_the_dead(layout: &SnapshotsDir) -> Result<(), SnapshotError> {
    journal::drop_of_the_dead(&layout.journals)
}

/// No journal needs this snapshot.
pub(super) fn expect_unused(store: &SnapshotStore, id: SnapshotId) -> Result<(), SnapshotError> {
    journal::expect_unused(&store.layout.journals, id)
}

/// What is ready to be moved.
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
    let Staged {
        mut staging,
        plan,
        bytes,
    } = staged;
    journal.advance(RestoreStage::Decided)?;
    step::reached();
    apply::apply(root, snapshot, &plan, &mut staging)?;
    drop(staging);
    journal.advance(RestoreStage::Finishing)?;
    step::reached();
    let deleted = finish(root, snapshot, journal)?;
    Ok(Restored {
        written: plan.make.len() as u64,
        deleted,
        unchanged: plan.unchanged,
        bytes,
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
