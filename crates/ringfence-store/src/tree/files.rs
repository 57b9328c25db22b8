//! Single files of a workspace, for a caller outside: put, get, list, remove.

use super::{Bounds, Entry, EntryKind, TreeError, beneath, draft::Draft, owner::AsOwner, walk};
use ringfence_types::WorkspacePath;
use rustix::fs::{AtFlags, FileType};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

/// The bits of a mode that anybody may set from outside: no set-id, no sticky.
pub const MODES: u32 = 0o777;
/// Of a file for which nobody says another.
const MODE: u32 = 0o644;
/// Of the directories that a file needs.
const DIRECTORY_MODE: u32 = 0o755;

/// A file's bytes and what is known of it, from the same open file.
#[derive(Clone, Debug)]
pub struct Got {
    /// All of them.
    pub bytes: Vec<u8>,
    /// Size, time, mode as they were when it was opened.
    pub entry: Entry,
}

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// As it lies there.
    pub entry: Entry,
    /// Of a regular file's content; none for others, for files with a second name, for what cannot be read and once the
    /// bound of bytes is passed.
    pub sha256: Option<[u8; 32]>,
}

/// How much a listing looks at.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Passing it is an error.
    pub walk: Bounds,
    /// Content hashed altogether; the files beyond are listed without their digest. 0: none is.
    pub hashed_bytes: u64,
}

/// Writes a file, whole or not at all, in place of a regular file or of nothing; the directories it needs are made.
/// Of the mode only [`MODES`] are taken; without one it is `0644`. Errors: `TooLarge`, `Refused` for whatever else is
/// in its place or on the way. Root does it as the owner of `root`, here and in [`remove`].
pub fn put(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    bytes: &[u8],
    mode: Option<u32>,
    bytes_max: u64,
) -> Result<(), TreeError> {
    let path = Path::new(path.as_str());
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(path, bytes_max));
    }
    let _acting = AsOwner::of(root)?;
    let (directory, name) = beneath::open_parent(root, path, Some(DIRECTORY_MODE))?;
    let mut draft = Draft::new(directory, path)?;
    draft
        .file()
        .write_all(bytes)
        .map_err(TreeError::io("write", path))?;
    draft.place(name, mode.unwrap_or(MODE) & MODES, None)
}

/// Reads a regular file with one name. More than `bytes_max` is `TooLarge`.
pub fn get(root: BorrowedFd<'_>, path: &WorkspacePath, bytes_max: u64) -> Result<Got, TreeError> {
    let path = Path::new(path.as_str());
    let file = beneath::open_file(root, path)?;
    let stat = rustix::fs::fstat(&file).map_err(TreeError::of("look at", path))?;
    let bytes = read(file, path, bytes_max)?;
    let entry = Entry::new(path.to_owned(), EntryKind::File, &stat);
    Ok(Got { bytes, entry })
}

/// What is below a directory, or below everything, in the order of [`super::walk`]; of a file, that one.
pub fn list(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    bounds: ListBounds,
) -> Result<Vec<Listed>, TreeError> {
    let below = Path::new(below.map_or("", WorkspacePath::as_str));
    let mut left = bounds.hashed_bytes;
    let found = match walk::walk_at(root, below, bounds.walk) {
        // A regular file is no directory either.
        Err(TreeError::NotFound(path)) => vec![file_at(root, below).ok_or(TreeError::NotFound(path))?],
        found => found?,
    };
    let listed = found.into_iter().map(|entry| {
        let sha256 = digest(root, &entry, &mut left);
        Listed { entry, sha256 }
    });
    Ok(listed.collect())
}

fn file_at(root: BorrowedFd<'_>, path: &Path) -> Option<Entry> {
    let (_, stat) = beneath::open_regular(root, path).ok()?;
    Some(Entry::new(path.to_owned(), EntryKind::File, &stat))
}

/// Removes a file, a link, or an empty directory. Of a link, the link goes.
pub fn remove(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<(), TreeError> {
    let path = Path::new(path.as_str());
    let _acting = AsOwner::of(root)?;
    let (directory, name) = beneath::open_parent(root, path, None)?;
    let there = beneath::look(directory.as_fd(), name).map_err(TreeError::of("look at", path))?;
    let stat = there.ok_or_else(|| TreeError::NotFound(path.into()))?;
    let flags = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    rustix::fs::unlinkat(&directory, name, flags).map_err(TreeError::of("remove", path))
}

/// All of an open file, unless it is more.
pub(super) fn read(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, TreeError> {
    let mut bytes = Vec::new();
    let mut reader = file.take(bytes_max.saturating_add(1));
    reader
        .read_to_end(&mut bytes)
        .map_err(TreeError::io("read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(path, bytes_max));
    }
    Ok(bytes)
}

/// Digest of all that this reader gives.
pub(super) fn hash_all(reader: &mut impl Read) -> std::io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    std::io::copy(reader, &mut HashWriter(&mut hash))?;
    Ok(hash.finalize().into())
}

/// Digests what is written.
pub(super) struct HashWriter<'a>(pub &'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn digest(root: BorrowedFd<'_>, entry: &Entry, left: &mut u64) -> Option<[u8; 32]> {
    if entry.kind != EntryKind::File || entry.size > *left {
        return None;
    }
    let file = beneath::open_file(root, &entry.path).ok()?;
    let most = *left;
    let mut counted = file.take(most.saturating_add(1));
    let sha256 = hash_all(&mut counted).ok()?;
    // It may have grown since it was listed.
    *left = counted.limit().saturating_sub(1);
    (counted.limit() > 0).then_some(sha256)
}

pub(super) fn too_large(path: &Path, bytes_max: u64) -> TreeError {
    TreeError::TooLarge {
        path: path.to_owned(),
        bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Place;
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    const BOUNDS: ListBounds = ListBounds {
        walk: Bounds {
            entries: 100,
            depth: 8,
        },
        hashed_bytes: 10,
    };

    fn at(path: &str) -> WorkspacePath {
        path.parse().unwrap()
    }

    #[test]
    fn a_file_is_put_with_its_directories_read_back_and_removed() {
        let place = Place::new("put");
        put(place.root(), &at("a/b/c"), b"one", Some(0o6755), 3).unwrap();
        put(place.root(), &at("a/b/c"), b"two", Some(0o6755), 3).unwrap();
        let got = get(place.root(), &at("a/b/c"), 3).unwrap();
        assert_eq!((got.bytes.as_slice(), got.entry.mode), (&b"two"[..], 0o755));
        assert_eq!(
            fs::read_dir(place.path("a/b")).unwrap().count(),
            1,
            "no draft is left"
        );
        assert!(matches!(
            get(place.root(), &at("a/b/c"), 2),
            Err(TreeError::TooLarge { .. })
        ));
        let refused = put(place.root(), &at("d"), b"four", None, 3);
        assert!(matches!(refused, Err(TreeError::TooLarge { .. })));
        assert!(remove(place.root(), &at("a")).is_err(), "a full directory stays");
        remove(place.root(), &at("a/b/c")).unwrap();
        remove(place.root(), &at("a/b")).unwrap();
        assert!(matches!(
            remove(place.root(), &at("a/b")),
            Err(TreeError::NotFound(_))
        ));
    }

    #[test]
    fn only_a_plain_file_is_replaced() {
        let place = Place::new("replace");
        fs::write(place.outside("canary"), "canary").unwrap();
        symlink(place.outside("canary"), place.path("link")).unwrap();
        symlink(place.outside(""), place.path("out")).unwrap();
        fs::hard_link(place.outside("canary"), place.path("hard")).unwrap();
        fs::create_dir(place.path("directory")).unwrap();
        rustix::fs::mkfifoat(place.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for path in [
            "link",
            "hard",
            "directory",
            "fifo",
            "out/canary",
            "out/new",
            "hard/new",
        ] {
            let refused = put(place.root(), &at(path), b"x", None, 9);
            assert!(
                matches!(refused, Err(TreeError::Refused { .. })),
                "{path}: {refused:?}"
            );
            assert!(get(place.root(), &at(path), 99).is_err(), "{path}");
        }
        remove(place.root(), &at("link")).unwrap();
        remove(place.root(), &at("hard")).unwrap();
        assert!(remove(place.root(), &at("out/canary")).is_err());
        assert_eq!(fs::read_to_string(place.outside("canary")).unwrap(), "canary");
        assert_eq!(
            fs::read_dir(place.path("")).unwrap().count(),
            3,
            "no draft is left"
        );
    }

    #[test]
    fn a_listing_hashes_as_much_as_it_may() {
        let place = Place::new("list");
        put(place.root(), &at("d/a"), b"abc", None, 9).unwrap();
        put(place.root(), &at("d/b"), b"eight by", None, 9).unwrap();
        put(place.root(), &at("d/c"), b"abc", None, 9).unwrap();
        let listed = list(place.root(), Some(&at("d")), BOUNDS).unwrap();
        let abc: [u8; 32] = Sha256::digest(b"abc").into();
        let digests: Vec<_> = listed.iter().map(|listed| listed.sha256).collect();
        assert_eq!(digests, [Some(abc), None, Some(abc)]);
        assert_eq!(list(place.root(), None, BOUNDS).unwrap().len(), 4);
        let file = list(place.root(), Some(&at("d/a")), BOUNDS).unwrap();
        assert_eq!((file.len(), file[0].sha256), (1, Some(abc)));
        for gone in ["d/none", "d/a/none"] {
            let listed = list(place.root(), Some(&at(gone)), BOUNDS);
            assert!(matches!(listed, Err(TreeError::NotFound(_))), "{listed:?}");
        }
    }

    #[test]
    fn what_root_puts_belongs_to_the_owner_of_the_directory() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: what is put belongs to this user anyway");
            return;
        }
        let place = Place::new("owner");
        std::os::unix::fs::chown(place.path(""), Some(1234), Some(2345)).unwrap();
        put(place.root(), &at("a/b"), b"x", None, 9).unwrap();
        for path in ["a", "a/b"] {
            let found = fs::metadata(place.path(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 2345), "{path}");
        }
        assert_eq!(
            fs::metadata(place.path("a")).unwrap().permissions().mode() & 0o7777,
            0o755
        );
    }
}
