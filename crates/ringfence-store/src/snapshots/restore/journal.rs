//! The journal of a restore: which snapshot goes into which workspace, and how far it is. It lies in the store, where no
//! program reaches it. Whoever works on a workspace has its journal locked.
//!
//! The file is one byte, the stage, and a record in JSON. The stage is written over in place: one byte is whole or not
//! there.

use crate::artifacts::layout::{open_plain, plain_files, unlink};
use crate::snapshots::{Snapshot, SnapshotError, SnapshotId, layout::Layout};
use ringfence_types::Namespace;
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

const JOURNAL_BYTES_MAX: u64 = 4096;
const STAGING: &str = ".ringfence-restore-";

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing of the workspace is changed but for the staging in it.
    Staging,
    /// It will be what the snapshot says.
    Decided,
    /// It is, but for what is left of the staging.
    Finishing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) snapshot: SnapshotId,
    pub(super) namespace: Namespace,
    /// The name of the staging.
    pub(super) staging: String,
    /// Of the workspace before.
    pub(super) root_mtime: (i64, u32),
    root: Identity,
    /// With whose end the workspace is gone. None: it stays.
    #[serde(default)]
    dies_with: Option<Process>,
}

/// A process, and not another that has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: u32,
    /// In ticks after the boot.
    started: u64,
}

/// How long a workspace is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::snapshots) enum Stay {
    /// Whatever becomes of this process.
    Kept,
    /// No longer than this process: it is a session's.
    Session,
}

/// By what a workspace is known again, also after a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    inode: u64,
    device: u64,
    /// When it was made, where the file system knows: an inode's number is given out again.
    born: Option<(i64, u32)>,
}

/// Locked until it is dropped or removed.
#[derive(Debug)]
pub(super) struct Journal<'a> {
    layout: &'a Layout,
    name: String,
    file: File,
    pub(super) stage: Stage,
    pub(super) record: Record,
}

impl Stage {
    fn byte(self) -> u8 {
        match self {
            Self::Staging => b'S',
            Self::Decided => b'D',
            Self::Finishing => b'F',
        }
    }

    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Staging, Self::Decided, Self::Finishing];
        all.into_iter().find(|stage| stage.byte() == byte)
    }
}

impl<'a> Journal<'a> {
    /// A new one, on the disk. Errors: `Busy`, and `InUse` when there is one to be resumed.
    pub(super) fn begin(
        layout: &'a Layout,
        root: BorrowedFd<'_>,
        snapshot: &Snapshot,
        stay: Stay,
    ) -> Result<Self, SnapshotError> {
        let identity = Identity::of(root)?;
        let name = format!("{:x}-{:x}", identity.inode, identity.device);
        let failed = |step| SnapshotError::std(step, layout.path().join("journals"));
        let random = crate::snapshots::layout::random_name().map_err(failed("name a staging in"))?;
        let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
        let record = Record {
            snapshot: snapshot.id,
            namespace: snapshot.namespace.clone(),
            staging: format!("{STAGING}{random}"),
            root_mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            root: identity,
            dies_with: match stay {
                Stay::Kept => None,
                Stay::Session => Process::of(std::process::id()),
            },
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&layout.journals, &name, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.map_err(SnapshotError::io("open", layout.path().join("journals")))?);
        lock(&file)?;
        if let Some((_, found)) = parse(&file).map_err(failed("read"))?
            && found.is_of(identity, root)
        {
            return Err(SnapshotError::InUse(found.snapshot));
        }
        let journal = Self {
            layout,
            name,
            file,
            stage: Stage::Staging,
            record,
        };
        journal.write().map_err(failed("write"))?;
        if !journal.is_in_place() {
            // Whoever had it before removed it at this moment.
            return Err(SnapshotError::Busy);
        }
        Ok(journal)
    }

    /// The one that was left for this workspace. Errors: `Busy` when a restore is at work.
    pub(super) fn find(layout: &'a Layout, root: BorrowedFd<'_>) -> Result<Option<Self>, SnapshotError> {
        let identity = Identity::of(root)?;
        let failed = |step| SnapshotError::std(step, layout.path().join("journals"));
        let inode = format!("{:x}-", identity.inode);
        for (name, _) in plain_files(layout.journals.as_fd()).map_err(failed("list"))? {
            if !name.starts_with(&inode) {
                continue;
            }
            let file = match open_plain(layout.journals.as_fd(), &name, OFlags::RDWR) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("open")(error)),
            };
            let of_this_root = |(_, record): &(Stage, Record)| record.is_of(identity, root);
            if parse(&file)
                .map_err(failed("read"))?
                .filter(of_this_root)
                .is_none()
            {
                continue;
            }
            lock(&file)?;
            let Some((stage, record)) = parse(&file).map_err(failed("read"))? else {
                continue;
            };
            let journal = Self {
                layout,
                name,
                file,
                stage,
                record,
            };
            if journal.is_in_place() {
                return Ok(Some(journal));
            }
        }
        Ok(None)
    }

    fn write(&self) -> io::Result<()> {
        let mut bytes = vec![self.stage.byte()];
        serde_json::to_writer(&mut bytes, &self.record)?;
        self.file.set_len(0)?;
        self.file.write_all_at(&bytes, 0)?;
        self.file.sync_all()?;
        Ok(rustix::fs::fsync(&self.layout.journals)?)
    }

    /// On the disk when this returns.
    pub(super) fn advance(&mut self, stage: Stage) -> Result<(), SnapshotError> {
        let written = self.file.write_all_at(&[stage.byte()], 0);
        let synced = written.and_then(|()| self.file.sync_all());
        synced.map_err(SnapshotError::std("write", self.layout.path().join("journals")))?;
        self.stage = stage;
        Ok(())
    }

    pub(super) fn remove(self) -> Result<(), SnapshotError> {
        unlink(self.layout.journals.as_fd(), &self.name).map_err(SnapshotError::std(
            "remove from",
            self.layout.path().join("journals"),
        ))
    }

    /// Its name is still this file's.
    fn is_in_place(&self) -> bool {
        let named = rustix::fs::statat(&self.layout.journals, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(open)) = (named, rustix::fs::fstat(&self.file)) else {
            return false;
        };
        named.st_ino == open.st_ino
    }
}

impl Drop for Journal<'_> {
    /// Not by closing alone: a process that is being started holds a copy until it is another program.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(%error, "the lock of a restore's journal was not given back");
        }
    }
}

impl Identity {
    fn of(root: BorrowedFd<'_>) -> Result<Self, SnapshotError> {
        let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
        let extended = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
        let known = extended
            .ok()
            .filter(|statx| statx.stx_mask & StatxFlags::BTIME.bits() != 0);
        Ok(Self {
            inode: stat.st_ino,
            device: stat.st_dev,
            born: known.map(|statx| (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec)),
        })
    }
}

impl Process {
    /// None: there is none of this number.
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name before may have any characters in it, parentheses too (proc_pid_stat(5)).
        let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let started = str::from_utf8(&stat[after..]).ok()?.split_whitespace().nth(19)?;
        Some(Self {
            pid,
            started: started.parse().ok()?,
        })
    }

    fn is_gone(self) -> bool {
        Self::of(self.pid) != Some(self)
    }
}

impl Record {
    /// Numbers of devices change with a boot. Where no time of birth is known, the staging in it must prove it.
    fn is_of(&self, now: Identity, root: BorrowedFd<'_>) -> bool {
        if self.root.inode != now.inode {
            return false;
        }
        if self.root.born.is_some() && now.born.is_some() {
            return self.root.born == now.born;
        }
        let staging = rustix::fs::statat(root, &self.staging, AtFlags::SYMLINK_NOFOLLOW);
        self.root.device == now.device && staging.is_ok()
    }
}

fn lock(file: &File) -> Result<(), SnapshotError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(SnapshotError::Busy),
        Err(error) => Err(SnapshotError::io("lock", "a journal")(error)),
    }
}

/// None when it was never written to its end: then nothing was begun.
fn parse(file: &File) -> io::Result<Option<(Stage, Record)>> {
    let mut bytes = vec![0; JOURNAL_BYTES_MAX as usize];
    let read = file.read_at(&mut bytes, 0)?;
    let Some((first, rest)) = bytes[..read].split_first() else {
        return Ok(None);
    };
    let (Some(stage), Ok(record)) = (Stage::of(*first), serde_json::from_slice::<Record>(rest)) else {
        return Ok(None);
    };
    let random = record.staging.strip_prefix(STAGING);
    let plain = random.is_some_and(|random| random.bytes().all(|byte| byte.is_ascii_hexdigit()));
    Ok(plain.then_some((stage, record)))
}

/// Removes the journals of workspaces that died with their server: nobody can resume those.
pub(super) fn drop_of_the_dead(layout: &Layout) -> Result<(), SnapshotError> {
    let failed = |step| SnapshotError::std(step, layout.path().join("journals"));
    for (name, _) in plain_files(layout.journals.as_fd()).map_err(failed("list"))? {
        let file = match open_plain(layout.journals.as_fd(), &name, OFlags::RDWR) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("open")(error)),
        };
        match lock(&file) {
            Err(SnapshotError::Busy) => continue,
            locked => locked?,
        }
        let Some((stage, record)) = parse(&file).map_err(failed("read"))? else {
            continue;
        };
        let journal = Journal {
            layout,
            name,
            file,
            stage,
            record,
        };
        if journal.record.dies_with.is_some_and(Process::is_gone) && journal.is_in_place() {
            journal.remove()?;
        }
    }
    Ok(())
}

/// No journal that is left needs this snapshot, and none at work.
pub(super) fn expect_unused(layout: &Layout, id: SnapshotId) -> Result<(), SnapshotError> {
    let failed = |step| SnapshotError::std(step, layout.path().join("journals"));
    for (name, _) in plain_files(layout.journals.as_fd()).map_err(failed("list"))? {
        let file = match open_plain(layout.journals.as_fd(), &name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("open")(error)),
        };
        if let Some((stage, record)) = parse(&file).map_err(failed("read"))?
            && record.snapshot == id
            // One that was not decided, and whose restore is gone, will be undone.
            && (stage != Stage::Staging || matches!(lock(&file), Err(SnapshotError::Busy)))
        {
            return Err(SnapshotError::InUse(id));
        }
    }
    Ok(())
}
