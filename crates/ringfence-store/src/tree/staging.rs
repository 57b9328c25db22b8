//! Files that wait, out of the way, until all of them are whole.

use super::{Timestamp, TreeError, beneath, owner::AsOwner};
use crate::{
    digest::Hashing,
    whole_file::{modified, random_hex},
};
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

const OWN: &str = ".ringfence-";
/// A directory that was made a moment ago may not be locked yet.
const LEFT_AFTER: Duration = Duration::from_secs(60);
/// Looked at for what was left.
const NAMES_MAX: usize = 1_000_000;

/// A directory of its own beneath a root, closed to others; dropped, it is gone with what was not put in place.
pub(super) struct StagingDir<'r> {
    root: BorrowedFd<'r>,
    name: String,
    directory: OwnedFd,
    files: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub mode: u32,
    /// None: now.
    pub mtime: Option<Timestamp>,
}

/// One of its files, or a link.
pub(super) struct Staged {
    number: u64,
    pub size: u64,
    pub sha256: [u8; 32],
}

impl Staged {
    fn unread(number: u64) -> Self {
        Self {
            number,
            size: 0,
            sha256: [0; 32],
        }
    }
}

/// Removes what processes have left in `root` that were killed. Whose directory is locked is alive; and in one of
/// ours there are files and links with numbers for names: with anything else in it, it stays.
pub(super) fn forget_left(root: BorrowedFd<'_>) -> Result<(), TreeError> {
    let failed = || TreeError::of("remove what was left in", ".");
    for entry in Dir::read_from(root).map_err(failed())?.take(NAMES_MAX) {
        let name = entry.map_err(failed())?.file_name().to_owned();
        let Some(name) = name.to_str().ok().filter(|name| is_own_name(name)) else {
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
    if modified(&stat).elapsed().is_ok_and(|age| age < LEFT_AFTER) {
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

impl<'r> StagingDir<'r> {
    pub(super) fn new(root: BorrowedFd<'r>) -> Result<Self, TreeError> {
        // No program can guess it, and so none can be in the way.
        let random = random_hex::<8>().map_err(TreeError::io("name", "a staging directory"))?;
        let name = format!("{OWN}{random}");
        let mode = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(root, &name, mode).map_err(TreeError::of("make", &name))?;
        let opened = beneath::open_listing(root, Path::new(&name));
        let directory = opened.map_err(TreeError::of("open", &name))?;
        // While the lock is held, no other process takes the directory for a leftover.
        let locked = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(TreeError::of("lock", &name))?;
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
        attributes: Attributes,
        bytes_max: u64,
    ) -> Result<Staged, TreeError> {
        let number = self.next();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&self.directory, number.to_string(), flags, mode);
        let mut out = Hashing::new(File::from(file.map_err(TreeError::of("create", path))?));
        let copied = std::io::copy(&mut (&mut reader).take(bytes_max), &mut out);
        let size = copied.map_err(TreeError::io("write", path))?;
        if size == bytes_max && reader.read(&mut [0]).map_err(TreeError::io("read", path))? > 0 {
            return Err(TreeError::too_large(path, bytes_max));
        }
        let (file, hashed) = out.finish();
        beneath::give_like(file.as_fd(), "", self.root).map_err(TreeError::of("give away", path))?;
        let mode = Mode::from_raw_mode(attributes.mode);
        rustix::fs::fchmod(&file, mode).map_err(TreeError::of("set the mode of", path))?;
        if let Some(mtime) = attributes.mtime {
            rustix::fs::futimens(&file, &mtime.to_set()).map_err(TreeError::of("date", path))?;
        }
        Ok(Staged {
            number,
            size,
            sha256: hashed.sha256,
        })
    }

    /// A symbolic link; nothing is ever done with what it points to.
    pub(super) fn link(&mut self, target: &Path, path: &Path) -> Result<Staged, TreeError> {
        let number = self.next();
        let name = number.to_string();
        let made = rustix::fs::symlinkat(target, &self.directory, name.as_str());
        made.map_err(TreeError::of("make the link", path))?;
        let given = beneath::give_like(self.directory.as_fd(), &name, self.root);
        given.map_err(TreeError::of("give away", path))?;
        Ok(Staged::unread(number))
    }

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

    /// Puts it in its place: instead of whatever file is there, where nothing is (`NOREPLACE`, `Errno::EXIST`:
    /// something is), or in exchange (`EXCHANGE`): then what was there lies here, as [`StagingDir::here`] says.
    pub(super) fn place(
        &self,
        staged: &Staged,
        to: BorrowedFd<'_>,
        name: &OsStr,
        how: RenameFlags,
    ) -> rustix::io::Result<()> {
        rustix::fs::renameat_with(&self.directory, staged.number.to_string(), to, name, how)
    }

    /// False: something is there already.
    pub(super) fn place_new(
        &self,
        staged: &Staged,
        to: BorrowedFd<'_>,
        name: &OsStr,
    ) -> rustix::io::Result<bool> {
        match self.place(staged, to, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // Not on this file system: as soon after a look as can be.
            Err(Errno::INVAL | Errno::NOSYS) if beneath::look(to, name)?.is_some() => Ok(false),
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.place(staged, to, name, RenameFlags::empty()).map(|()| true)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a file or a link out of its place.
    pub(super) fn take(&mut self, directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Staged> {
        let number = self.next();
        rustix::fs::renameat(directory, name, &self.directory, number.to_string())?;
        Ok(Staged::unread(number))
    }

    /// Of what lies under its number now.
    pub(super) fn inode(&self, staged: &Staged) -> rustix::io::Result<u64> {
        let name = staged.number.to_string();
        rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino)
    }

    /// Where it lies, from the root.
    pub(super) fn here(&self, staged: &Staged) -> PathBuf {
        Path::new(&self.name).join(staged.number.to_string())
    }
}

impl Drop for StagingDir<'_> {
    fn drop(&mut self) {
        // An error may have ended the caller's own.
        let _acting = match AsOwner::of(self.root) {
            Ok(acting) => acting,
            Err(error) => return tracing::warn!(%error, "a staging directory was not removed"),
        };
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

/// Whether it has the form of a staging directory's name.
fn is_own_name(name: &str) -> bool {
    let digits = name.strip_prefix(OWN);
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
