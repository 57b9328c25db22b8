//! Single files of a workspace, for a caller outside: put, get, list.

use super::{
    Bounds, EntryKind, TreeEntry, TreeError, beneath,
    owner::AsOwner,
    staging::{Attributes, StagingDir},
    walk,
};
use ringfence_types::WorkspacePath;
use rustix::fs::RenameFlags;
use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

/// The bits of a mode that anybody may set from outside: no set-id, no sticky.
pub const MODES: u32 = 0o777;

/// A file's bytes and what is known of it, from the same open file.
#[derive(Clone, Debug)]
pub struct Got {
    pub bytes: Vec<u8>,
    /// Size, time, mode as they were when it was opened.
    pub entry: TreeEntry,
}

#[derive(Clone, Debug)]
pub struct ListedFile {
    /// As it lies there.
    pub entry: TreeEntry,
    /// Of a regular file's content; none for others, for files with a second name, for what cannot be read and once the
    /// bound of bytes is passed.
    pub sha256: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Passing it is an error.
    pub walk: Bounds,
    /// Content hashed altogether; the files beyond are listed without their digest. 0: none is.
    pub hashed_bytes: u64,
}

/// Writes a file, whole or not at all, in place of a regular file or of nothing; the directories it needs are made.
/// Of the mode only [`MODES`] are taken; without one it is `0644`. Errors: `TooLarge`, `Refused` for whatever else is
/// in its place or on the way. Root does it as the owner of `root`.
pub fn put(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    bytes: &[u8],
    mode: Option<u32>,
    bytes_max: u64,
) -> Result<(), TreeError> {
    let path = Path::new(path.as_str());
    if bytes.len() as u64 > bytes_max {
        return Err(TreeError::too_large(path, bytes_max));
    }
    let _acting = AsOwner::of(root)?;
    let (directory, name) = beneath::open_parent(root, path, Some(0o755))?;
    let mut stage = StagingDir::new(directory.as_fd())?;
    let attributes = Attributes {
        mode: mode.unwrap_or(0o644) & MODES,
        mtime: None,
    };
    let staged = stage.write(bytes, path, attributes, bytes_max)?;
    walk::is_free(root, path, &EntryKind::File)?;
    let placed = stage.place(&staged, directory.as_fd(), name, RenameFlags::empty());
    placed.map_err(TreeError::of("put in place", path))
}

/// Reads a regular file with one name. More than `bytes_max` is `TooLarge`.
pub fn get(root: BorrowedFd<'_>, path: &WorkspacePath, bytes_max: u64) -> Result<Got, TreeError> {
    let path = Path::new(path.as_str());
    let file = beneath::open_file(root, path)?;
    let stat = rustix::fs::fstat(&file).map_err(TreeError::of("look at", path))?;
    let bytes = read(file, path, bytes_max)?;
    let entry = TreeEntry::new(path.to_owned(), EntryKind::File, &stat);
    Ok(Got { bytes, entry })
}

/// What is below a directory, or below everything, in the order of [`super::walk`]; of a file, that one.
pub fn list(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    bounds: ListBounds,
) -> Result<Vec<ListedFile>, TreeError> {
    let below = Path::new(below.map_or("", WorkspacePath::as_str));
    let mut left = bounds.hashed_bytes;
    let found = match walk::walk_at(root, below, bounds.walk) {
        // A regular file is no directory either.
        Err(TreeError::NotFound(path)) => {
            let (_, stat) = beneath::open_regular(root, below).map_err(|_| TreeError::NotFound(path))?;
            vec![TreeEntry::new(below.to_owned(), EntryKind::File, &stat)]
        }
        found => found?,
    };
    let listed = found.into_iter().map(|entry| {
        let sha256 = digest(root, &entry, &mut left);
        ListedFile { entry, sha256 }
    });
    Ok(listed.collect())
}

/// All of an open file, unless it is more.
pub(super) fn read(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, TreeError> {
    let mut bytes = Vec::new();
    let mut reader = file.take(bytes_max.saturating_add(1));
    let read = reader.read_to_end(&mut bytes);
    read.map_err(TreeError::io("read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(TreeError::too_large(path, bytes_max));
    }
    Ok(bytes)
}

fn digest(root: BorrowedFd<'_>, entry: &TreeEntry, left: &mut u64) -> Option<[u8; 32]> {
    if entry.kind != EntryKind::File || entry.size > *left {
        return None;
    }
    let file = beneath::open_file(root, &entry.path).ok()?;
    let most = *left;
    let mut counted = file.take(most.saturating_add(1));
    let sha256 = crate::digest::of(&mut counted).ok()?.sha256;
    // It may have grown since it was listed.
    *left = counted.limit().saturating_sub(1);
    (counted.limit() > 0).then_some(sha256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::fixture::Scratch;
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
    fn a_file_is_put_with_its_directories_and_read_back() {
        let place = Scratch::new();
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
    }

    #[test]
    fn only_a_plain_file_is_replaced() {
        let place = Scratch::new();
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
        assert_eq!(fs::read_to_string(place.outside("canary")).unwrap(), "canary");
        assert_eq!(
            fs::read_dir(place.path("")).unwrap().count(),
            5,
            "no draft is left"
        );
    }

    #[test]
    fn a_listing_hashes_as_much_as_it_may() {
        let place = Scratch::new();
        put(place.root(), &at("d/a"), b"abc", None, 9).unwrap();
        put(place.root(), &at("d/b"), b"eight by", None, 9).unwrap();
        put(place.root(), &at("d/c"), b"abc", None, 9).unwrap();
        let listed = list(place.root(), Some(&at("d")), BOUNDS).unwrap();
        let abc = crate::digest::of(&b"abc"[..]).unwrap().sha256;
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
        let place = Scratch::new();
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
