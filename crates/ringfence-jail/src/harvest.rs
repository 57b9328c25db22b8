//! Reads, from outside, the files that a program left: by descriptor, following no link, crossing no mount, opening
//! only regular files.

use ringfence_sys::file::{self, Kind};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use ringfence_sys::file::open_listing_beneath as open_directory;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    pub size: u64,
    pub stamp: Stamp,
}

/// Change time (which a program cannot set) and inode.
pub type Stamp = (i64, i64, u64);

#[derive(Clone, Debug, Default)]
pub struct Walk {
    pub files: Vec<Found>,
    /// Links, FIFOs, sockets, devices, and files with several names: listed, never opened.
    pub refused: Vec<(PathBuf, &'static str)>,
    /// There were more entries than the limit, or deeper ones, or it took too long, or a directory could not be listed.
    pub incomplete: bool,
}

/// Directories of tools, whose files are not output of a program: repositories, installed packages, caches.
const TOOL_DIRECTORIES: [&str; 6] = [
    ".git",
    "node_modules",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
];
const VENV_MARKER: &str = "pyvenv.cfg";

/// Time limit for a look-up of one entry.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: usize,
    pub depth: usize,
    /// Time limit: a program decides how much there is, and on what disk.
    pub time: Duration,
}

/// True if a directory is empty; one that cannot be read may have entries.
pub fn is_empty(directory: BorrowedFd<'_>) -> bool {
    let open = file::open_listing_beneath(directory, Path::new("."));
    let deadline = Instant::now() + LOOKUP_TIME_MAX;
    let listed = open.and_then(|open| file::list(open.as_fd(), 1, || Instant::now() >= deadline));
    listed.is_ok_and(|(entries, more)| entries.is_empty() && !more)
}

pub fn names(directory: BorrowedFd<'_>, most: usize) -> io::Result<Vec<PathBuf>> {
    let open = file::open_listing_beneath(directory, Path::new("."))?;
    file::list_names(open.as_fd(), most)
}

/// Lets its owner list and enter one of our directories again, and every one below it that the owner, who is not root,
/// cannot list: a program may have closed some to readers outside. Directories that cannot be opened, or that lie
/// beyond the bounds, fail again for the next reader.
pub fn open_closed_directories(directory: BorrowedFd<'_>, bounds: Bounds) {
    let deadline = Instant::now() + bounds.time;
    // Not even `.` can be opened in a directory that is closed.
    file::grant_owner_access(directory).ok();
    let mut waiting = vec![(PathBuf::from("."), 0)];
    let mut left = bounds.entries;
    while let Some((path, depth)) = waiting.pop() {
        if left == 0 || Instant::now() >= deadline {
            return;
        }
        let list = || {
            file::open_listing_beneath(directory, &path).and_then(|open| file::list_kinds(open.as_fd(), left))
        };
        let listed = match list() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                file::grant_owner_access_beneath(directory, &path).and_then(|()| list())
            }
            listed => listed,
        };
        let Ok(entries) = listed else { continue };
        left -= entries.len();
        let is_entered = |kind| kind == Kind::Directory && depth < bounds.depth;
        let below = entries.into_iter().filter(|(_, kind)| is_entered(*kind));
        waiting.extend(below.map(|(name, _)| (path.join(name), depth + 1)));
    }
}

/// Walks a directory, names in order, and skips the directories of tools and virtual environments.
pub fn walk(directory: BorrowedFd<'_>, bounds: Bounds) -> Walk {
    let deadline = Instant::now() + bounds.time;
    let mut walk = Walk::default();
    let mut waiting = vec![(PathBuf::new(), 0)];
    let mut left = bounds.entries;
    while let Some((below, depth)) = waiting.pop() {
        if left == 0 || Instant::now() >= deadline {
            walk.incomplete = true;
            break;
        }
        let open = file::open_listing_beneath(directory, &Path::new(".").join(&below));
        let listed = open.and_then(|open| file::list(open.as_fd(), left, || Instant::now() >= deadline));
        let Ok((mut entries, more)) = listed else {
            walk.incomplete = true;
            continue;
        };
        walk.incomplete |= more;
        left -= entries.len();
        if depth > 0 && entries.iter().any(|entry| entry.name == Path::new(VENV_MARKER)) {
            continue;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = below.join(&entry.name);
            match entry.kind {
                Kind::Directory if TOOL_DIRECTORIES.iter().any(|name| entry.name == Path::new(name)) => {}
                Kind::Directory if depth < bounds.depth => waiting.push((path, depth + 1)),
                Kind::Directory => walk.incomplete = true,
                Kind::File if entry.links == 1 => {
                    let (size, stamp) = (entry.size, (entry.changed.0, entry.changed.1, entry.identity.1));
                    walk.files.push(Found { path, size, stamp });
                }
                Kind::File => walk.refused.push((path, "hard link")),
                Kind::Link => walk.refused.push((path, "symbolic link")),
                // A whiteout stands for a deleted file, which is not output.
                Kind::Whiteout => {}
                Kind::Other => walk.refused.push((path, "FIFO, socket or device")),
            }
        }
    }
    walk.files.sort_by(|a, b| a.path.cmp(&b.path));
    walk
}

pub fn open_path(directory: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let file = file::open_beneath(directory, path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Opens a file that a walk found: only the same regular file, with one name; it may have been written to since.
pub fn open(directory: BorrowedFd<'_>, found: &Found) -> io::Result<File> {
    let file = open_path(directory, &found.path)?;
    let now = file.metadata()?;
    match now.nlink() == 1 && now.ino() == found.stamp.2 {
        true => Ok(file),
        false => Err(io::Error::other("another file has taken its place")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    const BOUNDS: Bounds = Bounds {
        entries: 1000,
        depth: 8,
        time: Duration::from_secs(60),
    };

    #[test]
    fn walk_beyond_its_bounds_is_incomplete() {
        let place = std::env::temp_dir().join(format!("ringfence-walk-bounds-{}", std::process::id()));
        fs::create_dir_all(place.join("a")).unwrap();
        fs::write(place.join("a/file"), "x").unwrap();
        let directory = File::open(&place).unwrap();
        let of = |bounds| walk(directory.as_fd(), bounds);
        let whole = of(BOUNDS);
        assert!(
            whole.files.len() == 1 && !whole.incomplete,
            "the control: {whole:?}"
        );
        let time = Duration::ZERO;
        let late = of(Bounds { time, ..BOUNDS });
        assert!(late.files.is_empty() && late.incomplete, "{late:?}");
        let few = of(Bounds { entries: 1, ..BOUNDS });
        assert!(few.files.is_empty() && few.incomplete, "{few:?}");
        fs::remove_dir_all(&place).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "no crate of ours makes a FIFO")]
    fn make_fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn replaced_file_is_not_opened_and_does_not_block() {
        let place = std::env::temp_dir().join(format!("ringfence-walk-swap-{}", std::process::id()));
        fs::create_dir_all(place.join("inside/directory")).unwrap();
        let file = place.join("inside/file");
        fs::write(place.join("outside"), "canary").unwrap();
        fs::write(&file, "x").unwrap();
        let directory = File::open(place.join("inside")).unwrap();
        let found = walk(directory.as_fd(), BOUNDS).files.remove(0);
        open(directory.as_fd(), &found).unwrap();
        fs::write(&file, "written to since").unwrap();
        open(directory.as_fd(), &found).unwrap();
        // Kept, so that its inode is not reused.
        fs::rename(&file, place.join("kept")).unwrap();
        let swaps: [(&str, &dyn Fn()); 5] = [
            ("link", &|| symlink(place.join("outside"), &file).unwrap()),
            ("hard link", &|| {
                fs::hard_link(place.join("outside"), &file).unwrap()
            }),
            ("directory", &|| fs::create_dir(&file).unwrap()),
            ("file", &|| fs::write(&file, "another").unwrap()),
            ("FIFO", &|| make_fifo(&file)),
        ];
        for (name, swap) in swaps {
            swap();
            assert!(open(directory.as_fd(), &found).is_err(), "{name}");
            drop(fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)));
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn walk_skips_tool_directories_and_virtual_environments() {
        let place = std::env::temp_dir().join(format!("ringfence-walk-{}", std::process::id()));
        for path in [
            "a.txt",
            "src/.git/config",
            "src/b.txt",
            "src/node_modules/c/index.js",
            "src/__pycache__/b.pyc",
            ".pytest_cache/d",
            "venv/pyvenv.cfg",
            "venv/lib/e.py",
            "output/.gitignore",
            "git/f",
        ] {
            let path = place.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink("/etc", place.join("venv/link")).unwrap();
        let directory = File::open(&place).unwrap();
        let walk = walk(directory.as_fd(), BOUNDS);
        let names: Vec<_> = walk
            .files
            .iter()
            .map(|found| found.path.to_str().unwrap())
            .collect();
        assert_eq!(names, ["a.txt", "git/f", "output/.gitignore", "src/b.txt"]);
        assert!(walk.refused.is_empty() && !walk.incomplete, "{walk:?}");
        fs::remove_dir_all(&place).unwrap();
    }
}
