//! Directories that come as tar archives.
//!
//! Of the `tar` crate only the headers are used; where a file goes is decided here. An archive is a stranger's: what
//! could mean one thing to one reader and another to the next (names, links, extensions) is refused, not guessed.

use super::{
    EntryKind, Timestamp, TreeError, beneath,
    files::MODES,
    names::{Names, Role},
    owner::AsOwner,
    staging::{Attributes, Staged, StagingDir},
    walk,
};
use crate::whole_file::FileError;
use flate2::read::GzDecoder;
use ringfence_types::WorkspacePath;
use rustix::fs::AtFlags;
use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};
use tar::{Archive, EntryType, Header, PaxExtensions};

const BLOCK_BYTES: u64 = 512;
/// Of a long name or of the extensions of one entry; read before anything is known of the entry.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Headers, extensions and padding of one entry, beside its content.
const OVERHEAD_BYTES: u64 = 4 * BLOCK_BYTES;

/// Bounds of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files and directories, those that are only part of a name among them.
    pub entries: usize,
    /// Content of all files, unpacked.
    pub bytes: u64,
}

/// What came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub files: usize,
    /// Their content.
    pub bytes: u64,
}

/// Why an archive was not unpacked or made.
#[derive(Debug)]
pub enum ArchiveError {
    /// It is no tar archive, or not a whole one.
    Malformed(String),
    /// One entry is not allowed.
    Entry {
        /// Its name as far as it can be shown.
        name: String,
        what: &'static str,
    },
    /// There are more entries than the bound.
    TooMany { entries_max: usize },
    /// It unpacks to more than the bound.
    TooLarge { bytes_max: u64 },
    /// The directory did not take or give it.
    Tree(TreeError),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "not a whole tar archive: {what}"),
            Self::Entry { name, what } => write!(f, "the archive's entry {name:?} is refused: {what}"),
            Self::TooMany { entries_max } => write!(f, "the archive has more than {entries_max} entries"),
            Self::TooLarge { bytes_max } => write!(f, "the archive unpacks to more than {bytes_max} bytes"),
            Self::Tree(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ArchiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tree(error) => Some(error),
            _ => None,
        }
    }
}

/// Unpacks a tar archive, plain or in gzip, into a directory beneath the root (the root itself without `below`). Files
/// there are replaced, other things refused. Before the whole archive has been read and found good nothing is put in
/// place; owners, set-id bits and extended attributes are not taken. Root
/// does it as the owner of `root`.
pub fn unpack(
    root: BorrowedFd<'_>,
    below: Option<&WorkspacePath>,
    reader: impl Read,
    limits: Limits,
) -> Result<Unpacked, ArchiveError> {
    let mut reader = BufReader::new(reader);
    let start = reader.fill_buf().map_err(|error| malformed(&error))?;
    let plain: Box<dyn Read + '_> = match start.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(GzDecoder::new(reader)),
        false => Box::new(reader),
    };
    let _acting = AsOwner::of(root).map_err(ArchiveError::Tree)?;
    let mut incoming = Incoming {
        limits,
        below: Path::new(below.map_or("", WorkspacePath::as_str)),
        stage: StagingDir::new(root).map_err(ArchiveError::Tree)?,
        names: Names::new(limits.entries),
        next: Extensions::default(),
        staged: Vec::new(),
        directories: Vec::new(),
        bytes: 0,
    };
    incoming.read(plain)?;
    incoming.place(root).map_err(ArchiveError::Tree)?;
    Ok(Unpacked {
        files: incoming.staged.len(),
        bytes: incoming.bytes,
    })
}

/// An archive being read.
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

/// What extension headers say of the entry that follows.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    present: bool,
}

impl Incoming<'_> {
    fn read(&mut self, reader: impl Read) -> Result<(), ArchiveError> {
        let overhead = OVERHEAD_BYTES.saturating_mul(self.limits.entries as u64);
        let mut archive = Archive::new(Measured {
            reader,
            left: self
                .limits
                .bytes
                .saturating_add(overhead)
                .saturating_add(2 * EXTENSION_BYTES_MAX),
            zeros: 0,
        });
        let entries = archive.entries().map_err(|error| self.failed(&error))?;
        // Raw: the crate would read a long name of any length into memory.
        for (number, entry) in entries.raw(true).enumerate() {
            // Each entry may have a long name and extensions before it.
            if number >= self.limits.entries.saturating_mul(3) {
                return Err(self.too_many());
            }
            let mut entry = entry.map_err(|error| self.failed(&error))?;
            let header = entry.header().clone();
            match header.entry_type() {
                EntryType::Regular => self.file(&header, &mut entry)?,
                EntryType::Directory => self.directory(&header)?,
                EntryType::GNULongName => {
                    let bytes = self.extension(&header, &mut entry)?;
                    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                    if bytes[end..].iter().any(|byte| *byte != 0) {
                        return Err(refuse(&bytes, "a NUL byte is in its name"));
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
            return Err(ArchiveError::Malformed(
                "it ends where an entry is announced".to_owned(),
            ));
        }
        // Without the mark it may be the first half of an archive.
        match archive.into_inner().zeros >= BLOCK_BYTES {
            true => Ok(()),
            false => Err(ArchiveError::Malformed("it has no end mark".to_owned())),
        }
    }

    fn file(&mut self, header: &Header, entry: &mut impl Read) -> Result<(), ArchiveError> {
        let size = self.size(header)?;
        let path = self.take_name(header, Role::File)?;
        let total = self
            .bytes
            .checked_add(size)
            .filter(|total| *total <= self.limits.bytes);
        self.bytes = total.ok_or(ArchiveError::TooLarge {
            bytes_max: self.limits.bytes,
        })?;
        let mode = header.mode().map_err(|error| malformed(&error))? & MODES;
        let seconds = header.mtime().map_err(|error| malformed(&error))?;
        let mtime = Some(Timestamp(i64::try_from(seconds).unwrap_or(0), 0));
        let written = self.stage.write(entry, &path, Attributes { mode, mtime }, size);
        let staged = written.map_err(|error| match error {
            TreeError::Io(FileError { error, .. })
                if error.get_ref().is_some_and(|inner| inner.is::<TooLong>()) =>
            {
                self.failed(&error)
            }
            error => ArchiveError::Tree(error),
        })?;
        if staged.size != size {
            return Err(ArchiveError::Malformed("it ends inside a file".to_owned()));
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

    /// Framing is by the header; extensions that say otherwise are a trap for other readers.
    fn size(&mut self, header: &Header) -> Result<u64, ArchiveError> {
        let size = header.entry_size().map_err(|error| malformed(&error))?;
        match self.next.size.take() {
            Some(other) if other != size => Err(refuse(&header.path_bytes(), "it has two sizes")),
            _ => Ok(size),
        }
    }

    fn take_name(&mut self, header: &Header, role: Role) -> Result<PathBuf, ArchiveError> {
        let extensions = std::mem::take(&mut self.next);
        let name = extensions
            .name
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let path = self
            .names
            .admit(&name, role)
            .map_err(|what| refuse(&name, what))?;
        if self.names.are_too_many() {
            return Err(self.too_many());
        }
        Ok(self.below.join(path))
    }

    fn extension(&mut self, header: &Header, entry: &mut impl Read) -> Result<Vec<u8>, ArchiveError> {
        let size = header.entry_size().map_err(|error| malformed(&error))?;
        if size > EXTENSION_BYTES_MAX {
            return Err(refuse(&header.path_bytes(), "its extensions are too long"));
        }
        let mut bytes = Vec::new();
        entry
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(&error))?;
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => Err(ArchiveError::Malformed("it ends inside a header".to_owned())),
        }
    }

    fn set_name(&mut self, name: Vec<u8>) -> Result<(), ArchiveError> {
        self.next.present = true;
        match self.next.name.replace(name) {
            None => Ok(()),
            Some(first) => Err(refuse(&first, "it has two names")),
        }
    }

    /// Times, owners and attributes in the extensions are left where they are.
    fn extend(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.next.present = true;
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(|error| malformed(&error))?;
            match record.key_bytes() {
                b"path" => self.set_name(record.value_bytes().to_vec())?,
                b"size" => {
                    let text = str::from_utf8(record.value_bytes()).ok();
                    let size = text.and_then(|text| text.parse().ok());
                    let size = size.ok_or_else(|| refuse(bytes, "its size is no number"))?;
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

    /// What is there already is looked at before the first change; if one fails nevertheless, what was new is taken
    /// away again.
    fn place(&self, root: BorrowedFd<'_>) -> Result<(), TreeError> {
        let mut new = Vec::new();
        for path in &self.directories {
            if is_free(root, path, &EntryKind::Directory)? {
                new.push(path.as_path());
            }
        }
        for (path, _) in &self.staged {
            if is_free(root, path, &EntryKind::File)? {
                new.push(path);
            }
        }
        let placed = self.put(root);
        if placed.is_err() {
            for path in new.into_iter().rev() {
                take_away(root, path);
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
            self.stage.place(staged, directory.as_fd(), name, path)?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> ArchiveError {
        if error.get_ref().is_some_and(|inner| inner.is::<TooLong>()) {
            return ArchiveError::TooLarge {
                bytes_max: self.limits.bytes,
            };
        }
        malformed(error)
    }

    fn too_many(&self) -> ArchiveError {
        ArchiveError::TooMany {
            entries_max: self.limits.entries,
        }
    }
}

/// Nothing is there, or (false) something that this may replace or be.
fn is_free(root: BorrowedFd<'_>, path: &Path, kind: &EntryKind) -> Result<bool, TreeError> {
    let refused = |path: &Path, what| TreeError::Refused {
        path: path.to_owned(),
        what,
    };
    match walk::one(root, path) {
        Ok(there) if there.kind != *kind => Err(refused(path, "something else is there")),
        Ok(there) if there.kind == EntryKind::File && there.links > 1 => {
            Err(refused(path, "the file has more than one name (hard link)"))
        }
        Ok(_) => Ok(false),
        Err(TreeError::NotFound(_)) => match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => {
                is_free(root, above, &EntryKind::Directory).map(|_| true)
            }
            _ => Ok(true),
        },
        Err(error) => Err(error),
    }
}

fn take_away(root: BorrowedFd<'_>, path: &Path) {
    let Ok((directory, name)) = beneath::open_parent(root, path, None) else {
        return;
    };
    // Whichever of the two it is; a directory with something in it now belongs to another.
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
        _ => "it is of no kind that is unpacked",
    }
}

/// `git archive` puts a comment there; anything else would say something of each entry that follows.
fn check_global(header: &Header, bytes: &[u8]) -> Result<(), ArchiveError> {
    for record in PaxExtensions::new(bytes) {
        if record.map_err(|error| malformed(&error))?.key_bytes() != b"comment" {
            return Err(refuse(&header.path_bytes(), "it has extensions for all entries"));
        }
    }
    Ok(())
}

fn refuse(name: &[u8], what: &'static str) -> ArchiveError {
    let name = String::from_utf8_lossy(name).chars().take(200).collect();
    ArchiveError::Entry { name, what }
}

fn malformed(error: &io::Error) -> ArchiveError {
    ArchiveError::Malformed(error.to_string())
}

/// Gives so many bytes and then fails; knows how many zeros came last.
struct Measured<R> {
    reader: R,
    left: u64,
    zeros: u64,
}

#[derive(Debug)]
struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the archive is too long")
    }
}

impl std::error::Error for TooLong {}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other(TooLong))?;
        match buffer[..count].iter().rposition(|byte| *byte != 0) {
            Some(last) => self.zeros = (count - last - 1) as u64,
            None => self.zeros += count as u64,
        }
        Ok(count)
    }
}
