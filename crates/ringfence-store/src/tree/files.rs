//! Access to single files of a workspace from outside: put, get, list.

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

/// The mode bits that a caller may set from outside: no set-id, no sticky.
pub const MODES: u32 = 0o777;

/// A file's bytes and attributes, from the same open file.
#[derive(Clone, Debug)]
pub struct FileBytes {
    pub bytes: Vec<u8>,
    /// Size, time and mode when the file was opened.
    pub entry: TreeEntry,
}

#[derive(Clone, Debug)]
pub struct ListedFile {
    pub entry: TreeEntry,
    /// SHA-256 of a readable regular file with one link, within the limit of bytes; None for all others.
    pub sha256: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Exceeding these bounds is an error.
    pub walk: Bounds,
    /// Total bytes of content to hash; files over it have no digest. With 0 only empty files are hashed.
    pub hashed_bytes: u64,
}

/// Writes a file atomically, new or over a regular one, and creates missing directories. Only the [`MODES`] bits count;
/// the default is `0644`. Errors: `TooLarge`; `Refused` for anything else in the way. Root acts as the owner of `root`.
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
    let (mode, mtime) = (mode.unwrap_or(0o644) & MODES, None);
    let attributes = Attributes { mode, mtime };
    let staged = stage.write(bytes, path, attributes, bytes_max)?;
    walk::is_free(root, path, &EntryKind::File)?;
    let placed = stage.place(&staged, directory.as_fd(), name, RenameFlags::empty());
    placed.map_err(TreeError::of("put in place", path))
}

/// Reads a regular file with one hard link. More than `bytes_max` is `TooLarge`.
pub fn get(root: BorrowedFd<'_>, path: &WorkspacePath, bytes_max: u64) -> Result<FileBytes, TreeError> {
    let path = Path::new(path.as_str());
    let file = beneath::open_file(root, path)?;
    let stat = rustix::fs::fstat(&file).map_err(TreeError::of("look at", path))?;
    let bytes = read(file, path, bytes_max)?;
    let entry = TreeEntry::new(path.to_owned(), EntryKind::File, &stat);
    Ok(FileBytes { bytes, entry })
}

/// Lists a directory, or everything without `below`, in the order of [`super::walk`]. For a file, lists that file.
pub fn list(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    bounds: ListBounds,
) -> Result<Vec<ListedFile>, TreeError> {
    let below = Path::new(below.map_or("", WorkspacePath::as_str));
    let mut left = bounds.hashed_bytes;
    let found = match walk::walk_at(root, below, bounds.walk) {
        // The path of a regular file gives this error too.
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

/// Reads an open file to its end. More than `bytes_max` is `TooLarge`.
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
    // The file may have grown since it was listed.
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
    fn file_is_put_with_its_directories_and_read_back() {
        let scratch = Scratch::new();
        put(scratch.root(), &at("a/b/c"), b"one", Some(0o6755), 3).unwrap();
        put(scratch.root(), &at("a/b/c"), b"two", Some(0o6755), 3).unwrap();
        let got = get(scratch.root(), &at("a/b/c"), 3).unwrap();
        assert_eq!((got.bytes.as_slice(), got.entry.mode), (&b"two"[..], 0o755));
        assert_eq!(
            fs::read_dir(scratch.path("a/b")).unwrap().count(),
            1,
            "no draft is left"
        );
        assert!(matches!(
            get(scratch.root(), &at("a/b/c"), 2),
            Err(TreeError::TooLarge { .. })
        ));
        let refused = put(scratch.root(), &at("d"), b"four", None, 3);
        assert!(matches!(refused, Err(TreeError::TooLarge { .. })));
    }

    #[test]
    fn put_replaces_only_regular_file_with_one_hard_link() {
        let scratch = Scratch::new();
        fs::write(scratch.outside("canary"), "canary").unwrap();
        symlink(scratch.outside("canary"), scratch.path("link")).unwrap();
        symlink(scratch.outside(""), scratch.path("out")).unwrap();
        fs::hard_link(scratch.outside("canary"), scratch.path("hard")).unwrap();
        fs::create_dir(scratch.path("directory")).unwrap();
        rustix::fs::mkfifoat(scratch.root(), "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for path in [
            "link",
            "hard",
            "directory",
            "fifo",
            "out/canary",
            "out/new",
            "hard/new",
        ] {
            let refused = put(scratch.root(), &at(path), b"x", None, 9);
            assert!(
                matches!(refused, Err(TreeError::Refused { .. })),
                "{path}: {refused:?}"
            );
            assert!(get(scratch.root(), &at(path), 99).is_err(), "{path}");
        }
        assert_eq!(fs::read_to_string(scratch.outside("canary")).unwrap(), "canary");
        assert_eq!(
            fs::read_dir(scratch.path("")).unwrap().count(),
            5,
            "no draft is left"
        );
    }

    #[test]
    fn listing_hashes_up_to_its_limit() {
        let scratch = Scratch::new();
        put(scratch.root(), &at("d/a"), b"abc", None, 9).unwrap();
        put(scratch.root(), &at("d/b"), b"eight by", None, 9).unwrap();
        put(scratch.root(), &at("d/c"), b"abc", None, 9).unwrap();
        let listed = list(scratch.root(), Some(&at("d")), BOUNDS).unwrap();
        let abc = crate::digest::of(&b"abc"[..]).unwrap().sha256;
        let digests: Vec<_> = listed.iter().map(|listed| listed.sha256).collect();
        assert_eq!(digests, [Some(abc), None, Some(abc)]);
        assert_eq!(list(scratch.root(), None, BOUNDS).unwrap().len(), 4);
        let file = list(scratch.root(), Some(&at("d/a")), BOUNDS).unwrap();
        assert_eq!((file.len(), file[0].sha256), (1, Some(abc)));
        for gone in ["d/none", "d/a/none"] {
            let listed = list(scratch.root(), Some(&at(gone)), BOUNDS);
            assert!(matches!(listed, Err(TreeError::NotFound(_))), "{listed:?}");
        }
    }

    #[test]
    fn file_put_by_root_belongs_to_directory_owner() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: what is put belongs to this user anyway");
            return;
        }
        let scratch = Scratch::new();
        std::os::unix::fs::chown(scratch.path(""), Some(1234), Some(2345)).unwrap();
        put(scratch.root(), &at("a/b"), b"x", None, 9).unwrap();
        for path in ["a", "a/b"] {
            let found = fs::metadata(scratch.path(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 2345), "{path}");
        }
        assert_eq!(
            fs::metadata(scratch.path("a")).unwrap().permissions().mode() & 0o7777,
            0o755
        );
    }
}
