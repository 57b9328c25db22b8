//! The plan of a restore: compares the workspace with the manifest. Only directories in the manifest are entered, so
//! that anything else in the workspace costs no more than its name.

use crate::{
    digest::from_hex,
    snapshots::{FileContent, Snapshot, SnapshotEntry, SnapshotError, SnapshotKind, content},
    tree::{self, AsOwner, Stamp, Timestamp},
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Stat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

const REMOVALS_MAX: usize = 1_000_000;

/// The steps of a restore, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan<'s> {
    pub(super) remove: Vec<PathBuf>,
    /// Directories before their entries.
    pub(super) make: Vec<&'s SnapshotEntry>,
    /// Files and links of which only the time or the mode is wrong.
    pub(super) touch: Vec<&'s SnapshotEntry>,
    pub(super) unchanged: u64,
}

struct Comparer<'s> {
    expected: HashMap<&'s Path, BTreeMap<&'s OsStr, &'s SnapshotEntry>>,
    staging: &'s OsStr,
    plan: Plan<'s>,
}

enum Found {
    Same,
    /// The content is the same; the time or the mode differs.
    Touched,
    Different,
}

pub(super) fn compare<'s>(
    root: BorrowedFd<'_>,
    snapshot: &'s Snapshot,
    staging: &'s str,
) -> Result<Plan<'s>, SnapshotError> {
    let mut expected: HashMap<&Path, BTreeMap<&OsStr, &SnapshotEntry>> = HashMap::new();
    for entry in &snapshot.entries {
        if let (Some(parent), Some(name)) = (entry.path.parent(), entry.path.file_name()) {
            expected.entry(parent).or_default().insert(name, entry);
        }
    }
    let mut comparer = Comparer {
        expected,
        staging: OsStr::new(staging),
        plan: Plan::default(),
    };
    let _acting = AsOwner::of(root)?;
    let opened = tree::open_listing(root, Path::new("."));
    comparer.directory(&opened.map_err(SnapshotError::io("open", "."))?, Path::new(""))?;
    Ok(comparer.plan)
}

impl<'s> Comparer<'s> {
    /// Recurses as deep as the manifest, whose depth is bounded.
    fn directory(&mut self, directory: &OwnedFd, path: &Path) -> Result<(), SnapshotError> {
        let children = self.expected.remove(path).unwrap_or_default();
        let mut missing: BTreeSet<&OsStr> = children.keys().copied().collect();
        for entry in Dir::read_from(directory).map_err(SnapshotError::io("list", path))? {
            let entry = entry.map_err(SnapshotError::io("list", path))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_ours = name == self.staging && path.as_os_str().is_empty();
            if matches!(name.as_bytes(), b"." | b"..") || is_ours {
                continue;
            }
            let Some(wanted) = children.get(name) else {
                self.remove(path.join(name))?;
                continue;
            };
            if self.child(directory.as_fd(), name, wanted)? {
                missing.remove(name);
            }
        }
        for name in missing {
            self.make(children[name]);
        }
        Ok(())
    }

    fn remove(&mut self, path: PathBuf) -> Result<(), SnapshotError> {
        if self.plan.remove.len() == REMOVALS_MAX {
            return Err(SnapshotError::too_many("things to remove", REMOVALS_MAX));
        }
        self.plan.remove.push(path);
        Ok(())
    }

    fn make(&mut self, entry: &'s SnapshotEntry) {
        self.plan.make.push(entry);
        let children = self.expected.remove(entry.path.as_path());
        for child in children.unwrap_or_default().into_values() {
            self.make(child);
        }
    }

    /// Returns false if the entry is missing or has to be removed, and so must be created.
    fn child(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        wanted: &'s SnapshotEntry,
    ) -> Result<bool, SnapshotError> {
        let path = &wanted.path;
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(SnapshotError::io("look at", path)(error)),
        };
        let found = match (FileType::from_raw_mode(stat.st_mode), &wanted.kind) {
            (FileType::Directory, SnapshotKind::Directory) => {
                if let Some(opened) = enter(directory, name, &stat, path)? {
                    self.plan.unchanged += 1;
                    self.directory(&opened, path)?;
                    return Ok(true);
                }
                self.remove(path.clone())?;
                return Ok(false);
            }
            (FileType::RegularFile, SnapshotKind::File(content)) => {
                file(directory, name, &stat, wanted, content)?
            }
            (FileType::Symlink, SnapshotKind::Link(target)) => {
                let points = rustix::fs::readlinkat(directory, name, Vec::new());
                let points = points.map_err(SnapshotError::io("read the link", path))?;
                match points.as_bytes() == target.as_os_str().as_bytes() {
                    true if Timestamp::of_content(&stat) == wanted.mtime => Found::Same,
                    true => Found::Touched,
                    false => Found::Different,
                }
            }
            _ => {
                self.remove(path.clone())?;
                return Ok(false);
            }
        };
        match found {
            Found::Same => self.plan.unchanged += 1,
            Found::Touched => {
                self.plan.unchanged += 1;
                self.plan.touch.push(wanted);
            }
            // Replaced by a rename, so that the name always exists.
            Found::Different => self.plan.make.push(wanted),
        }
        Ok(true)
    }
}

/// Returns None if the owner may not read and search the directory; it is then replaced like an entry of another kind.
fn enter(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    stat: &Stat,
    path: &Path,
) -> Result<Option<OwnedFd>, SnapshotError> {
    const READ_AND_SEARCH: u32 = 0o500;
    if stat.st_mode & READ_AND_SEARCH != READ_AND_SEARCH {
        return Ok(None);
    }
    match tree::open_listing(directory, Path::new(name)) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(SnapshotError::io("open the directory", path)(error)),
    }
}

fn file(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    stat: &Stat,
    wanted: &SnapshotEntry,
    content: &FileContent,
) -> Result<Found, SnapshotError> {
    // Writing through another hard link would change it too.
    if stat.st_nlink > 1 || u64::try_from(stat.st_size) != Ok(content.size) {
        return Ok(Found::Different);
    }
    let is_dated = Timestamp::of_content(stat) == wanted.mtime;
    let attributes = match is_dated && stat.st_mode & 0o7777 == wanted.mode {
        true => Found::Same,
        false => Found::Touched,
    };
    if content.seen == Some(Stamp::of(stat)) && is_dated {
        return Ok(attributes);
    }
    let (file, stat) = match tree::open_regular(directory, Path::new(name)) {
        Ok(opened) => opened,
        Err(error) if error.is_permission_denied() => return Ok(Found::Different),
        Err(error) => return Err(error.into()),
    };
    let sha256 = content::hash(&file, &stat, &wanted.path)?;
    let is_same = sha256.is_some() && sha256 == from_hex(&content.sha256);
    Ok(if is_same { attributes } else { Found::Different })
}
