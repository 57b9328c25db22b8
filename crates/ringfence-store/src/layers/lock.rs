//! Locks between all servers of a user. Their files are removed when they are no longer needed.

use super::{LOCKS, LayerError, Layers, SetName};
use crate::whole_file::{FileError, FileLock};
use rustix::fs::FlockOperation;
use std::{fs, path::PathBuf, time::SystemTime};

const PLACES: &str = "places";

#[derive(Debug)]
pub(super) struct LayerLock {
    lock: FileLock,
    path: PathBuf,
    /// The file is kept: its mtime is the last use of a layer.
    keeps_file: bool,
}

#[derive(Debug)]
pub struct SetLock {
    set: SetName,
    _lock: LayerLock,
}

impl SetLock {
    pub fn set(&self) -> &SetName {
        &self.set
    }
}

impl LayerLock {
    pub(super) fn touch(&self) -> Result<(), LayerError> {
        let touched = self.lock.0.set_modified(SystemTime::now());
        Ok(touched.map_err(FileError::at("touch", &self.path))?)
    }
}

impl Drop for LayerLock {
    /// Removes the file while the lock is held, so that a process that has opened it meanwhile sees that it is gone.
    fn drop(&mut self) {
        if !self.keeps_file
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "a lock of the layers was not removed");
        }
    }
}

impl Layers {
    /// Locks a set in order to build its layer. `None` if it is being built elsewhere.
    pub fn begin(&self, set: &SetName) -> Result<Option<SetLock>, LayerError> {
        let lock = self.try_lock_exclusive(set.as_str())?;
        let set = set.clone();
        Ok(lock.map(|_lock| SetLock { set, _lock }))
    }

    /// Locks a layer or a set exclusively. `None` if it is in use. The file is removed with the lock.
    pub(super) fn try_lock_exclusive(&self, name: &str) -> Result<Option<LayerLock>, FileError> {
        self.lock(name, FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks a layer together with its other users. `None` if it is being removed.
    pub(super) fn try_lock_shared(&self, name: &str) -> Result<Option<LayerLock>, FileError> {
        self.lock(name, FlockOperation::NonBlockingLockShared)
    }

    fn lock(&self, name: &str, operation: FlockOperation) -> Result<Option<LayerLock>, FileError> {
        let lock = self.locks.lock(name, operation)?;
        Ok(lock.map(|lock| LayerLock {
            lock,
            path: self.place(LOCKS, name),
            keeps_file: operation == FlockOperation::NonBlockingLockShared,
        }))
    }

    /// Excludes all other moves of layers into place and removals. Waits for the holder.
    pub(super) fn lock_places(&self) -> Result<FileLock, FileError> {
        self.locks.lock_waiting(PLACES, FlockOperation::LockExclusive)
    }

    pub(super) fn remove_stale_locks(&self) -> Result<(), LayerError> {
        for name in self.names(LOCKS)? {
            if name != PLACES && !self.place(super::LAYERS, &name).exists() {
                drop(self.try_lock_exclusive(&name)?);
            }
        }
        Ok(())
    }
}
