//! SHA-256 while reading and writing, and digests as text.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// A writer that hashes and counts the bytes it passes on.
#[derive(Debug)]
pub(crate) struct Hashing<W> {
    pub(crate) inner: W,
    hash: Sha256,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashed {
    pub(crate) sha256: [u8; 32],
    pub(crate) bytes: u64,
}

impl<W> Hashing<W> {
    pub(crate) fn new(inner: W) -> Self {
        let (hash, bytes) = (Sha256::new(), 0);
        Self { inner, hash, bytes }
    }

    pub(crate) fn finish(self) -> (W, Hashed) {
        let (sha256, bytes) = (self.hash.finalize().into(), self.bytes);
        (self.inner, Hashed { sha256, bytes })
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

pub(crate) fn copy(mut reader: impl Read, writer: impl Write) -> io::Result<Hashed> {
    let mut hashing = Hashing::new(writer);
    io::copy(&mut reader, &mut hashing)?;
    Ok(hashing.finish().1)
}

pub(crate) fn of(reader: impl Read) -> io::Result<Hashed> {
    copy(reader, io::sink())
}

/// Returns lower-case hexadecimal, two digits per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Parses lower-case hexadecimal of exactly `N` bytes.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}
