//! The journal of a restore: its snapshot, workspace and stage, kept in the store, out of reach of sandboxed programs.
//! A running restore holds its lock. The file is one byte, the stage, and a record in JSON. The stage is overwritten in
//! place: a write of one byte is atomic.

use crate::{
    snapshots::{Snapshot, SnapshotError, SnapshotId, Source},
    tree::Timestamp,
    whole_file::{Directory, FileError, FileLock, random_hex},
};
use ringfence_types::Namespace;
use rustix::fs::{AtFlags, FlockOperation, StatxFlags};
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

const JOURNAL_BYTES_MAX: u64 = 4096;
const STAGING: &str = ".ringfence-restore-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RestoreStage {
    /// The workspace is unchanged except for the staging directory in it.
    Staging = b'S',
    /// The restore will be completed, even after a crash.
    Decided = b'D',
    /// The workspace is restored, except that the staging directory is still to be removed.
    Finishing = b'F',
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalRecord {
    pub(super) snapshot: SnapshotId,
    pub(super) namespace: Namespace,
    pub(super) staging: String,
    /// Modification time of the workspace before the restore.
    pub(super) root_mtime: Timestamp,
    root: Identity,
    /// The directory of this journal; another one is a copy.
    #[serde(default)]
    store: Option<Identity>,
    /// The process with which the workspace ends; None if the workspace outlives it.
    #[serde(default)]
    dies_with: Option<Process>,
}

/// A process, distinguished from later ones with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: u32,
    /// Start time in clock ticks after boot (proc_pid_stat(5)).
    started: u64,
}

/// Identity of a workspace, which also holds across a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    inode: u64,
    device: u64,
    /// Creation time, if the file system has it: inode numbers are reused.
    born: Option<Timestamp>,
}

/// A journal, locked until it is dropped or removed.
#[derive(Debug)]
pub(super) struct Journal<'a> {
    journals: &'a Directory,
    name: String,
    lock: FileLock,
    pub(super) stage: RestoreStage,
    pub(super) record: JournalRecord,
}

impl RestoreStage {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Staging, Self::Decided, Self::Finishing];
        all.into_iter().find(|stage| *stage as u8 == byte)
    }
}

impl<'a> Journal<'a> {
    /// Writes a new journal to the disk. Errors: `Busy`, and `InUse` if an interrupted restore is to be resumed.
    pub(super) fn begin(
        journals: &'a Directory,
        root: BorrowedFd<'_>,
        snapshot: &Snapshot,
        into: &Source,
    ) -> Result<Self, SnapshotError> {
        let identity = Identity::of(root)?;
        let name = format!("{:x}-{:x}", identity.inode, identity.device);
        let random = random_hex::<16>().map_err(journals.failed("name a staging in", ""))?;
        let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
        let record = JournalRecord {
            snapshot: snapshot.id,
            namespace: snapshot.namespace.clone(),
            staging: format!("{STAGING}{random}"),
            root_mtime: Timestamp::of_content(&stat),
            root: identity,
            store: Identity::of(journals.as_fd()).ok(),
            dies_with: Process::of(std::process::id()).filter(|_| *into != Source::Namespace),
        };
        let lock = lock(journals, &name)?;
        if let Some((_, found)) = read(journals, &name)?
            && found.is_of(journals, root)
        {
            return Err(SnapshotError::InUse(found.snapshot));
        }
        let journal = Self {
            journals,
            name,
            lock,
            stage: RestoreStage::Staging,
            record,
        };
        journal.write().map_err(journals.failed("write", &journal.name))?;
        journals.sync()?;
        Ok(journal)
    }

    /// Opens the journal left by an interrupted restore of this workspace. Errors: `Busy` if a restore is running.
    pub(super) fn find(journals: &'a Directory, root: BorrowedFd<'_>) -> Result<Option<Self>, SnapshotError> {
        for name in journals.names()? {
            let is_ours = |record: &JournalRecord| record.is_of(journals, root);
            if !read(journals, &name)?.is_some_and(|(_, record)| is_ours(&record)) {
                continue;
            }
            let found = Self::left(journals, name)?;
            if let Some(found) = found.filter(|found| is_ours(&found.record)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Locks and reads a journal. Removes an incomplete one and returns None: its restore had changed nothing.
    fn left(journals: &'a Directory, name: String) -> Result<Option<Self>, SnapshotError> {
        let lock = lock(journals, &name)?;
        let Some((stage, record)) = read(journals, &name)? else {
            journals.remove(&name)?;
            return Ok(None);
        };
        Ok(Some(Self {
            journals,
            name,
            lock,
            stage,
            record,
        }))
    }

    fn write(&self) -> io::Result<()> {
        let mut bytes = vec![self.stage as u8];
        serde_json::to_writer(&mut bytes, &self.record)?;
        self.lock.0.set_len(0)?;
        self.lock.0.write_all_at(&bytes, 0)?;
        self.lock.0.sync_all()
    }

    pub(super) fn advance(&mut self, stage: RestoreStage) -> Result<(), SnapshotError> {
        let written = self.lock.0.write_all_at(&[stage as u8], 0);
        let synced = written.and_then(|()| self.lock.0.sync_all());
        synced.map_err(self.journals.failed("write", &self.name))?;
        self.stage = stage;
        Ok(())
    }

    pub(super) fn remove(self) -> Result<(), FileError> {
        self.journals.remove(&self.name)
    }
}

impl Identity {
    fn of(root: BorrowedFd<'_>) -> Result<Self, SnapshotError> {
        let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
        let extended = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok();
        let known = extended.filter(|statx| statx.stx_mask & StatxFlags::BTIME.bits() != 0);
        Ok(Self {
            inode: stat.st_ino,
            device: stat.st_dev,
            born: known.map(|statx| Timestamp(statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec)),
        })
    }

    /// Returns `None` if only the device, which may change at a reboot, can tell.
    fn is(self, now: Self) -> Option<bool> {
        match (self.born, now.born) {
            _ if self.inode != now.inode => Some(false),
            (Some(born), Some(now)) => Some(born == now),
            _ => None,
        }
    }
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The command name before it may contain any characters, parentheses included (proc_pid_stat(5)).
        let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let started = str::from_utf8(&stat[after..]).ok()?.split_whitespace().nth(19)?;
        let started = started.parse().ok()?;
        Some(Self { pid, started })
    }

    fn is_gone(self) -> bool {
        Self::of(self.pid) != Some(self)
    }
}

impl JournalRecord {
    /// True if the record is of this workspace, by its creation time. Otherwise the staging directory must be in it,
    /// and it must be on the same device, or be a copy that came with a copy of the store.
    fn is_of(&self, journals: &Directory, root: BorrowedFd<'_>) -> bool {
        let Ok(now) = Identity::of(root) else { return false };
        let is_copied = || {
            let (written, found) = (self.store, Identity::of(journals.as_fd()).ok());
            written.zip(found).and_then(|(written, found)| written.is(found)) == Some(false)
        };
        let may_be = match self.root.is(now) {
            Some(true) => return true,
            Some(false) => is_copied(),
            None => self.root.device == now.device || is_copied(),
        };
        may_be && rustix::fs::statat(root, &self.staging, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// True if its workspace ended with its server process, or if it is of this snapshot and into the workspace of a
    /// namespace.
    fn is_orphan(&self, deleted: Option<SnapshotId>) -> bool {
        match self.dies_with {
            Some(process) => process.is_gone(),
            None => deleted == Some(self.snapshot),
        }
    }
}

fn lock(journals: &Directory, name: &str) -> Result<FileLock, SnapshotError> {
    let lock = journals.lock(name, FlockOperation::NonBlockingLockExclusive)?;
    lock.ok_or(SnapshotError::Busy)
}

fn read(journals: &Directory, name: &str) -> Result<Option<(RestoreStage, JournalRecord)>, FileError> {
    let bytes = journals.read(name, JOURNAL_BYTES_MAX)?;
    Ok(bytes.and_then(|bytes| parse(&bytes)))
}

fn parse(bytes: &[u8]) -> Option<(RestoreStage, JournalRecord)> {
    let (first, rest) = bytes.split_first()?;
    let record: JournalRecord = serde_json::from_slice(rest).ok()?;
    let random = record.staging.strip_prefix(STAGING)?;
    let is_plain = random.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((RestoreStage::of(*first)?, record)).filter(|_| is_plain)
}

/// Removes the journals of workspaces that are gone. `deleted`: see [`JournalRecord::is_orphan`].
pub(in crate::snapshots) fn remove_orphaned_journals(
    journals: &Directory,
    deleted: Option<SnapshotId>,
) -> Result<(), SnapshotError> {
    for name in journals.names()? {
        match Journal::left(journals, name) {
            Ok(Some(journal)) if journal.record.is_orphan(deleted) => {
                tracing::warn!(restore = ?journal.record, "the workspace of an interrupted restore is gone");
                journal.remove()?;
            }
            Err(SnapshotError::Busy) => {}
            left => drop(left?),
        }
    }
    Ok(())
}

/// Checks that no restore, running or interrupted, needs this snapshot.
pub(in crate::snapshots) fn expect_unused(journals: &Directory, id: SnapshotId) -> Result<(), SnapshotError> {
    for name in journals.names()? {
        if let Some((stage, record)) = read(journals, &name)?
            && record.snapshot == id
            // An interrupted restore that was not decided will be undone and does not need it.
            && (stage != RestoreStage::Staging || matches!(lock(journals, &name), Err(SnapshotError::Busy)))
        {
            return Err(SnapshotError::InUse(id));
        }
    }
    Ok(())
}
