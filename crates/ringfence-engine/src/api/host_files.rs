//! Files of the host: read, listed, written and restored within the rules of their directories, recorded and redacted.

use super::{FileFacts, NamespaceAccess};
use crate::{error::Result, record::hex, services::Services, store::blocking};
use ringfence_host::{Content, FileEntry, Writing};
use ringfence_redact::Redactor;
use ringfence_store::audit::Action;
use ringfence_types::WorkspacePath;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file of the host. Its content is redacted.
#[derive(Clone, Debug)]
pub struct HostFile {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub redacted: bool,
    pub mode: u32,
}

#[derive(Clone, Debug)]
pub struct HostListing {
    pub entries: Vec<FileEntry>,
    pub is_cut: bool,
}

#[derive(Clone, Debug)]
pub struct HostWritten {
    pub path: PathBuf,
    pub diff: String,
    /// The id for undoing it; none: it was only a preview, or the content cannot be kept.
    pub undo_id: Option<String>,
    /// SHA-256 of the new content, also of a preview.
    pub sha256: String,
}

impl NamespaceAccess<'_> {
    pub async fn host_file_read(self, path: &Path) -> Result<HostFile> {
        let (of, wanted) = (self.namespace.to_string(), path.to_owned());
        let read: Result<HostFile> = async {
            let redactor = self.redactor().await?;
            let rules = self.services.host.rules()?.clone();
            let found = blocking(move || rules.read_file(&of, &wanted)).await??;
            let bytes = redactor.bytes(&found.bytes).into_owned();
            Ok(HostFile {
                redacted: bytes != found.bytes,
                path: found.path,
                bytes,
                mode: found.mode,
            })
        }
        .await;
        let bytes = read.as_ref().map_or(0, |read| read.bytes.len());
        let details = json!({"path": self.redacted_path(path), "bytes": bytes});
        self.read(Action::HostRead, details, read).await
    }

    fn redacted_path(&self, path: &Path) -> String {
        self.services.host.redactor.text(&path.to_string_lossy())
    }

    pub async fn host_file_list(self, path: &Path) -> Result<HostListing> {
        let (of, wanted) = (self.namespace.to_string(), path.to_owned());
        let listed: Result<HostListing> = async {
            let redactor = self.redactor().await?;
            let rules = self.services.host.rules()?.clone();
            let (mut entries, is_cut) = blocking(move || rules.list_directory(&of, &wanted)).await??;
            for entry in &mut entries {
                entry.name = redactor.text(&entry.name).into_owned();
            }
            Ok(HostListing { entries, is_cut })
        }
        .await;
        let count = listed.as_ref().map_or(0, |listed| listed.entries.len());
        let details = json!({"path": self.redacted_path(path), "entries": count});
        self.read(Action::HostRead, details, listed).await
    }

    /// Writes a file of the host whole, or previews the change.
    pub async fn host_file_write(
        self,
        path: PathBuf,
        bytes: Vec<u8>,
        writing: Writing,
    ) -> Result<HostWritten> {
        let services = self.services.clone();
        let sha256 = hex(&Sha256::digest(&bytes));
        let details = json!({
            "path": self.redacted_path(&path), "bytes": bytes.len(), "sha256": sha256,
            "preview": writing == Writing::Preview,
        });
        let of = self.namespace.to_string();
        let act = async {
            let rules = services.host.rules()?.clone();
            let redactor = self.redactor().await?;
            let written = blocking(move || {
                let mut undo_id = None;
                let content = Content {
                    bytes: &bytes,
                    write: writing,
                };
                let written = rules.write_file(&of, &path, content, |undo| {
                    undo_id = keep(&services, &of, undo, &redactor)?;
                    Ok(())
                });
                if let (Err(_), Some(id)) = (&written, &undo_id) {
                    services.host.undo.forget(&of, id);
                }
                let written = written?;
                Ok(HostWritten {
                    diff: written.diff(|text| redactor.text(text)),
                    path: written.path,
                    undo_id,
                    sha256,
                })
            });
            written.await?
        };
        let note = self.note(Action::HostWritten, details);
        let done =
            |written: &HostWritten, details: &mut serde_json::Value| details["undo"] = json!(written.undo_id);
        self.services.record.around(note, act, done).await
    }

    pub async fn host_undo(self, id: &str) -> Result<PathBuf> {
        let (services, of, id) = (self.services.clone(), self.namespace.to_string(), id.to_owned());
        let rules = services.host.rules()?.clone();
        let undo = services.host.undo.find(&of, &id)?;
        let path = undo.path.clone();
        let details = json!({"path": self.redacted_path(&path), "undo": id});
        let act = async {
            let done = blocking(move || {
                rules.undo_write(&of, &undo)?;
                services.host.undo.forget(&of, &id);
                Ok(())
            });
            done.await?
        };
        self.change(Action::HostWritten, details, act).await?;
        Ok(path)
    }

    pub async fn host_file_copy(self, source: &Path, destination: &WorkspacePath) -> Result<FileFacts> {
        let file = self.host_file_read(source).await?;
        self.workspace(None).put_file(destination, file.bytes).await
    }
}

/// Keeps the old content of a file. `None`: the old or the new content contains a secret, and is not kept.
fn keep(
    services: &Arc<Services>,
    namespace: &str,
    undo: &ringfence_host::Undo,
    redactor: &Redactor,
) -> Result<Option<String>> {
    let is_clean = |bytes: &[u8]| *redactor.bytes(bytes) == *bytes;
    if !is_clean(undo.before.as_deref().unwrap_or_default()) || !is_clean(&undo.after) {
        return Ok(None);
    }
    // The lower half of a UUIDv7 is random.
    let random = u32::try_from(uuid::Uuid::now_v7().as_u128() & 0xffff_ffff).unwrap_or_default();
    services.host.undo.keep(namespace, undo, random).map(Some)
}
