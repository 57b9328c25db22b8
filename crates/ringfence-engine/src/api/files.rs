//! Files of a workspace, accessed from outside: a namespace's own, or a session's. Every operation is recorded, has the
//! workspace to itself or shares it as a run would, and follows no link.

use super::NamespaceAccess;
use crate::{
    changes::kind_of,
    disk_quota::{DiskQuota, DiskUse},
    error::Result,
    events::now_ms,
    record::hex,
    services::Services,
    session,
    store::{blocking, fault},
    workspace_error,
    workspaces::{FILE_BYTES_MAX, Use, WorkspaceLease, WorkspaceRef, write_error},
};
use ringfence_jail::harvest;
use ringfence_redact::Redactor;
use ringfence_store::{
    audit::Action,
    snapshots::Source,
    tree::{self, AsOwner, Bounds, ListBounds, TreeError},
};
use ringfence_types::{Namespace, RequestError, SessionId, WorkspaceMode, WorkspacePath, WorkspaceSource};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

const LIST_BOUNDS: ListBounds = ListBounds {
    walk: Bounds {
        entries: 10_000,
        depth: 64,
    },
    hashed_bytes: 256 << 20,
};
/// Limits of making closed directories accessible again before an operation.
const REOPENED: harvest::Bounds = harvest::Bounds {
    entries: 1 << 20,
    depth: 256,
    time: Duration::from_secs(10),
};

#[derive(Clone, Debug, Serialize)]
pub struct FileFacts {
    /// Relative to the workspace; bytes that are not UTF-8 become U+FFFD.
    pub path: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    pub size_bytes: u64,
    /// Permissions, as 0644.
    pub mode: String,
    pub modified_unix_ms: i64,
    /// SHA-256 of the content, lower-case hex; none for a file larger than a listing reads, or not a plain file.
    pub sha256: Option<String>,
}

pub(super) struct OpenWorkspace {
    pub(crate) root: OwnedFd,
    /// Applied to all that leaves the workspace.
    pub(crate) redactor: Redactor,
    pub(crate) source: Source,
    pub(crate) quota: DiskQuota,
    held: Held,
}

struct Held {
    access: Use,
    turn: Option<session::Turn>,
    lease: WorkspaceLease,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.access != Use::Read
            && let Some(turn) = &self.turn
        {
            turn.session.reset_baseline();
        }
    }
}

impl OpenWorkspace {
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) fn lock_for_writing(&self) -> io::Result<Option<File>> {
        self.held.lease.lock_for_writing()
    }

    fn put(&self, path: &WorkspacePath, bytes: &[u8]) -> Result<()> {
        let _alone = self.lock_for_writing().map_err(fault)?;
        self.quota.check(self.root(), &[(path, bytes.len() as u64)])?;
        let put = tree::put(self.root(), path, bytes, None, FILE_BYTES_MAX);
        put.map_err(|error| self.write_error(error))
    }

    pub(crate) fn write_error(&self, error: TreeError) -> RequestError {
        write_error(error, &self.held.lease)
    }
}

/// Opens a workspace, after conflicting users have left it.
pub(super) async fn open(
    services: &Arc<Services>,
    namespace: &Namespace,
    target: &WorkspaceRef,
    access: Use,
) -> Result<OpenWorkspace> {
    let turn = match target {
        WorkspaceRef::Namespace => None,
        WorkspaceRef::Session(id) => Some(services.sessions.find(namespace, id)?.turn_soon().await?),
    };
    let session = turn.as_ref().map(|turn| &turn.session);
    let workspace = session.map_or(&WorkspaceSource::Namespace, |session| &session.workspace);
    // Another session of the namespace may have left its secrets there, and this session may have older values.
    let own = session.map_or(&[][..], |session| &session.lease.secrets);
    let redactor = services.secrets.redactor_of_all(namespace, own).await?;
    if let WorkspaceSource::Host { mode, .. } = workspace {
        check_shared(*mode, access)?;
    }
    if *workspace == WorkspaceSource::Namespace && access != Use::Read {
        services.disk.check(namespace).await?;
    }
    let lease = services
        .workspaces
        .acquire_for(namespace, workspace, access)
        .await?;
    let mut root = lease.open(session.map(|session| &session.dirs))?;
    if !matches!(workspace, WorkspaceSource::Host { .. }) {
        // A workspace of the server: closed directories in it are made accessible again.
        let reopen = move || {
            let acting = AsOwner::of(root.as_fd()).map_err(workspace_error::of_tree)?;
            harvest::open_closed_directories(root.as_fd(), REOPENED);
            drop(acting);
            Ok::<_, RequestError>(root)
        };
        root = blocking(reopen).await??;
    }
    let source = match (workspace, target) {
        (WorkspaceSource::Namespace, _) | (_, WorkspaceRef::Namespace) => Source::Namespace,
        (_, WorkspaceRef::Session(id)) => Source::Session(id.to_string()),
    };
    let quota = match session {
        Some(session) => session.quota(),
        None => {
            // The limits of the namespace's programs by default.
            let (limits, _) = services.policy.limits_of(namespace);
            DiskQuota::of(workspace, &limits, DiskUse::default())
        }
    };
    Ok(OpenWorkspace {
        root,
        redactor,
        source,
        quota,
        held: Held { access, turn, lease },
    })
}

fn check_shared(mode: WorkspaceMode, access: Use) -> Result<()> {
    let refuse = |what: &str, hint: &str| Err(RequestError::denied(what, hint));
    match (mode, access) {
        (WorkspaceMode::Rw, Use::Read | Use::Write) | (WorkspaceMode::Ro, Use::Read) => Ok(()),
        (WorkspaceMode::Rw, Use::Replace) => refuse(
            "the session works in a directory that it shares with others; a snapshot cannot replace it.",
            "End the session, and restore the workspace of the namespace.",
        ),
        (WorkspaceMode::Ro, _) => refuse(
            "the session's workspace is read-only.",
            "Use a session with a private workspace.",
        ),
        (WorkspaceMode::Overlay, _) => refuse(
            "the session's workspace is an overlay: only its own program sees the files as they are.",
            "`diff_workspace` tells what has changed; `execute_code` in the session reads and writes.",
        ),
    }
}

/// Access to one workspace. No link in it is followed, and secrets that its programs could have are redacted.
#[derive(Clone, Debug)]
pub struct WorkspaceAccess<'a> {
    pub(super) of: NamespaceAccess<'a>,
    pub(super) workspace: WorkspaceRef,
    pub(super) bytes_max: u64,
}

impl<'a> NamespaceAccess<'a> {
    /// Returns access to the workspace of this namespace, or of one of its sessions.
    pub fn workspace(self, session: Option<SessionId>) -> WorkspaceAccess<'a> {
        WorkspaceAccess {
            of: self,
            workspace: session.map_or(WorkspaceRef::Namespace, WorkspaceRef::Session),
            bytes_max: FILE_BYTES_MAX,
        }
    }
}

impl WorkspaceAccess<'_> {
    /// Limits answers to this many bytes.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> Self {
        let bytes_max = bytes_max.min(FILE_BYTES_MAX);
        Self { bytes_max, ..self }
    }

    /// Writes a file, whole or not at all, and creates missing parent directories. At most 64 MiB.
    pub async fn put_file(&self, path: &WorkspacePath, bytes: Vec<u8>) -> Result<FileFacts> {
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let details = json!({"path": path, "bytes": bytes.len(), "sha256": hex(&digest)});
        let path = path.clone();
        let put = self.with(Use::Write, move |opened| {
            opened.put(&path, &bytes)?;
            Ok(FileFacts {
                path: path.to_string(),
                kind: "file",
                size_bytes: bytes.len() as u64,
                mode: "0644".to_owned(),
                modified_unix_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
                sha256: Some(hex(&digest)),
            })
        });
        self.change(Action::FilePut, details, put, |_, _| ()).await
    }

    /// Reads a file, without the secrets that its workspace's programs could have. At most 64 MiB.
    pub async fn get_file(&self, path: &WorkspacePath) -> Result<(FileFacts, Vec<u8>)> {
        let details = json!({"path": path});
        let (path, bytes_max) = (path.clone(), self.bytes_max);
        let read = self.with(Use::Read, move |opened| {
            let got = tree::get(opened.root(), &path, bytes_max).map_err(read_error)?;
            let bytes = opened.redactor.bytes(&got.bytes).into_owned();
            let digest = Sha256::digest(&bytes).into();
            let mut facts = facts(&got.entry, Some(digest), opened);
            facts.size_bytes = bytes.len() as u64;
            Ok((facts, bytes))
        });
        self.read(details, read).await
    }

    /// Lists the entries below a directory of the workspace, or all.
    pub async fn list_files(&self, below: Option<&WorkspacePath>) -> Result<Vec<FileFacts>> {
        self.of.called("list_files").await?;
        let below = below.cloned();
        let listed = self.with(Use::Read, move |opened| {
            let listed = tree::list(opened.root(), below.as_ref(), LIST_BOUNDS);
            let listed = listed.map_err(workspace_error::of_tree)?;
            Ok(listed
                .iter()
                .map(|one| facts(&one.entry, one.sha256, opened))
                .collect())
        });
        listed.await
    }

    /// Runs an operation on its own thread, because a disk may be slow. Errors are redacted: a program chooses names.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        access: Use,
        act: impl FnOnce(&OpenWorkspace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let opened = open(self.of.services, self.of.namespace, &self.workspace, access).await?;
        let act = move || act(&opened).map_err(|error| clean(error, &opened.redactor));
        blocking(act).await?
    }

    /// Makes a change, recorded before it is made, and after it, with its outcome.
    pub(super) async fn change<T>(
        &self,
        action: Action,
        details: Value,
        act: impl Future<Output = Result<T>>,
        done: impl FnOnce(&T, &mut Value),
    ) -> Result<T> {
        let note = self.of.note(action, self.details(details));
        self.of.services.record.around(note, act, done).await
    }

    pub(super) async fn read<T>(&self, details: Value, act: impl Future<Output = Result<T>>) -> Result<T> {
        let read = act.await;
        self.of.read(Action::FileRead, self.details(details), read).await
    }

    fn details(&self, mut details: Value) -> Value {
        details["of"] = json!(match &self.workspace {
            WorkspaceRef::Namespace => "namespace",
            WorkspaceRef::Session(id) => id.as_str(),
        });
        details
    }
}

fn facts(entry: &tree::TreeEntry, sha256: Option<[u8; 32]>, opened: &OpenWorkspace) -> FileFacts {
    let tree::Timestamp(seconds, nanoseconds) = entry.mtime;
    FileFacts {
        path: opened.redactor.text(&entry.path.to_string_lossy()).into_owned(),
        kind: kind_of(&entry.kind),
        size_bytes: entry.size,
        mode: format!("{:04o}", entry.mode),
        modified_unix_ms: seconds
            .saturating_mul(1000)
            .saturating_add(i64::from(nanoseconds / 1_000_000)),
        sha256: sha256.map(|digest| hex(&digest)),
    }
}

/// Redacts a refusal, which may contain names that a program chose.
pub(super) fn clean(mut refusal: RequestError, redactor: &Redactor) -> RequestError {
    refusal.message = redactor.text(&refusal.message).into_owned();
    refusal
}

fn read_error(error: TreeError) -> RequestError {
    let hint = match &error {
        TreeError::TooLarge { .. } => {
            "One answer has no more. Let a program make it an artifact (a file in $RINGFENCE_OUTPUT_DIR), or read it in parts."
        }
        TreeError::Refused { what, .. } if *what == tree::NOT_REGULAR => {
            "Only plain files are read; of a directory `archive: true` gives all."
        }
        _ => return workspace_error::of_tree(error),
    };
    RequestError {
        hint: hint.into(),
        ..workspace_error::of_tree(error)
    }
}
