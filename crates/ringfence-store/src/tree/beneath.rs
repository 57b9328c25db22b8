//! The system calls below a directory's descriptor. All of them stay beneath it and on its file system, follow no link,
//! and have the rights of its owner if the server runs as root. The parameter `root` is the directory whose owner's
//! rights are taken; `base` or `directory` lies in it, and the caller has taken those rights already.

use super::{TreeError, owner::AsOwner};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
};

const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Flags of every open: no symbolic link, no controlling terminal, no wait for the other end of a FIFO.
const ALWAYS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Opens a regular file for reading. Errors: `Refused` for a link or another mount in the path, for anything but a
/// regular file, and for a file with a second hard link, which may lie outside; `NotFound`.
pub fn open_file(root: BorrowedFd<'_>, path: &Path) -> Result<File, TreeError> {
    let (file, stat) = open_regular(root, path)?;
    if stat.st_nlink > 1 {
        return Err(TreeError::refused(path, HARD_LINKED));
    }
    Ok(file)
}

pub const NOT_REGULAR: &str = "it is not a regular file";
pub(super) const HARD_LINKED: &str = "the file has more than one name (hard link)";

/// Opens a regular file for reading, with any number of hard links.
pub(crate) fn open_regular(root: BorrowedFd<'_>, path: &Path) -> Result<(File, Stat), TreeError> {
    check(path)?;
    let _acting = AsOwner::of(root)?;
    let opened = rustix::fs::openat2(root, path, OFlags::RDONLY | ALWAYS, Mode::empty(), INSIDE);
    let file = opened.map_err(TreeError::of("open", path))?;
    let stat = rustix::fs::fstat(&file).map_err(TreeError::of("look at", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(TreeError::refused(path, NOT_REGULAR));
    }
    Ok((file.into(), stat))
}

/// Opens a directory for listing and as the base of further calls. The empty path is `root` itself.
pub(super) fn open_directory(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, TreeError> {
    let resolved = path_or_dot(path);
    if resolved == path {
        check(path)?;
    }
    let _acting = AsOwner::of(root)?;
    open_listing(root, resolved).map_err(TreeError::of("open the directory", path))
}

pub(crate) fn path_or_dot(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

/// Opens a directory for listing; the bare system call.
pub(crate) fn open_listing(base: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
    rustix::fs::openat2(base, name, flags, Mode::empty(), INSIDE)
}

/// Returns a handle of a path's parent directory, and the last name of the path. With `make`, missing directories are
/// created with this mode and the owner of their own parent.
pub(crate) fn open_parent<'a>(
    root: BorrowedFd<'_>,
    path: &'a Path,
    make: Option<u32>,
) -> Result<(OwnedFd, &'a OsStr), TreeError> {
    check(path)?;
    let failed = || TreeError::NotFound(path.into());
    let name = path.file_name().ok_or_else(failed)?;
    let parent = path.parent().unwrap_or(Path::new(""));
    let _acting = AsOwner::of(root)?;
    let mut at =
        directory_handle(root, Path::new(".")).map_err(TreeError::of("open the directory", parent))?;
    for part in parent {
        let part = Path::new(part);
        at = match (directory_handle(at.as_fd(), part), make) {
            (Ok(opened), _) => opened,
            (Err(Errno::NOENT), Some(mode)) => {
                make_directory(at.as_fd(), part, mode).map_err(TreeError::of("make the directory", parent))?
            }
            (Err(Errno::NOTDIR), Some(_)) => {
                return Err(TreeError::refused(parent, "a part of it is not a directory"));
            }
            (Err(error), _) => return Err(TreeError::of("open the directory", parent)(error)),
        };
    }
    Ok((at, name))
}

/// Creates a directory and its parents, with mode 0755; existing ones are left as they are.
pub(super) fn make_directories(root: BorrowedFd<'_>, path: &Path) -> Result<(), TreeError> {
    let _acting = AsOwner::of(root)?;
    let (parent, name) = open_parent(root, path, Some(0o755))?;
    let made = make_directory(parent.as_fd(), Path::new(name), 0o755);
    made.map(drop).map_err(TreeError::of("make the directory", path))
}

/// Creates a directory directly in `base`, or opens one that exists by now.
fn make_directory(base: BorrowedFd<'_>, name: &Path, mode: u32) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(base, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            let opened = open_listing(base, name)?;
            chown_like(opened.as_fd(), "", base)?;
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode))?;
            Ok(opened)
        }
        Err(Errno::EXIST) => directory_handle(base, name),
        Err(error) => Err(error),
    }
}

/// Gives an entry to the owner of `like`, so that a program can use what root created: the entry of this name in
/// `directory`, not followed, or `directory` itself if the name is empty. Does nothing if the process is not root.
pub(super) fn chown_like(
    directory: BorrowedFd<'_>,
    name: &str,
    like: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let like = rustix::fs::fstat(like)?;
    let (user, group) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    rustix::fs::chownat(directory, name, Some(user), Some(group), flags)
}

/// Opens a handle (`O_PATH`), which needs no permissions on the entry itself.
pub(crate) fn open_handle(base: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(base, path, flags, Mode::empty(), INSIDE)
}

/// Opens a handle (`O_PATH`) of a directory, directly in `base`, or of `base` itself (`.`).
fn directory_handle(base: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(base, name, flags, Mode::empty(), INSIDE)
}

/// Returns the attributes of the entry of this name directly in a directory, not followed; None if it does not exist.
pub(super) fn stat_entry(base: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Option<Stat>> {
    match rustix::fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn check(path: &Path) -> Result<(), TreeError> {
    let is_name = |component| matches!(component, Component::Normal(_));
    if path.components().all(is_name) && !path.as_os_str().is_empty() {
        return Ok(());
    }
    let (path, what) = (path.into(), "it is not a path of plain names below the directory");
    Err(TreeError::Path { path, what })
}
