//! Reads files of a workspace into chunks, while a program may still write to them.

use super::{
    SnapshotEntry, SnapshotError, SnapshotKind, SnapshotLimits,
    layout::NamespaceDir,
    manifest::{FileContent, MODE_MASK},
};
use crate::{
    blobs::{
        chunk::{ChunkId, Encoder, Encoding, cut},
        pack::{Index, PackReader, PackWriter},
    },
    digest::to_hex,
    tree::{self, Stamp, Timestamp, TreeError},
    whole_file::size_of,
};
use rustix::{
    fs::{SeekFrom, Stat},
    io::Errno,
};
use sha2::{Digest, Sha256};
use std::{
    collections::HashSet,
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Several times the kernel's coarsest timestamp step: a file changed within it could change again without a trace.
const SETTLED: Duration = Duration::from_millis(50);
const PIECES_MAX: usize = 100_000;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Cuts files into chunks and writes those that are new.
pub(super) struct FileChunker<'a> {
    index: &'a Index,
    reader: PackReader<'a>,
    writer: PackWriter<'a>,
    /// Chunks of files that were read: added, or stored and whole.
    whole: HashSet<ChunkId>,
    encoder: Encoder,
    limits: SnapshotLimits,
    /// Disk space of the other namespaces.
    others: u64,
    bytes: u64,
    new_bytes: u64,
}

pub(super) enum Read {
    Whole(SnapshotEntry),
    /// The file was written to while it was read, or replaced.
    Changed,
    Gone,
    /// The owner may not read the file.
    Unreadable,
}

impl<'a> FileChunker<'a> {
    pub(super) fn new(
        dir: &'a NamespaceDir,
        index: &'a Index,
        limits: SnapshotLimits,
        others: u64,
    ) -> Result<Self, SnapshotError> {
        Ok(Self {
            index,
            reader: PackReader::new(&dir.packs, index),
            writer: PackWriter::new(&dir.packs),
            whole: HashSet::new(),
            encoder: Encoder::new().map_err(SnapshotError::io("begin to compress", &dir.packs.path))?,
            limits,
            others,
            bytes: 0,
            new_bytes: 0,
        })
    }

    /// Returns true if all are stored, damaged or not: those of an unchanged file are not read.
    pub(super) fn has_all(&self, chunks: &[ChunkId]) -> bool {
        let has = |id: &ChunkId| self.index.get(*id).is_some() || self.whole.contains(id);
        chunks.iter().all(has)
    }

    /// Checks the limit of bytes again: files may grow while others are read.
    pub(super) fn count(&mut self, bytes: u64) -> Result<(), SnapshotError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(self.limits.too_large());
        }
        Ok(())
    }

    /// Returns, once everything is on the disk, the number of new bytes and their disk space.
    pub(super) fn finish(self) -> Result<(u64, u64), SnapshotError> {
        Ok((self.new_bytes, self.writer.finish()?))
    }

    pub(super) fn read(&mut self, root: BorrowedFd<'_>, path: &Path) -> Result<Read, SnapshotError> {
        let began = SystemTime::now();
        let (file, before) = match tree::open_regular(root, path) {
            Ok(opened) => opened,
            Err(TreeError::NotFound(_)) => return Ok(Read::Gone),
            Err(TreeError::Refused { .. }) => return Ok(Read::Changed),
            Err(error) if error.is_permission_denied() => return Ok(Read::Unreadable),
            Err(error) => return Err(error.into()),
        };
        let size = size_of(&before);
        if size > self.limits.bytes {
            return Err(self.limits.too_large());
        }
        let data = pieces(&file, &before, path)?;
        let mut reader = DataReader::new(&file, size, &data);
        let mut chunks = Vec::new();
        for bytes in cut(&mut reader) {
            let bytes = bytes.map_err(SnapshotError::io("read", path))?;
            chunks.push(self.add(&bytes)?);
        }
        let sha256 = reader.finish();
        let after = rustix::fs::fstat(&file).map_err(SnapshotError::io("look at", path))?;
        let Some(sha256) = sha256.filter(|_| untouched(&before, &after)) else {
            return Ok(Read::Changed);
        };
        let content = FileContent {
            size,
            sha256: to_hex(&sha256),
            data,
            chunks,
            seen: settled(&after, began),
        };
        self.count(content.size)?;
        Ok(Read::Whole(SnapshotEntry {
            path: path.to_owned(),
            mode: after.st_mode & MODE_MASK,
            mtime: Timestamp::of_content(&after),
            kind: SnapshotKind::File(content),
        }))
    }

    fn add(&mut self, bytes: &[u8]) -> Result<ChunkId, SnapshotError> {
        let id = ChunkId::of(bytes);
        // A stored copy that is damaged is written anew.
        if !self.whole.insert(id) || self.reader.chunk(id).is_ok() {
            return Ok(id);
        }
        let packed = self.encoder.encode(bytes);
        let packed = packed.map_err(SnapshotError::io("compress", "a chunk"))?;
        let (encoding, stored) = match &packed {
            Some(packed) => (Encoding::Zstd, packed.as_slice()),
            None => (Encoding::Raw, bytes),
        };
        // A chunk has at most 256 KiB.
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.writer.add(id, encoding, size, stored)?;
        self.new_bytes += bytes.len() as u64;
        let own = self.index.bytes() + self.writer.bytes();
        self.limits.check_room(own, self.others)?;
        Ok(id)
    }
}

/// The offset and length of each piece of data between the holes of a file; one piece if it has no holes.
fn pieces(file: &File, stat: &Stat, path: &Path) -> Result<Vec<(u64, u64)>, SnapshotError> {
    let size = size_of(stat);
    if size == 0 {
        return Ok(Vec::new());
    }
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) >= size {
        return Ok(vec![(0, size)]);
    }
    let mut found = Vec::new();
    let mut at = 0;
    let failed = || SnapshotError::io("look for holes in", path);
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(failed()(error)),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(failed())?;
        let end = end.min(size);
        if end <= start {
            // The file was truncated just now; the read will notice.
            break;
        }
        if found.len() == PIECES_MAX {
            let what = "pieces of data in a file with holes";
            return Err(SnapshotError::too_many(what, PIECES_MAX));
        }
        found.push((start, end - start));
        at = end;
    }
    Ok(found)
}

/// A reader of a file's data, which also hashes the holes as zeros.
struct DataReader<'a> {
    file: &'a File,
    size: u64,
    data: &'a [(u64, u64)],
    piece: usize,
    at: u64,
    sha256: Sha256,
}

impl<'a> DataReader<'a> {
    fn new(file: &'a File, size: u64, data: &'a [(u64, u64)]) -> Self {
        Self {
            file,
            size,
            data,
            piece: 0,
            at: 0,
            sha256: Sha256::new(),
        }
    }

    fn skip_to(&mut self, offset: u64) {
        while self.at < offset {
            let length = (offset - self.at).min(ZEROS.len() as u64);
            self.sha256.update(&ZEROS[..usize::try_from(length).unwrap_or(0)]);
            self.at += length;
        }
    }

    /// Returns the digest; None if the file ended before all of its data was read.
    fn finish(mut self) -> Option<[u8; 32]> {
        if self.piece < self.data.len() {
            return None;
        }
        self.skip_to(self.size);
        Some(self.sha256.finalize().into())
    }
}

impl io::Read for DataReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((start, length)) = self.data.get(self.piece).copied() else {
            return Ok(0);
        };
        self.skip_to(start);
        let left = usize::try_from(start + length - self.at).unwrap_or(usize::MAX);
        let bound = left.min(buffer.len());
        let read = self.file.read_at(&mut buffer[..bound], self.at)?;
        self.sha256.update(&buffer[..read]);
        self.at += read as u64;
        if self.at == start + length {
            self.piece += 1;
        }
        Ok(read)
    }
}

/// Returns the SHA-256 of a file; None if the file changed meanwhile.
pub(super) fn hash(file: &File, stat: &Stat, path: &Path) -> Result<Option<[u8; 32]>, SnapshotError> {
    let data = pieces(file, stat, path)?;
    let mut reader = DataReader::new(file, size_of(stat), &data);
    io::copy(&mut reader, &mut io::sink()).map_err(SnapshotError::io("read", path))?;
    let after = rustix::fs::fstat(file).map_err(SnapshotError::io("look at", path))?;
    Ok(reader.finish().filter(|_| untouched(stat, &after)))
}

fn untouched(before: &Stat, after: &Stat) -> bool {
    before.st_size == after.st_size && Stamp::of(before) == Stamp::of(after)
}

fn settled(stat: &Stat, began: SystemTime) -> Option<Stamp> {
    let stamp = Stamp::of(stat);
    let since = Duration::new(u64::try_from(stamp.ctime.0).ok()?, stamp.ctime.1);
    let age = began.duration_since(UNIX_EPOCH.checked_add(since)?).ok()?;
    (age > SETTLED).then_some(stamp)
}
