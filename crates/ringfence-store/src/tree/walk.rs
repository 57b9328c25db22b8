//! Everything below a directory, as it lies there.

use super::{Timestamp, TreeError, beneath};
use rustix::{
    fs::{AtFlags, Dir, FileType, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

/// Each level of a walk holds one descriptor, so no bound of depth is taken beyond this.
pub const DEPTH_MAX: usize = 128;

/// One thing in a directory, not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Below the directory that was walked. Any bytes, not only text.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permissions with set-id and sticky bits (`07777`).
    pub mode: u32,
    /// Last change of content. A program can set it.
    pub mtime: Timestamp,
    /// Last change of content or attributes. A program cannot set it.
    pub ctime: Timestamp,
    /// Number of the file on its file system.
    pub inode: u64,
    pub device: u64,
    pub size: u64,
    /// What it takes, in 512 bytes; less than its size where it has holes.
    pub blocks: u64,
    /// Number of names this file has.
    pub links: u64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    /// A directory; what is in it follows.
    Directory,
    /// A symbolic link and where it points, as it is written.
    Link(PathBuf),
    /// In the upper layer of an overlay: what is below was deleted. A character device of number 0:0.
    Whiteout,
    /// FIFO, socket, device, or a directory on which something else is mounted.
    Other,
}

/// Bounds of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries altogether.
    pub entries: usize,
    /// Directories inside each other; 0 allows files only. At most [`DEPTH_MAX`].
    pub depth: usize,
}

/// All entries, depth first, names in the order of their bytes. No link is followed and no mount crossed. What vanishes
/// meanwhile is left out. Errors: `TooMany`, `TooDeep`, and `Io` for a directory that cannot be read.
pub fn walk(root: BorrowedFd<'_>, bounds: Bounds) -> Result<Vec<TreeEntry>, TreeError> {
    walk_at(root, Path::new(""), bounds)
}

/// The same for a directory below; the paths stay those below `root`.
pub(super) fn walk_at(
    root: BorrowedFd<'_>,
    below: &Path,
    bounds: Bounds,
) -> Result<Vec<TreeEntry>, TreeError> {
    let depth = bounds.depth.min(DEPTH_MAX);
    let mut entries = Vec::new();
    let mut levels = vec![Level::open(
        beneath::open_directory(root, below)?,
        below,
        bounds.entries,
    )?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        let Some((entry, opened)) = level.look(&name)? else {
            continue;
        };
        if entries.len() == bounds.entries {
            return Err(TreeError::TooMany {
                entries_max: bounds.entries,
            });
        }
        let path = entry.path.clone();
        entries.push(entry);
        let Some(opened) = opened else { continue };
        if levels.len() > depth {
            return Err(TreeError::TooDeep {
                path,
                depth_max: depth,
            });
        }
        levels.push(Level::open(opened, &path, bounds.entries)?);
    }
    Ok(entries)
}

/// One entry, by the same rules.
pub(super) fn one(root: BorrowedFd<'_>, path: &Path) -> Result<TreeEntry, TreeError> {
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

/// A directory on the way down.
struct Level {
    directory: OwnedFd,
    path: PathBuf,
    /// Those still to come, the next one last.
    names: Vec<Box<CStr>>,
}

impl Level {
    fn open(directory: OwnedFd, path: &Path, entries_max: usize) -> Result<Self, TreeError> {
        let mut names: Vec<Box<CStr>> = Vec::new();
        for entry in Dir::read_from(&directory).map_err(TreeError::of("list", path))? {
            let entry = match entry {
                Ok(entry) => entry,
                // The directory itself was removed.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(TreeError::of("list", path)(error)),
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == entries_max {
                return Err(TreeError::TooMany { entries_max });
            }
            names.push(entry.file_name().into());
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self {
            directory,
            path: path.to_owned(),
            names,
        })
    }

    /// What the name is now; a directory comes opened. None: it is gone, or became something else at this moment.
    fn look(&self, name: &CStr) -> Result<Option<(TreeEntry, Option<OwnedFd>)>, TreeError> {
        let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
        let base = self.directory.as_fd();
        let stat = match rustix::fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(TreeError::of("look at", path)(error)),
        };
        let entry = |kind, stat: &Stat| TreeEntry::new(path.clone(), kind, stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some((entry(EntryKind::File, &stat), None))),
            FileType::Directory => {
                match beneath::open_listing(base, Path::new(OsStr::from_bytes(name.to_bytes()))) {
                    Ok(opened) => {
                        let stat = rustix::fs::fstat(&opened).map_err(TreeError::of("look at", &path))?;
                        Ok(Some((entry(EntryKind::Directory, &stat), Some(opened))))
                    }
                    Err(Errno::XDEV) => Ok(Some((entry(EntryKind::Other, &stat), None))),
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                    Err(error) => Err(TreeError::of("open the directory", path)(error)),
                }
            }
            FileType::Symlink => match rustix::fs::readlinkat(base, name, Vec::new()) {
                Ok(target) => {
                    let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                    Ok(Some((entry(EntryKind::Link(target), &stat), None)))
                }
                Err(Errno::NOENT | Errno::INVAL) => Ok(None),
                Err(error) => Err(TreeError::of("read the link", path)(error)),
            },
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                Ok(Some((entry(EntryKind::Whiteout, &stat), None)))
            }
            _ => Ok(Some((entry(EntryKind::Other, &stat), None))),
        }
    }
}

impl TreeEntry {
    pub(super) fn new(path: PathBuf, kind: EntryKind, stat: &Stat) -> Self {
        Self {
            path,
            kind,
            mode: stat.st_mode & 0o7777,
            mtime: Timestamp::of_content(stat),
            ctime: Timestamp::of_change(stat),
            inode: stat.st_ino,
            device: stat.st_dev,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{open_file, tests::fixture::Place};
    use std::{fs, os::unix::fs::symlink, time::Instant};

    const BOUNDS: Bounds = Bounds {
        entries: 20_000,
        depth: 16,
    };

    fn names(place: &Place) -> Vec<String> {
        let entries = walk(place.root(), BOUNDS).unwrap();
        entries
            .iter()
            .map(|entry| entry.path.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_walk_names_everything_depth_first_in_the_order_of_bytes_and_follows_nothing() {
        let place = Place::new("walk");
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
        let place = Place::new("bounds");
        fs::create_dir_all(place.path("a/b/c")).unwrap();
        let bound = |entries, depth| walk(place.root(), Bounds { entries, depth });
        assert_eq!(bound(3, 3).unwrap().len(), 3);
        assert!(matches!(bound(2, 3), Err(TreeError::TooMany { entries_max: 2 })));
        assert!(matches!(bound(3, 2), Err(TreeError::TooDeep { .. })));
        assert!(matches!(bound(3, 0), Err(TreeError::TooDeep { .. })));
    }

    #[test]
    fn a_tree_deeper_than_any_bound_ends_the_walk_with_few_descriptors() {
        let place = Place::new("depths");
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
        let place = Place::new("open");
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
        let proc = Level::open(root.into(), Path::new(""), 10_000).unwrap();
        let (entry, opened) = proc.look(c"proc").unwrap().unwrap();
        assert_ne!(entry.device, device, "the control: /proc is another file system");
        assert_eq!(entry.kind, EntryKind::Other);
        assert!(opened.is_none());
    }

    #[test]
    fn ten_thousand_files_take_a_moment() {
        let place = Place::new("many");
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
