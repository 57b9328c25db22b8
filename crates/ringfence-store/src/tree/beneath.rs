//! The system calls below a directory's descriptor, all under one rule: beneath it, on its file system, through no
//! link, and with the rights of its owner where the server is root. A parameter `root` is the directory whose owner
//! counts; one called `base` or `directory` lies in it, and who calls has taken those rights already.

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

/// What every open has: no link at the end, no controlling terminal, no wait for the other end of a FIFO.
const ALWAYS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Opens a regular file for reading. Errors: `Refused` when a link or another mount is on the way, when it is anything
/// but a regular file, and when the file has a second name, which may lie outside; `NotFound`.
pub fn open_file(root: BorrowedFd<'_>, path: &Path) -> Result<File, TreeError> {
    let (file, stat) = open_regular(root, path)?;
    if stat.st_nlink > 1 {
        return Err(TreeError::refused(path, SECOND_NAME));
    }
    Ok(file)
}

pub const NO_FILE: &str = "it is no regular file";
pub(super) const SECOND_NAME: &str = "the file has more than one name (hard link)";

/// The same, whatever number of names it has.
pub(crate) fn open_regular(root: BorrowedFd<'_>, path: &Path) -> Result<(File, Stat), TreeError> {
    check(path)?;
    let _acting = AsOwner::of(root)?;
    let opened = rustix::fs::openat2(root, path, OFlags::RDONLY | ALWAYS, Mode::empty(), INSIDE);
    let file = opened.map_err(TreeError::of("open", path))?;
    let stat = rustix::fs::fstat(&file).map_err(TreeError::of("look at", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(TreeError::refused(path, NO_FILE));
    }
    Ok((file.into(), stat))
}

/// Opens a directory for listing and as the base of further calls; the empty path is `root` itself.
pub(super) fn open_directory(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, TreeError> {
    let here = here(path);
    if here == path {
        check(path)?;
    }
    let _acting = AsOwner::of(root)?;
    open_listing(root, here).map_err(TreeError::of("open the directory", path))
}

/// The path for a system call: that of the base itself is not empty there.
pub(crate) fn here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

/// The bare call, for a name that a listing of `base` gave.
pub(crate) fn open_listing(base: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
    rustix::fs::openat2(base, name, flags, Mode::empty(), INSIDE)
}

/// The directory in which the last name of a path lies, as a handle, and that name. With `make`, directories that are
/// missing are made with this mode, and belong to whom their own directory belongs to.
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
    let mut at = hold_directory(root, Path::new(".")).map_err(TreeError::of("open the directory", parent))?;
    for part in parent {
        let part = Path::new(part);
        at = match (hold_directory(at.as_fd(), part), make) {
            (Ok(opened), _) => opened,
            (Err(Errno::NOENT), Some(mode)) => {
                make_directory(at.as_fd(), part, mode).map_err(TreeError::of("make the directory", parent))?
            }
            (Err(Errno::NOTDIR), Some(_)) => {
                return Err(TreeError::refused(parent, "a part of it is no directory"));
            }
            (Err(error), _) => return Err(TreeError::of("open the directory", parent)(error)),
        };
    }
    Ok((at, name))
}

/// Makes a directory and those above it, open to their owner until their modes are set; those there are left.
pub(super) fn make_directories(root: BorrowedFd<'_>, path: &Path) -> Result<(), TreeError> {
    let _acting = AsOwner::of(root)?;
    let (parent, name) = open_parent(root, path, Some(0o755))?;
    let made = make_directory(parent.as_fd(), Path::new(name), 0o755);
    made.map(drop).map_err(TreeError::of("make the directory", path))
}

/// Makes a directory directly in `base`, or finds one that was made at this moment.
fn make_directory(base: BorrowedFd<'_>, name: &Path, mode: u32) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(base, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            let opened = open_listing(base, name)?;
            give_like(opened.as_fd(), "", base)?;
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode))?;
            Ok(opened)
        }
        Err(Errno::EXIST) => hold_directory(base, name),
        Err(error) => Err(error),
    }
}

/// What root makes belongs to the owner of `like`, so that a program may go on with it: what has this name in
/// `directory`, not followed, or with an empty name what is open as `directory`. A process that is not root gives
/// nothing away.
pub(super) fn give_like(
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

/// Not opened, only held: for what may have no permissions.
pub(crate) fn open_handle(base: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(base, path, flags, Mode::empty(), INSIDE)
}

/// The same for a directory, directly in `base` or `.`.
fn hold_directory(base: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(base, name, flags, Mode::empty(), INSIDE)
}

/// What lies directly in a directory under this name, not followed.
pub(super) fn look(base: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Option<Stat>> {
    match rustix::fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path below a directory: names only.
pub(super) fn check(path: &Path) -> Result<(), TreeError> {
    let is_name = |component| matches!(component, Component::Normal(_));
    if path.components().all(is_name) && !path.as_os_str().is_empty() {
        return Ok(());
    }
    let (path, what) = (path.into(), "it is not a path of plain names below the directory");
    Err(TreeError::Path { path, what })
}
