//! The directory of the control sockets. It is opened once, and the files in it are named through `/proc/self/fd`: the
//! address of a Unix socket has 108 bytes (unix(7)), and the path of a state directory may be longer.

use ringfence_store::make_own_directory;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

const CONTROL: &str = "control";
const SOCKET: &str = ".sock";
/// Suffix of a socket until its server listens on it.
const UNFINISHED: &str = ".new";
const SERVERS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct SocketDir {
    directory: File,
}

impl SocketDir {
    pub(super) fn make(state_dir: &Path) -> io::Result<Self> {
        make_own_directory(&state_dir.join(CONTROL))?;
        Self::open(state_dir)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Opens the directory; `None` if no server has run here.
    pub(super) fn open(state_dir: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(state_dir.join(CONTROL), flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => File::from(opened?),
        };
        let found = directory.metadata()?;
        if found.uid() != super::own_uid() || found.mode() & 0o077 != 0 {
            return Err(io::Error::other(
                "the directory of the control sockets is not this user's alone; remove it or chmod it to 0700",
            ));
        }
        Ok(Some(Self { directory }))
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    pub(super) fn socket(&self, pid: u32) -> PathBuf {
        self.path(&format!("{pid}{SOCKET}"))
    }

    pub(super) fn unfinished(&self, pid: u32) -> PathBuf {
        self.path(&format!("{pid}{UNFINISHED}"))
    }

    /// Removes a server's socket; a missing one is not an error.
    pub(super) fn remove(&self, pid: u32) {
        self.unlink(&format!("{pid}{SOCKET}"));
    }

    fn unlink(&self, name: &str) {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, name, "a control socket could not be removed"),
        }
    }

    /// Returns the process ids of servers that have a socket here, alive or dead, in ascending order.
    pub(super) fn servers(&self) -> io::Result<Vec<u32>> {
        let mut pids = self.pids(SOCKET)?;
        pids.sort_unstable();
        pids.truncate(SERVERS_MAX);
        Ok(pids)
    }

    /// Removes the unfinished sockets of servers that died while making them, and one with this process's id.
    pub(super) fn sweep_unfinished(&self) -> io::Result<()> {
        for pid in self.pids(UNFINISHED)? {
            if pid == std::process::id() || !Path::new("/proc").join(pid.to_string()).exists() {
                self.unlink(&format!("{pid}{UNFINISHED}"));
            }
        }
        Ok(())
    }

    fn pids(&self, ending: &str) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.path("."))?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names
            .filter_map(|name| name.strip_suffix(ending)?.parse().ok())
            .collect())
    }
}

#[cfg(test)]
pub(super) mod tests;
