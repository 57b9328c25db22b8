//! Content-defined chunks (FastCDC), of which an insertion changes few, and their encoding in a pack.

use fastcdc::v2020::StreamCDC;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

const CHUNK_BYTES_MIN: usize = 16 << 10;
const CHUNK_BYTES_AVERAGE: usize = 64 << 10;
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// The zstd level. Level 3 takes a third more time on text and saves a few percent.
const LEVEL: i32 = 1;

/// BLAKE3 hash of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ChunkId(pub(crate) [u8; 32]);

impl ChunkId {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Raw,
    Zstd,
}

pub(crate) struct Encoder(zstd::bulk::Compressor<'static>);

pub(crate) fn cut(reader: impl Read) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let chunks = StreamCDC::new(reader, CHUNK_BYTES_MIN, CHUNK_BYTES_AVERAGE, CHUNK_BYTES_MAX);
    chunks.map(|chunk| Ok(chunk?.data))
}

impl Encoder {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(zstd::bulk::Compressor::new(LEVEL)?))
    }

    /// Returns `None` if compression does not save more than a sixteenth; the chunk is then stored raw.
    pub(crate) fn encode(&mut self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let packed = self.0.compress(bytes)?;
        Ok((packed.len() < bytes.len() - bytes.len() / 16).then_some(packed))
    }
}

/// Returns the chunk, or what is wrong with it. Decompresses to no more than the longest chunk.
pub(crate) fn decode(id: ChunkId, encoding: Encoding, stored: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let bytes = match encoding {
        Encoding::Raw => stored,
        Encoding::Zstd => {
            zstd::bulk::decompress(&stored, CHUNK_BYTES_MAX).map_err(|_| "cannot be decompressed")?
        }
    };
    if ChunkId::of(&bytes) == id {
        Ok(bytes)
    } else {
        Err("does not match its digest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random bytes, the same for each seed.
    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new()
            .update(&seed.to_le_bytes())
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    }

    fn chunks(bytes: &[u8]) -> Vec<Vec<u8>> {
        cut(bytes).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn chunks_join_to_the_content_and_an_insertion_changes_few() {
        for length in [
            0,
            1,
            CHUNK_BYTES_MIN,
            CHUNK_BYTES_MAX,
            CHUNK_BYTES_MAX + 1,
            4 * CHUNK_BYTES_MAX,
            5_000_001,
        ] {
            let bytes = noise(length, 7);
            let found = chunks(&bytes);
            assert_eq!(found.concat(), bytes);
            assert!(
                found
                    .iter()
                    .all(|chunk| (1..=CHUNK_BYTES_MAX).contains(&chunk.len()))
            );
        }
        let bytes = noise(5_000_000, 8);
        let mut longer = bytes.clone();
        longer.splice(2_500_000..2_500_000, *b"inserted");
        let (before, after) = (chunks(&bytes), chunks(&longer));
        let moved = after.iter().filter(|chunk| !before.contains(chunk)).count();
        assert!((1..=3).contains(&moved), "{moved} of {}", after.len());
        // The control: with blocks of fixed size, all blocks after the insertion change.
        let (before, after) = (
            bytes.chunks(CHUNK_BYTES_AVERAGE),
            longer.chunks(CHUNK_BYTES_AVERAGE),
        );
        assert!(before.zip(after).filter(|(a, b)| a != b).count() > 30);
    }

    #[test]
    fn noise_is_stored_raw_and_flipped_bits_and_bombs_are_detected() {
        let mut encoder = Encoder::new().unwrap();
        assert!(encoder.encode(&noise(100_000, 9)).unwrap().is_none());
        let text = b"words ".repeat(10_000);
        let packed = encoder.encode(&text).unwrap().unwrap();
        let id = ChunkId::of(&text);
        assert_eq!(decode(id, Encoding::Zstd, packed.clone()).unwrap(), text);
        for at in 0..packed.len() {
            let mut bad = packed.clone();
            bad[at] ^= 1;
            // Bits of the frame that carry no content may change; the content may not.
            assert!(
                decode(id, Encoding::Zstd, bad).is_err_and(|_| true) || at < 18,
                "{at}"
            );
        }
        let bomb = zstd::bulk::compress(&vec![0; 100 << 20], 1).unwrap();
        assert!(decode(id, Encoding::Zstd, bomb).is_err());
        assert!(decode(id, Encoding::Raw, vec![0; 10]).is_err());
    }
}
