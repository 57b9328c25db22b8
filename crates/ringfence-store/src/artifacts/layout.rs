//! The store's directory, its lock, its size by the last count and what was added since, and when a sweep is due.

use super::{ArtifactError, manifest::MANIFEST_BYTES_MAX};
use crate::{
    blobs::loose::LooseBlobs,
    whole_file::{Directory, FileError, FileLock, IfExists, modified},
};
use rustix::fs::FlockOperation;
use std::{
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

const LOCK: &str = "lock";
/// Bytes that ended processes have added since the last sweep. Another may end at once: they are a lower bound.
const ADDED: &str = "added";
const COUNT_BYTES_MAX: u64 = 32;
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct ArtifactsDir {
    pub(super) root: Directory,
    pub(super) blobs: Arc<LooseBlobs>,
    pub(super) executions: Directory,
    tally: Mutex<Tally>,
}

impl ArtifactsDir {
    pub(super) fn open(path: PathBuf, retention: Retention) -> Result<Self, ArtifactError> {
        let root = Directory::private(path)?;
        // A store without a lock file is new and empty.
        match root.write_unsynced(LOCK, b"0\n", IfExists::Fail) {
            Err(FileError { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => written?,
        }
        let layout = Self {
            tally: Mutex::new(Tally::new(retention)),
            blobs: Arc::new(LooseBlobs::open(&root)?),
            executions: root.subdirectory("executions")?,
            root,
        };
        layout.tally().last = layout.last_count()?;
        layout.tally().by_others = layout.noted()?;
        Ok(layout)
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if the text is not a count, which makes a sweep due.
    pub(super) fn last_count(&self) -> Result<Option<Count>, FileError> {
        let (text, stat) = (self.root.read(LOCK, COUNT_BYTES_MAX)?, self.root.stat(LOCK)?);
        let (Some(text), Some(stat)) = (text, stat) else {
            return Ok(None);
        };
        let text = str::from_utf8(&text).unwrap_or_default();
        let at = modified(&stat);
        Ok(text.trim_end().parse().ok().map(|bytes| Count { bytes, at }))
    }

    fn noted(&self) -> Result<u64, FileError> {
        let text = self.root.read(ADDED, COUNT_BYTES_MAX)?.unwrap_or_default();
        let text = str::from_utf8(&text).unwrap_or_default();
        Ok(text.trim_end().parse().unwrap_or(0))
    }

    /// Notes what was added since the last sweep, for the processes after this one.
    pub(super) fn note_added(&self) -> Result<(), FileError> {
        let added = self.tally().added;
        if added == 0 {
            return Ok(());
        }
        let all = self.noted()?.saturating_add(added);
        self.root
            .write_unsynced(ADDED, format!("{all}\n").as_bytes(), IfExists::Replace)
    }

    pub(super) fn lock_shared(&self) -> Result<FileLock, FileError> {
        self.root.lock_waiting(LOCK, FlockOperation::LockShared)
    }

    pub(super) fn lock_alone(&self) -> Result<Option<FileLock>, FileError> {
        self.root.lock(LOCK, FlockOperation::NonBlockingLockExclusive)
    }

    /// Writes the count of the holder of the exclusive lock; the mtime of the file is the time of the count.
    pub(super) fn write_count(&self, lock: &FileLock, bytes: u64) -> Result<(), FileError> {
        let write = || {
            lock.0.set_len(0)?;
            lock.0.write_all_at(format!("{bytes}\n").as_bytes(), 0)?;
            lock.0.set_modified(SystemTime::now())
        };
        write().map_err(self.root.failed("write", LOCK))?;
        self.root.remove(ADDED)
    }

    pub(super) fn read_manifest(&self, file_name: &str) -> Result<Option<Vec<u8>>, FileError> {
        self.executions.read(file_name, MANIFEST_BYTES_MAX as u64)
    }
}

/// Returns a file's size on disk: whole blocks, and one for an empty file, or a million of those would be free.
pub(super) fn disk_bytes(size_bytes: u64) -> u64 {
    let blocks = size_bytes.max(1).div_ceil(BLOCK_BYTES);
    blocks.saturating_mul(BLOCK_BYTES)
}

pub(super) fn manifest_name(execution_id: &str) -> String {
    format!("{execution_id}.json")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// An execution older than this is removed, unless the clock has jumped recently.
    pub age: Duration,
    /// Maximum size, in blocks of 4 KiB with manifests. Over it, the largest namespaces lose their oldest executions.
    pub bytes: u64,
}

const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Fraction of the size limit that must be added before another sweep for size pays off.
const SLACK: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    bytes: u64,
    at: SystemTime,
}

#[derive(Debug)]
pub(super) struct Tally {
    retention: Retention,
    /// No sweep has used it yet.
    retention_is_new: bool,
    last: Option<Count>,
    /// Bytes that this process has added since, and those of processes that had ended when it began.
    pub(super) added: u64,
    by_others: u64,
}

impl Tally {
    fn new(retention: Retention) -> Self {
        Self {
            retention,
            retention_is_new: true,
            last: None,
            added: 0,
            by_others: 0,
        }
    }

    pub(super) fn add(&mut self, size_bytes: u64) {
        self.added = self.added.saturating_add(disk_bytes(size_bytes));
    }

    pub(super) fn bytes(&self) -> u64 {
        let counted = self.last.map_or(0, |count| count.bytes);
        counted.saturating_add(self.added + self.by_others)
    }

    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    pub(super) fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
        self.retention_is_new = true;
    }

    pub(super) fn swept(&mut self, with: Retention, count: Option<Count>) {
        self.retention_is_new &= self.retention != with;
        self.count(count);
    }

    /// Takes over a new count, which includes what was added before.
    fn count(&mut self, last: Option<Count>) {
        if self.last != last {
            self.last = last;
            (self.added, self.by_others) = (0, 0);
        }
    }

    pub(super) fn is_due(&mut self, last: Option<Count>, now: SystemTime) -> bool {
        self.count(last);
        let Some(last) = self.last else { return true };
        let interval = (self.retention.age / 8).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let bytes = self.retention.bytes;
        abs_difference(last.at, now) >= interval
            || (self.retention_is_new && last.bytes > bytes)
            || (self.added + self.by_others > bytes / SLACK && self.bytes() > bytes)
    }
}

/// Returns the absolute difference: a count dated ahead of the clock is as old as one dated behind it.
fn abs_difference(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}
