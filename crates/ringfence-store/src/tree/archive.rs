//! Directories as tar archives. The `tar` crate handles only headers; this module decides where a file is written.
//! Archives are untrusted: anything that readers may interpret differently (names, links, extensions) is refused.

use super::{
    Bounds, EntryKind, Timestamp, TreeEntry, TreeError, beneath,
    files::{self, MODES},
    names::{Names, Role},
    owner::AsOwner,
    staging::{Attributes, Staged, StagingDir},
    walk,
};
use crate::whole_file::FileError;
use flate2::read::GzDecoder;
use ringfence_types::WorkspacePath;
use rustix::fs::{AtFlags, RenameFlags};
use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};
use tar::{Archive, EntryType, Header, PaxExtensions};

const BLOCK_BYTES: u64 = 512;
/// Maximum size of a long name or of the extensions of one entry, which are read before the entry itself.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Headers, extensions and padding of one entry, in addition to its content.
const OVERHEAD_BYTES: u64 = 4 * BLOCK_BYTES;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files and directories, including those that only occur in the path of another entry.
    pub entries: usize,
    /// Content of all files, unpacked.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub files: usize,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("not a whole tar archive: {0}")]
    Malformed(String),
    /// With the name, shortened.
    #[error("the archive's entry {name:?} is refused: {what}")]
    Entry { name: String, what: &'static str },
    #[error("the archive has more than {entries_max} entries")]
    TooMany { entries_max: usize },
    #[error("the archive unpacks to more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    #[error("{0}")]
    Tree(#[from] TreeError),
}

/// Unpacks a tar archive, plain or gzip, into a directory beneath the root, or into the root itself. Existing files are
/// replaced; anything else in the way is refused. Nothing is put in place before the whole archive is read and checked.
/// Owners, set-id bits and extended attributes are ignored. Root acts as the owner of `root`.
pub fn unpack(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    reader: impl Read,
    limits: Limits,
) -> Result<Unpacked, ArchiveError> {
    let mut reader = BufReader::new(reader);
    let start = reader.fill_buf().map_err(malformed)?;
    let plain: Box<dyn Read + '_> = match start.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(GzDecoder::new(reader)),
        false => Box::new(reader),
    };
    let _acting = AsOwner::of(root)?;
    let mut incoming = Incoming {
        limits,
        below: Path::new(below.map_or("", WorkspacePath::as_str)),
        stage: StagingDir::new(root)?,
        names: Names::new(limits.entries),
        next: Extensions::default(),
        staged: Vec::new(),
        directories: Vec::new(),
        bytes: 0,
    };
    incoming.read(plain)?;
    incoming.place(root)?;
    Ok(Unpacked {
        files: incoming.staged.len(),
        bytes: incoming.bytes,
    })
}

struct Incoming<'r> {
    limits: Limits,
    below: &'r Path,
    stage: StagingDir<'r>,
    names: Names,
    next: Extensions,
    staged: Vec<(PathBuf, Staged)>,
    directories: Vec<PathBuf>,
    bytes: u64,
}

/// The contents of extension headers for the entry that follows.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    present: bool,
}

impl Incoming<'_> {
    fn read(&mut self, reader: impl Read) -> Result<(), ArchiveError> {
        let (entries_max, bytes) = (self.limits.entries, self.limits.bytes);
        let most = bytes.saturating_add(OVERHEAD_BYTES.saturating_mul(entries_max as u64));
        let mut archive = Archive::new(LimitedReader {
            reader,
            left: most.saturating_add(2 * EXTENSION_BYTES_MAX),
            zeros: 0,
        });
        let entries = archive.entries().map_err(|error| self.failed(error))?;
        // Raw, because the crate would read a long name of any length into memory.
        for (number, entry) in entries.raw(true).enumerate() {
            // A long name and extensions may precede each entry.
            if number >= entries_max.saturating_mul(3) {
                return Err(self.too_many());
            }
            let mut entry = entry.map_err(|error| self.failed(error))?;
            let header = entry.header().clone();
            match header.entry_type() {
                EntryType::Regular => self.file(&header, &mut entry)?,
                EntryType::Directory => self.directory(&header)?,
                EntryType::GNULongName => {
                    let bytes = self.extension(&header, &mut entry)?;
                    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                    if bytes[end..].iter().any(|byte| *byte != 0) {
                        return Err(refuse(&bytes, "its name contains a NUL byte"));
                    }
                    self.set_name(bytes[..end].to_vec())?;
                }
                EntryType::XHeader => {
                    let bytes = self.extension(&header, &mut entry)?;
                    self.extend(&bytes)?;
                }
                EntryType::XGlobalHeader => {
                    let bytes = self.extension(&header, &mut entry)?;
                    check_global(&header, &bytes)?;
                }
                kind => return Err(refuse(&header.path_bytes(), refusal(kind))),
            }
        }
        if self.next.present {
            return Err(cut("it ends where an entry is announced"));
        }
        // Without the end mark it may be the first half of an archive.
        let is_ended = archive.into_inner().zeros >= BLOCK_BYTES;
        is_ended.then_some(()).ok_or_else(|| cut("it has no end mark"))
    }

    fn file(&mut self, header: &Header, entry: &mut impl Read) -> Result<(), ArchiveError> {
        let size = self.size(header)?;
        let path = self.take_name(header, Role::File)?;
        let bytes_max = self.limits.bytes;
        let total = self.bytes.checked_add(size).filter(|total| *total <= bytes_max);
        self.bytes = total.ok_or(ArchiveError::TooLarge { bytes_max })?;
        let mode = header.mode().map_err(malformed)? & MODES;
        let seconds = header.mtime().map_err(malformed)?;
        let mtime = Some(Timestamp(i64::try_from(seconds).unwrap_or(0), 0));
        let written = self.stage.write(entry, &path, Attributes { mode, mtime }, size);
        let staged = written.map_err(|error| match error {
            TreeError::Io(FileError { error, .. }) if is_too_long(&error) => self.failed(error),
            error => ArchiveError::Tree(error),
        })?;
        if staged.size != size {
            return Err(cut("it ends inside a file"));
        }
        self.staged.push((path, staged));
        Ok(())
    }

    fn directory(&mut self, header: &Header) -> Result<(), ArchiveError> {
        if self.size(header)? != 0 {
            return Err(refuse(&header.path_bytes(), "a directory with content"));
        }
        let path = self.take_name(header, Role::Directory)?;
        self.directories.push(path);
        Ok(())
    }

    /// Returns the size in the header. Extensions with another size are refused: other readers would use that one.
    fn size(&mut self, header: &Header) -> Result<u64, ArchiveError> {
        let size = header.entry_size().map_err(malformed)?;
        match self.next.size.take() {
            Some(other) if other != size => Err(refuse(&header.path_bytes(), "it has two sizes")),
            _ => Ok(size),
        }
    }

    fn take_name(&mut self, header: &Header, role: Role) -> Result<PathBuf, ArchiveError> {
        let extensions = std::mem::take(&mut self.next);
        let own_name = || header.path_bytes().into_owned();
        let name = extensions.name.unwrap_or_else(own_name);
        let path = self.names.admit(&name, role);
        let path = path.map_err(|what| refuse(&name, what))?;
        if self.names.are_too_many() {
            return Err(self.too_many());
        }
        Ok(self.below.join(path))
    }

    fn extension(&mut self, header: &Header, entry: &mut impl Read) -> Result<Vec<u8>, ArchiveError> {
        let size = header.entry_size().map_err(malformed)?;
        if size > EXTENSION_BYTES_MAX {
            return Err(refuse(&header.path_bytes(), "its extensions are too long"));
        }
        let mut bytes = Vec::new();
        let read = entry.read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => Err(cut("it ends inside a header")),
        }
    }

    fn set_name(&mut self, name: Vec<u8>) -> Result<(), ArchiveError> {
        self.next.present = true;
        match self.next.name.replace(name) {
            None => Ok(()),
            Some(first) => Err(refuse(&first, "it has two names")),
        }
    }

    /// Reads PAX extensions. Times, owners and attributes in them are ignored.
    fn extend(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.next.present = true;
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(malformed)?;
            match record.key_bytes() {
                b"path" => self.set_name(record.value_bytes().to_vec())?,
                b"size" => {
                    let text = str::from_utf8(record.value_bytes()).ok();
                    let size = text.and_then(|text| text.parse().ok());
                    let size = size.ok_or_else(|| refuse(bytes, "its size is not a number"))?;
                    if self.next.size.replace(size).is_some() {
                        return Err(refuse(bytes, "it has two sizes"));
                    }
                }
                b"linkpath" => return Err(refuse(record.value_bytes(), "links are not unpacked")),
                key if key.starts_with(b"GNU.sparse") => {
                    return Err(refuse(key, refusal(EntryType::GNUSparse)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Puts everything in place after checking existing entries; if a change fails, new entries are removed again.
    fn place(&self, root: BorrowedFd<'_>) -> Result<(), TreeError> {
        let mut new = Vec::new();
        for path in &self.directories {
            if walk::is_free(root, path, &EntryKind::Directory)? {
                new.push(path.as_path());
            }
        }
        for (path, _) in &self.staged {
            if walk::is_free(root, path, &EntryKind::File)? {
                new.push(path);
            }
        }
        let placed = self.put(root);
        if placed.is_err() {
            for path in new.into_iter().rev() {
                remove_new_entry(root, path);
            }
        }
        placed
    }

    fn put(&self, root: BorrowedFd<'_>) -> Result<(), TreeError> {
        for path in &self.directories {
            beneath::make_directories(root, path)?;
        }
        for (path, staged) in &self.staged {
            let (directory, name) = beneath::open_parent(root, path, Some(0o755))?;
            let (to, flags) = (directory.as_fd(), RenameFlags::empty());
            let placed = self.stage.place(staged, to, name, flags);
            placed.map_err(TreeError::of("put in place", path))?;
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> ArchiveError {
        let bytes_max = self.limits.bytes;
        match is_too_long(&error) {
            true => ArchiveError::TooLarge { bytes_max },
            false => malformed(error),
        }
    }

    fn too_many(&self) -> ArchiveError {
        let entries_max = self.limits.entries;
        ArchiveError::TooMany { entries_max }
    }
}

fn remove_new_entry(root: BorrowedFd<'_>, path: &Path) {
    let Ok((directory, name)) = beneath::open_parent(root, path, None) else {
        return;
    };
    // A file or a directory; a directory that is no longer empty is left.
    let removed = rustix::fs::unlinkat(&directory, name, AtFlags::empty())
        .or_else(|_| rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR));
    if let Err(error) = removed {
        tracing::warn!(%error, "a part of an archive stays in a workspace");
    }
}

fn refusal(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Link | EntryType::Symlink | EntryType::GNULongLink => "links are not unpacked",
        EntryType::Char | EntryType::Block | EntryType::Fifo => "devices and FIFOs are not unpacked",
        EntryType::GNUSparse => "sparse files are not unpacked",
        _ => "entries of its type are not unpacked",
    }
}

/// Checks a global header: `git archive` puts a comment there; anything else would apply to every entry that follows.
fn check_global(header: &Header, bytes: &[u8]) -> Result<(), ArchiveError> {
    for record in PaxExtensions::new(bytes) {
        if record.map_err(malformed)?.key_bytes() != b"comment" {
            return Err(refuse(&header.path_bytes(), "it has extensions for all entries"));
        }
    }
    Ok(())
}

fn refuse(name: &[u8], what: &'static str) -> ArchiveError {
    let name = String::from_utf8_lossy(name).chars().take(200).collect();
    ArchiveError::Entry { name, what }
}

fn cut(what: &str) -> ArchiveError {
    ArchiveError::Malformed(what.to_owned())
}

fn malformed(error: io::Error) -> ArchiveError {
    ArchiveError::Malformed(error.to_string())
}

fn is_too_long(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<TooLong>())
}

/// A reader that fails after `left` bytes, and counts the zeros at the end of what it has read.
struct LimitedReader<R> {
    reader: R,
    left: u64,
    zeros: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the archive is too long")]
struct TooLong;

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| io::Error::other(TooLong))?;
        match buffer[..count].iter().rposition(|byte| *byte != 0) {
            Some(last) => self.zeros = (count - last - 1) as u64,
            None => self.zeros += count as u64,
        }
        Ok(count)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files and directories.
    pub entries: usize,
    /// Content of the files before `clean`.
    pub bytes: u64,
    /// Paths that are not in the archive: links, special files, files with a second hard link, names that are not UTF-8
    /// or that `clean` changes, and files that were removed or replaced meanwhile.
    pub skipped: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub struct PackLimits {
    pub walk: Bounds,
    pub bytes: u64,
}

/// Writes a directory as a tar archive that [`unpack`] accepts: its files and directories, named relative to it.
/// `clean` filters the whole content of each file before its size is written; one file is in memory at a time.
pub fn pack(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    writer: impl Write,
    limits: PackLimits,
    clean: impl Fn(&[u8]) -> Cow<'_, [u8]>,
) -> Result<Packed, ArchiveError> {
    let below = Path::new(below.map_or("", WorkspacePath::as_str));
    let entries = walk::walk_at(root, below, limits.walk)?;
    let mut builder = tar::Builder::new(writer);
    let mut packed = Packed::default();
    for entry in entries {
        let name = entry.path.strip_prefix(below).unwrap_or(&entry.path);
        let is_clean = |text: &str| *clean(text.as_bytes()) == *text.as_bytes();
        let is_plain = name.to_str().is_some_and(is_clean);
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

/// Returns None if the entry cannot be in an archive, or no longer exists.
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
        Err(error) => Err(error.into()),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    move |error| ArchiveError::Tree(TreeError::io("pack", path)(error))
}
