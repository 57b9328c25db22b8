//! Reads, from outside, the files that a program left: by descriptor, following no link, crossing no mount, opening
//! only regular files.

use ringfence_sys::file::{self, Kind};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    pub size: u64,
    /// What changes when the file does: change time and inode.
    pub stamp: Stamp,
}

/// Change time (which a program cannot set) and inode.
pub type Stamp = (i64, i64, u64);

#[derive(Clone, Debug, Default)]
pub struct Walk {
    pub files: Vec<Found>,
    /// Links, FIFOs, sockets, devices, and files with several names: seen, never opened.
    pub refused: Vec<(PathBuf, &'static str)>,
    /// There was more than the limit, or deeper, or something could not be listed.
    pub incomplete: bool,
}

/// Directories of tools, whose files no program means to leave: repositories, installed packages, caches.
const OF_TOOLS: [&str; 6] = [
    ".git",
    "node_modules",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
];
/// Marks the directory around it as a virtual environment of Python.
const ENVIRONMENT: &str = "pyvenv.cfg";

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: usize,
    pub depth: usize,
}

/// Whether a directory is empty; one that cannot be read may have something.
pub fn is_empty(directory: BorrowedFd<'_>) -> bool {
    let open = file::open_listing_beneath(directory, Path::new("."));
    let listed = open.and_then(|open| file::list(open.as_fd(), 1));
    listed.is_ok_and(|(entries, more)| entries.is_empty() && !more)
}

pub fn names(directory: BorrowedFd<'_>, most: usize) -> io::Result<Vec<PathBuf>> {
    let open = file::open_listing_beneath(directory, Path::new("."))?;
    file::list_names(open.as_fd(), most)
}

/// Lets its owner use one of our directories again, and list every one below it where the owner is not root: a program
/// may have closed some to readers outside. What cannot be opened fails again for the next reader.
pub fn open_closed_directories(directory: BorrowedFd<'_>, bounds: Bounds) {
    // Not even `.` is found in a directory that is closed.
    file::open_up(directory).ok();
    let mut waiting = vec![(PathBuf::from("."), 0)];
    let mut left = bounds.entries;
    while let Some((path, depth)) = waiting.pop() {
        let list = || {
            file::open_listing_beneath(directory, &path).and_then(|open| file::list_kinds(open.as_fd(), left))
        };
        let listed = match list() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                file::open_up_beneath(directory, &path).and_then(|()| list())
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

/// Walks a directory, names in order, past the directories of tools and virtual environments.
pub fn walk(directory: BorrowedFd<'_>, bounds: Bounds) -> Walk {
    let mut walk = Walk::default();
    let mut waiting = vec![(PathBuf::new(), 0)];
    let mut left = bounds.entries;
    while let Some((below, depth)) = waiting.pop() {
        let open = file::open_listing_beneath(directory, &Path::new(".").join(&below));
        let listed = open.and_then(|open| file::list(open.as_fd(), left));
        let Ok((mut entries, more)) = listed else {
            walk.incomplete = true;
            continue;
        };
        walk.incomplete |= more;
        left -= entries.len();
        if depth > 0 && entries.iter().any(|entry| entry.name == Path::new(ENVIRONMENT)) {
            continue;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = below.join(&entry.name);
            match entry.kind {
                Kind::Directory if OF_TOOLS.iter().any(|name| entry.name == Path::new(name)) => {}
                Kind::Directory if depth < bounds.depth => waiting.push((path, depth + 1)),
                Kind::Directory => walk.incomplete = true,
                Kind::File if entry.links == 1 => {
                    let (size, stamp) = (entry.size, (entry.changed.0, entry.changed.1, entry.identity.1));
                    walk.files.push(Found { path, size, stamp });
                }
                Kind::File => walk.refused.push((path, "hard link")),
                Kind::Link => walk.refused.push((path, "symbolic link")),
                // What a program has deleted is nothing that it left.
                Kind::Whiteout => {}
                Kind::Other => walk.refused.push((path, "FIFO, socket or device")),
            }
        }
    }
    walk.files.sort_by(|a, b| a.path.cmp(&b.path));
    walk
}

pub fn open_directory(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    file::open_listing_beneath(directory, path)
}

pub fn open_path(directory: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let file = file::open_beneath(directory, path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Opens a file that a walk found; refuses anything that is not the regular file it was.
pub fn open(directory: BorrowedFd<'_>, found: &Found) -> io::Result<File> {
    open_path(directory, &found.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_walk_passes_what_tools_keep_for_themselves() {
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
        std::os::unix::fs::symlink("/etc", place.join("venv/link")).unwrap();
        let directory = File::open(&place).unwrap();
        let bounds = Bounds {
            entries: 1000,
            depth: 8,
        };
        let walk = walk(directory.as_fd(), bounds);
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
