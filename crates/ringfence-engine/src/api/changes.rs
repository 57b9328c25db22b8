//! Differences between a workspace and a snapshot of it, or the directory below its overlay.

use super::{
    NamespaceAccess,
    files::{OpenWorkspace, WorkspaceAccess},
    overlay::of_session,
};
use crate::{
    changes::{Base, COMPARE, Difference, WALK},
    error::Result,
    workspace_error::{self, snapshot_id},
    workspaces::{Use, WorkspaceRef},
};
use ringfence_store::{
    FileError, from_hex,
    snapshots::{
        ListedSnapshot, Snapshot, SnapshotEntry, SnapshotError, SnapshotId, SnapshotKind, SnapshotStore,
        Source,
    },
    tree::{self, CompareBounds, EntryKind, Node, Side, TreeError},
};
use ringfence_types::{Namespace, RequestError};
use std::{io::Cursor, path::Path};

impl WorkspaceAccess<'_> {
    /// Compares the workspace with a snapshot (none: its latest), or an overlay with the directory below it.
    pub async fn diff(&self, base: Option<&str>) -> Result<Difference> {
        self.of.called("diff_workspace").await?;
        let NamespaceAccess {
            services, namespace, ..
        } = self.of;
        let base = base.map(snapshot_id).transpose()?;
        if let WorkspaceRef::Session(id) = &self.workspace
            && let Some(held) = of_session(services, namespace, id).await?
        {
            return match base {
                None => Ok(held.difference().clone()),
                Some(_) => Err(RequestError::invalid(
                    "an overlay is compared with the directory below it, not with a snapshot.",
                    "Leave `snapshot_id` out.",
                )),
            };
        }
        let (store, of) = (services.snapshots.clone(), namespace.clone());
        self.with(Use::Read, move |opened| {
            let base = saved_base(&store, base, &of, &opened.source);
            let base = base.map_err(workspace_error::of_snapshot)?;
            let compared = compare(&store, base.as_ref(), opened);
            compared.map_err(workspace_error::of_tree)
        })
        .await
    }
}

/// Returns the snapshot with this id, or the latest of this workspace.
fn saved_base(
    store: &SnapshotStore,
    id: Option<SnapshotId>,
    namespace: &Namespace,
    source: &Source,
) -> Result<Option<Snapshot>, SnapshotError> {
    let id = match id {
        Some(id) => Some(id),
        None => latest(&store.list(namespace)?, source),
    };
    id.map(|id| store.manifest(id, namespace)).transpose()
}

fn latest(listed: &[ListedSnapshot], source: &Source) -> Option<SnapshotId> {
    listed
        .iter()
        .rev()
        .find(|one| one.source == *source)
        .map(|one| one.id)
}

fn compare(
    store: &SnapshotStore,
    base: Option<&Snapshot>,
    opened: &OpenWorkspace,
) -> Result<Difference, TreeError> {
    let old = base.map_or_else(Side::empty, |base| saved(store, base));
    let new = Side::live(opened.root(), WALK)?;
    let bounds = CompareBounds {
        redact: &|text| opened.redactor.text(text),
        ..COMPARE
    };
    let changes = tree::compare(&old, &new, bounds)?;
    let base = base.map_or(Base::Nothing, |base| Base::Snapshot(base.id.to_string()));
    Ok(Difference::of(base, &changes.list, &opened.redactor))
}

fn saved<'a>(store: &'a SnapshotStore, base: &'a Snapshot) -> Side<'a> {
    let node = |entry: &SnapshotEntry| {
        let (kind, size, sha256) = match &entry.kind {
            SnapshotKind::File(content) => (EntryKind::File, content.size, from_hex(&content.sha256)),
            SnapshotKind::Directory => (EntryKind::Directory, 0, None),
            SnapshotKind::Link(target) => (
                EntryKind::Link(target.clone()),
                target.as_os_str().len() as u64,
                None,
            ),
        };
        let node = Node {
            kind,
            mode: entry.mode,
            size,
            mtime: entry.mtime,
            sha256,
            stamp: None,
        };
        (entry.path.clone(), node)
    };
    Side {
        nodes: base.entries.iter().map(node).collect(),
        open: Box::new(move |path| {
            let bytes = store.read(base, path, COMPARE.read_bytes);
            Ok(Box::new(Cursor::new(bytes.map_err(|e| read_error(path, e))?)))
        }),
    }
}

fn read_error(path: &Path, error: SnapshotError) -> TreeError {
    let failed = FileError::at("read from the snapshot", path);
    TreeError::Io(failed(std::io::Error::other(error)))
}
