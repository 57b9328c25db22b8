//! Which of the servers that write into one record live: each holds the lock of a file beside it as long as it does,
//! so that what a server has left open when it died is known from what one is still at.

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// This server lives.
pub(super) struct Alive {
    path: PathBuf,
    _lock: File,
}

impl Alive {
    /// None: the id is no name for a file, or another lives under it.
    pub(super) fn begin(database: &Path, server_id: &str) -> io::Result<Option<Self>> {
        let Some(path) = file(database, server_id) else {
            return Ok(None);
        };
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?);
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Ids are made once; who uses one twice is as alive as the first.
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Somebody may have looked between the two, found it unlocked and removed it.
            let there = fs::symlink_metadata(&path).map(|there| there.ino());
            if there.is_ok_and(|there| lock.metadata().is_ok_and(|own| own.ino() == there)) {
                return Ok(Some(Self { path, _lock: lock }));
            }
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Does a server with this id live. What a dead one has left is removed.
pub(super) fn is_alive(database: &Path, server_id: &str) -> bool {
    let Some(path) = file(database, server_id) else {
        return false;
    };
    let Ok(lock) = rustix::fs::open(
        &path,
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return false;
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            drop(fs::remove_file(&path));
            false
        }
        Err(error) => error == Errno::WOULDBLOCK,
    }
}

fn file(database: &Path, server_id: &str) -> Option<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let fits = (1..=64).contains(&server_id.len()) && server_id.chars().all(is_plain);
    fits.then(|| database.with_extension(format!("{server_id}.alive")))
}
