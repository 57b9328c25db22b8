//! File operations on descriptors. A link that a program may have made is not followed.

use rustix::fs::{self, AtFlags, FileType, MemfdFlags, Mode, OFlags, ResolveFlags};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

/// Creates a file in memory (`memfd_create(2)`), closed on exec.
pub fn memory_file(name: &str) -> io::Result<File> {
    Ok(fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Returns the current directory (`AT_FDCWD`) for the `*at` functions below.
pub fn current_directory() -> BorrowedFd<'static> {
    fs::CWD
}

/// Takes ownership of a descriptor that this process was started with. `EBADF`: it is closed, or was taken before.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: std::sync::Mutex<Vec<RawFd>> = std::sync::Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: F_GETFD takes numbers and no pointer.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if !open || taken.contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    taken.push(number);
    // SAFETY: the descriptor is open (checked); callers name only inherited ones, which get one owner, here (`taken`).
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Opens /dev/null on each of the descriptors 0 to 2 that is closed, for the life of the process. Files that are opened
/// later get other numbers, so that printed text is never written into them.
pub fn fill_standard_descriptors() -> io::Result<()> {
    loop {
        // The kernel returns the lowest free number.
        let null = fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > 2 {
            return Ok(());
        }
        std::mem::forget(null);
    }
}

/// Opens a directory as a handle only (`O_PATH`).
pub fn open_directory(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::empty())?)
}

/// Opens a directory as a handle only (`O_PATH`); symlinks in the path are followed.
pub fn open_handle(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory of the host for listing; a path with a symlink in it is refused (`openat2`).
pub fn open_listing_no_symlinks(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let unlinked = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(fs::openat2(fs::CWD, path, flags, Mode::empty(), unlinked)?)
}

/// Returns the paths that a path is resolved through: the path as written, the location of each symlink on the way (up
/// to a limit), and the path without those symlinks. A component that does not exist is kept as written.
pub fn resolution_paths(path: &Path) -> Vec<PathBuf> {
    const LINKS_MAX: usize = 40;
    let parts = |path: &Path| path.iter().rev().map(OsStr::to_owned).collect::<Vec<_>>();
    let (mut found, mut at, mut rest) = (vec![path.to_owned()], PathBuf::from("/"), parts(path));
    while let Some(part) = rest.pop() {
        let next = match part == ".." {
            true => at.parent().unwrap_or(&at).to_owned(),
            false => at.join(part),
        };
        match std::fs::read_link(&next) {
            Ok(target) if found.len() < LINKS_MAX => {
                rest.extend(parts(&target));
                found.push(next);
            }
            _ => at = next,
        }
    }
    found.push(at);
    found
}

pub fn identity(open: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = fs::fstat(open)?;
    Ok((stat.st_dev, stat.st_ino))
}

pub fn open_listing(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::empty())?)
}

const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens a file for reading below `base`, never through a link or in another mount (`openat2`), nor blocks on a FIFO.
pub fn open_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::empty(), INSIDE)?.into())
}

/// Creates or truncates a file below `base`, under the rules of [`open_beneath`].
pub fn create_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::from_raw_mode(0o644), INSIDE)?.into())
}

/// Creates a file below `base`, which must not exist yet, under the rules of [`open_beneath`].
pub fn create_new_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::from_raw_mode(0o644), INSIDE)?.into())
}

/// Removes a file directly in `base`; a path of several components is `EINVAL`.
pub fn remove_file_beneath(base: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    if name.components().count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(fs::unlinkat(base, name, AtFlags::empty())?)
}

/// Creates a directory below `base` under the rules of [`open_beneath`]. An existing entry is not an error.
pub fn make_directory_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let opened = match parent {
        Some(parent) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Some(fs::openat2(base, parent, flags, Mode::empty(), INSIDE)?)
        }
        None => None,
    };
    let directory = opened.as_ref().map_or(base, AsFd::as_fd);
    match fs::mkdirat(directory, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a directory with this mode, less the umask.
pub fn make_directory(base: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(base, path, Mode::from_raw_mode(mode))?)
}

pub fn make_link(base: BorrowedFd<'_>, path: &Path, target: &str) -> io::Result<()> {
    Ok(fs::symlinkat(target, base, path)?)
}

/// Creates a file with this mode, less the umask; it must not exist yet.
pub fn make_file(base: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::from_raw_mode(mode))?.into())
}

pub fn set_umask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask));
}

/// Type of a directory entry; a symlink is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Link,
    /// Marks a deletion in the upper layer of an overlay: a character device with number 0:0.
    Whiteout,
    /// FIFO, socket or device.
    Other,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Name within its directory.
    pub name: PathBuf,
    pub kind: Kind,
    pub size: u64,
    /// Bytes allocated on its file system.
    pub allocated: u64,
    /// Number of hard links.
    pub links: u64,
    /// Last change of content or attributes (`ctime`): seconds, nanoseconds. A program cannot set it.
    pub changed: (i64, i64),
    pub identity: (u64, u64),
}

/// Lists at most `max` entries of a directory, until `is_over`, without following symlinks; true: there are more.
pub fn list(
    directory: BorrowedFd<'_>,
    max: usize,
    mut is_over: impl FnMut() -> bool,
) -> io::Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == max || is_over() {
            return Ok((entries, true));
        }
        let stat = match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let name = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
        entries.push(entry_of(name, &stat));
    }
    Ok((entries, false))
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the fields are narrower on other machines"
)]
fn entry_of(name: PathBuf, stat: &fs::Stat) -> Entry {
    Entry {
        name,
        kind: kind_of(stat.st_mode, stat.st_rdev),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        allocated: 512 * u64::try_from(stat.st_blocks).unwrap_or(0),
        links: stat.st_nlink,
        changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
        identity: (stat.st_dev, stat.st_ino),
    }
}

pub fn change_owner(open: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(open, Some(uid), Some(gid))?)
}

/// Returns the metadata of the open file behind a name in a listing of `/proc/[pid]/fd`, even if it is unlinked.
pub fn stat_open_file(listing: BorrowedFd<'_>, name: &Path) -> io::Result<Entry> {
    let stat = fs::statat(listing, name, AtFlags::empty())?;
    Ok(entry_of(name.to_owned(), &stat))
}

fn kind_of(mode: u32, device: u64) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::CharacterDevice if device == 0 => Kind::Whiteout,
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

pub fn owner(open: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let stat = fs::fstat(open)?;
    Ok((stat.st_uid, stat.st_gid))
}

pub fn open_namespace(proc: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(fs::openat(proc, path, flags, Mode::empty())?)
}

/// Writes a small existing file, such as one of `/proc`, in one call.
pub fn write_small(base: BorrowedFd<'_>, path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    open_to_write(base, path)?.write_all(text.as_bytes())
}

/// Opens an existing file for writing.
pub fn open_to_write(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::empty())?.into())
}

pub fn open_to_read(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(fs::openat(base, path, flags, Mode::empty())?.into())
}

/// Reads at most `max` bytes of a small file, such as one of `/proc`, as text; invalid UTF-8 is replaced.
pub fn read_small(base: BorrowedFd<'_>, path: &Path, max: u64) -> io::Result<String> {
    let file = open_to_read(base, path)?;
    // Most files of `/proc` fit into one read of this size; an empty vector would begin with 32 bytes.
    let mut bytes = Vec::with_capacity(4096);
    file.take(max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub fn read_link(base: BorrowedFd<'_>, path: &Path) -> io::Result<String> {
    Ok(fs::readlinkat(base, path, Vec::new())?
        .to_string_lossy()
        .into_owned())
}

/// Opens a counter for notifications of the kernel (`eventfd(2)`).
pub fn event_counter() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(
        0,
        rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
    )?)
}

pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// True if the kernel lets this process write there (`faccessat2(2)`: `EROFS` and user namespaces included).
pub fn may_write(path: &Path) -> bool {
    fs::accessat(fs::CWD, path, fs::Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

pub fn read(descriptor: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(descriptor, buffer)?)
}

pub fn list_names(directory: BorrowedFd<'_>, max: usize) -> io::Result<Vec<PathBuf>> {
    let names = fs::Dir::read_from(directory)?.filter_map(Result::ok);
    let listed = names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    Ok(listed
        .take(max)
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes())))
        .collect())
}

/// Lists the names in a directory with the types in its listing (`d_type`). More than `max` entries are an error.
pub fn list_kinds(directory: BorrowedFd<'_>, max: usize) -> io::Result<Vec<(PathBuf, Kind)>> {
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if entries.len() == max {
            return Err(io::Error::other("too many entries"));
        }
        let kind = match entry.file_type() {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        entries.push((PathBuf::from(OsStr::from_bytes(name)), kind));
    }
    Ok(entries)
}

/// Opens up a directory below `base` to its owner, as [`grant_owner_access`] does, under the rules of [`open_beneath`].
pub fn grant_owner_access_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = fs::openat2(base, path, flags, Mode::empty(), INSIDE)?;
    grant_owner_access(directory.as_fd())
}

/// Sets the mode of a directory to 0700, unless its owner can already list it, change it and enter it.
pub fn grant_owner_access(directory: BorrowedFd<'_>) -> io::Result<()> {
    const OWNER: u32 = 0o700;
    if fs::fstat(directory)?.st_mode & OWNER == OWNER {
        return Ok(());
    }
    // fchmod(2) refuses an O_PATH descriptor; no program can redirect this path to it.
    let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
    Ok(fs::chmod(name, Mode::from_raw_mode(OWNER))?)
}

/// Opens a directory below `base` for listing, under the rules of [`open_beneath`].
pub fn open_listing_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::empty(), INSIDE)?)
}

/// Removes a directory with all that a program has left in it, of any depth and with any modes; no link is followed. A
/// directory that is not empty is first moved up into `path`, so that neither the stack nor the number of open
/// descriptors grows with the depth. Nothing else may change the tree meanwhile.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let root = open_to_empty(fs::CWD, path)?;
    let (mut is_empty, mut moved) = (false, 0_u64);
    while !is_empty {
        is_empty = true;
        for entry in fs::Dir::read_from(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || try_remove(root.as_fd(), name)? {
                continue;
            }
            is_empty = false;
            let directory = open_to_empty(root.as_fd(), name)?;
            for below in fs::Dir::read_from(&directory)? {
                let below = below?;
                let below = below.file_name();
                if !matches!(below.to_bytes(), b"." | b"..") && !try_remove(directory.as_fd(), below)? {
                    drop(open_to_empty(directory.as_fd(), below)?);
                    move_up(directory.as_fd(), below, root.as_fd(), &mut moved)?;
                }
            }
        }
    }
    drop(root);
    Ok(fs::unlinkat(fs::CWD, path, AtFlags::REMOVEDIR)?)
}

/// Opens a directory and makes its owner able to remove its entries and to move it.
fn open_to_empty(base: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(base, name, flags | OFlags::PATH, Mode::empty())?;
    grant_owner_access(handle.as_fd())?;
    Ok(fs::openat(base, name, flags | OFlags::RDONLY, Mode::empty())?)
}

/// Removes an entry that is not a directory, or an empty directory. Returns false if the directory is not empty.
fn try_remove(base: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<bool> {
    use rustix::io::Errno;
    let removed = match fs::unlinkat(base, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => fs::unlinkat(base, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Moves an entry to the next free name in `to`.
fn move_up(
    from: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    to: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match fs::renameat_with(from, name, to, free, fs::RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => {}
            renamed => return Ok(renamed?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// `std::fs::remove_dir_all` recurses for each level and overflows this stack.
    #[test]
    fn deep_tree_with_closed_directories_is_removed() {
        const DEPTH: usize = 5_000;
        let base = std::env::temp_dir().join(format!("ringfence-remove-tree-{}", std::process::id()));
        let (tree, elsewhere) = (base.join("tree"), base.join("elsewhere"));
        for directory in ["tree/shut/below", "tree/moved-1", "elsewhere"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["tree/shut/below/file", "tree/moved-2", "elsewhere/kept"] {
            std::fs::write(base.join(file), "x").unwrap();
        }
        symlink(&elsewhere, tree.join("shut/link")).unwrap();
        for shut in ["tree/shut/below", "tree/shut"] {
            std::fs::set_permissions(base.join(shut), std::fs::Permissions::from_mode(0o0)).unwrap();
        }
        let mut deepest = open_listing(fs::CWD, &tree).unwrap();
        for _ in 0..DEPTH {
            make_directory(deepest.as_fd(), Path::new("d"), 0o700).unwrap();
            deepest = open_listing(deepest.as_fd(), Path::new("d")).unwrap();
        }
        make_file(deepest.as_fd(), Path::new("file"), 0o600).unwrap();
        drop(deepest);
        let remover = std::thread::Builder::new().stack_size(256 << 10);
        let removed = remover.spawn(move || remove_tree(&tree)).unwrap().join().unwrap();
        removed.unwrap();
        assert!(elsewhere.join("kept").exists(), "a link was followed");
        assert!(!base.join("tree").exists());
        remove_tree(&base).unwrap();
    }

    #[test]
    fn link_and_absent_path_are_not_removed_as_trees() {
        let base = std::env::temp_dir().join(format!("ringfence-remove-link-{}", std::process::id()));
        std::fs::create_dir_all(base.join("there")).unwrap();
        symlink(base.join("there"), base.join("link")).unwrap();
        assert!(remove_tree(&base.join("link")).is_err());
        assert!(remove_tree(&base.join("absent")).is_err());
        assert!(base.join("there").exists());
        remove_tree(&base).unwrap();
    }
}
