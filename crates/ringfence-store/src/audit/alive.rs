//! Liveness of the servers that write to one record. Each holds the lock of a file beside the database while it runs,
//! so that operations left open by a dead server can be told from those of a running one.

use crate::whole_file::{Directory, FileError, FileLock, is_plain_id};
use rustix::fs::FlockOperation;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// The lock of a running server, released on drop.
pub(super) struct LivenessLock {
    path: PathBuf,
    /// An operation that it began has no recorded end: the file remains, so that the next server looks for it.
    pub(super) has_open_operations: bool,
    _lock: FileLock,
}

impl LivenessLock {
    /// `None` if the id is not a valid file name, or in use: of two servers with an id, the second counts as the first.
    pub(super) fn acquire(database: &Path, server_id: &str) -> Result<Option<Self>, FileError> {
        if !is_plain_id(server_id) {
            return Ok(None);
        }
        let path = database.with_extension(format!("{server_id}.alive"));
        let (directory, name) = Directory::of_file(&path)?;
        let lock = directory.lock(&name, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock.map(|_lock| Self {
            path,
            has_open_operations: false,
            _lock,
        }))
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        if !self.has_open_operations {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Returns the ids of the running servers and the files of the dead ones. The caller must keep servers from starting.
pub(super) fn servers(database: &Path) -> Result<(HashSet<String>, Vec<PathBuf>), FileError> {
    let (directory, _) = Directory::of_file(database)?;
    let stem = database.file_stem().unwrap_or_default().to_string_lossy();
    let (mut living, mut dead) = (HashSet::new(), Vec::new());
    for name in directory.names()? {
        let rest = name.strip_prefix(&*stem).and_then(|rest| rest.strip_prefix('.'));
        if let Some(id) = rest.and_then(|rest| rest.strip_suffix(".alive")) {
            if let Ok(Some(_)) = directory.lock(&name, FlockOperation::NonBlockingLockExclusive) {
                dead.push(database.with_file_name(&name));
            } else {
                living.insert(id.to_owned()); // also if the lock cannot be checked
            }
        }
    }
    Ok((living, dead))
}
