//! Walks through a directory tree.

use super::{TreeError, beneath, owner::AsOwner};
use crate::whole_file::list;
use rustix::{
    fs::{FileType, Stat, Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Upper limit of every depth bound: each level of a walk holds one descriptor.
pub const DEPTH_MAX: usize = 128;
/// Time for one walk. A local disk takes a second for the most entries that any caller allows.
const TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path below the root of the walk, of any bytes.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permissions with set-id and sticky bits (`07777`).
    pub mode: u32,
    /// Last change of content, which a program can set.
    pub mtime: Timestamp,
    pub stamp: Stamp,
    pub size: u64,
    /// Disk space in units of 512 bytes; less than the size if the file has holes.
    pub blocks: u64,
    pub links: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Link(PathBuf),
    /// A deletion in the upper layer of an overlay: a character device 0:0.
    Whiteout,
    /// FIFO, socket, device, or a directory on which something else is mounted.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: usize,
    /// Levels of directories; 0 allows files only. At most [`DEPTH_MAX`].
    pub depth: usize,
}

/// Returns all entries, depth first, names in byte order. Follows no link, crosses no mount, omits what is removed
/// meanwhile. Errors: `TooMany`, `TooDeep`, `TooSlow`, `Io` for a directory that cannot be read (see [`AsOwner`]).
pub fn walk(root: BorrowedFd<'_>, bounds: Bounds) -> Result<Vec<TreeEntry>, TreeError> {
    walk_at(root, Path::new(""), bounds)
}

/// Walks through a directory below `root`; the paths are relative to `root`.
pub(super) fn walk_at(
    root: BorrowedFd<'_>,
    below: &Path,
    bounds: Bounds,
) -> Result<Vec<TreeEntry>, TreeError> {
    walk_until(root, below, bounds, Instant::now() + TIME_MAX)
}

fn walk_until(
    root: BorrowedFd<'_>,
    below: &Path,
    bounds: Bounds,
    deadline: Instant,
) -> Result<Vec<TreeEntry>, TreeError> {
    let depth_max = bounds.depth.min(DEPTH_MAX);
    let mut entries = Vec::new();
    let _acting = AsOwner::of(root)?;
    let opened = beneath::open_directory(root, below)?;
    let mut listing = Listing {
        entries_max: bounds.entries,
        names: 0,
        deadline,
    };
    let mut levels = vec![listing.level(opened, below)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        listing.check_time(&level.path)?;
        let Some((entry, opened)) = level.entry_of(&name)? else {
            continue;
        };
        let path = entry.path.clone();
        entries.push(entry);
        let Some(opened) = opened else { continue };
        if levels.len() > depth_max {
            return Err(TreeError::TooDeep { path, depth_max });
        }
        levels.push(listing.level(opened, &path)?);
    }
    Ok(entries)
}

/// Returns one entry, by the same rules as a walk.
pub(super) fn entry_at(root: BorrowedFd<'_>, path: &Path) -> Result<TreeEntry, TreeError> {
    let _acting = AsOwner::of(root)?;
    let (directory, name) = beneath::open_parent(root, path, None)?;
    let level = Level {
        directory,
        path: path.parent().unwrap_or(Path::new("")).to_owned(),
        names: Vec::new(),
    };
    let name = CString::new(name.as_bytes()).map_err(|_| TreeError::NotFound(path.to_owned()))?;
    match level.entry_of(&name)? {
        Some((entry, _)) => Ok(entry),
        None => Err(TreeError::NotFound(path.to_owned())),
    }
}

/// Returns true if nothing is at the path, and false if it has an entry of this kind, which can be replaced or reused.
/// Anything else there, or a parent that is not a directory, is an error.
pub(super) fn is_free(root: BorrowedFd<'_>, path: &Path, kind: &EntryKind) -> Result<bool, TreeError> {
    match entry_at(root, path) {
        Ok(there) if there.kind != *kind => Err(TreeError::refused(path, "something else is there")),
        Ok(there) if there.kind == EntryKind::File && there.links > 1 => {
            Err(TreeError::refused(path, beneath::HARD_LINKED))
        }
        Ok(_) => Ok(false),
        Err(TreeError::NotFound(_)) => match path.parent() {
            None => Ok(true),
            Some(above) if above.as_os_str().is_empty() => Ok(true),
            Some(above) => is_free(root, above, &EntryKind::Directory).map(|_| true),
        },
        Err(error) => Err(error),
    }
}

struct Level {
    directory: OwnedFd,
    path: PathBuf,
    /// The names still to visit, the next one last.
    names: Vec<Box<CStr>>,
}

/// The bounds of one walk. Names count when listed, or a few nested full directories would hold more than the bound.
struct Listing {
    entries_max: usize,
    names: usize,
    deadline: Instant,
}

impl Listing {
    fn level(&mut self, directory: OwnedFd, path: &Path) -> Result<Level, TreeError> {
        self.check_time(path)?;
        let entries_max = self.entries_max;
        let left = entries_max.saturating_sub(self.names);
        let mut names = match list(&directory, left.saturating_add(1)) {
            // The directory itself was removed.
            Err(Errno::NOENT) => Vec::new(),
            listed => listed.map_err(TreeError::of("list", path))?,
        };
        if names.len() > left {
            return Err(TreeError::TooMany { entries_max });
        }
        self.names += names.len();
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Level {
            directory,
            path: path.to_owned(),
            names,
        })
    }

    fn check_time(&self, path: &Path) -> Result<(), TreeError> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let (path, time_max) = (path.to_owned(), TIME_MAX);
        Err(TreeError::TooSlow { path, time_max })
    }
}

impl Level {
    /// Returns the entry of a name, a directory with a descriptor; None if it was just removed or replaced.
    fn entry_of(&self, name: &CStr) -> Result<Option<(TreeEntry, Option<OwnedFd>)>, TreeError> {
        let name = OsStr::from_bytes(name.to_bytes());
        let path = self.path.join(name);
        let base = self.directory.as_fd();
        let Some(stat) = beneath::stat_entry(base, name).map_err(TreeError::of("look at", &path))? else {
            return Ok(None);
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => match beneath::open_listing(base, Path::new(name)) {
                Ok(opened) => {
                    let stat = rustix::fs::fstat(&opened).map_err(TreeError::of("look at", &path))?;
                    return Ok(Some((
                        TreeEntry::new(path, EntryKind::Directory, &stat),
                        Some(opened),
                    )));
                }
                Err(Errno::XDEV) => EntryKind::Other,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(error) => return Err(TreeError::of("open the directory", path)(error)),
            },
            FileType::Symlink => match rustix::fs::readlinkat(base, name, Vec::new()) {
                Ok(target) => EntryKind::Link(OsStr::from_bytes(target.as_bytes()).into()),
                Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                Err(error) => return Err(TreeError::of("read the link", path)(error)),
            },
            FileType::CharacterDevice if stat.st_rdev == 0 => EntryKind::Whiteout,
            _ => EntryKind::Other,
        };
        Ok(Some((TreeEntry::new(path, kind, &stat), None)))
    }
}

impl TreeEntry {
    pub(super) fn new(path: PathBuf, kind: EntryKind, stat: &Stat) -> Self {
        Self {
            path,
            kind,
            mode: stat.st_mode & 0o7777,
            mtime: Timestamp::of_content(stat),
            stamp: Stamp::of(stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            links: wide(stat.st_nlink),
        }
    }
}

/// Widens a link count, whose type depends on the processor.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// The identity of a live file; a program cannot set any part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Last change of content or attributes.
    pub(crate) ctime: Timestamp,
    pub(crate) inode: u64,
    pub(crate) device: u64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            ctime: Timestamp::of_change(stat),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64, pub u32);

impl Timestamp {
    pub(crate) fn of_content(stat: &Stat) -> Self {
        Self(stat.st_mtime, nanoseconds(stat.st_mtime_nsec))
    }

    pub(crate) fn of_change(stat: &Stat) -> Self {
        Self(stat.st_ctime, nanoseconds(stat.st_ctime_nsec))
    }

    /// For futimens(2): sets the last change of content and leaves the last access.
    pub(crate) fn to_set(self) -> Timestamps {
        Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: self.0,
                tv_nsec: self.1.into(),
            },
        }
    }
}

/// The kernel's value is always less than a second.
fn nanoseconds(part: impl TryInto<u32>) -> u32 {
    part.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{open_file, tests::fixture::Scratch};
    use std::{fs, os::unix::fs::symlink};

    const BOUNDS: Bounds = Bounds {
        entries: 20_000,
        depth: 16,
    };

    fn names(scratch: &Scratch) -> Vec<String> {
        let entries = walk(scratch.root(), BOUNDS).unwrap();
        entries
            .iter()
            .map(|entry| entry.path.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn walk_is_depth_first_in_byte_order_and_follows_no_symlink() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("b/deep")).unwrap();
        fs::write(scratch.path("b/deep/file"), "12345").unwrap();
        fs::write(scratch.path("b.txt"), "").unwrap();
        fs::write(scratch.path("Z"), "").unwrap();
        fs::write(scratch.path(OsStr::from_bytes(b"\xff\xfe")), "").unwrap();
        symlink("/etc", scratch.path("c")).unwrap();
        rustix::fs::mkfifoat(scratch.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(
            names(&scratch),
            [
                "Z",
                "b",
                "b/deep",
                "b/deep/file",
                "b.txt",
                "c",
                "fifo",
                "\u{fffd}\u{fffd}"
            ]
        );
        let entries = walk(scratch.root(), BOUNDS).unwrap();
        assert_eq!(entries[3].size, 5);
        assert_eq!(entries[5].kind, EntryKind::Link("/etc".into()));
        assert_eq!(entries[6].kind, EntryKind::Other);
        assert_eq!(entries[7].path.as_os_str().as_bytes(), b"\xff\xfe");
        let one = walk_at(scratch.root(), Path::new("b"), BOUNDS).unwrap();
        assert_eq!(one[0].path, Path::new("b/deep"));
    }

    #[test]
    fn exceeded_walk_bounds_are_errors() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("a/b/c")).unwrap();
        let bound = |entries, depth| walk(scratch.root(), Bounds { entries, depth });
        assert_eq!(bound(3, 3).unwrap().len(), 3);
        assert!(matches!(bound(2, 3), Err(TreeError::TooMany { entries_max: 2 })));
        assert!(matches!(bound(3, 2), Err(TreeError::TooDeep { .. })));
        assert!(matches!(bound(3, 0), Err(TreeError::TooDeep { .. })));
    }

    #[test]
    fn names_count_against_bound_when_listed() {
        let scratch = Scratch::new();
        let mut at = scratch.path("");
        for _ in 0..5 {
            // The directory is the first name, and the walk enters it before it visits the others.
            for file in 0..9 {
                fs::write(at.join(format!("z{file}")), "").unwrap();
            }
            at.push("a");
            fs::create_dir(&at).unwrap();
        }
        let bound = |entries| walk(scratch.root(), Bounds { entries, depth: 8 });
        assert_eq!(bound(50).unwrap().len(), 50);
        assert!(matches!(bound(49), Err(TreeError::TooMany { entries_max: 49 })));
        let listed = |entries_max| {
            let mut listing = Listing {
                entries_max,
                names: 0,
                deadline: Instant::now() + TIME_MAX,
            };
            let root = beneath::open_directory(scratch.root(), Path::new("")).unwrap();
            let first = listing.level(root, Path::new("")).unwrap();
            let below = beneath::open_listing(first.directory.as_fd(), Path::new("a")).unwrap();
            listing.level(below, Path::new("a")).is_ok()
        };
        assert!(
            listed(20) && !listed(19),
            "the second directory has what the first left"
        );
    }

    #[test]
    fn walk_past_deadline_fails_with_path() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("a/b")).unwrap();
        let until = |deadline| walk_until(scratch.root(), Path::new("a"), BOUNDS, deadline);
        assert_eq!(until(Instant::now() + TIME_MAX).unwrap().len(), 1);
        let ended = until(Instant::now());
        assert!(
            matches!(&ended, Err(TreeError::TooSlow { path, .. }) if path == Path::new("a")),
            "{ended:?}"
        );
    }

    #[test]
    fn walk_depth_is_limited_to_depth_max() {
        let scratch = Scratch::new();
        let mut at = fs::File::open(scratch.path("")).unwrap().into();
        for _ in 0..2000 {
            rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            at = beneath::open_listing(OwnedFd::as_fd(&at), Path::new("d")).unwrap();
        }
        let bounds = Bounds {
            entries: 10_000,
            depth: usize::MAX,
        };
        let refused = walk(scratch.root(), bounds);
        assert!(matches!(
            refused,
            Err(TreeError::TooDeep {
                depth_max: DEPTH_MAX,
                ..
            })
        ));
    }

    #[test]
    fn only_regular_files_with_one_hard_link_are_opened() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("d")).unwrap();
        fs::write(scratch.path("d/plain"), "x").unwrap();
        fs::write(scratch.path("one"), "x").unwrap();
        fs::hard_link(scratch.path("one"), scratch.path("two")).unwrap();
        symlink("d", scratch.path("to_d")).unwrap();
        symlink("d/plain", scratch.path("to_file")).unwrap();
        rustix::fs::mkfifoat(scratch.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(scratch.path("socket")).unwrap();
        let open = |path: &str| open_file(scratch.root(), Path::new(path));
        assert!(open("d/plain").is_ok());
        for path in ["d", "two", "to_d/plain", "to_file", "fifo", "socket"] {
            assert!(matches!(open(path), Err(TreeError::Refused { .. })), "{path}");
        }
        for path in ["", "..", "../x", "/etc/passwd", "d/../one", "."] {
            assert!(matches!(open(path), Err(TreeError::Path { .. })), "{path}");
        }
        assert!(matches!(open("none"), Err(TreeError::NotFound(_))));
        assert!(matches!(open("one/none"), Err(TreeError::NotFound(_))));
    }

    #[test]
    fn mount_point_is_listed_but_not_entered() {
        // `/` has mount points: a level of a walk has them as entries that are not directories.
        let root = fs::File::open("/").unwrap();
        let device = rustix::fs::fstat(&root).unwrap().st_dev;
        let root = Level {
            directory: root.into(),
            path: PathBuf::new(),
            names: Vec::new(),
        };
        let (entry, opened) = root.entry_of(c"proc").unwrap().unwrap();
        assert_ne!(
            entry.stamp.device, device,
            "the control: /proc is another file system"
        );
        assert_eq!(entry.kind, EntryKind::Other);
        assert!(opened.is_none());
    }

    #[test]
    fn walk_of_ten_thousand_files_takes_under_a_second() {
        let scratch = Scratch::new();
        for directory in 0..100 {
            fs::create_dir(scratch.path(format!("{directory}"))).unwrap();
            for file in 0..100 {
                fs::write(scratch.path(format!("{directory}/{file}")), "").unwrap();
            }
        }
        let start = Instant::now();
        assert_eq!(walk(scratch.root(), BOUNDS).unwrap().len(), 10_100);
        let took = start.elapsed();
        println!("10,100 entries in {took:?}");
        // Ten times the specified figure, for a busy machine.
        assert!(took.as_millis() < 1000, "{took:?}");
    }
}
