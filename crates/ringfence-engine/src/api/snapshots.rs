//! Snapshots: saved workspaces. Each belongs to its namespace, and does not exist for any other.

use super::{
    NamespaceAccess,
    files::{self, OpenWorkspace, WorkspaceAccess},
};
use crate::{
    error::Result,
    events::{EventKind, now_ms},
    store::{blocking, fault},
    workspace_error,
    workspaces::{Use, WorkspaceRef},
};
use ringfence_store::{
    FileError,
    audit::Action,
    snapshots::{
        About, LeftOut, ListedSnapshot, Restored, Snapshot, SnapshotError, SnapshotId, SnapshotKind,
        SnapshotStore, Source,
    },
};
use ringfence_types::{ErrorCode, Namespace, SessionId};
use serde::Serialize;
use serde_json::{Value, json};

/// Maximum bytes of a snapshot exported as one text.
pub const EXPORT_BYTES_MAX: u64 = 16 << 20;
/// Maximum names of omitted entries in an answer.
const LEFT_OUT_MAX: usize = 20;

#[derive(Clone, Debug, Serialize)]
pub struct SnapshotFacts {
    pub snapshot_id: String,
    /// The caller's own words.
    pub description: String,
    pub created_unix_ms: u64,
    /// `namespace`, or the session whose workspace it was.
    pub of: String,
    /// Regular files.
    pub files: u64,
    /// Total bytes of the files.
    pub size_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct SnapshotMade {
    #[serde(flatten)]
    pub snapshot: SnapshotFacts,
    /// Bytes not contained in an earlier snapshot of the namespace.
    pub new_bytes: u64,
    /// Their size on the disk, compressed.
    pub stored_bytes: u64,
    /// The first twenty entries that are not in it, with the reason; a restore removes them.
    pub left_out: Vec<String>,
    pub left_out_count: usize,
}

impl WorkspaceAccess<'_> {
    /// Saves the workspace; that of a session between two of its calls.
    pub async fn save(&self, description: String) -> Result<SnapshotMade> {
        let (services, namespace) = (self.of.services, self.of.namespace);
        let saved = async {
            services.disk.check(namespace).await?;
            let (store, of) = (services.snapshots.clone(), namespace.clone());
            let save = move |opened: &OpenWorkspace| save(&store, of, description, opened);
            self.with(Use::Read, save).await
        };
        let facts = |made: &SnapshotMade, details: &mut Value| {
            details["snapshot"] = json!(made.snapshot.snapshot_id);
            details["bytes"] = json!(made.snapshot.size_bytes);
        };
        let made = self
            .change(Action::SnapshotCreated, json!({}), saved, facts)
            .await?;
        let kind = EventKind::SnapshotCreated {
            snapshot_id: made.snapshot.snapshot_id.clone(),
            size_bytes: made.snapshot.size_bytes,
        };
        services.telemetry.bus.publish(namespace, None, kind);
        Ok(made)
    }
}

fn save(
    store: &SnapshotStore,
    namespace: Namespace,
    description: String,
    opened: &OpenWorkspace,
) -> Result<SnapshotMade> {
    let created_unix_ms = now_ms();
    let about = About {
        namespace,
        description: description.clone(),
        source: opened.source.clone(),
        time_unix_ms: created_unix_ms,
    };
    let created = store.create(opened.root(), about);
    let created = created.map_err(workspace_error::of_snapshot)?;
    let left_out = created.left_out.iter().take(LEFT_OUT_MAX);
    Ok(SnapshotMade {
        snapshot: SnapshotFacts {
            snapshot_id: created.id.to_string(),
            description,
            created_unix_ms,
            of: source(&opened.source),
            files: created.files,
            size_bytes: created.bytes,
        },
        new_bytes: created.new_bytes,
        stored_bytes: created.stored_bytes,
        left_out: left_out
            .map(|left| opened.redactor.text(&self::left_out(left)).into_owned())
            .collect(),
        left_out_count: created.left_out.len(),
    })
}

impl NamespaceAccess<'_> {
    /// Restores a snapshot into the workspace that it was taken from, or a session's: completely or not at all.
    pub async fn restore_snapshot(self, id: &str, into: Option<SessionId>) -> Result<Restored> {
        let id = self.snapshot_id(Action::SnapshotRestored, id).await?;
        let manifest = self.with_snapshots(move |store, of| store.manifest(id, of)).await;
        let session = match (&into, manifest.as_ref().map(|manifest| &manifest.source)) {
            (Some(session), _) => Some(session.to_string()),
            (None, Ok(Source::Session(session))) => Some(session.clone()),
            _ => None,
        };
        let details = json!({"snapshot": id.to_string(), "into": session});
        // Its session ends with the server: by this id the next one finds a restore that was cut off by it.
        let operation = session.map(|_| uuid::Uuid::now_v7().to_string());
        let note = self
            .note(Action::SnapshotRestored, details)
            .of_execution(operation.as_deref());
        let restore = self.restore(manifest, into);
        let restored = self.services.record.around(note, restore, |_, _| ()).await?;
        let kind = EventKind::SnapshotRestored {
            snapshot_id: id.to_string(),
        };
        self.services.telemetry.bus.publish(self.namespace, None, kind);
        Ok(restored)
    }

    async fn restore(&self, manifest: Result<Snapshot>, into: Option<SessionId>) -> Result<Restored> {
        let manifest = manifest?;
        let id = manifest.id;
        let is_original = into.is_none() && manifest.source != Source::Namespace;
        let target = match (into, &manifest.source) {
            (Some(session), _) => WorkspaceRef::Session(session),
            (None, Source::Namespace) => WorkspaceRef::Namespace,
            (None, Source::Session(session)) => {
                WorkspaceRef::Session(SessionId::try_from(session.clone()).map_err(fault)?)
            }
        };
        let sizes = manifest.entries.iter().map(|entry| match &entry.kind {
            SnapshotKind::File(content) => content.data.iter().map(|(_, length)| length).sum(),
            SnapshotKind::Directory | SnapshotKind::Link(_) => 0,
        });
        let needed: u64 = sizes.sum();
        let opened = files::open(self.services, self.namespace, &target, Use::Replace).await;
        let opened = opened.map_err(|mut error| {
            if is_original && matches!(error.code, ErrorCode::SessionEnded | ErrorCode::NotFound) {
                "Name another session of this namespace with `session_id`: the snapshot is restored into that one."
                    .clone_into(&mut error.hint);
            }
            error
        })?;
        // The quota may have been larger when it was saved.
        opened.quota.check_alone(needed)?;
        let redactor = opened.redactor.clone();
        let restored = self.with_snapshots(move |store, of| {
            let alone = opened.lock_for_writing().map_err(FileError::at("lock", "."));
            let _alone = alone.map_err(SnapshotError::Io)?;
            store.restore(&opened.source, id, of, opened.root())
        });
        restored.await.map_err(|error| files::clean(error, &redactor))
    }

    /// Lists the namespace's snapshots, oldest first.
    pub async fn snapshots(self) -> Result<Vec<SnapshotFacts>> {
        self.called("list_state_snapshots").await?;
        let listed = self.with_snapshots(|store, of| store.list(of)).await?;
        Ok(listed.iter().map(facts).collect())
    }

    pub async fn delete_snapshot(self, id: &str) -> Result<()> {
        let id = self.snapshot_id(Action::SnapshotDeleted, id).await?;
        let details = json!({"snapshot": id.to_string()});
        self.change(Action::SnapshotDeleted, details, self.delete(id))
            .await
    }

    /// Deletes a snapshot. If an interrupted restore of the namespace's workspace needs it, that restore is first
    /// completed, or abandoned if it cannot be completed.
    async fn delete(&self, id: SnapshotId) -> Result<()> {
        let deleted = self.with_snapshots(move |store, of| match store.delete(id, of) {
            Err(SnapshotError::InUse(_)) => Ok(false),
            deleted => deleted.map(|()| true),
        });
        if deleted.await? {
            return Ok(());
        }
        let opened = files::open(
            self.services,
            self.namespace,
            &WorkspaceRef::Namespace,
            Use::Replace,
        )
        .await?;
        self.with_snapshots(move |store, of| {
            store.settle(opened.root())?;
            store.abandon(id)?;
            store.delete(id, of)
        })
        .await
    }

    /// Exports a snapshot with the contents of its files, as JSON text, without the namespace's secrets.
    pub async fn export_snapshot(self, id: &str) -> Result<String> {
        self.called("resource sandbox://snapshots").await?;
        let id = workspace_error::snapshot_id(id)?;
        let redactor = self.redactor().await?;
        let exported = self.with_snapshots(move |store, of| store.export(id, of, EXPORT_BYTES_MAX));
        let mut document = exported.await?;
        clean(&mut document, &redactor);
        Ok(document.to_string())
    }

    /// Parses the id of a snapshot. The refusal of an invalid one is recorded, without its text.
    async fn snapshot_id(&self, action: Action, id: &str) -> Result<SnapshotId> {
        match workspace_error::snapshot_id(id) {
            Ok(id) => Ok(id),
            Err(error) => Err(self
                .services
                .record
                .refused(self.note(action, json!({})), error)
                .await),
        }
    }

    async fn with_snapshots<T: Send + 'static>(
        &self,
        act: impl FnOnce(&SnapshotStore, &Namespace) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T> {
        let (store, of) = (self.services.snapshots.clone(), self.namespace.clone());
        let done = blocking(move || act(&store, &of)).await?;
        done.map_err(workspace_error::of_snapshot)
    }
}

/// Redacts every text and name of a document. Contents in base64 (`content_b64`) are redacted as bytes.
pub(super) fn clean(document: &mut Value, redactor: &ringfence_redact::Redactor) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    match document {
        Value::String(text) => *text = redactor.text(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, redactor)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (name, mut value) in old {
                match (
                    name.as_str(),
                    value.as_str().and_then(|text| STANDARD.decode(text).ok()),
                ) {
                    ("content_b64", Some(bytes)) => value = json!(STANDARD.encode(redactor.bytes(&bytes))),
                    _ => clean(&mut value, redactor),
                }
                fields.insert(redactor.text(&name).into_owned(), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn facts(listed: &ListedSnapshot) -> SnapshotFacts {
    SnapshotFacts {
        snapshot_id: listed.id.to_string(),
        description: listed.description.clone(),
        created_unix_ms: listed.created_unix_ms,
        of: source(&listed.source),
        files: listed.files,
        size_bytes: listed.bytes,
    }
}

fn source(source: &Source) -> String {
    match source {
        Source::Namespace => "namespace".to_owned(),
        Source::Session(id) => id.clone(),
    }
}

fn left_out(left: &LeftOut) -> String {
    format!("{}: {:?}", left.path.to_string_lossy(), left.reason)
}
