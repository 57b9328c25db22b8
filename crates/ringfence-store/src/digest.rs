//! Reading and writing with SHA-256, and digests as text.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// Hashes and counts what it passes on.
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
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    pub(crate) fn finish(self) -> (W, Hashed) {
        let hashed = Hashed {
            sha256: self.hash.finalize().into(),
            bytes: self.bytes,
        };
        (self.inner, hashed)
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

/// Of all that the reader gives.
pub(crate) fn of(reader: impl Read) -> io::Result<Hashed> {
    copy(reader, io::sink())
}

/// Lower-case digits, two to a byte.
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Lower-case digits, two to a byte, nothing else.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}
