//! Directories that go as tar archives.

use super::{
    Bounds, EntryKind, TreeEntry, TreeError,
    archive::ArchiveError,
    beneath,
    files::{self, MODES},
    walk,
};
use ringfence_types::WorkspacePath;
use std::{
    borrow::Cow,
    io::{self, Write},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};
use tar::{EntryType, Header};

/// What went out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files and directories.
    pub entries: usize,
    /// Content of the files, as they lie there.
    pub bytes: u64,
    /// Links, special files, files with a second name, names that are no text or that `clean` changes, and what has
    /// gone meanwhile: not in the archive.
    pub skipped: Vec<PathBuf>,
}

/// What is refused.
#[derive(Clone, Copy, Debug)]
pub struct PackLimits {
    /// Of the directory.
    pub walk: Bounds,
    /// Content of all files.
    pub bytes: u64,
}

/// Writes a directory as a tar archive that [`super::archive::unpack`] takes: its files and directories under their
/// names below it. The content of each file passes `clean` whole, before its size is written down; one file is in
/// memory at a time.
pub fn pack(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    writer: impl Write,
    limits: PackLimits,
    clean: impl Fn(&[u8]) -> Cow<'_, [u8]>,
) -> Result<Packed, ArchiveError> {
    let below = Path::new(below.map_or("", WorkspacePath::as_str));
    let entries = walk::walk_at(root, below, limits.walk).map_err(ArchiveError::Tree)?;
    let mut builder = tar::Builder::new(writer);
    let mut packed = Packed::default();
    for entry in entries {
        let name = entry.path.strip_prefix(below).unwrap_or(&entry.path);
        let is_plain = name
            .to_str()
            .is_some_and(|text| *clean(text.as_bytes()) == *text.as_bytes());
        let content = match is_plain {
            true => content(root, &entry, limits.bytes.saturating_sub(packed.bytes))?,
            false => None,
        };
        let Some(content) = content else {
            packed.skipped.push(entry.path);
            continue;
        };
        packed.bytes += content.len() as u64;
        let content = clean(&content);
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode & MODES);
        header.set_mtime(u64::try_from(entry.mtime.0).unwrap_or(0));
        header.set_size(content.len() as u64);
        header.set_entry_type(match entry.kind {
            EntryKind::Directory => EntryType::Directory,
            _ => EntryType::Regular,
        });
        let appended = builder.append_data(&mut header, name, &*content);
        appended.map_err(failed(&entry.path))?;
        packed.entries += 1;
    }
    builder.into_inner().map_err(failed(below))?;
    Ok(packed)
}

/// None: it is nothing that an archive has, or no longer.
fn content(root: BorrowedFd<'_>, entry: &TreeEntry, most: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
    match entry.kind {
        EntryKind::Directory => return Ok(Some(Vec::new())),
        EntryKind::File if entry.links == 1 => {}
        _ => return Ok(None),
    }
    let read = beneath::open_file(root, &entry.path).and_then(|file| files::read(file, &entry.path, most));
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(TreeError::NotFound(_) | TreeError::Refused { .. }) => Ok(None),
        Err(error) => Err(ArchiveError::Tree(error)),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    move |error| ArchiveError::Tree(TreeError::io("pack", path)(error))
}
