//! The host directory behind a workspace. A process that may write above it can replace it by a link or another
//! directory between two uses of its path. So the server opens it once, following no link, and each later use of the
//! path checks that it leads to the same directory.

use ringfence_sys::file;
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// A directory as it was opened. Its identity is valid only while it is held open: later its inode may be another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    pub path: PathBuf,
    pub identity: (u64, u64),
}

impl Pinned {
    /// Opens a directory for listing; `None` if there is a link on the path.
    pub fn open(path: &Path) -> io::Result<Option<(Self, OwnedFd)>> {
        let opened = match file::open_listing_no_symlinks(path) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
            opened => opened?,
        };
        let pinned = Self {
            path: path.to_owned(),
            identity: file::identity(opened.as_fd())?,
        };
        Ok(Some((pinned, opened)))
    }

    /// True if the directory at `path`, following links, is this one.
    pub fn is_at(&self, path: &Path) -> bool {
        let found = file::open_handle(path).and_then(|found| file::identity(found.as_fd()));
        found.is_ok_and(|found| found == self.identity)
    }

    /// Opens the same directory, in this process's view of the host. Fails with `ESTALE` if another one is at its path.
    pub(crate) fn reopen(&self) -> io::Result<OwnedFd> {
        let found = file::open_handle(&self.path)?;
        if file::identity(found.as_fd())? == self.identity {
            Ok(found)
        } else {
            Err(io::Error::from(io::ErrorKind::StaleNetworkFileHandle))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn replaced_directory_is_detected() {
        let root = std::env::temp_dir().join(format!("ringfence-pinned-{}", std::process::id()));
        fs::create_dir_all(root.join("shared")).unwrap();
        fs::create_dir(root.join("victim")).unwrap();
        let root = root.canonicalize().unwrap();
        let shared = root.join("shared");
        let (pinned, _held) = Pinned::open(&shared).unwrap().unwrap();
        pinned.reopen().unwrap();
        assert!(pinned.is_at(&shared) && !pinned.is_at(&root));
        fs::rename(&shared, root.join("away")).unwrap();
        symlink(root.join("victim"), &shared).unwrap();
        assert!(pinned.reopen().is_err(), "a link to another directory");
        assert_eq!(
            Pinned::open(&shared).unwrap().map(|_| ()),
            None,
            "a link at the end"
        );
        fs::remove_file(&shared).unwrap();
        fs::create_dir(&shared).unwrap();
        assert!(pinned.reopen().is_err(), "another directory");
        fs::create_dir(root.join("victim/below")).unwrap();
        symlink(root.join("victim"), root.join("link")).unwrap();
        let linked = Pinned::open(&root.join("link/below")).unwrap();
        assert_eq!(linked.map(|_| ()), None, "a link on the way");
        assert!(pinned.is_at(&root.join("away")));
        fs::remove_dir_all(root).unwrap();
    }
}
