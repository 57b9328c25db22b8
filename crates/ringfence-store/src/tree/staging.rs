//! A staging directory: files that are complete before any of them is put in place.

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

const NAME_PREFIX: &str = ".ringfence-";
/// Minimum age of a leftover: a directory that was just created may not be locked yet.
const LEFTOVER_AGE_MIN: Duration = Duration::from_secs(60);
/// Maximum number of names searched for leftovers.
const NAMES_MAX: usize = 1_000_000;

/// A private directory beneath a root. Dropping it removes it, with the files that were not put in place.
pub(super) struct StagingDir<'r> {
    root: BorrowedFd<'r>,
    name: String,
    directory: OwnedFd,
    files: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub mode: u32,
    /// Modification time; None for the present.
    pub mtime: Option<Timestamp>,
}

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

/// Removes the staging directories that killed processes have left in `root`. A locked directory is in use. A staging
/// directory has only files and links with numbers as names; a directory with anything else in it is kept.
pub(super) fn remove_stale_staging(root: BorrowedFd<'_>) -> Result<(), TreeError> {
    let failed = || TreeError::of("remove what was left in", ".");
    for entry in Dir::read_from(root).map_err(failed())?.take(NAMES_MAX) {
        let name = entry.map_err(failed())?.file_name().to_owned();
        let Some(name) = name.to_str().ok().filter(|name| is_own_name(name)) else {
            continue;
        };
        match remove_if_stale(root, name) {
            // Not a staging directory, in use, or already removed.
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP | Errno::WOULDBLOCK | Errno::NOTEMPTY)
            | Ok(()) => {}
            Err(error) => tracing::warn!(%error, "a staging directory that was left was not removed"),
        }
    }
    Ok(())
}

fn remove_if_stale(root: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let directory = beneath::open_listing(root, Path::new(name))?;
    let stat = rustix::fs::fstat(&directory)?;
    if modified(&stat).elapsed().is_ok_and(|age| age < LEFTOVER_AGE_MIN) {
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
        // Random, so that no program can guess the name and take it first.
        let random = random_hex::<8>().map_err(TreeError::io("name", "a staging directory"))?;
        let name = format!("{NAME_PREFIX}{random}");
        let mode = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(root, &name, mode).map_err(TreeError::of("make", &name))?;
        let opened = beneath::open_listing(root, Path::new(&name));
        let directory = opened.map_err(TreeError::of("open", &name))?;
        // The lock keeps other processes from removing the directory as a leftover.
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

    /// Writes all that the reader yields, at most `bytes_max`, to a file owned like the root. `path` is for errors.
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
        beneath::chown_like(file.as_fd(), "", self.root).map_err(TreeError::of("give away", path))?;
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

    /// Creates a symbolic link; its target is never followed.
    pub(super) fn link(&mut self, target: &Path, path: &Path) -> Result<Staged, TreeError> {
        let number = self.next();
        let name = number.to_string();
        let made = rustix::fs::symlinkat(target, &self.directory, name.as_str());
        made.map_err(TreeError::of("make the link", path))?;
        let given = beneath::chown_like(self.directory.as_fd(), &name, self.root);
        given.map_err(TreeError::of("give away", path))?;
        Ok(Staged::unread(number))
    }

    pub(super) fn sync(&self, staged: &Staged, path: &Path) -> Result<(), TreeError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = staged.number.to_string();
        match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => rustix::fs::fsync(file).map_err(TreeError::of("bring to the disk", path)),
            // A link is stored in its directory.
            Err(Errno::LOOP) => Ok(()),
            Err(error) => Err(TreeError::of("open", path)(error)),
        }
    }

    /// Renames a staged file to its destination: replaces a file there, or with `NOREPLACE` fails (`Errno::EXIST`) if
    /// something is there, or with `EXCHANGE` swaps the two: the old file is then at [`StagingDir::path_of`].
    pub(super) fn place(
        &self,
        staged: &Staged,
        to: BorrowedFd<'_>,
        name: &OsStr,
        how: RenameFlags,
    ) -> rustix::io::Result<()> {
        rustix::fs::renameat_with(&self.directory, staged.number.to_string(), to, name, how)
    }

    /// Returns false if something is at the destination already.
    pub(super) fn place_new(
        &self,
        staged: &Staged,
        to: BorrowedFd<'_>,
        name: &OsStr,
    ) -> rustix::io::Result<bool> {
        match self.place(staged, to, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // Not supported by this file system: a check, immediately followed by a plain rename.
            Err(Errno::INVAL | Errno::NOSYS) if beneath::stat_entry(to, name)?.is_some() => Ok(false),
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.place(staged, to, name, RenameFlags::empty()).map(|()| true)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves a file or a link from its directory into the staging directory.
    pub(super) fn take(&mut self, directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Staged> {
        let number = self.next();
        rustix::fs::renameat(directory, name, &self.directory, number.to_string())?;
        Ok(Staged::unread(number))
    }

    /// Returns the inode of what is now under the number of a staged file.
    pub(super) fn inode(&self, staged: &Staged) -> rustix::io::Result<u64> {
        let name = staged.number.to_string();
        rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino)
    }

    /// Returns the path of a staged file below the root.
    pub(super) fn path_of(&self, staged: &Staged) -> PathBuf {
        Path::new(&self.name).join(staged.number.to_string())
    }
}

impl Drop for StagingDir<'_> {
    fn drop(&mut self) {
        // The caller's guard may have been dropped by an error.
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

fn is_own_name(name: &str) -> bool {
    let digits = name.strip_prefix(NAME_PREFIX);
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
