//! Locks between all servers of a user, whose files go when they are not needed any more.

use super::{LOCKS, LayerError, Layers, SetName};
use crate::whole_file::{FileError, FileLock};
use rustix::fs::FlockOperation;
use std::{fs, path::PathBuf, time::SystemTime};

const PLACES: &str = "places";

#[derive(Debug)]
pub(super) struct LayerLock {
    lock: FileLock,
    path: PathBuf,
    /// The file stays: its time says when a layer was used last.
    stays: bool,
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
    /// The file is removed while the lock is held, so that a process that has opened it meanwhile sees that it is gone.
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "a lock of the layers was not removed");
        }
    }
}

impl Layers {
    /// The right to make the layer of a set; `None`: it is being made elsewhere.
    pub fn begin(&self, set: &SetName) -> Result<Option<SetLock>, LayerError> {
        let lock = self.alone(set.as_str())?;
        let set = set.clone();
        Ok(lock.map(|_lock| SetLock { set, _lock }))
    }

    /// Alone with a name; `None`: it is in use. The file goes with the lock.
    pub(super) fn alone(&self, name: &str) -> Result<Option<LayerLock>, FileError> {
        self.lock(name, FlockOperation::NonBlockingLockExclusive)
    }

    /// Beside others who use a layer; `None`: it is being removed.
    pub(super) fn beside_others(&self, name: &str) -> Result<Option<LayerLock>, FileError> {
        self.lock(name, FlockOperation::NonBlockingLockShared)
    }

    fn lock(&self, name: &str, operation: FlockOperation) -> Result<Option<LayerLock>, FileError> {
        let lock = self.locks.lock(name, operation)?;
        Ok(lock.map(|lock| LayerLock {
            lock,
            path: self.place(LOCKS, name),
            stays: operation == FlockOperation::NonBlockingLockShared,
        }))
    }

    /// Nothing else puts layers in their places, or removes them. Waits; the holder writes a few files.
    pub(super) fn places(&self) -> Result<FileLock, FileError> {
        self.locks.lock_waiting(PLACES, FlockOperation::LockExclusive)
    }

    pub(super) fn forget_locks(&self) -> Result<(), LayerError> {
        for name in self.names(LOCKS)? {
            if name != PLACES && !self.place(super::LAYERS, &name).exists() {
                drop(self.alone(&name)?);
            }
        }
        Ok(())
    }
}
