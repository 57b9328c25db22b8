//! Locks between all servers of a user: flock(2) on files, which go when nothing is locked by them any more.

use super::{LOCKS, LayerError, Layers};
use rustix::{fs::FlockOperation, io::Errno};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
    time::SystemTime,
};

/// Held by whoever puts layers in their places or removes them.
const PLACES: &str = "places";

/// Held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    /// Whether the file has to stay: its time says when a layer was used last.
    stays: bool,
}

impl Lock {
    pub(super) fn touch(&self) -> Result<(), LayerError> {
        let touched = self.file.set_modified(SystemTime::now());
        touched.map_err(LayerError::io("touch", &self.path))
    }

    /// Whether this is still the file that others find under its name.
    fn is_current(&self) -> Result<bool, LayerError> {
        let own = self
            .file
            .metadata()
            .map_err(LayerError::io("look at", &self.path))?;
        Ok(fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino())))
    }
}

impl Drop for Lock {
    /// Not by closing alone: a process that is being started holds a copy until it is another program.
    fn drop(&mut self) {
        // While it is held, so that whoever has opened it meanwhile sees that it is gone.
        if !self.stays
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "a lock of the layers was not removed");
        }
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock of the layers was not given back");
        }
    }
}

impl Layers {
    /// Alone with a name; `None`: somebody else has it. The file goes with the lock.
    pub(super) fn alone(&self, name: &str) -> Result<Option<Lock>, LayerError> {
        let mut lock = self.lock(name, FlockOperation::NonBlockingLockExclusive)?;
        if let Some(lock) = &mut lock {
            lock.stays = false;
        }
        Ok(lock)
    }

    /// Beside others who use a layer; `None`: somebody removes it.
    pub(super) fn beside_others(&self, name: &str) -> Result<Option<Lock>, LayerError> {
        self.lock(name, FlockOperation::NonBlockingLockShared)
    }

    /// Nobody else puts layers in their places, or removes them. Waits; whoever has it writes a few files.
    pub(super) fn places(&self) -> Result<Lock, LayerError> {
        loop {
            // A signal is no answer.
            if let Some(lock) = self.lock(PLACES, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    fn lock(&self, name: &str, how: FlockOperation) -> Result<Option<Lock>, LayerError> {
        let path = self.place(LOCKS, name);
        loop {
            let opened = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path);
            let lock = Lock {
                file: opened.map_err(LayerError::io("open", &path))?,
                path: path.clone(),
                stays: true,
            };
            match rustix::fs::flock(&lock.file, how) {
                Ok(()) if lock.is_current()? => return Ok(Some(lock)),
                // Its last holder has removed it between the two calls.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
                Err(error) => return Err(LayerError::io("lock", &path)(error.into())),
            }
        }
    }

    /// Locks that servers have left which were killed.
    pub(super) fn forget_locks(&self) -> Result<(), LayerError> {
        for name in self.names(LOCKS)? {
            if name != PLACES && !self.place(super::LAYERS, &name).exists() {
                drop(self.alone(&name)?);
            }
        }
        Ok(())
    }
}
