//! Which of the servers that write into one record live: each holds the lock of a file beside it as long as it does,
//! so that what a dead server has left open is known from what a live one still does.

use crate::whole_file::{Directory, FileError, FileLock, is_plain_id};
use rustix::fs::FlockOperation;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A server that lives, or one whose remains are looked after. Dropped, it is gone.
pub struct Alive {
    pub(super) server_id: String,
    path: PathBuf,
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
        let server_id = server_id.to_owned();
        Ok(lock.map(|_lock| Self {
            server_id,
            path,
            _lock,
        }))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Servers that died without removing their files. Each counts as alive meanwhile, so that no other server closes what
/// it has left open.
pub(super) fn dead(database: &Path) -> Result<Vec<Alive>, FileError> {
    let (directory, name) = Directory::of_file(database)?;
    let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
    let mut dead = Vec::new();
    for name in directory.names()? {
        let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
        if let Some(id) = rest.and_then(|rest| rest.strip_suffix(".alive")) {
            dead.extend(Alive::begin(database, id)?);
        }
    }
    Ok(dead)
}

/// Whether somebody holds the lock of the server with this id. What a dead one has left is removed.
pub(super) fn is_alive(database: &Path, server_id: &str) -> bool {
    is_plain_id(server_id) && matches!(Alive::begin(database, server_id), Ok(None))
}
