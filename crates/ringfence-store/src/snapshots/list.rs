//! Compressed texts that the store accepts only with the host's signature; one is the list of a namespace's snapshots.
//!
//! The file of a text is the signature (64 bytes, Ed25519) and one zstd frame. The signature is over a statement like
//! those of artifacts: a line of ASCII that ends in a NUL, then fields, each its length (8 bytes, big-endian) and its
//! bytes: namespace, name, BLAKE3 of the frame.
//!
//! A manifest is valid only if the list has its digest, so that manifests cannot be added, exchanged or removed. An
//! older list with its own files can be put back; a host cannot detect that by itself.

use super::{SnapshotError, SnapshotId, Source, layout::NamespaceDir};
use crate::{Signer, signer, whole_file::IfExists};
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};
use std::io::Read;

const NAME: &str = "list";
const LABEL: &[u8] = b"ringfence snapshots v1\0";
const LIST_BYTES_MAX: u64 = 16 << 20;
const SIGNATURE_BYTES: usize = 64;
const COMPRESSION: i32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedSnapshot {
    pub id: SnapshotId,
    pub description: String,
    pub created_unix_ms: u64,
    pub source: Source,
    pub files: u64,
    pub entries: u64,
    /// Total size of the files, holes included.
    pub bytes: u64,
    /// BLAKE3 of the manifest's file.
    pub(super) digest: String,
}

pub(super) type List = Vec<ListedSnapshot>;

/// A file that records that a list has been written.
const BEGUN: &str = "list.begun";

/// Reads the list, oldest snapshot first.
pub(super) fn read(dir: &NamespaceDir, public_key: &[u8; 32]) -> Result<List, SnapshotError> {
    let damaged = |what: &str| SnapshotError::damaged(format!("the list of snapshots {what}"));
    let Some(sealed) = dir.root.read(NAME, LIST_BYTES_MAX)? else {
        // A lost list is an error, not an empty list: else a collection would remove everything that it named.
        return match dir.root.stat(BEGUN)? {
            None => Ok(List::new()),
            Some(_) => Err(damaged("is missing")),
        };
    };
    let text = Seal::of(LABEL, &dir.namespace, NAME)
        .open(public_key, &sealed, LIST_BYTES_MAX)
        .map_err(damaged)?;
    serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))
}

pub(super) fn write(dir: &NamespaceDir, signer: &Signer, list: &List) -> Result<(), SnapshotError> {
    let text = serde_json::to_vec(list).map_err(|error| SnapshotError::Refused(error.to_string()))?;
    let sealed = Seal::of(LABEL, &dir.namespace, NAME).close(signer, &text)?;
    dir.root.write(NAME, &sealed, IfExists::Replace)?;
    if dir.root.stat(BEGUN)?.is_none() {
        dir.root.write(BEGUN, b"", IfExists::Replace)?;
    }
    Ok(())
}

/// The identity of a sealed text. Texts of different kinds, namespaces or names never have the same signature.
#[derive(Clone, Copy)]
pub(super) struct Seal<'a> {
    label: &'static [u8],
    namespace: &'a Namespace,
    name: &'a str,
}

impl<'a> Seal<'a> {
    pub(super) fn of(label: &'static [u8], namespace: &'a Namespace, name: &'a str) -> Self {
        Self {
            label,
            namespace,
            name,
        }
    }

    pub(super) fn close(self, signer: &Signer, text: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let frame = zstd::bulk::compress(text, COMPRESSION);
        let frame = frame.map_err(SnapshotError::io("compress", self.name))?;
        let mut sealed = signer.sign(&self.statement(&frame)).to_vec();
        sealed.extend(frame);
        Ok(sealed)
    }

    /// Checks the signature, then decompresses the text, which may have at most `bytes_max` bytes.
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
