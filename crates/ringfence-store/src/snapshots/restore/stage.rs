//! The staging directory of a restore: `new` has the entries to be moved into place, `old` those that were moved away.
//! Emptying it takes two descriptors at any depth of the trees in it.

use super::step;
use crate::{
    blobs::pack::PackReader,
    snapshots::{
        FileContent, SnapshotEntry, SnapshotError, SnapshotKind, export::each_piece, manifest::MODE_MASK,
    },
    tree::{self, AsOwner},
    whole_file::{list, random_hex},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, OsStr},
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::Path,
    thread,
};

/// Maximum number of files that are synced one by one; for more, the whole file system is synced.
pub(super) const SYNCED_ONE_BY_ONE_MAX: usize = 64;
/// Maximum entries removed from a staging directory: a program that keeps adding to it must not keep this running.
const REMOVED_MAX: u64 = 20_000_000;
const LISTED_MAX: usize = 10_000;
/// Maximum number of threads that sync files; each only waits for the disk.
const THREADS_MAX: usize = 16;

pub(super) struct Staging<'a> {
    root: BorrowedFd<'a>,
    pub(super) new: OwnedFd,
    pub(super) old: OwnedFd,
    pub(super) moved: u64,
}

impl<'a> Staging<'a> {
    pub(super) fn make(root: BorrowedFd<'a>, name: &str) -> Result<Self, SnapshotError> {
        let failed = |step| SnapshotError::io(step, name);
        let mode = Mode::from_raw_mode(0o700);
        let _acting = AsOwner::of(root)?;
        rustix::fs::mkdirat(root, name, mode).map_err(failed("create"))?;
        let staging = tree::open_listing(root, Path::new(name)).map_err(failed("open"))?;
        let make = |name: &str| -> Result<OwnedFd, SnapshotError> {
            rustix::fs::mkdirat(&staging, name, mode).map_err(failed("create a directory in"))?;
            tree::open_listing(staging.as_fd(), Path::new(name)).map_err(failed("open"))
        };
        Ok(Self {
            root,
            new: make("new")?,
            old: make("old")?,
            moved: 0,
        })
    }

    /// Writes all entries under their numbers and syncs them to the disk. Returns the bytes of the files.
    pub(super) fn fill(
        &mut self,
        make: &[&SnapshotEntry],
        reader: &mut PackReader<'_>,
    ) -> Result<u64, SnapshotError> {
        let one_by_one = make.len() <= SYNCED_ONE_BY_ONE_MAX;
        let mut bytes = 0;
        let mut written = Vec::new();
        for (number, entry) in make.iter().enumerate() {
            let name = number.to_string();
            match &entry.kind {
                SnapshotKind::File(content) => {
                    let file = self.file(&name, entry, content, reader)?;
                    if one_by_one {
                        written.push(OwnedFd::from(file));
                    }
                    bytes += content.data_bytes();
                }
                SnapshotKind::Directory => self.directory(&name, entry)?,
                SnapshotKind::Link(target) => self.link(&name, entry, target)?,
            }
            step::reached();
        }
        let synced = if one_by_one {
            sync_together(&written).and_then(|()| rustix::fs::fsync(&self.new))
        } else {
            rustix::fs::syncfs(&self.new)
        };
        synced.map_err(SnapshotError::io("bring to the disk", "."))?;
        Ok(bytes)
    }

    fn file(
        &self,
        name: &str,
        entry: &SnapshotEntry,
        content: &FileContent,
        reader: &mut PackReader<'_>,
    ) -> Result<File, SnapshotError> {
        let failed = |step| SnapshotError::io(step, &entry.path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let acting = AsOwner::of(self.root)?;
        let file = rustix::fs::openat(&self.new, name, flags, Mode::from_raw_mode(0o600));
        // Root again, to read the store's own files.
        drop(acting);
        let file = File::from(file.map_err(SnapshotError::io("stage", &entry.path))?);
        each_piece(reader, content, &entry.path, |offset, piece| {
            file.write_all_at(piece, offset).map_err(failed("stage"))
        })?;
        // A hole may follow the last piece.
        file.set_len(content.size).map_err(failed("stage"))?;
        let mode = Mode::from_raw_mode(entry.mode & MODE_MASK);
        rustix::fs::fchmod(&file, mode).map_err(SnapshotError::io("set the mode of", &entry.path))?;
        let dated = rustix::fs::futimens(&file, &entry.mtime.to_set());
        dated.map_err(SnapshotError::io("set the times of", &entry.path))?;
        Ok(file)
    }

    /// Creates a directory; its mode and time are set at the end, since entries are moved into it.
    fn directory(&self, name: &str, entry: &SnapshotEntry) -> Result<(), SnapshotError> {
        let _acting = AsOwner::of(self.root)?;
        rustix::fs::mkdirat(&self.new, name, Mode::from_raw_mode(0o700))
            .map_err(SnapshotError::io("stage", &entry.path))
    }

    fn link(&self, name: &str, entry: &SnapshotEntry, target: &Path) -> Result<(), SnapshotError> {
        let path = &entry.path;
        let _acting = AsOwner::of(self.root)?;
        rustix::fs::symlinkat(target, &self.new, name).map_err(SnapshotError::io("stage", path))?;
        rustix::fs::utimensat(&self.new, name, &entry.mtime.to_set(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(SnapshotError::io("set the times of", path))
    }
}

/// Sets the mode of the file that the descriptor refers to: fchmodat(2) would follow a symbolic link.
pub(super) fn chmod(held: BorrowedFd<'_>, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmod(proc_fd_path(held), Mode::from_raw_mode(mode & MODE_MASK))
}

pub(super) fn proc_fd_path(held: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// Removes a staging directory, if it exists. Returns the number of entries, without itself, `new` and `old`.
pub(super) fn clear(root: BorrowedFd<'_>, name: &str) -> Result<u64, SnapshotError> {
    let failed = |step| SnapshotError::io(step, name);
    let _acting = AsOwner::of(root)?;
    let staging = match open_for_removal(root, Path::new(name)) {
        Ok(staging) => staging,
        Err(Errno::NOENT) => return Ok(0),
        // A program put something else in its place.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            rustix::fs::unlinkat(root, name, AtFlags::empty()).map_err(failed("remove"))?;
            return Ok(0);
        }
        Err(error) => return Err(failed("open")(error)),
    };
    let mut counts = RemovalCounts::default();
    loop {
        let names = list(&staging, LISTED_MAX).map_err(failed("list"))?;
        if names.is_empty() {
            break;
        }
        for name in &names {
            remove(staging.as_fd(), name, &mut counts).map_err(failed("empty"))?;
            step::reached();
        }
        if counts.is_over_limit() {
            let (what, limit) = ("things to remove", REMOVED_MAX);
            return Err(SnapshotError::TooMany { what, limit });
        }
    }
    rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR).map_err(failed("remove"))?;
    Ok(counts.removed)
}

#[derive(Default)]
struct RemovalCounts {
    removed: u64,
    moved: u64,
}

impl RemovalCounts {
    fn is_over_limit(&self) -> bool {
        self.removed.saturating_add(self.moved) > REMOVED_MAX
    }
}

/// Removes one entry. Subdirectories of a directory are moved up beside it; the next listing has them.
fn remove(staging: BorrowedFd<'_>, name: &CStr, counts: &mut RemovalCounts) -> rustix::io::Result<()> {
    let directory = match open_for_removal(staging, Path::new(OsStr::from_bytes(name.to_bytes()))) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            counts.removed += 1;
            return ignore_missing(rustix::fs::unlinkat(staging, name, AtFlags::empty()));
        }
        Err(error) => return Err(error),
    };
    loop {
        let names = list(&directory, LISTED_MAX)?;
        if names.is_empty() || counts.is_over_limit() {
            break;
        }
        for child in &names {
            match rustix::fs::unlinkat(&directory, &**child, AtFlags::empty()) {
                Ok(()) => counts.removed += 1,
                Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    move_up(&directory, child, staging)?;
                    counts.moved += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
    let is_counted = !matches!(name.to_bytes(), b"new" | b"old");
    counts.removed += u64::from(is_counted);
    match rustix::fs::unlinkat(staging, name, AtFlags::REMOVEDIR) {
        // A program added an entry; the next listing has it.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        other => ignore_missing(other),
    }
}

fn move_up(directory: &OwnedFd, child: &CStr, staging: BorrowedFd<'_>) -> rustix::io::Result<()> {
    // A move to another parent writes to the directory itself.
    let held = tree::open_handle(directory.as_fd(), Path::new(OsStr::from_bytes(child.to_bytes())));
    match held {
        Ok(held) => make_writable(held.as_fd())?,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error),
    }
    let name = random_hex::<8>().map_err(|_| Errno::IO)?;
    ignore_missing(rustix::fs::renameat(directory, child, staging, name))
}

/// Opens a directory that is to be emptied, and makes it accessible to its owner.
fn open_for_removal(base: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    match tree::open_listing(base, path) {
        Err(Errno::ACCESS) => {
            make_writable(tree::open_handle(base, path)?.as_fd())?;
            tree::open_listing(base, path)
        }
        Ok(opened) => make_writable(opened.as_fd()).map(|()| opened),
        other => other,
    }
}

/// Makes a directory readable, writable and searchable for its owner. Root needs no permission.
pub(super) fn make_writable(directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    const ALL: u32 = 0o700;
    let stat = rustix::fs::fstat(directory)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if !is_directory || stat.st_mode & ALL == ALL || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    chmod(directory, stat.st_mode | ALL)
}

fn ignore_missing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Syncs all at the same time, so that a journaling file system writes its journal once or twice, not once per file.
pub(super) fn sync_together(opened: &[OwnedFd]) -> rustix::io::Result<()> {
    let share = opened.len().div_ceil(THREADS_MAX).max(1);
    thread::scope(|scope| {
        let each = |share: &[OwnedFd]| share.iter().try_for_each(|one| rustix::fs::fsync(one.as_fd()));
        let mut results = Vec::new();
        for share in opened.chunks(share) {
            // If no thread can be started, this one syncs.
            match thread::Builder::new().spawn_scoped(scope, move || each(share)) {
                Ok(begun) => results.push(begun),
                Err(_) => each(share)?,
            }
        }
        let mut joined = results.into_iter().map(|begun| begun.join());
        joined.try_for_each(|result| result.unwrap_or(Err(Errno::IO)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_sync_of_one_file_is_reported() {
        let good = || OwnedFd::from(tempfile());
        let bad = || OwnedFd::from(std::io::pipe().unwrap().0);
        let check =
            |opened: Vec<OwnedFd>, expect| assert_eq!(sync_together(&opened).is_ok(), expect, "{opened:?}");
        check(Vec::new(), true);
        check((0..40).map(|_| good()).collect(), true);
        check(
            (0..40).map(|n| if n == 39 { bad() } else { good() }).collect(),
            false,
        );
    }

    fn tempfile() -> File {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        rustix::fs::open(std::env::temp_dir(), flags, Mode::from_raw_mode(0o600))
            .unwrap()
            .into()
    }
}
