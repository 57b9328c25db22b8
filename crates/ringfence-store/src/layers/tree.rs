//! Copies the directory of an installer into a layer, and compares a layer with its manifest. No link is followed:
//! neither when copying, where the names are untrusted, nor later.

use super::{
    LayerError,
    manifest::{LayerEntry, LayerManifest},
};
use crate::{
    digest::{self, Hashed, to_hex},
    tree::{self, Bounds, EntryKind, TreeEntry},
    whole_file::FileError,
};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

const BOUNDS: Bounds = Bounds {
    entries: 200_000,
    depth: 64,
};
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// Copies the entries of `from` into the new directory `to`, at most `bytes_max` of content.
pub(super) fn import(from: BorrowedFd<'_>, to: &Path, bytes_max: u64) -> Result<LayerManifest, LayerError> {
    std::fs::create_dir(to).map_err(FileError::at("make", to))?;
    let target = File::open(to).map_err(FileError::at("open", to))?;
    rustix::fs::fchmod(&target, DIRECTORY_MODE).map_err(FileError::at("set the mode of", to))?;
    let mut copy = Copy {
        from,
        to: target.as_fd(),
        bytes_left: bytes_max,
        bytes_max,
    };
    let entries = tree::walk(from, BOUNDS)?;
    let copied: Result<_, LayerError> = entries.iter().map(|entry| copy.entry(entry)).collect();
    copied.map(LayerManifest::of)
}

struct Copy<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    bytes_left: u64,
    bytes_max: u64,
}

impl Copy<'_> {
    fn entry(&mut self, entry: &TreeEntry) -> Result<LayerEntry, LayerError> {
        let failed = |error: Errno| FileError::at("copy", &entry.path)(error);
        let (parent, name) = tree::open_parent(self.to, &entry.path, None)?;
        let mut copied = None;
        match &entry.kind {
            EntryKind::Directory => {
                rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE).map_err(failed)?;
                // Restores the bits that the umask removed.
                rustix::fs::chmodat(&parent, name, DIRECTORY_MODE, AtFlags::empty()).map_err(failed)?;
            }
            EntryKind::Link(target) => {
                if !stays_below(&entry.path, target) {
                    return Err(LayerError::Refused(format!(
                        "the link {:?} leads out",
                        entry.path
                    )));
                }
                rustix::fs::symlinkat(target, &parent, name).map_err(failed)?;
            }
            EntryKind::File => {
                let mode = Mode::from_raw_mode(if is_executable(entry) { 0o755 } else { 0o644 });
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = rustix::fs::openat(&parent, name, flags, mode).map_err(failed)?;
                rustix::fs::fchmod(&target, mode).map_err(failed)?;
                let (source, _) = tree::open_regular(self.from, &entry.path)?;
                let source = source.take(self.bytes_left.saturating_add(1));
                let hashed = digest::copy(source, File::from(target));
                let hashed = hashed.map_err(FileError::at("copy", &entry.path))?;
                let left = self.bytes_left.checked_sub(hashed.bytes);
                let bytes_max = self.bytes_max;
                self.bytes_left = left.ok_or(LayerError::TooLarge { bytes_max })?;
                copied = Some(hashed);
            }
            EntryKind::Whiteout | EntryKind::Other => {}
        }
        describe(entry, copied)
    }
}

fn is_executable(entry: &TreeEntry) -> bool {
    entry.mode & 0o111 != 0
}

fn describe(entry: &TreeEntry, hashed: Option<Hashed>) -> Result<LayerEntry, LayerError> {
    let path = text(&entry.path)?;
    match (&entry.kind, hashed) {
        (EntryKind::Directory, _) => Ok(LayerEntry::Directory { path }),
        (EntryKind::Link(target), _) => text(target).map(|target| LayerEntry::Link { path, target }),
        (EntryKind::File, Some(hashed)) => Ok(LayerEntry::File {
            path,
            size: hashed.bytes,
            executable: is_executable(entry),
            sha256: to_hex(&hashed.sha256),
        }),
        _ => Err(LayerError::Refused(format!(
            "{path:?} is neither file nor directory"
        ))),
    }
}

fn text(path: &Path) -> Result<String, LayerError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| LayerError::Refused(format!("the name {path:?} is not UTF-8")))
}

/// Returns true if a link at `path` is relative and leads to a target inside the layer. `..` may only stand at the
/// beginning, where the directories above are not links; after a name it could be the parent of another link's target.
fn stays_below(path: &Path, target: &Path) -> bool {
    let depth = path.components().count() - 1;
    let mut parts = target.components().peekable();
    let above =
        std::iter::from_fn(|| parts.next_if(|part| matches!(part, Component::CurDir | Component::ParentDir)));
    let above = above.filter(|part| *part == Component::ParentDir).count();
    above <= depth && parts.all(|part| matches!(part, Component::CurDir | Component::Normal(_)))
}

fn open(name: &str, path: &Path) -> Result<File, LayerError> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LayerError::damaged(name, "it is gone")),
        opened => Ok(opened.map_err(FileError::at("open", path))?),
    }
}

/// Reads every byte of the layer `name` at `path` and compares it with the manifest.
pub(super) fn check(name: &str, path: &Path, manifest: &LayerManifest) -> Result<(), LayerError> {
    let root = open(name, path)?;
    let entries = tree::walk(root.as_fd(), BOUNDS)?;
    let now: Result<_, LayerError> = entries.iter().map(|entry| read(root.as_fd(), entry)).collect();
    let now = LayerManifest::of(now?);
    let mut pairs = now.entries.iter().zip(&manifest.entries);
    match pairs.find(|(now, then)| now != then) {
        Some((now, _)) => Err(LayerError::damaged(name, format!("{:?} has changed", now.path()))),
        None if now.entries.len() != manifest.entries.len() => {
            Err(LayerError::damaged(name, "files have been added or removed"))
        }
        None => Ok(()),
    }
}

fn read(root: BorrowedFd<'_>, entry: &TreeEntry) -> Result<LayerEntry, LayerError> {
    let mut hashed = None;
    if entry.kind == EntryKind::File {
        let (file, _) = tree::open_regular(root, &entry.path)?;
        hashed = Some(digest::of(file).map_err(FileError::at("read", &entry.path))?);
    }
    describe(entry, hashed)
}

/// Returns one digest of the path, size, ctime, inode and mode of every entry; if unchanged, none has been touched.
pub(super) fn stamps(name: &str, path: &Path) -> Result<[u8; 32], LayerError> {
    let root = open(name, path)?;
    let mut hash = Sha256::new();
    for entry in tree::walk(root.as_fd(), BOUNDS)? {
        hash.update(entry.path.as_os_str().as_bytes());
        hash.update([0]);
        for number in [
            entry.size,
            entry.stamp.ctime.0.cast_unsigned(),
            entry.stamp.ctime.1.into(),
            entry.stamp.inode,
        ] {
            hash.update(number.to_be_bytes());
        }
        hash.update(entry.mode.to_be_bytes());
    }
    Ok(hash.finalize().into())
}
