//! The manifest of a snapshot: every entry, with all that a restore needs to recreate it or to find it unchanged.

use super::{SnapshotError, SnapshotId, Source, layout::NamespaceDir, list::Seal};
use crate::{
    Signer,
    blobs::chunk::ChunkId,
    digest::to_hex,
    tree::{self, Stamp},
    whole_file::IfExists,
};
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

pub(super) const MANIFEST_BYTES_MAX: u64 = 256 << 20;
const LABEL: &[u8] = b"ringfence snapshot v1\0";
pub(super) const DEPTH_MAX: usize = 100;
/// The permission bits that are kept: never set-id.
pub(super) const MODE_MASK: u32 = 0o1777;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub namespace: Namespace,
    pub description: String,
    pub created_unix_ms: u64,
    pub source: Source,
    /// Modification time of the workspace's own directory: seconds, nanoseconds.
    pub root_mtime: tree::Timestamp,
    /// Mode of the workspace's own directory, masked like that of an entry.
    pub root_mode: u32,
    /// Directories before their entries; names in the order of their bytes.
    pub entries: Vec<SnapshotEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotEntry {
    /// Path below the workspace, of any bytes; in JSON text, or `{"base64": ...}` if it is not UTF-8.
    #[serde(with = "as_text")]
    pub path: PathBuf,
    pub mode: u32,
    pub mtime: tree::Timestamp,
    pub kind: SnapshotKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SnapshotKind {
    File(FileContent),
    Directory,
    /// The target of a symbolic link, kept as it is written even if it points outside: the store never follows it.
    Link(#[serde(with = "as_text")] PathBuf),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileContent {
    pub size: u64,
    /// Digest of all bytes, holes as zeros: 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// Offset and length of each piece of data. The rest is holes.
    pub data: Vec<(u64, u64)>,
    /// The chunks of the data, all pieces concatenated.
    #[serde(with = "as_base64")]
    pub(super) chunks: Vec<ChunkId>,
    /// Stamp of the file; None if the file had just been written, because a later change might not show in its stamp.
    pub(super) seen: Option<Stamp>,
}

impl Snapshot {
    pub fn entry(&self, path: &Path) -> Option<&SnapshotEntry> {
        let by_path = |entry: &SnapshotEntry| entry.path.as_path().cmp(path);
        let found = self.entries.binary_search_by(by_path);
        found.ok().map(|at| &self.entries[at])
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&SnapshotEntry, &FileContent)> + Clone {
        self.entries.iter().filter_map(|entry| match &entry.kind {
            SnapshotKind::File(content) => Some((entry, content)),
            SnapshotKind::Directory | SnapshotKind::Link(_) => None,
        })
    }

    /// Writes the manifest to the disk. Returns the BLAKE3 of the file, for the list, and its size.
    pub(super) fn write(&self, dir: &NamespaceDir, signer: &Signer) -> Result<(String, u64), SnapshotError> {
        let refused = |error: serde_json::Error| SnapshotError::Refused(error.to_string());
        let text = serde_json::to_vec(self).map_err(refused)?;
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(SnapshotError::too_large("the manifest", MANIFEST_BYTES_MAX));
        }
        let name = self.id.to_string();
        let sealed = Seal::of(LABEL, &self.namespace, &name).close(signer, &text)?;
        dir.manifests.write(&name, &sealed, IfExists::Replace)?;
        Ok((to_hex(blake3::hash(&sealed).as_bytes()), sealed.len() as u64))
    }

    /// Reads a manifest and checks the list's digest, then the signature.
    pub(super) fn read(
        dir: &NamespaceDir,
        id: SnapshotId,
        digest: &str,
        public_key: &[u8; 32],
    ) -> Result<Self, SnapshotError> {
        let damaged = |what: &str| SnapshotError::damaged(format!("the manifest of {id} {what}"));
        let name = id.to_string();
        let sealed = dir.manifests.read(&name, MANIFEST_BYTES_MAX)?;
        let sealed = sealed.ok_or_else(|| damaged("is missing"))?;
        if to_hex(blake3::hash(&sealed).as_bytes()) != digest {
            return Err(damaged("is not the one in the list"));
        }
        let text = Seal::of(LABEL, &dir.namespace, &name).open(public_key, &sealed, MANIFEST_BYTES_MAX);
        let text = text.map_err(damaged)?;
        let parsed: Self = serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        parsed.check().map_err(damaged)?;
        if parsed.id != id || parsed.namespace != dir.namespace {
            return Err(damaged("is another one's"));
        }
        Ok(parsed)
    }

    /// Checks, even if signed, that paths lie below the workspace and occur once, and no data lies beyond a file's end.
    fn check(&self) -> Result<(), &'static str> {
        let plain = |path: &Path| {
            let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
            !path.as_os_str().is_empty() && path.components().all(normal)
        };
        if !self.entries.iter().all(|entry| plain(&entry.path)) {
            return Err("names a path that is not below the workspace");
        }
        if !self.entries.is_sorted_by(|a, b| a.path < b.path) {
            return Err("is out of order");
        }
        let orderly = |content: &FileContent| {
            let mut end = 0;
            let pieces = content.data.iter().all(|(offset, length)| {
                let follows = *offset >= end && *length > 0;
                end = offset.saturating_add(*length);
                follows
            });
            pieces && end <= content.size
        };
        let is_orderly = self.files().all(|(_, content)| orderly(content));
        is_orderly.then_some(()).ok_or("has data beyond a file's end")
    }
}

impl FileContent {
    pub(super) fn data_bytes(&self) -> u64 {
        self.data.iter().map(|(_, length)| length).sum()
    }
}

mod as_text {
    use super::OsStrExt;
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::{
        ffi::OsStr,
        path::{Path, PathBuf},
    };

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes { base64: String },
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match path.to_str() {
            Some(text) => Written::Text(text.to_owned()),
            None => Written::Bytes {
                base64: BASE64.encode(path.as_os_str().as_bytes()),
            },
        };
        written.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Text(text) => Ok(text.into()),
            Written::Bytes { base64 } => {
                let bytes = BASE64.decode(base64).map_err(D::Error::custom)?;
                Ok(OsStr::from_bytes(&bytes).into())
            }
        }
    }
}

mod as_base64 {
    use super::ChunkId;
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(chunks: &[ChunkId], serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = chunks.iter().flat_map(|id| id.0).collect();
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ChunkId>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(D::Error::custom)?;
        let (ids, rest) = bytes.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(D::Error::custom("half a chunk's id"));
        }
        Ok(ids.iter().copied().map(ChunkId).collect())
    }
}
