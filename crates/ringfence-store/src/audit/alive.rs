//! Which of the servers that write into one record live: each holds the lock of a file beside it as long as it does,
//! so that what a dead server has left open is known from what a live one still does.

use crate::whole_file::{Directory, FileError, FileLock, is_plain_id};
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(super) struct Alive {
    path: PathBuf,
    _lock: FileLock,
}

impl Alive {
    /// None: the id is no name for a file, or another server lives under it; ids are made once, and a server that uses
    /// one twice is as alive as the first.
    pub(super) fn begin(database: &Path, server_id: &str) -> Result<Option<Self>, FileError> {
        let Some(path) = file(database, server_id) else {
            return Ok(None);
        };
        let (directory, name) = Directory::of_file(&path)?;
        let lock = directory.lock(&name, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock.map(|_lock| Self { path, _lock }))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// A server that died without removing its file, which is locked as long as this is held: no other server closes what
/// the dead one has left open.
pub(super) struct Dead {
    pub(super) server_id: String,
    path: PathBuf,
    _lock: FileLock,
}

impl Dead {
    pub(super) fn all(database: &Path) -> Result<Vec<Self>, FileError> {
        let (directory, name) = Directory::of_file(database)?;
        let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
        let mut dead = Vec::new();
        for name in directory.names()? {
            let id = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
            let Some(id) = id.and_then(|rest| rest.strip_suffix(".alive")) else {
                continue;
            };
            let Some(path) = file(database, id) else { continue };
            if let Some(lock) = directory.lock(&name, FlockOperation::NonBlockingLockExclusive)? {
                dead.push(Self {
                    server_id: id.to_owned(),
                    path,
                    _lock: lock,
                });
            }
        }
        Ok(dead)
    }

    /// What it left open is closed.
    pub(super) fn forget(self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Whether somebody holds the lock of the server with this id.
pub(super) fn is_alive(database: &Path, server_id: &str) -> bool {
    let Some(path) = file(database, server_id) else {
        return false;
    };
    let opened = Directory::of_file(&path).and_then(|(directory, name)| directory.open(&name, OFlags::RDWR));
    let Ok(Some(lock)) = opened else { return false };
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

fn file(database: &Path, server_id: &str) -> Option<PathBuf> {
    is_plain_id(server_id).then(|| database.with_extension(format!("{server_id}.alive")))
}
