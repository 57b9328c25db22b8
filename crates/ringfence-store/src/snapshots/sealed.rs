//! A signed, compressed text: what the store believes only with the host's signature over it.
//!
//! The file is the signature (64 bytes, Ed25519) and one frame of zstd. Signed is a statement like those of
//! artifacts: a line of ASCII that ends in a NUL, then fields, each its length (8 bytes, big-endian) and its bytes:
//! namespace, name, BLAKE3 of the frame.

use super::SnapshotError;
use crate::{Signer, signer};
use ringfence_types::Namespace;
use std::io::Read;

const SIGNATURE_BYTES: usize = 64;
const LEVEL: i32 = 1;

/// What a sealed text is of: two kinds, two namespaces or two names never have the same signature.
#[derive(Clone, Copy)]
pub(super) struct Seal<'a> {
    pub(super) label: &'static [u8],
    pub(super) namespace: &'a Namespace,
    pub(super) name: &'a str,
}

impl Seal<'_> {
    pub(super) fn close(self, signer: &Signer, text: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let frame = zstd::bulk::compress(text, LEVEL);
        let frame = frame.map_err(SnapshotError::io("compress", self.name))?;
        let mut sealed = signer.sign(&self.statement(&frame)).to_vec();
        sealed.extend(frame);
        Ok(sealed)
    }

    /// The text, its signature checked before anything is made of it. At most so many bytes.
    pub(super) fn open(
        self,
        public_key: &[u8; 32],
        sealed: &[u8],
        bytes_max: u64,
    ) -> Result<Vec<u8>, &'static str> {
        let Some((signature, frame)) = sealed.split_at_checked(SIGNATURE_BYTES) else {
            return Err("is cut short");
        };
        if !signer::verify(public_key, &self.statement(frame), signature) {
            return Err("is not what this host signed");
        }
        let mut text = Vec::new();
        let decoder = zstd::stream::read::Decoder::new(frame).map_err(|_| "cannot be decompressed")?;
        let read = decoder.take(bytes_max.saturating_add(1)).read_to_end(&mut text);
        read.map_err(|_| "cannot be decompressed")?;
        if text.len() as u64 > bytes_max {
            return Err("is too long");
        }
        Ok(text)
    }

    fn statement(self, frame: &[u8]) -> Vec<u8> {
        let digest = blake3::hash(frame);
        let fields = [
            self.namespace.as_str().as_bytes(),
            self.name.as_bytes(),
            digest.as_bytes(),
        ];
        signer::statement(self.label, fields)
    }
}
