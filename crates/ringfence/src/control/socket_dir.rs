//! The directory of the control sockets. It is opened once and everything in it is named from there, by way of
//! `/proc/self/fd`: an address of a Unix socket has 108 bytes (unix(7)), and a state directory may lie deeper.

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
/// What a socket is called until somebody listens at it.
const UNFINISHED: &str = ".new";
const SERVERS_MAX: usize = 256;

/// An open directory of this user's alone.
#[derive(Debug)]
pub(super) struct SocketDir {
    directory: File,
}

impl SocketDir {
    pub(super) fn make(state_dir: &Path) -> io::Result<Self> {
        make_own_directory(&state_dir.join(CONTROL))?;
        Self::open(state_dir)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// None: no server has run here.
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

    /// A short path to a file in it, for this process.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    pub(super) fn socket(&self, pid: u32) -> PathBuf {
        self.path(&format!("{pid}{SOCKET}"))
    }

    /// Where a server makes its socket, before anybody looks for it.
    pub(super) fn unfinished(&self, pid: u32) -> PathBuf {
        self.path(&format!("{pid}{UNFINISHED}"))
    }

    /// Takes the name away; a name that is gone is no error.
    pub(super) fn remove(&self, pid: u32) {
        self.unlink(&format!("{pid}{SOCKET}"));
    }

    fn unlink(&self, name: &str) {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, name, "a control socket could not be removed"),
        }
    }

    /// The servers that have a socket here, living or dead, in the order of their numbers.
    pub(super) fn servers(&self) -> io::Result<Vec<u32>> {
        let mut pids = self.pids(SOCKET)?;
        pids.sort_unstable();
        pids.truncate(SERVERS_MAX);
        Ok(pids)
    }

    /// Removes what servers that died while they made a socket have left.
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
