//! Files that wait, out of the way, until all of them are whole.

use super::{TreeError, beneath, draft, files::HashWriter};
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};
use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, SystemTime},
};

/// A directory that was made a moment ago may not be locked yet.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// A directory of its own beneath a root, closed to others; dropped, it is gone with what was not put in place.
pub(super) struct Stage<'r> {
    root: BorrowedFd<'r>,
    name: String,
    directory: OwnedFd,
    files: u64,
}

/// One of its files, or a link.
pub(super) struct Staged {
    number: u64,
    pub size: u64,
    pub sha256: [u8; 32],
}

/// Removes what processes have left in `root` that were killed. Whose directory is locked is alive; and in one of ours there
/// are files and links with numbers for names: with anything else in it, it stays.
pub(super) fn forget_left(root: BorrowedFd<'_>) -> Result<(), TreeError> {
    let failed = || TreeError::of("remove what was left in", ".");
    for entry in Dir::read_from(root).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name().to_owned();
        let Some(name) = name.to_str().ok().filter(|name| draft::is_own_name(name)) else {
            continue;
        };
        match forget_one(root, name) {
            // Not ours, or not any more.
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP | Errno::WOULDBLOCK | Errno::NOTEMPTY)
            | Ok(()) => {}
            Err(error) => tracing::warn!(%error, "a staging directory that was left was not removed"),
        }
    }
    Ok(())
}

fn forget_one(root: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let directory = beneath::open_listing(root, Path::new(name))?;
    let stat = rustix::fs::fstat(&directory)?;
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    if made.elapsed().is_ok_and(|age| age < LEFT_AFTER) {
        return Ok(());
    }
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let is_number = entry.file_name().to_bytes().iter().all(u8::is_ascii_digit);
        if is_number && entry.file_type() != FileType::Directory {
            rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR)
}

impl<'r> Stage<'r> {
    pub(super) fn new(root: BorrowedFd<'r>) -> Result<Self, TreeError> {
        let name = draft::own_name().map_err(TreeError::io("name", "a staging directory"))?;
        let mode = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(root, &name, mode).map_err(TreeError::of("make", &name))?;
        let directory =
            beneath::open_listing(root, Path::new(&name)).map_err(TreeError::of("open", &name))?;
        // As long as it is held, this is nobody's left-over.
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
            .map_err(TreeError::of("lock", &name))?;
        Ok(Self {
            root,
            name,
            directory,
            files: 0,
        })
    }

    fn next(&mut self) -> u64 {
        self.files += 1;
        self.files
    }

    /// All that the reader gives, at most `bytes_max`; `path` is where it is meant to go. Its owner is the root's.
    pub(super) fn write(
        &mut self,
        mut reader: impl Read,
        path: &Path,
        (mode, mtime): (u32, (i64, u32)),
        bytes_max: u64,
    ) -> Result<Staged, TreeError> {
        let number = self.next();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            &self.directory,
            number.to_string(),
            flags,
            Mode::from_raw_mode(0o600),
        )
        .map_err(TreeError::of("create", path))?;
        let mut out = Hashed(File::from(file), Sha256::new());
        let size = std::io::copy(&mut (&mut reader).take(bytes_max), &mut out)
            .map_err(TreeError::io("write", path))?;
        if size == bytes_max && reader.read(&mut [0]).map_err(TreeError::io("read", path))? > 0 {
            return Err(super::files::too_large(path, bytes_max));
        }
        let Hashed(file, hash) = out;
        beneath::give_like(file.as_fd(), self.root).map_err(TreeError::of("give away", path))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .map_err(TreeError::of("set the mode of", path))?;
        rustix::fs::futimens(&file, &draft::timestamps(mtime)).map_err(TreeError::of("date", path))?;
        Ok(Staged {
            number,
            size,
            sha256: hash.finalize().into(),
        })
    }

    /// A symbolic link; nothing is ever done with what it points to.
    pub(super) fn link(&mut self, target: &Path, path: &Path) -> Result<Staged, TreeError> {
        let number = self.next();
        let name = number.to_string();
        rustix::fs::symlinkat(target, &self.directory, name.as_str())
            .map_err(TreeError::of("make the link", path))?;
        beneath::give_link_like(self.directory.as_fd(), &name, self.root)
            .map_err(TreeError::of("give away", path))?;
        Ok(Staged {
            number,
            size: 0,
            sha256: [0; 32],
        })
    }

    /// Brings a file of it to the disk.
    pub(super) fn sync(&self, staged: &Staged, path: &Path) -> Result<(), TreeError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = staged.number.to_string();
        match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => rustix::fs::fsync(file).map_err(TreeError::of("bring to the disk", path)),
            // A link lies in its directory.
            Err(Errno::LOOP) => Ok(()),
            Err(error) => Err(TreeError::of("open", path)(error)),
        }
    }

    /// In its place, instead of whatever file is there.
    pub(super) fn place(
        &self,
        staged: &Staged,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), TreeError> {
        rustix::fs::renameat(&self.directory, staged.number.to_string(), directory, name)
            .map_err(TreeError::of("put in place", path))
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for number in 1..=self.files {
            match rustix::fs::unlinkat(&self.directory, number.to_string(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => tracing::warn!(%error, "a staged file was not removed"),
            }
        }
        if let Err(error) = rustix::fs::unlinkat(self.root, self.name.as_str(), AtFlags::REMOVEDIR) {
            tracing::warn!(%error, "a staging directory was not removed");
        }
    }
}

struct Hashed(File, Sha256);

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes)?;
        HashWriter(&mut self.1).write(&bytes[..written])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
