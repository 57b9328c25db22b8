//! Which of the servers that write into one record live: each holds the lock of a file beside it as long as it does,
//! so that what a dead server has left open is known from what a live one still does.

use crate::whole_file::{Directory, FileError, FileLock, is_plain_id};
use rustix::fs::FlockOperation;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// A server that lives. Dropped, it has ended.
pub(super) struct Alive {
    path: PathBuf,
    /// Something that it began has no end on record, and the next server is to look for it.
    pub(super) leaves_open: bool,
    _lock: FileLock,
}

impl Alive {
    /// None: the id is no name for a file, or another server lives under it; ids are made once, and a server that uses
    /// one twice is as alive as the first.
    pub(super) fn begin(database: &Path, server_id: &str) -> Result<Option<Self>, FileError> {
        if !is_plain_id(server_id) {
            return Ok(None);
        }
        let path = database.with_extension(format!("{server_id}.alive"));
        let (directory, name) = Directory::of_file(&path)?;
        let lock = directory.lock(&name, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock.map(|_lock| Self {
            path,
            leaves_open: false,
            _lock,
        }))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if !self.leaves_open {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Which servers live, and the files of those that have died. To be asked while none begins.
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
                living.insert(id.to_owned()); // also what cannot be asked
            }
        }
    }
    Ok((living, dead))
}
