//! A snapshot as one JSON document: text as text, everything else as base64.

use super::{FileContent, Snapshot, SnapshotEntry, SnapshotError, SnapshotId, SnapshotKind, SnapshotStore};
use crate::{
    blobs::pack::{Index, PackError, PackReader},
    tree::Timestamp,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ringfence_types::Namespace;
use serde_json::{Map, Value, json};
use std::{os::unix::ffi::OsStrExt, path::Path};

impl SnapshotStore {
    /// Reads a file's content, each chunk checked. Errors: `NoFile`, `TooLarge`, `Damaged`, `NotFound` if deleted
    /// since.
    pub fn read(&self, snapshot: &Snapshot, path: &Path, bytes_max: u64) -> Result<Vec<u8>, SnapshotError> {
        let dir = self.namespace_dir(snapshot.id, &snapshot.namespace)?;
        let _lock = dir.lock_shared()?;
        self.listed(&dir, snapshot.id)?;
        let index = Index::read(&dir.packs)?;
        let entry = snapshot.entry(path).map(|entry| &entry.kind);
        let Some(SnapshotKind::File(file)) = entry else {
            return Err(SnapshotError::NoFile(path.to_owned()));
        };
        content(&mut PackReader::new(&dir.packs, &index), file, path, bytes_max)
    }

    /// Returns the whole snapshot as one document. Contents are UTF-8 text (`content`) or base64 (`content_b64`). More
    /// than `bytes_max` bytes of content are refused before any is read.
    pub fn export(
        &self,
        id: SnapshotId,
        namespace: &Namespace,
        bytes_max: u64,
    ) -> Result<Value, SnapshotError> {
        let dir = self.namespace_dir(id, namespace)?;
        let _lock = dir.lock_shared()?;
        let snapshot = self.find(&dir, id)?;
        let index = Index::read(&dir.packs)?;
        let mut reader = PackReader::new(&dir.packs, &index);
        export(&mut reader, &snapshot, bytes_max)
    }
}

/// Reads all bytes of a file, holes as zeros.
fn content(
    reader: &mut PackReader<'_>,
    content: &FileContent,
    path: &Path,
    bytes_max: u64,
) -> Result<Vec<u8>, SnapshotError> {
    if content.size > bytes_max {
        return Err(SnapshotError::too_large("the file", bytes_max));
    }
    let size = usize::try_from(content.size).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    each_piece(reader, content, path, |offset, piece| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        // The pieces of a manifest lie within the file's size.
        if let Some(room) = bytes.get_mut(start..start.saturating_add(piece.len())) {
            room.copy_from_slice(piece);
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Calls `each` with the data of a file and its offsets; each chunk is checked first.
pub(super) fn each_piece(
    reader: &mut PackReader<'_>,
    content: &FileContent,
    path: &Path,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let mismatch = || SnapshotError::damaged(format!("the chunks of {path:?} are not as long as its data"));
    let mut chunks = content.chunks.iter();
    let mut chunk: Vec<u8> = Vec::new();
    let mut used = 0;
    for (offset, length) in &content.data {
        let (mut at, end) = (*offset, offset + length);
        while at < end {
            if used == chunk.len() {
                let next = reader.chunk(*chunks.next().ok_or_else(mismatch)?);
                chunk = next.map_err(|error| match error {
                    PackError::Damaged(what) => SnapshotError::damaged(format!("a chunk of {path:?} {what}")),
                    PackError::File(error) => error.into(),
                })?;
                used = 0;
            }
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let piece = &chunk[used..chunk.len().min(used.saturating_add(left))];
            if piece.is_empty() {
                return Err(mismatch());
            }
            each(at, piece)?;
            used += piece.len();
            at += piece.len() as u64;
        }
    }
    if used == chunk.len() && chunks.next().is_none() {
        Ok(())
    } else {
        Err(mismatch())
    }
}

/// ```text
/// {"id", "namespace", "description", "created_unix_ms", "source",
///  "files": {path: {"content" | "content_b64", "size", "mtime", "mtime_ns", "mode", "sha256"}},
///  "directories": {path: {"mtime", "mtime_ns", "mode"}}, "links": {path: {"target", "mtime", "mtime_ns"}},
///  "other_names": [{"path_b64", "kind", ...}]}
/// ```
/// Names that are not UTF-8 are in `other_names`, so that no two entries have the same key.
fn export(reader: &mut PackReader<'_>, snapshot: &Snapshot, bytes_max: u64) -> Result<Value, SnapshotError> {
    let sizes = snapshot.files().map(|(_, content)| content.size);
    if sizes.fold(0, u64::saturating_add) > bytes_max {
        return Err(SnapshotError::too_large("the snapshot", bytes_max));
    }
    let (mut files, mut directories, mut links) = (Map::new(), Map::new(), Map::new());
    let mut other_names = Vec::new();
    for entry in &snapshot.entries {
        let mut fields = describe(reader, entry)?;
        let (kind, named) = match entry.kind {
            SnapshotKind::File(_) => ("file", &mut files),
            SnapshotKind::Directory => ("directory", &mut directories),
            SnapshotKind::Link(_) => ("link", &mut links),
        };
        if let Some(name) = entry.path.to_str() {
            named.insert(name.to_owned(), fields.into());
        } else {
            let path = BASE64.encode(entry.path.as_os_str().as_bytes());
            fields.insert("path_b64".to_owned(), path.into());
            fields.insert("kind".to_owned(), kind.into());
            other_names.push(fields);
        }
    }
    Ok(json!({
        "id": snapshot.id.to_string(),
        "namespace": snapshot.namespace.as_str(),
        "description": snapshot.description,
        "created_unix_ms": snapshot.created_unix_ms,
        "source": snapshot.source,
        "files": files,
        "directories": directories,
        "links": links,
        "other_names": other_names,
    }))
}

fn describe(reader: &mut PackReader<'_>, entry: &SnapshotEntry) -> Result<Map<String, Value>, SnapshotError> {
    let Timestamp(seconds, nanoseconds) = entry.mtime;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("mtime", json!(seconds as f64 + f64::from(nanoseconds) / 1e9));
    // A double is not precise enough for nanoseconds.
    let whole = seconds.saturating_mul(1_000_000_000);
    put("mtime_ns", whole.saturating_add(nanoseconds.into()).into());
    match &entry.kind {
        SnapshotKind::Link(target) => match target.to_str() {
            Some(text) => put("target", text.into()),
            None => put("target_b64", BASE64.encode(target.as_os_str().as_bytes()).into()),
        },
        SnapshotKind::Directory => put("mode", entry.mode.into()),
        SnapshotKind::File(file) => {
            put("mode", entry.mode.into());
            put("size", file.size.into());
            put("sha256", file.sha256.as_str().into());
            match String::from_utf8(content(reader, file, &entry.path, file.size)?) {
                Ok(text) => put("content", text.into()),
                Err(binary) => put("content_b64", BASE64.encode(binary.as_bytes()).into()),
            }
        }
    };
    Ok(fields)
}
