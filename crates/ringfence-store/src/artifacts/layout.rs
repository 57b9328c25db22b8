//! The store's directory and its lock.

use super::{ArtifactError, manifest::MANIFEST_BYTES_MAX};
use crate::{
    blobs::loose::LooseBlobs,
    whole_file::{Directory, FileError, FileLock, Taken, modified},
};
use rustix::fs::FlockOperation;
use std::{
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

const LOCK: &str = "lock";
const COUNT_BYTES_MAX: u64 = 32;
const BLOCK_BYTES: u64 = 4096;

/// The open directory.
#[derive(Debug)]
pub(super) struct ArtifactsDir {
    root: Directory,
    pub(super) blobs: Arc<LooseBlobs>,
    pub(super) executions: Directory,
}

/// What the last sweep of any process counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) bytes: u64,
    pub(super) at: SystemTime,
}

impl ArtifactsDir {
    pub(super) fn open(path: PathBuf) -> Result<Self, ArtifactError> {
        let root = Directory::private(path)?;
        // A store without a lock is new: it holds nothing.
        match root.write_unsynced(LOCK, b"0\n", Taken::Refused) {
            Err(FileError { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => written?,
        }
        Ok(Self {
            blobs: Arc::new(LooseBlobs::open(&root)?),
            executions: root.subdirectory("executions")?,
            root,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    /// None when the text is not a count: then it is time to count.
    pub(super) fn last_count(&self) -> Result<Option<Count>, ArtifactError> {
        let Some(text) = self.root.read(LOCK, COUNT_BYTES_MAX)? else {
            return Ok(None);
        };
        let Some(stat) = self.root.stat(LOCK)? else {
            return Ok(None);
        };
        let bytes = str::from_utf8(&text)
            .ok()
            .and_then(|text| text.trim_end().parse().ok());
        let at = modified(&stat);
        Ok(bytes.map(|bytes| Count { bytes, at }))
    }

    /// Waits while a sweep runs.
    pub(super) fn lock_shared(&self) -> Result<FileLock, FileError> {
        self.root.lock_waiting(LOCK, FlockOperation::LockShared)
    }

    /// None when another process or thread has it.
    pub(super) fn lock_alone(&self) -> Result<Option<FileLock>, FileError> {
        self.root.lock(LOCK, FlockOperation::NonBlockingLockExclusive)
    }

    /// For the holder of the exclusive lock: what it counted, and by the file's time when.
    pub(super) fn write_count(&self, lock: &FileLock, bytes: u64) -> Result<(), FileError> {
        let write = || {
            lock.0.set_len(0)?;
            lock.0.write_all_at(format!("{bytes}\n").as_bytes(), 0)?;
            lock.0.set_modified(SystemTime::now())
        };
        write().map_err(self.root.failed("write", LOCK))
    }

    /// The text of a manifest, at most one byte more than the longest allowed.
    pub(super) fn read_manifest(&self, file_name: &str) -> Result<Option<Vec<u8>>, FileError> {
        self.executions.read(file_name, MANIFEST_BYTES_MAX as u64)
    }
}

/// What a file takes: whole blocks, and one for an empty file, or a million of those would count as nothing.
pub(super) fn disk_bytes(size_bytes: u64) -> u64 {
    size_bytes
        .max(1)
        .div_ceil(BLOCK_BYTES)
        .saturating_mul(BLOCK_BYTES)
}

pub(super) fn manifest_name(execution_id: &str) -> String {
    format!("{execution_id}.json")
}
