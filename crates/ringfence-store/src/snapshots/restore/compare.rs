//! What has to be done: the workspace as it is, held against the manifest. Only directories that the manifest has are
//! entered, so that nothing else a program left there costs more than its name.

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

/// What has to be done, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan<'s> {
    pub(super) remove: Vec<PathBuf>,
    /// Directories before what is in them.
    pub(super) make: Vec<&'s SnapshotEntry>,
    /// Files and links of which only time or mode is wrong.
    pub(super) touch: Vec<&'s SnapshotEntry>,
    pub(super) unchanged: u64,
}

struct Comparing<'s> {
    expected: HashMap<&'s Path, BTreeMap<&'s OsStr, &'s SnapshotEntry>>,
    staging: &'s OsStr,
    plan: Plan<'s>,
}

enum Found {
    Same,
    /// The content is right, time or mode is not.
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
    let mut comparing = Comparing {
        expected,
        staging: OsStr::new(staging),
        plan: Plan::default(),
    };
    let _acting = AsOwner::of(root)?;
    let opened = tree::open_listing(root, Path::new("."));
    comparing.directory(&opened.map_err(SnapshotError::io("open", "."))?, Path::new(""))?;
    Ok(comparing.plan)
}

impl<'s> Comparing<'s> {
    /// As deep as the manifest is, which has a bound.
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

    /// False: it is not there, or has to go, and must be made.
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
            // It is replaced by a rename, so that there is always one or the other.
            Found::Different => self.plan.make.push(wanted),
        }
        Ok(true)
    }
}

/// None: its owner took the rights away, and it is as good as another thing.
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
    // What is written through another name would be written to it too.
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
