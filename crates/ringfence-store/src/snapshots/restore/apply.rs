//! The decided part of a restore: moves, then modes and times. Every step can be repeated.

use super::{
    compare::Plan,
    stage::{SYNCED_ONE_BY_ONE_MAX, Staging, chmod, make_writable, proc_fd_path, sync_together},
    step,
};
use crate::{
    snapshots::{Snapshot, SnapshotEntry, SnapshotError, SnapshotKind},
    tree::{self, AsOwner, Timestamp},
};
use rustix::{
    fs::{AtFlags, CWD, FileType},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Attempts at a move; what a program puts in its way is moved away before the next.
const ATTEMPTS_MAX: usize = 3;

pub(super) fn apply(
    root: BorrowedFd<'_>,
    snapshot: &Snapshot,
    plan: &Plan<'_>,
    staging: &mut Staging<'_>,
) -> Result<(), SnapshotError> {
    let _acting = AsOwner::of(root)?;
    let mut written = BTreeSet::new();
    for path in &plan.remove {
        let (parent, name) = open_parent(root, path, &mut written)?;
        move_away(parent.as_fd(), name, path, staging)?;
        step::reached();
    }
    for (number, entry) in plan.make.iter().enumerate() {
        let (parent, name) = open_parent(root, &entry.path, &mut written)?;
        put(parent.as_fd(), name, &number.to_string(), entry, staging)?;
        step::reached();
    }
    for entry in &plan.touch {
        let (parent, name) = open_parent(root, &entry.path, &mut written)?;
        touch(parent.as_fd(), name, entry)?;
        step::reached();
    }
    for entry in snapshot.entries.iter().rev() {
        if entry.kind == SnapshotKind::Directory {
            set(tree::open_handle(root, &entry.path), entry)?;
        }
    }
    step::reached();
    let changes = plan.remove.len() + plan.make.len() + plan.touch.len();
    if changes <= SYNCED_ONE_BY_ONE_MAX && sync_each(root, &written).is_ok() {
        return Ok(());
    }
    // Of the same file system as the root, which may be a handle (`O_PATH`): syncfs(2) takes none.
    rustix::fs::syncfs(&staging.new).map_err(SnapshotError::io("bring to the disk", "."))
}

/// Opens the parent directory of a path and makes it writable; its mode is set again at the end.
fn open_parent<'p>(
    root: BorrowedFd<'_>,
    path: &'p Path,
    written: &mut BTreeSet<PathBuf>,
) -> Result<(OwnedFd, &'p OsStr), SnapshotError> {
    let changed = || SnapshotError::changed(path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(changed());
    };
    let opened = tree::open_listing(root, tree::path_or_dot(parent)).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => changed(),
        error => SnapshotError::io("open", parent)(error),
    })?;
    make_writable(opened.as_fd()).map_err(SnapshotError::io("open", parent))?;
    written.insert(parent.to_owned());
    Ok((opened, name))
}

fn move_away(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
    staging: &mut Staging<'_>,
) -> Result<(), SnapshotError> {
    let failed = || SnapshotError::io("move away", path);
    match tree::open_handle(parent, Path::new(name)) {
        // A move to another parent writes to the directory itself.
        Ok(held) => make_writable(held.as_fd()).map_err(failed())?,
        Err(Errno::NOENT) => return Ok(()),
        // A symbolic link.
        Err(Errno::LOOP) => {}
        Err(error) => return Err(failed()(error)),
    }
    staging.moved += 1;
    match rustix::fs::renameat(parent, name, &staging.old, staging.moved.to_string()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed()(error)),
    }
}

fn put(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    staged: &str,
    entry: &SnapshotEntry,
    staging: &mut Staging<'_>,
) -> Result<(), SnapshotError> {
    for _ in 0..ATTEMPTS_MAX {
        match rustix::fs::renameat(&staging.new, staged, parent, name) {
            Ok(()) => return Ok(()),
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                move_away(parent, name, &entry.path, staging)?;
            }
            Err(Errno::NOENT) => break,
            Err(error) => return Err(SnapshotError::io("move into place", &entry.path)(error)),
        }
    }
    Err(SnapshotError::changed(&entry.path))
}

fn touch(parent: BorrowedFd<'_>, name: &OsStr, entry: &SnapshotEntry) -> Result<(), SnapshotError> {
    let failed = || SnapshotError::io("set mode and time of", &entry.path);
    if matches!(entry.kind, SnapshotKind::File(_)) {
        return set(tree::open_handle(parent, Path::new(name)), entry);
    }
    rustix::fs::utimensat(parent, name, &entry.mtime.to_set(), AtFlags::SYMLINK_NOFOLLOW).map_err(failed())
}

/// Sets the mode and the time of an open file or directory, where they differ.
fn set(held: rustix::io::Result<OwnedFd>, entry: &SnapshotEntry) -> Result<(), SnapshotError> {
    let failed = || SnapshotError::io("set mode and time of", &entry.path);
    let held = held.map_err(failed())?;
    let stat = rustix::fs::fstat(&held).map_err(failed())?;
    let is_expected = match FileType::from_raw_mode(stat.st_mode) {
        // With a second hard link, the mode of a file elsewhere would be set.
        FileType::RegularFile => matches!(entry.kind, SnapshotKind::File(_)) && stat.st_nlink <= 1,
        FileType::Directory => entry.kind == SnapshotKind::Directory,
        _ => false,
    };
    if !is_expected {
        return Err(SnapshotError::changed(&entry.path));
    }
    if stat.st_mode & 0o7777 != entry.mode {
        chmod(held.as_fd(), entry.mode).map_err(failed())?;
    }
    if Timestamp::of_content(&stat) != entry.mtime {
        let own = proc_fd_path(held.as_fd());
        rustix::fs::utimensat(CWD, own, &entry.mtime.to_set(), AtFlags::empty()).map_err(failed())?;
    }
    Ok(())
}

/// Syncs the changed directories. If there are many changes, or a directory can no longer be opened by its owner, the
/// whole file system is synced: once the journal is removed, nothing would repeat the restore after a crash.
fn sync_each(root: BorrowedFd<'_>, written: &BTreeSet<PathBuf>) -> rustix::io::Result<()> {
    let each = written
        .iter()
        .map(|path| tree::open_listing(root, tree::path_or_dot(path)));
    let opened: Vec<OwnedFd> = each.collect::<rustix::io::Result<_>>()?;
    sync_together(&opened)
}
