//! Making a snapshot. What the namespace's last snapshot of the same workspace knows, and was not touched since, is not
//! read again.

use super::{
    About, Created, LeftOut, LeftOutReason, ListedSnapshot, Snapshot, SnapshotEntry, SnapshotError,
    SnapshotId, SnapshotKind, SnapshotLimits, SnapshotStore,
    content::{FileChunker, Read},
    layout::NamespaceDir,
    list,
    manifest::{DEPTH_MAX, FileContent, FileStamp, MODE_MASK},
};
use crate::{
    blobs::pack::Index,
    tree::{self, Bounds, EntryKind},
};
use std::{
    collections::HashMap,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

/// A file that is written to while it is read is read again, so often altogether.
const ATTEMPTS_MAX: usize = 3;

pub(super) fn create(
    store: &SnapshotStore,
    root: BorrowedFd<'_>,
    about: About,
) -> Result<Created, SnapshotError> {
    let place = store.layout.make(&about.namespace)?;
    // Until the list names the new snapshot, no collection may take its chunks.
    let _lock = place.lock_shared()?;
    let list = list::read(&place, &store.public_key())?;
    check_count(&list, store.limits)?;
    let base = base(store, &place, &about, &list);
    let index = Index::read(&place.packs)?;
    let entries = walk(root, store.limits)?;
    let others = store.layout.stored_bytes_beside(&about.namespace)?;
    let mut taking = Taking {
        root,
        limits: store.limits,
        base: base.as_ref().map(by_path).unwrap_or_default(),
        contents: FileChunker::new(&place, &index, store.limits, others)?,
        left_out: Vec::new(),
    };
    let mut saved = Vec::with_capacity(entries.len());
    for entry in &entries {
        saved.extend(taking.take(entry)?);
    }
    let left_out = std::mem::take(&mut taking.left_out);
    let (new_bytes, stored_bytes) = taking.contents.finish()?;
    let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
    let snapshot = Snapshot {
        id: SnapshotId::new(),
        namespace: about.namespace,
        description: about.description,
        created_unix_ms: about.time_unix_ms,
        source: about.source,
        root_mtime: tree::Timestamp::of_content(&stat),
        root_mode: stat.st_mode & MODE_MASK,
        entries: saved,
    };
    let (listed, manifest_bytes) = publish(store, &place, &snapshot)?;
    Ok(Created {
        id: listed.id,
        files: listed.files,
        bytes: listed.bytes,
        new_bytes,
        stored_bytes: stored_bytes + manifest_bytes,
        left_out,
    })
}

fn check_count(list: &list::List, limits: SnapshotLimits) -> Result<(), SnapshotError> {
    if list.len() < limits.snapshots {
        return Ok(());
    }
    Err(SnapshotError::TooMany {
        what: "snapshots in this namespace",
        limit: limits.snapshots as u64,
    })
}

/// Everything that is there, before anything is read: too much of it costs nothing.
fn walk(root: BorrowedFd<'_>, limits: SnapshotLimits) -> Result<Vec<tree::TreeEntry>, SnapshotError> {
    let bounds = Bounds {
        entries: limits.entries,
        depth: DEPTH_MAX,
    };
    let entries = tree::walk(root, bounds)?;
    let files = || entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let bytes = files().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    if bytes > limits.bytes {
        return Err(limits.too_large());
    }
    let mut names: HashMap<(u64, u64), u64> = HashMap::new();
    for entry in files().filter(|entry| entry.links > 1) {
        *names.entry((entry.device, entry.inode)).or_default() += 1;
    }
    // A file whose names are all in the workspace becomes one copy for each.
    let outside = files().find(|entry| {
        let inside = names.get(&(entry.device, entry.inode));
        inside.is_some_and(|inside| entry.links > *inside)
    });
    match outside {
        Some(entry) => Err(SnapshotError::Linked {
            path: entry.path.clone(),
        }),
        None => Ok(entries),
    }
}

/// The last snapshot of the same workspace. If it is damaged, everything is read.
fn base(store: &SnapshotStore, place: &NamespaceDir, about: &About, list: &list::List) -> Option<Snapshot> {
    let last = list.iter().rev().find(|listed| listed.source == about.source)?;
    let key = store.public_key();
    match Snapshot::read(place, last.id, &last.digest, &key) {
        Ok(snapshot) => Some(snapshot),
        Err(error) => {
            tracing::warn!(%error, "the last snapshot cannot be read; everything is read anew");
            None
        }
    }
}

fn by_path(snapshot: &Snapshot) -> HashMap<&Path, &SnapshotEntry> {
    let entries = snapshot.entries.iter();
    entries.map(|entry| (entry.path.as_path(), entry)).collect()
}

/// One workspace being taken.
struct Taking<'a> {
    root: BorrowedFd<'a>,
    limits: SnapshotLimits,
    base: HashMap<&'a Path, &'a SnapshotEntry>,
    contents: FileChunker<'a>,
    left_out: Vec<LeftOut>,
}

impl Taking<'_> {
    /// None: it is left out, or gone.
    fn take(&mut self, entry: &tree::TreeEntry) -> Result<Option<SnapshotEntry>, SnapshotError> {
        let kind = match &entry.kind {
            EntryKind::File => return self.file(entry),
            EntryKind::Directory => SnapshotKind::Directory,
            EntryKind::Link(target) => SnapshotKind::Link(target.clone()),
            EntryKind::Whiteout | EntryKind::Other => {
                self.leave_out(&entry.path, LeftOutReason::Special);
                return Ok(None);
            }
        };
        Ok(Some(SnapshotEntry {
            path: entry.path.clone(),
            mode: entry.mode & MODE_MASK,
            mtime: entry.mtime,
            kind,
        }))
    }

    fn leave_out(&mut self, path: &Path, reason: LeftOutReason) {
        let path = PathBuf::from(path);
        self.left_out.push(LeftOut { path, reason });
    }

    fn file(&mut self, entry: &tree::TreeEntry) -> Result<Option<SnapshotEntry>, SnapshotError> {
        if let Some(content) = self.known(entry) {
            let content = content.clone();
            self.contents.count(content.size)?;
            return Ok(Some(SnapshotEntry {
                path: entry.path.clone(),
                mode: entry.mode & MODE_MASK,
                mtime: entry.mtime,
                kind: SnapshotKind::File(content),
            }));
        }
        for _ in 0..ATTEMPTS_MAX {
            match self.contents.read(self.root, &entry.path)? {
                Read::Whole(saved) => {
                    if let SnapshotKind::File(content) = &saved.kind {
                        self.contents.count(content.size)?;
                    }
                    return Ok(Some(saved));
                }
                Read::Changed => {}
                Read::Gone => return Ok(None),
                Read::Unreadable => {
                    self.leave_out(&entry.path, LeftOutReason::Unreadable);
                    return Ok(None);
                }
            }
        }
        Err(SnapshotError::Changed {
            path: entry.path.clone(),
        })
    }

    /// What the base knows of it, if it was not touched since and the chunks are all there.
    fn known(&self, entry: &tree::TreeEntry) -> Option<&FileContent> {
        let before = self.base.get(entry.path.as_path())?;
        let SnapshotKind::File(content) = &before.kind else {
            return None;
        };
        let same = content.seen == Some(FileStamp::of_entry(entry))
            && content.size == entry.size
            && before.mtime == entry.mtime
            && content.size <= self.limits.bytes;
        (same && self.contents.has_all(&content.chunks)).then_some(content)
    }
}

/// The manifest, then the list that names it: from then on there is a snapshot.
fn publish(
    store: &SnapshotStore,
    place: &NamespaceDir,
    snapshot: &Snapshot,
) -> Result<(ListedSnapshot, u64), SnapshotError> {
    let (digest, manifest_bytes) = snapshot.write(place, &store.signer)?;
    let sizes = snapshot.entries.iter().filter_map(|entry| match &entry.kind {
        SnapshotKind::File(content) => Some(content.size),
        SnapshotKind::Directory | SnapshotKind::Link(_) => None,
    });
    let listed = ListedSnapshot {
        id: snapshot.id,
        description: snapshot.description.clone(),
        created_unix_ms: snapshot.created_unix_ms,
        source: snapshot.source.clone(),
        files: sizes.clone().count() as u64,
        entries: snapshot.entries.len() as u64,
        bytes: sizes.sum(),
        digest,
    };
    match name_it(store, place, snapshot, &listed) {
        Ok(()) => Ok((listed, manifest_bytes)),
        Err(error) => {
            place.manifests.remove(&snapshot.id.to_string())?;
            Err(error)
        }
    }
}

fn name_it(
    store: &SnapshotStore,
    place: &NamespaceDir,
    snapshot: &Snapshot,
    listed: &ListedSnapshot,
) -> Result<(), SnapshotError> {
    let _lock = place.lock_list()?;
    let mut list = list::read(place, &store.public_key())?;
    // Others may have added since the first look.
    check_count(&list, store.limits)?;
    let others = store.layout.stored_bytes_beside(&snapshot.namespace)?;
    store.limits.check_room(place.stored_bytes()?, others)?;
    list.push(listed.clone());
    list::write(place, &store.signer, &list)
}
