//! Packs: files of many chunks, written once. Each chunk has a header of its own, so that the index at the end of a
//! pack can be rebuilt from the chunks before it.
//!
//! ```text
//! pack   = "ringfence pack 1\n" chunk* index
//! chunk  = encoding (1 byte) size (4) stored size (4) BLAKE3 (32) stored bytes
//! index  = [ BLAKE3 (32) offset of the stored bytes (8) encoding (1) size (4) stored size (4) ]*
//!          BLAKE3 of the index so far (32) count (4) "rfpkend\n"
//! ```
//! Numbers are little-endian. Nothing here is signed: a chunk is read by the digest that a signed manifest names.

use super::chunk::{self, CHUNK_BYTES_MAX, ChunkId, Encoding};
use crate::whole_file::{Directory, FileError, UNFINISHED, random_hex};
use rustix::fs::OFlags;
use std::{
    cmp::Reverse,
    collections::HashMap,
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
};

const START: &[u8] = b"ringfence pack 1\n";
const END: &[u8; 8] = b"rfpkend\n";
const HEADER_BYTES: usize = 41;
const RECORD_BYTES: usize = 49;
const FOOTER_BYTES: usize = 44;
const SUFFIX: &str = ".pack";
/// Size at which a pack is closed and the next one is begun.
const PACK_BYTES: u64 = 64 << 20;
/// A pack is only a little larger than the limit above. A file over this maximum is not a pack: its index is not used.
const PACK_BYTES_MAX: u64 = 256 << 20;
const OPEN_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkLocation {
    pub(crate) pack: u32,
    offset: u64,
    encoding: Encoding,
    pub(crate) size: u32,
    pub(crate) stored: u32,
}

/// All chunks of a namespace, read from the ends of the packs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) packs: Vec<PackFile>,
    locations: HashMap<ChunkId, ChunkLocation>,
}

#[derive(Debug)]
pub(crate) struct PackFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) chunks: Vec<ChunkId>,
}

pub(crate) struct PackReader<'a> {
    packs: &'a Directory,
    index: &'a Index,
    open: HashMap<u32, File>,
}

/// Writes chunks into new packs. An unfinished pack is removed on drop; closed packs are left for a collection, since
/// another snapshot may already name their chunks.
pub(crate) struct PackWriter<'a> {
    packs: &'a Directory,
    pack: Option<Unfinished<'a>>,
    closed_bytes: u64,
}

struct Unfinished<'a> {
    packs: &'a Directory,
    name: String,
    file: BufWriter<File>,
    bytes: u64,
    index: Vec<u8>,
    chunks: u32,
    renamed: bool,
}

impl Index {
    pub(crate) fn read(packs: &Directory) -> Result<Self, FileError> {
        let mut files = packs.files()?;
        files.retain(|(name, _)| name.ends_with(SUFFIX));
        // The newest first: it has the chunks that were found damaged in the others.
        files.sort_unstable_by_key(|(_, stat)| Reverse((stat.st_mtime, stat.st_mtime_nsec)));
        let mut index = Self::default();
        for (name, _) in files {
            let number = u32::try_from(index.packs.len()).unwrap_or(u32::MAX);
            let Some(file) = packs.open(&name, OFlags::RDONLY)? else {
                continue;
            };
            let read = || -> io::Result<(u64, Vec<(ChunkId, ChunkLocation)>)> {
                let bytes = file.metadata()?.len();
                if let Some(listed) = read_index(&file, bytes, number)? {
                    return Ok((bytes, listed));
                }
                tracing::warn!(
                    pack = name,
                    "the index of a pack is damaged; it is rebuilt from the chunks"
                );
                Ok((bytes, scan(&file, bytes.min(PACK_BYTES_MAX), number)?))
            };
            let (bytes, found) = read().map_err(packs.failed("read", &name))?;
            let mut chunks = Vec::with_capacity(found.len());
            for (id, location) in found {
                // The first of two copies of a chunk is used.
                index.locations.entry(id).or_insert(location);
                chunks.push(id);
            }
            index.packs.push(PackFile { name, bytes, chunks });
        }
        Ok(index)
    }

    pub(crate) fn get(&self, id: ChunkId) -> Option<ChunkLocation> {
        self.locations.get(&id).copied()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.packs.iter().map(|pack| pack.bytes).sum()
    }
}

/// Returns `None` if the index is not what was written.
fn read_index(file: &File, bytes: u64, pack: u32) -> io::Result<Option<Vec<(ChunkId, ChunkLocation)>>> {
    let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Ok(None);
    };
    let mut footer = [0; FOOTER_BYTES];
    file.read_exact_at(&mut footer, footer_at)?;
    let (digest, rest) = footer.split_at(32);
    let (count, end) = rest.split_at(4);
    let count = number(count);
    let index_bytes = count * RECORD_BYTES as u64;
    if end != END || bytes > PACK_BYTES_MAX || index_bytes > footer_at {
        return Ok(None);
    }
    let mut index = vec![0; usize::try_from(index_bytes).unwrap_or(0)];
    file.read_exact_at(&mut index, footer_at - index_bytes)?;
    if blake3::hash(&index).as_bytes() != digest {
        return Ok(None);
    }
    let (records, _) = index.as_chunks::<RECORD_BYTES>();
    Ok(records.iter().map(|record| parse_record(record, pack)).collect())
}

fn parse_record(record: &[u8; RECORD_BYTES], pack: u32) -> Option<(ChunkId, ChunkLocation)> {
    let (id, rest) = record.split_first_chunk::<32>()?;
    let (offset, rest) = rest.split_at(8);
    let location = parse_sizes(rest, pack, number(offset))?;
    Some((ChunkId(*id), location))
}

fn parse_sizes(bytes: &[u8], pack: u32, offset: u64) -> Option<ChunkLocation> {
    let encoding = match bytes.first()? {
        0 => Encoding::Raw,
        1 => Encoding::Zstd,
        _ => return None,
    };
    let size = u32::try_from(number(bytes.get(1..5)?)).ok()?;
    let stored = u32::try_from(number(bytes.get(5..9)?)).ok()?;
    let possible = size as usize <= CHUNK_BYTES_MAX && stored <= size;
    possible.then_some(ChunkLocation {
        pack,
        offset,
        encoding,
        size,
        stored,
    })
}

fn number(bytes: &[u8]) -> u64 {
    let from_high = bytes.iter().rev();
    from_high.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Reads the headers of the chunks, up to the first invalid one.
fn scan(file: &File, bytes: u64, pack: u32) -> io::Result<Vec<(ChunkId, ChunkLocation)>> {
    let mut found = Vec::new();
    let mut at = START.len() as u64;
    while at + HEADER_BYTES as u64 <= bytes {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, at)?;
        let offset = at + HEADER_BYTES as u64;
        let (Some(chunk), Some(id)) = (parse_sizes(&header, pack, offset), header.last_chunk::<32>()) else {
            break;
        };
        at = offset + u64::from(chunk.stored);
        if at > bytes {
            break;
        }
        found.push((ChunkId(*id), chunk));
    }
    Ok(found)
}

impl<'a> PackReader<'a> {
    pub(crate) fn new(packs: &'a Directory, index: &'a Index) -> Self {
        let open = HashMap::new();
        Self { packs, index, open }
    }

    pub(crate) fn chunk(&mut self, id: ChunkId) -> Result<Vec<u8>, PackError> {
        let location = self.index.get(id).ok_or(PackError::Damaged("is missing"))?;
        let stored = self.stored(location)?;
        chunk::decode(id, location.encoding, stored).map_err(PackError::Damaged)
    }

    fn stored(&mut self, location: ChunkLocation) -> Result<Vec<u8>, PackError> {
        let name = &self.index.packs[location.pack as usize].name;
        if !self.open.contains_key(&location.pack) {
            let file = self.packs.open(name, OFlags::RDONLY)?;
            if self.open.len() == OPEN_MAX {
                self.open.clear();
            }
            let file = file.ok_or(PackError::Damaged("is in a pack that is gone"))?;
            self.open.insert(location.pack, file);
        }
        let file = &self.open[&location.pack];
        let mut stored = vec![0; location.stored as usize];
        match file.read_exact_at(&mut stored, location.offset) {
            Ok(()) => Ok(stored),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(PackError::Damaged("is in a pack that is cut short"))
            }
            Err(error) => Err(self.packs.failed("read", name)(error).into()),
        }
    }

    /// Copies a chunk into another pack as stored; a missing one is skipped.
    pub(crate) fn copy(&mut self, id: ChunkId, writer: &mut PackWriter<'_>) -> Result<(), PackError> {
        if let Some(location) = self.index.get(id) {
            let stored = self.stored(location)?;
            writer.add(id, location.encoding, location.size, &stored)?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a chunk {0}")]
    Damaged(&'static str),
}

impl<'a> PackWriter<'a> {
    pub(crate) fn new(packs: &'a Directory) -> Self {
        Self {
            packs,
            pack: None,
            closed_bytes: 0,
        }
    }

    pub(crate) fn add(
        &mut self,
        id: ChunkId,
        encoding: Encoding,
        size: u32,
        stored: &[u8],
    ) -> Result<(), FileError> {
        let mut pack = match self.pack.take() {
            Some(pack) => pack,
            None => Unfinished::begin(self.packs)?,
        };
        let failed = self.packs.failed("write", &pack.name);
        pack.add(id, encoding, size, stored).map_err(failed)?;
        match pack.bytes >= PACK_BYTES {
            true => self.close(pack)?,
            false => self.pack = Some(pack),
        }
        Ok(())
    }

    fn close(&mut self, pack: Unfinished<'_>) -> Result<(), FileError> {
        let failed = self.packs.failed("write", &pack.name);
        self.closed_bytes += pack.close().map_err(failed)?;
        Ok(())
    }

    /// Closes the last pack and returns the total size. Everything is on the disk when this returns.
    pub(crate) fn finish(mut self) -> Result<u64, FileError> {
        if let Some(pack) = self.pack.take() {
            self.close(pack)?;
        }
        self.packs.sync()?;
        Ok(self.closed_bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.closed_bytes + self.pack.as_ref().map_or(0, |pack| pack.bytes)
    }
}

impl<'a> Unfinished<'a> {
    fn begin(packs: &'a Directory) -> Result<Self, FileError> {
        let name = random_hex::<16>().map_err(packs.failed("name a pack in", ""))?;
        let file = packs.create(&format!("{name}{UNFINISHED}"))?;
        let mut pack = Self {
            packs,
            name,
            file: BufWriter::with_capacity(1 << 20, file),
            bytes: START.len() as u64,
            index: Vec::new(),
            chunks: 0,
            renamed: false,
        };
        let failed = packs.failed("write", &pack.name);
        pack.file.write_all(START).map_err(failed)?;
        Ok(pack)
    }

    fn add(&mut self, id: ChunkId, encoding: Encoding, size: u32, stored: &[u8]) -> io::Result<()> {
        let mut sizes = [0; 9];
        sizes[0] = u8::from(encoding == Encoding::Zstd);
        sizes[1..5].copy_from_slice(&size.to_le_bytes());
        // No chunk has more than 256 KiB.
        sizes[5..9].copy_from_slice(&u32::try_from(stored.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.file.write_all(&sizes)?;
        self.file.write_all(&id.0)?;
        self.file.write_all(stored)?;
        let offset = self.bytes + HEADER_BYTES as u64;
        self.index.extend(id.0);
        self.index.extend(offset.to_le_bytes());
        self.index.extend(sizes);
        self.chunks += 1;
        self.bytes = offset + stored.len() as u64;
        Ok(())
    }

    fn close(mut self) -> io::Result<u64> {
        self.file.write_all(&self.index)?;
        self.file.write_all(blake3::hash(&self.index).as_bytes())?;
        self.file.write_all(&self.chunks.to_le_bytes())?;
        self.file.write_all(END)?;
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        let packs = self.packs;
        let unfinished = format!("{}{UNFINISHED}", self.name);
        rustix::fs::renameat(packs, unfinished, packs, format!("{}{SUFFIX}", self.name))?;
        self.renamed = true;
        Ok(self.bytes + (self.index.len() + FOOTER_BYTES) as u64)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.renamed {
            return;
        }
        let unfinished = format!("{}{UNFINISHED}", self.name);
        if let Err(error) = self.packs.remove(&unfinished) {
            tracing::warn!(%error, name = unfinished, "an unfinished pack stays until a collection");
        }
    }
}
