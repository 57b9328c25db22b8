//! Files by descriptor; no function here follows a link that a program may have made.

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
    time::Instant,
};

/// A file in memory, closed on exec.
pub fn memory_file(name: &str) -> io::Result<File> {
    Ok(fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// The current directory, as a descriptor for the `*at` functions below.
pub fn current_directory() -> BorrowedFd<'static> {
    fs::CWD
}

/// Takes over a descriptor that this process was started with. Each number can be taken once.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: std::sync::Mutex<Vec<RawFd>> = std::sync::Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: F_GETFD takes plain numbers.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if !open || taken.contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    taken.push(number);
    // SAFETY: the descriptor is open (checked) and no other owner was made by this function (remembered).
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts the null device on those of the descriptors 0 to 2 that are closed, for as long as the process lives. What is
/// opened after this has another number, so that nothing printed is written into it.
pub fn fill_standard_descriptors() -> io::Result<()> {
    loop {
        // The kernel gives the lowest number that is free.
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

/// Opens a directory as a handle only, whatever links lead there.
pub fn open_handle(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory for listing by a path of the host that has no link in it (`openat2`).
pub fn open_listing_unlinked(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let unlinked = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(fs::openat2(fs::CWD, path, flags, Mode::empty(), unlinked)?)
}

/// The ways by which a path leads to its file: as it is written, by each link on it, and without links. What is not
/// there is where the rest of its path is.
pub fn ways(path: &Path) -> Vec<PathBuf> {
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

/// Opens a file for reading below `base`: no link, no `..`, no other mount (`openat2`). Does not wait on a FIFO.
pub fn open_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::empty(), INSIDE)?.into())
}

/// Creates or replaces a file below `base`, under the same rules.
pub fn create_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::from_raw_mode(0o644), INSIDE)?.into())
}

/// Creates a file below `base` that is not there yet, under the same rules.
pub fn create_new_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::from_raw_mode(0o644), INSIDE)?.into())
}

/// Removes a file directly in `base`.
pub fn remove_file_beneath(base: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    if name.components().count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(fs::unlinkat(base, name, AtFlags::empty())?)
}

/// Makes a directory below `base` under the same rules; one that is there already is fine.
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

/// Makes a directory with this mode, less what the process's mask takes away.
pub fn make_directory(base: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(base, path, Mode::from_raw_mode(mode))?)
}

pub fn make_link(base: BorrowedFd<'_>, path: &Path, target: &str) -> io::Result<()> {
    Ok(fs::symlinkat(target, base, path)?)
}

/// Makes a new file with this mode; it must not be there yet.
pub fn make_file(base: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::from_raw_mode(mode))?.into())
}

pub fn set_umask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask));
}

/// What a directory entry is, by `lstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Link,
    /// In the upper layer of an overlay: what is below was deleted. A character device of number 0:0.
    Whiteout,
    /// FIFO, socket or device.
    Other,
}

/// One entry, not followed.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name within its directory.
    pub name: PathBuf,
    pub kind: Kind,
    pub size: u64,
    /// Bytes that it takes of its file system.
    pub allocated: u64,
    /// Number of names this file has.
    pub links: u64,
    /// Last change of content or attributes: seconds, nanoseconds (a program cannot set it).
    pub changed: (i64, i64),
    pub identity: (u64, u64),
}

/// The entries of a directory, at most `max` and as many as are looked at by `deadline`; `true` says that there were
/// more.
pub fn list(directory: BorrowedFd<'_>, max: usize, deadline: Instant) -> io::Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == max || Instant::now() >= deadline {
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

/// Makes an open file somebody's.
pub fn hand_to(open: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(open, Some(uid), Some(gid))?)
}

/// The open file behind a name in a listing of `/proc/[pid]/fd`, whether or not it has a name of its own any more.
pub fn behind(listing: BorrowedFd<'_>, name: &Path) -> io::Result<Entry> {
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

/// Opens a namespace by its file in `/proc`.
pub fn open_namespace(proc: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(fs::openat(proc, path, flags, Mode::empty())?)
}

/// Writes a small file that is there already, such as one of `/proc`, in one call.
pub fn write_small(base: BorrowedFd<'_>, path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    open_to_write(base, path)?.write_all(text.as_bytes())
}

/// Opens a file that is there already.
pub fn open_to_write(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(fs::openat(base, path, flags, Mode::empty())?.into())
}

pub fn open_to_read(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(fs::openat(base, path, flags, Mode::empty())?.into())
}

/// At most `max` bytes of a small file such as those of `/proc`, as text.
pub fn read_small(base: BorrowedFd<'_>, path: &Path, max: u64) -> io::Result<String> {
    let file = open_to_read(base, path)?;
    // One call for most of what `/proc` tells, where it would begin with 32 bytes.
    let mut bytes = Vec::with_capacity(4096);
    file.take(max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub fn read_link(base: BorrowedFd<'_>, path: &Path) -> io::Result<String> {
    Ok(fs::readlinkat(base, path, Vec::new())?
        .to_string_lossy()
        .into_owned())
}

/// A counter descriptor for kernel notifications (`eventfd`).
pub fn event_counter() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(
        0,
        rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
    )?)
}

pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether this process may write there, by the kernel's own answer (`EROFS` and user namespaces included).
pub fn may_write(path: &Path) -> bool {
    fs::accessat(fs::CWD, path, fs::Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

pub fn read(descriptor: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(descriptor, buffer)?)
}

/// The names in a directory, at most `max`, without looking at what they are.
pub fn list_names(directory: BorrowedFd<'_>, max: usize) -> io::Result<Vec<PathBuf>> {
    let names = fs::Dir::read_from(directory)?.filter_map(Result::ok);
    let shown = names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    Ok(shown
        .take(max)
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes())))
        .collect())
}

/// Names in a directory and whether each is a directory, as its listing says (`d_type`); at most `max`.
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

/// Lets the owner of a directory below `base` list and enter it again, under the same rules.
pub fn open_up_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = fs::openat2(base, path, flags, Mode::empty(), INSIDE)?;
    open_up(directory.as_fd())
}

/// The same for a directory that is held, unless it is open.
pub fn open_up(directory: BorrowedFd<'_>) -> io::Result<()> {
    const OWNER: u32 = 0o700;
    if fs::fstat(directory)?.st_mode & OWNER == OWNER {
        return Ok(());
    }
    // An O_PATH descriptor is no file that fchmod(2) takes; this name of it cannot be exchanged.
    let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
    Ok(fs::chmod(name, Mode::from_raw_mode(OWNER))?)
}

/// Opens a directory below `base` for listing: no link, no `..`, no other mount.
pub fn open_listing_beneath(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(base, path, flags, Mode::empty(), INSIDE)?)
}

/// Removes a directory with all that a program has left in it, however deep that is and whatever its modes are; no link
/// is followed. A directory that is not empty is first moved up beside the others, so that neither the stack nor the
/// open descriptors grow with the depth. Nothing else may change the tree meanwhile.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let root = open_to_empty(fs::CWD, path)?;
    let (mut is_empty, mut moved) = (false, 0_u64);
    while !is_empty {
        is_empty = true;
        for entry in fs::Dir::read_from(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || is_removed(root.as_fd(), name)? {
                continue;
            }
            is_empty = false;
            let directory = open_to_empty(root.as_fd(), name)?;
            for below in fs::Dir::read_from(&directory)? {
                let below = below?;
                let below = below.file_name();
                if !matches!(below.to_bytes(), b"." | b"..") && !is_removed(directory.as_fd(), below)? {
                    drop(open_to_empty(directory.as_fd(), below)?);
                    move_up(directory.as_fd(), below, root.as_fd(), &mut moved)?;
                }
            }
        }
    }
    drop(root);
    Ok(fs::unlinkat(fs::CWD, path, AtFlags::REMOVEDIR)?)
}

/// A directory whose entries its owner may remove, and which may be moved.
fn open_to_empty(base: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(base, name, flags | OFlags::PATH, Mode::empty())?;
    open_up(handle.as_fd())?;
    Ok(fs::openat(base, name, flags | OFlags::RDONLY, Mode::empty())?)
}

/// Removes what is no directory, or an empty one; false: something is in it.
fn is_removed(base: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<bool> {
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

/// Gives it the next name that is free there.
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

    /// `std::fs::remove_dir_all` calls itself for each level, and ends the process here.
    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_whatever_its_modes_are() {
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
    fn what_is_no_directory_is_not_removed_as_one() {
        let base = std::env::temp_dir().join(format!("ringfence-remove-link-{}", std::process::id()));
        std::fs::create_dir_all(base.join("there")).unwrap();
        symlink(base.join("there"), base.join("link")).unwrap();
        assert!(remove_tree(&base.join("link")).is_err());
        assert!(remove_tree(&base.join("absent")).is_err());
        assert!(base.join("there").exists());
        remove_tree(&base).unwrap();
    }
}
