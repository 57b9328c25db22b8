//! Creation of snapshots. A file unchanged since the namespace's last snapshot of the workspace is not read again.

use super::{
    About, Created, DESCRIPTION_BYTES_MAX, LeftOut, LeftOutReason, ListedSnapshot, Snapshot, SnapshotEntry,
    SnapshotError, SnapshotId, SnapshotKind, SnapshotLimits, SnapshotStore, Source,
    content::{FileChunker, Read},
    layout::NamespaceDir,
    list,
    manifest::{DEPTH_MAX, FileContent, MODE_MASK},
};
use crate::{
    blobs::pack::Index,
    tree::{self, Bounds, EntryKind, TreeEntry},
    whole_file::is_plain_id,
};
use ringfence_types::Namespace;
use std::{
    collections::HashMap,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

/// Attempts at reading a file that is written to while it is read.
const ATTEMPTS_MAX: usize = 3;

impl SnapshotStore {
    /// Saves the workspace, after resuming an interrupted restore. Chunks of a failed snapshot are collected if
    /// possible. Errors: `TooMany`, `TooLarge`, `Full`, `StoreFull`, `Linked`, `Refused`; `Changed` if a file never
    /// settles.
    pub fn create(&self, root: BorrowedFd<'_>, about: About) -> Result<Created, SnapshotError> {
        check(&about)?;
        self.resume(root)?;
        let namespace = about.namespace.clone();
        let before = self.stored_bytes(&namespace)?;
        let first = self.try_create(root, about.clone());
        let Err(SnapshotError::Full { .. } | SnapshotError::StoreFull { .. }) = first else {
            return first.inspect_err(|_| self.clean_up(&namespace));
        };
        self.clean_up(&namespace);
        if self.stored_bytes(&namespace)? >= before {
            return first;
        }
        self.try_create(root, about)
            .inspect_err(|_| self.clean_up(&namespace))
    }

    pub(super) fn clean_up(&self, namespace: &Namespace) {
        match self.collect(namespace) {
            Ok(collected) if !collected.busy => {}
            Ok(_) => tracing::debug!("chunks that no snapshot needs stay until the next collection"),
            Err(error) => tracing::warn!(%error, "chunks that no snapshot needs were not collected"),
        }
    }

    fn try_create(&self, root: BorrowedFd<'_>, about: About) -> Result<Created, SnapshotError> {
        let dir = self.layout.make(&about.namespace)?;
        // No collection may remove the chunks of the new snapshot before the list names it.
        let _lock = dir.lock_shared()?;
        let list = list::read(&dir, &self.signer.public_key())?;
        check_count(&list, self.limits)?;
        let base = base(self, &dir, &about, &list);
        let index = Index::read(&dir.packs)?;
        let entries = walk(root, self.limits)?;
        let others = self.layout.stored_bytes_beside(&about.namespace)?;
        let known = base.iter().flat_map(|snapshot| &snapshot.entries);
        let mut capture = Capture {
            root,
            limits: self.limits,
            base: known.map(|entry| (entry.path.as_path(), entry)).collect(),
            contents: FileChunker::new(&dir, &index, self.limits, others)?,
            left_out: Vec::new(),
        };
        let mut saved = Vec::with_capacity(entries.len());
        for entry in &entries {
            saved.extend(capture.entry(entry)?);
        }
        let left_out = std::mem::take(&mut capture.left_out);
        let (new_bytes, stored_bytes) = capture.contents.finish()?;
        let stat = rustix::fs::fstat(root).map_err(SnapshotError::io("look at", "."))?;
        let snapshot = Snapshot {
            id: SnapshotId(uuid::Uuid::now_v7()),
            namespace: about.namespace,
            description: about.description,
            created_unix_ms: about.time_unix_ms,
            source: about.source,
            root_mtime: tree::Timestamp::of_content(&stat),
            root_mode: stat.st_mode & MODE_MASK,
            entries: saved,
        };
        let (listed, manifest_bytes) = publish(self, &dir, &snapshot)?;
        Ok(Created {
            id: listed.id,
            files: listed.files,
            bytes: listed.bytes,
            new_bytes,
            stored_bytes: stored_bytes + manifest_bytes,
            left_out,
        })
    }
}

fn check(about: &About) -> Result<(), SnapshotError> {
    let refused = |what: String| Err(SnapshotError::Refused(what));
    if about.description.len() > DESCRIPTION_BYTES_MAX {
        return refused(format!("a description has at most {DESCRIPTION_BYTES_MAX} bytes"));
    }
    match &about.source {
        Source::Session(id) if !is_plain_id(id) => {
            refused("a session's id is 1 to 64 letters, digits or `-`".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_count(list: &list::List, limits: SnapshotLimits) -> Result<(), SnapshotError> {
    let what = "snapshots in this namespace";
    let has_room = (list.len() < limits.snapshots).then_some(());
    has_room.ok_or(SnapshotError::too_many(what, limits.snapshots))
}

/// Lists the workspace and checks the limits before any file is read.
fn walk(root: BorrowedFd<'_>, limits: SnapshotLimits) -> Result<Vec<TreeEntry>, SnapshotError> {
    let (entries, depth) = (limits.entries, DEPTH_MAX);
    let entries = tree::walk(root, Bounds { entries, depth })?;
    let files = || entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let bytes = files().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    if bytes > limits.bytes {
        return Err(limits.too_large());
    }
    let mut names: HashMap<(u64, u64), u64> = HashMap::new();
    for entry in files().filter(|entry| entry.links > 1) {
        *names.entry((entry.stamp.device, entry.stamp.inode)).or_default() += 1;
    }
    // A file whose hard links are all in the workspace is saved once for each.
    let outside = files().find(|entry| {
        let inside = names.get(&(entry.stamp.device, entry.stamp.inode));
        inside.is_some_and(|inside| entry.links > *inside)
    });
    match outside {
        Some(TreeEntry { path, .. }) => Err(SnapshotError::Linked { path: path.clone() }),
        None => Ok(entries),
    }
}

/// Reads the last snapshot of the same workspace; None without one or if it is damaged: then every file is read.
fn base(store: &SnapshotStore, dir: &NamespaceDir, about: &About, list: &list::List) -> Option<Snapshot> {
    let last = list.iter().rev().find(|listed| listed.source == about.source)?;
    Snapshot::read(dir, last.id, &last.digest, &store.signer.public_key())
        .inspect_err(
            |error| tracing::warn!(%error, "the last snapshot cannot be read; everything is read anew"),
        )
        .ok()
}

struct Capture<'a> {
    root: BorrowedFd<'a>,
    limits: SnapshotLimits,
    base: HashMap<&'a Path, &'a SnapshotEntry>,
    contents: FileChunker<'a>,
    left_out: Vec<LeftOut>,
}

impl Capture<'_> {
    /// Returns None if the entry is left out or no longer exists.
    fn entry(&mut self, entry: &TreeEntry) -> Result<Option<SnapshotEntry>, SnapshotError> {
        let kind = match &entry.kind {
            EntryKind::File => match self.known(entry).cloned() {
                Some(content) => {
                    self.contents.count(content.size)?;
                    SnapshotKind::File(content)
                }
                None => return self.file(&entry.path),
            },
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

    fn file(&mut self, path: &Path) -> Result<Option<SnapshotEntry>, SnapshotError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.contents.read(self.root, path)? {
                Read::Whole(saved) => return Ok(Some(saved)),
                Read::Changed => {}
                Read::Gone => return Ok(None),
                Read::Unreadable => {
                    self.leave_out(path, LeftOutReason::Unreadable);
                    return Ok(None);
                }
            }
        }
        Err(SnapshotError::changed(path))
    }

    /// Returns the base's content of an entry, if the entry has not changed since and all its chunks are stored.
    fn known(&self, entry: &TreeEntry) -> Option<&FileContent> {
        let before = self.base.get(entry.path.as_path())?;
        let SnapshotKind::File(content) = &before.kind else {
            return None;
        };
        let same = content.seen == Some(entry.stamp)
            && content.size == entry.size
            && before.mtime == entry.mtime
            && content.size <= self.limits.bytes;
        (same && self.contents.has_all(&content.chunks)).then_some(content)
    }
}

/// Writes the manifest, then the list that names it; the snapshot exists from then on.
fn publish(
    store: &SnapshotStore,
    dir: &NamespaceDir,
    snapshot: &Snapshot,
) -> Result<(ListedSnapshot, u64), SnapshotError> {
    let (digest, manifest_bytes) = snapshot.write(dir, &store.signer)?;
    let sizes = snapshot.files().map(|(_, content)| content.size);
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
    if let Err(error) = add_to_list(store, dir, snapshot, &listed) {
        dir.manifests.remove(&snapshot.id.to_string())?;
        return Err(error);
    }
    Ok((listed, manifest_bytes))
}

fn add_to_list(
    store: &SnapshotStore,
    dir: &NamespaceDir,
    snapshot: &Snapshot,
    listed: &ListedSnapshot,
) -> Result<(), SnapshotError> {
    let _lock = dir.lock_list()?;
    let mut list = list::read(dir, &store.signer.public_key())?;
    // Other processes may have added snapshots since the first check.
    check_count(&list, store.limits)?;
    let others = store.layout.stored_bytes_beside(&snapshot.namespace)?;
    store.limits.check_room(dir.stored_bytes()?, others)?;
    list.push(listed.clone());
    list::write(dir, &store.signer, &list)
}
