//! Everything below a directory, as it lies there.

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

/// Each level of a walk holds one descriptor, so no bound of depth is taken beyond this.
pub const DEPTH_MAX: usize = 128;
/// Of one walk. A local disk takes a second for the most entries that any caller allows.
const TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Below the directory that was walked. Any bytes, not only text.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permissions with set-id and sticky bits (`07777`).
    pub mode: u32,
    /// Last change of content. A program can set it.
    pub mtime: Timestamp,
    pub stamp: Stamp,
    pub size: u64,
    /// What it takes, in 512 bytes; less than its size where it has holes.
    pub blocks: u64,
    pub links: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Link(PathBuf),
    /// In the upper layer of an overlay: what is below was deleted. A character device of number 0:0.
    Whiteout,
    /// FIFO, socket, device, or a directory on which something else is mounted.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: usize,
    /// Directories inside each other; 0 allows files only. At most [`DEPTH_MAX`].
    pub depth: usize,
}

/// All entries, depth first, names in the order of their bytes. No link is followed and no mount crossed. What vanishes
/// meanwhile is left out. Errors: `TooMany`, `TooDeep`, `TooSlow`, and `Io` for a directory that cannot be read, by its
/// owner where the server is root.
pub fn walk(root: BorrowedFd<'_>, bounds: Bounds) -> Result<Vec<TreeEntry>, TreeError> {
    walk_at(root, Path::new(""), bounds)
}

/// The same for a directory below; the paths stay those below `root`.
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
        let Some((entry, opened)) = level.look(&name)? else {
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

/// One entry, by the same rules.
pub(super) fn one(root: BorrowedFd<'_>, path: &Path) -> Result<TreeEntry, TreeError> {
    let _acting = AsOwner::of(root)?;
    let (directory, name) = beneath::open_parent(root, path, None)?;
    let level = Level {
        directory,
        path: path.parent().unwrap_or(Path::new("")).to_owned(),
        names: Vec::new(),
    };
    let name = CString::new(name.as_bytes()).map_err(|_| TreeError::NotFound(path.to_owned()))?;
    match level.look(&name)? {
        Some((entry, _)) => Ok(entry),
        None => Err(TreeError::NotFound(path.to_owned())),
    }
}

/// Nothing is there, or (false) something that this may replace or be.
pub(super) fn is_free(root: BorrowedFd<'_>, path: &Path, kind: &EntryKind) -> Result<bool, TreeError> {
    match one(root, path) {
        Ok(there) if there.kind != *kind => Err(TreeError::refused(path, "something else is there")),
        Ok(there) if there.kind == EntryKind::File && there.links > 1 => {
            Err(TreeError::refused(path, beneath::SECOND_NAME))
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
    /// Those still to come, the next one last.
    names: Vec<Box<CStr>>,
}

/// What is left of the bounds of one walk. Names count when they are listed: else a few full directories inside each
/// other would hold more of them than any bound.
struct Listing {
    entries_max: usize,
    /// Listed so far.
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
    /// What the name is now; a directory comes opened. None: it is gone, or became something else at this moment.
    fn look(&self, name: &CStr) -> Result<Option<(TreeEntry, Option<OwnedFd>)>, TreeError> {
        let name = OsStr::from_bytes(name.to_bytes());
        let path = self.path.join(name);
        let base = self.directory.as_fd();
        let Some(stat) = beneath::look(base, name).map_err(TreeError::of("look at", &path))? else {
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

/// Its width depends on the processor.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// By what a live file is known: a program can set none of it.
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
    /// Of the last change of content, which a program can set.
    pub(crate) fn of_content(stat: &Stat) -> Self {
        Self(stat.st_mtime, nanoseconds(stat.st_mtime_nsec))
    }

    /// Of the last change of content or attributes, which a program cannot set.
    pub(crate) fn of_change(stat: &Stat) -> Self {
        Self(stat.st_ctime, nanoseconds(stat.st_ctime_nsec))
    }

    /// For futimens(2): the last change of content; the last access is left.
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

/// The kernel gives less than a second.
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

    fn names(place: &Scratch) -> Vec<String> {
        let entries = walk(place.root(), BOUNDS).unwrap();
        entries
            .iter()
            .map(|entry| entry.path.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_walk_names_everything_depth_first_in_the_order_of_bytes_and_follows_nothing() {
        let place = Scratch::new();
        fs::create_dir_all(place.path("b/deep")).unwrap();
        fs::write(place.path("b/deep/file"), "12345").unwrap();
        fs::write(place.path("b.txt"), "").unwrap();
        fs::write(place.path("Z"), "").unwrap();
        fs::write(place.path(OsStr::from_bytes(b"\xff\xfe")), "").unwrap();
        symlink("/etc", place.path("c")).unwrap();
        rustix::fs::mkfifoat(place.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(
            names(&place),
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
        let entries = walk(place.root(), BOUNDS).unwrap();
        assert_eq!(entries[3].size, 5);
        assert_eq!(entries[5].kind, EntryKind::Link("/etc".into()));
        assert_eq!(entries[6].kind, EntryKind::Other);
        assert_eq!(entries[7].path.as_os_str().as_bytes(), b"\xff\xfe");
        let one = walk_at(place.root(), Path::new("b"), BOUNDS).unwrap();
        assert_eq!(one[0].path, Path::new("b/deep"));
    }

    #[test]
    fn bounds_are_errors_not_silence() {
        let place = Scratch::new();
        fs::create_dir_all(place.path("a/b/c")).unwrap();
        let bound = |entries, depth| walk(place.root(), Bounds { entries, depth });
        assert_eq!(bound(3, 3).unwrap().len(), 3);
        assert!(matches!(bound(2, 3), Err(TreeError::TooMany { entries_max: 2 })));
        assert!(matches!(bound(3, 2), Err(TreeError::TooDeep { .. })));
        assert!(matches!(bound(3, 0), Err(TreeError::TooDeep { .. })));
    }

    #[test]
    fn names_count_when_they_are_listed_however_few_of_them_are_looked_at() {
        let place = Scratch::new();
        let mut at = place.path("");
        for _ in 0..5 {
            // The directory is the first of its names, and the walk goes down before it looks at the others.
            for file in 0..9 {
                fs::write(at.join(format!("z{file}")), "").unwrap();
            }
            at.push("a");
            fs::create_dir(&at).unwrap();
        }
        let bound = |entries| walk(place.root(), Bounds { entries, depth: 8 });
        assert_eq!(bound(50).unwrap().len(), 50);
        assert!(matches!(bound(49), Err(TreeError::TooMany { entries_max: 49 })));
        let listed = |entries_max| {
            let mut listing = Listing {
                entries_max,
                names: 0,
                deadline: Instant::now() + TIME_MAX,
            };
            let root = beneath::open_directory(place.root(), Path::new("")).unwrap();
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
    fn a_walk_ends_at_its_deadline_and_says_where() {
        let place = Scratch::new();
        fs::create_dir_all(place.path("a/b")).unwrap();
        let until = |deadline| walk_until(place.root(), Path::new("a"), BOUNDS, deadline);
        assert_eq!(until(Instant::now() + TIME_MAX).unwrap().len(), 1);
        let ended = until(Instant::now());
        assert!(
            matches!(&ended, Err(TreeError::TooSlow { path, .. }) if path == Path::new("a")),
            "{ended:?}"
        );
    }

    #[test]
    fn a_tree_deeper_than_any_bound_ends_the_walk_with_few_descriptors() {
        let place = Scratch::new();
        let mut at = fs::File::open(place.path("")).unwrap().into();
        for _ in 0..2000 {
            rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            at = beneath::open_listing(OwnedFd::as_fd(&at), Path::new("d")).unwrap();
        }
        let bounds = Bounds {
            entries: 10_000,
            depth: usize::MAX,
        };
        let refused = walk(place.root(), bounds);
        assert!(matches!(
            refused,
            Err(TreeError::TooDeep {
                depth_max: DEPTH_MAX,
                ..
            })
        ));
    }

    #[test]
    fn only_plain_files_with_one_name_are_opened() {
        let place = Scratch::new();
        fs::create_dir(place.path("d")).unwrap();
        fs::write(place.path("d/plain"), "x").unwrap();
        fs::write(place.path("one"), "x").unwrap();
        fs::hard_link(place.path("one"), place.path("two")).unwrap();
        symlink("d", place.path("to_d")).unwrap();
        symlink("d/plain", place.path("to_file")).unwrap();
        rustix::fs::mkfifoat(place.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
        let open = |path: &str| open_file(place.root(), Path::new(path));
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
    fn another_mount_is_named_and_not_entered() {
        // `/` itself has mounts: the walk from it with depth 0 sees them as entries that are no directories.
        let root = fs::File::open("/").unwrap();
        let device = rustix::fs::fstat(&root).unwrap().st_dev;
        let proc = Level {
            directory: root.into(),
            path: PathBuf::new(),
            names: Vec::new(),
        };
        let (entry, opened) = proc.look(c"proc").unwrap().unwrap();
        assert_ne!(
            entry.stamp.device, device,
            "the control: /proc is another file system"
        );
        assert_eq!(entry.kind, EntryKind::Other);
        assert!(opened.is_none());
    }

    #[test]
    fn ten_thousand_files_take_a_moment() {
        let place = Scratch::new();
        for directory in 0..100 {
            fs::create_dir(place.path(format!("{directory}"))).unwrap();
            for file in 0..100 {
                fs::write(place.path(format!("{directory}/{file}")), "").unwrap();
            }
        }
        let start = Instant::now();
        assert_eq!(walk(place.root(), BOUNDS).unwrap().len(), 10_100);
        let took = start.elapsed();
        println!("10,100 entries in {took:?}");
        // Ten times the figure, for a busy machine.
        assert!(took.as_millis() < 1000, "{took:?}");
    }
}
