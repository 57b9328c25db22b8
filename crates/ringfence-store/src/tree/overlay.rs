//! An overlay workspace: reads a program's changes from the upper layer, and commits those that were shown to the
//! host's directory. Neither needs the overlay itself, which is mounted with `userxattr` in the sandbox.
//!
//! The format of the upper layer is the kernel's (Documentation/filesystems/overlayfs.rst): a character device 0:0 is a
//! deletion, and a directory with the attribute `user.overlay.opaque` hides the lower directory.

use super::{
    Bounds, Change, ChangeKind, Changes, CompareBounds, EntryKind, Node, Side, TreeEntry, TreeError, beneath,
    changes,
    files::MODES,
    owner::AsOwner,
    staging::{self, Attributes, Staged, StagingDir},
    walk,
};
use crate::digest;
use rustix::{
    fs::{AtFlags, FileType, Mode, RenameFlags},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    pub written: usize,
    pub deleted: usize,
    pub skipped: Vec<PathBuf>,
    /// Directories that were to be deleted and are not empty, because of entries of the host or deletions not chosen.
    pub kept: Vec<PathBuf>,
    /// Paths that the host changed while files were put in place. Its version is kept, the change not committed.
    pub conflicts: Vec<PathBuf>,
}

/// Reads the changes of the upper layer. Errors: those of [`super::walk`] and [`super::compare`]; `Refused` for
/// attributes that the kernel writes only with other mount options (redirected directories, metadata-only copies).
pub fn read(
    upper: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    bounds: Bounds,
    compared: CompareBounds<'_>,
) -> Result<Changes, TreeError> {
    let below = Side::host(lower, bounds)?;
    let merged = merge(upper, lower, &below, bounds)?;
    changes::compare(&below, &merged, compared)
}

/// Returns the tree as the program sees it.
fn merge<'a>(
    upper: BorrowedFd<'a>,
    lower: BorrowedFd<'a>,
    below: &Side<'_>,
    bounds: Bounds,
) -> Result<Side<'a>, TreeError> {
    let mut nodes = below.nodes.clone();
    let mut above = BTreeSet::new();
    for entry in walk(upper, bounds)? {
        let (path, node) = Node::of_program(entry);
        let is_directory = |node: &Node| node.kind == EntryKind::Directory;
        let merges = is_directory(&node) && nodes.get(&path).is_some_and(is_directory);
        if !merges || is_opaque(upper, &path)? {
            hide(&mut nodes, &path);
        }
        if node.kind != EntryKind::Whiteout {
            above.insert(path.clone());
            nodes.insert(path, node);
        }
    }
    Ok(Side {
        nodes,
        open: Box::new(move |path| {
            if !above.contains(path) {
                return Ok(Box::new(beneath::open_regular(lower, path)?.0));
            }
            let file = beneath::open_file(upper, path)?;
            match has_attribute(file.as_fd(), c"user.overlay.metacopy", path)? {
                false => Ok(Box::new(file)),
                true => Err(foreign(path)),
            }
        }),
    })
}

fn hide(nodes: &mut BTreeMap<PathBuf, Node>, path: &Path) {
    let from = nodes.range(path.to_owned()..).map(|(below, _)| below);
    let hidden = from.take_while(|below| below.starts_with(path));
    let hidden: Vec<PathBuf> = hidden.cloned().collect();
    for hidden in hidden {
        nodes.remove(&hidden);
    }
}

fn is_opaque(upper: BorrowedFd<'_>, path: &Path) -> Result<bool, TreeError> {
    let directory = beneath::open_directory(upper, path)?;
    if has_attribute(directory.as_fd(), c"user.overlay.redirect", path)? {
        return Err(foreign(path));
    }
    let mut value = [0; 1];
    match rustix::fs::fgetxattr(&directory, c"user.overlay.opaque", &mut value) {
        Ok(_) if value == *b"y" => Ok(true),
        // A value that the kernel writes with other mount options, or a longer one.
        Ok(_) | Err(Errno::RANGE) => Err(foreign(path)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(TreeError::of("read the attributes of", path)(error)),
    }
}

fn has_attribute(file: BorrowedFd<'_>, name: &std::ffi::CStr, path: &Path) -> Result<bool, TreeError> {
    match rustix::fs::fgetxattr(file, name, &mut [0; 0]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(TreeError::of("read the attributes of", path)(error)),
    }
}

fn foreign(path: &Path) -> TreeError {
    TreeError::refused(path, "its attributes are not those of an overlay mounted here")
}

/// Writes the chosen changes of [`read`] into the host's directory, exactly as shown. All are checked and copied before
/// the first change; then files are renamed into place, with their times, and their modes without set-id bits. Root
/// does it as the owner of `lower`, who owns what is written. Errors: `Stale` for a path that, on either side, is no
/// longer as shown; nothing is changed if the checks find it. What the host changes after the checks is found when
/// files are exchanged, and kept. On return everything is on the disk.
pub fn commit(
    upper: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    chosen: &Changes,
) -> Result<Committed, TreeError> {
    commit_after(upper, lower, chosen, || {})
}

/// Like [`commit`]; `checked` is called after the last check, before the first change.
pub(super) fn commit_after(
    upper: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    chosen: &Changes,
    checked: impl FnOnce(),
) -> Result<Committed, TreeError> {
    let mut commit = Commit {
        lower,
        stage: start_staging(lower)?,
        staged: Vec::new(),
        directories: Vec::new(),
        done: Committed::default(),
    };
    let order = Order::of(chosen);
    order.check(lower, chosen)?;
    for change in &chosen.list {
        if let Some(new) = &change.new {
            commit.stage(upper, change, new)?;
        }
    }
    // Until here each file was opened as the owner of `upper`, who may be another user.
    let _acting = AsOwner::of(lower)?;
    commit.sync_staged()?;
    // Copying may have taken long, and the host may have changed files meanwhile.
    order.check(lower, chosen)?;
    checked();
    commit.delete(&order.early)?;
    commit.make_room(&order.replaced)?;
    commit.place()?;
    commit.delete(&order.late)?;
    commit.sync_names(chosen)?;
    commit.set_modes()?;
    Ok(commit.done)
}

fn start_staging(lower: BorrowedFd<'_>) -> Result<StagingDir<'_>, TreeError> {
    let _acting = AsOwner::of(lower)?;
    staging::remove_stale_staging(lower)?;
    StagingDir::new(lower)
}

/// Maximum number of files or directories that are synced one by one; for more, the whole file system is synced.
const SYNCED_SINGLY_MAX: usize = 64;

/// The order of deletions: a directory that becomes a file must be emptied first; everything else is deleted last.
struct Order<'c> {
    early: Vec<&'c Change>,
    replaced: Vec<&'c Change>,
    late: Vec<&'c Change>,
}

impl<'c> Order<'c> {
    fn of(chosen: &'c Changes) -> Self {
        let of_directory = |node: &Node| node.kind == EntryKind::Directory;
        let is_directory = |node: &Option<Node>| node.as_ref().is_some_and(of_directory);
        let of_kind = |kind: ChangeKind| chosen.list.iter().filter(move |change| change.kind == kind);
        let is_other = |change: &&Change| is_directory(&change.old) != is_directory(&change.new);
        let replaced: Vec<&Change> = of_kind(ChangeKind::Changed).filter(is_other).collect();
        let is_replaced = |above: &Path| replaced.iter().any(|change| change.path == above);
        let (early, late) =
            of_kind(ChangeKind::Deleted).partition(|change| change.path.ancestors().any(is_replaced));
        Self {
            early,
            replaced,
            late,
        }
    }

    /// Checks that everything is as it was shown, and that the directories to be replaced have only chosen entries.
    fn check(&self, lower: BorrowedFd<'_>, chosen: &Changes) -> Result<(), TreeError> {
        for Change { path, old, .. } in &chosen.list {
            if !is_as_shown(lower, path, old.as_ref())? {
                return Err(TreeError::Stale(path.clone()));
            }
        }
        let (entries, depth) = (self.early.len(), walk::DEPTH_MAX);
        let bounds = Bounds { entries, depth };
        for Change { path, .. } in &self.replaced {
            let inside = match walk::walk_at(lower, path, bounds) {
                Ok(inside) => inside,
                // The path is a file that becomes a directory.
                Err(TreeError::NotFound(_)) => continue,
                Err(TreeError::TooMany { .. }) => return Err(TreeError::Stale(path.clone())),
                Err(error) => return Err(error),
            };
            let is_chosen = |entry: &TreeEntry| self.early.iter().any(|early| early.path == entry.path);
            if let Some(other) = inside.into_iter().find(|entry| !is_chosen(entry)) {
                return Err(TreeError::Stale(other.path));
            }
        }
        Ok(())
    }
}

struct Ready {
    path: PathBuf,
    staged: Staged,
    /// The node that it replaces, unless that is a directory.
    old: Option<Node>,
}

struct Commit<'r> {
    lower: BorrowedFd<'r>,
    stage: StagingDir<'r>,
    staged: Vec<Ready>,
    /// Directories and their modes, which are set last: one may forbid writing into its directory.
    directories: Vec<(PathBuf, u32)>,
    done: Committed,
}

impl Commit<'_> {
    fn stage(&mut self, upper: BorrowedFd<'_>, change: &Change, new: &Node) -> Result<(), TreeError> {
        let path = change.path.as_path();
        let staged = match &new.kind {
            EntryKind::File => {
                let file = beneath::open_file(upper, path)?;
                let _acting = AsOwner::of(self.lower)?;
                let (mode, mtime) = (new.mode & MODES, Some(new.mtime));
                let staged = self.stage.write(file, path, Attributes { mode, mtime }, new.size);
                // A file that has grown is not the one that was shown.
                let staged = staged.map_err(|error| match error {
                    TreeError::TooLarge { path, .. } => TreeError::Stale(path),
                    error => error,
                })?;
                if Some(staged.sha256) != new.sha256 || staged.size != new.size {
                    return Err(TreeError::Stale(path.to_owned()));
                }
                staged
            }
            EntryKind::Link(target) => {
                let _acting = AsOwner::of(self.lower)?;
                self.stage.link(target, path)?
            }
            EntryKind::Directory => {
                self.directories.push((path.to_owned(), new.mode & MODES));
                return Ok(());
            }
            EntryKind::Whiteout | EntryKind::Other => {
                self.done.skipped.push(path.to_owned());
                return Ok(());
            }
        };
        let old = change.old.clone().filter(|old| old.kind != EntryKind::Directory);
        let path = path.to_owned();
        self.staged.push(Ready { path, staged, old });
        Ok(())
    }

    fn sync_staged(&self) -> Result<(), TreeError> {
        if self.staged.len() > SYNCED_SINGLY_MAX {
            return sync_all(self.lower);
        }
        let mut each = self.staged.iter();
        each.try_for_each(|ready| self.stage.sync(&ready.staged, &ready.path))
    }

    fn sync_names(&self, chosen: &Changes) -> Result<(), TreeError> {
        let changes = chosen.list.iter();
        let parents: BTreeSet<&Path> = changes.filter_map(|change| change.path.parent()).collect();
        if parents.len() > SYNCED_SINGLY_MAX {
            return sync_all(self.lower);
        }
        for path in parents {
            match beneath::open_directory(self.lower, path) {
                Ok(directory) => {
                    rustix::fs::fsync(directory).map_err(TreeError::of("bring to the disk", path))?;
                }
                // It was removed too, and its own parent is synced.
                Err(TreeError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn place(&mut self) -> Result<(), TreeError> {
        for (path, _) in &self.directories {
            beneath::make_directories(self.lower, path)?;
        }
        self.done.written = self.directories.len();
        for ready in &self.staged {
            match self.place_one(ready)? {
                true => self.done.written += 1,
                false => self.done.conflicts.push(ready.path.clone()),
            }
        }
        Ok(())
    }

    /// Returns false if the host has changed the path since it was shown; the host's version is kept.
    fn place_one(&self, ready: &Ready) -> Result<bool, TreeError> {
        let Ready { path, staged, old } = ready;
        let (directory, name) = beneath::open_parent(self.lower, path, Some(0o755))?;
        let directory = directory.as_fd();
        let failed = || TreeError::of("put in place", path);
        let Some(old) = old else {
            return self.stage.place_new(staged, directory, name).map_err(failed());
        };
        let exchange = || self.stage.place(staged, directory, name, RenameFlags::EXCHANGE);
        let own = self.stage.inode(staged).map_err(failed())?;
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            // Not supported by this file system: a check, immediately followed by a plain rename.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if !is_as_shown(self.lower, path, Some(old))? {
                    return Ok(false);
                }
                let placed = self.stage.place(staged, directory, name, RenameFlags::empty());
                return placed.map(|()| true).map_err(failed());
            }
            Err(error) => return Err(failed()(error)),
        }
        if is_as_shown(self.lower, &self.stage.path_of(staged), Some(old))? {
            return Ok(true);
        }
        exchange().map_err(failed())?;
        // If this did not return our own file, the host has written again: that version is put back and kept.
        let is_ours = self.stage.inode(staged).map_err(failed())? == own;
        if !is_ours {
            exchange().map_err(failed())?;
        }
        Ok(false)
    }

    /// Deletes the old side of these changes, deepest first.
    fn delete(&mut self, changes: &[&Change]) -> Result<(), TreeError> {
        for change in changes.iter().rev() {
            match self.remove(change)? {
                Removed::Gone => self.done.deleted += 1,
                Removed::NotEmpty => self.done.kept.push(change.path.clone()),
                Removed::Conflict => self.done.conflicts.push(change.path.clone()),
            }
        }
        Ok(())
    }

    fn make_room(&mut self, replaced: &[&Change]) -> Result<(), TreeError> {
        replaced.iter().try_for_each(|change| match self.remove(change)? {
            Removed::Gone => Ok(()),
            Removed::NotEmpty | Removed::Conflict => Err(TreeError::Stale(change.path.clone())),
        })
    }

    /// Removes a file, link or directory, if it exists. A file is moved into the staging directory and checked there.
    fn remove(&mut self, change: &Change) -> Result<Removed, TreeError> {
        let path = change.path.as_path();
        let failed = || TreeError::of("remove", path);
        let (directory, name) = beneath::open_parent(self.lower, path, None)?;
        let there = beneath::stat_entry(directory.as_fd(), name).map_err(TreeError::of("look at", path))?;
        let Some(stat) = there else {
            return Ok(Removed::Gone);
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return match rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(Removed::Gone),
                Err(Errno::NOTEMPTY) => Ok(Removed::NotEmpty),
                Err(error) => Err(failed()(error)),
            };
        }
        let taken = match self.stage.take(directory.as_fd(), name) {
            Ok(taken) => taken,
            Err(Errno::NOENT) => return Ok(Removed::Gone),
            Err(error) => return Err(failed()(error)),
        };
        if is_as_shown(self.lower, &self.stage.path_of(&taken), change.old.as_ref())? {
            return Ok(Removed::Gone);
        }
        // If the name is taken again, the host has created a newer file since, which stays.
        let back = self.stage.place_new(&taken, directory.as_fd(), name);
        back.map(|_| Removed::Conflict).map_err(failed())
    }

    fn set_modes(&self) -> Result<(), TreeError> {
        for (path, mode) in self.directories.iter().rev() {
            let directory = beneath::open_directory(self.lower, path)?;
            let set = rustix::fs::fchmod(&directory, Mode::from_raw_mode(*mode));
            set.map_err(TreeError::of("set the mode of", path))?;
            rustix::fs::fsync(&directory).map_err(TreeError::of("bring to the disk", path))?;
        }
        Ok(())
    }
}

fn sync_all(lower: BorrowedFd<'_>) -> Result<(), TreeError> {
    rustix::fs::syncfs(lower).map_err(TreeError::of("bring to the disk", "."))
}

enum Removed {
    Gone,
    NotEmpty,
    /// The host has changed the path since it was shown.
    Conflict,
}

/// True if the path in the host's directory is as it was shown.
fn is_as_shown(lower: BorrowedFd<'_>, path: &Path, shown: Option<&Node>) -> Result<bool, TreeError> {
    let now = match walk::entry_at(lower, path) {
        Ok(entry) => Some(Node::from(entry)),
        // Also if its parent directory does not exist.
        Err(TreeError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(match (shown, now) {
        (None, None) => true,
        (Some(shown), Some(now)) if shown.stamp.is_some() && shown.stamp == now.stamp => true,
        (Some(shown), Some(now)) if shown.kind == now.kind && shown.mode == now.mode => match shown.kind {
            EntryKind::File => {
                let (file, _) = beneath::open_regular(lower, path)?;
                let hashed = digest::of(file).map_err(TreeError::io("read", path))?;
                shown.sha256 == Some(hashed.sha256)
            }
            _ => true,
        },
        _ => false,
    })
}
