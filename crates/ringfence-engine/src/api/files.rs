//! Files of a workspace, seen from outside: a namespace's own, or a session's. Every operation is on record, has the
//! workspace to itself or shares it as a run would, and follows no link.

use super::NamespaceAccess;
use crate::{
    changes::kind_of,
    disk_quota::{DiskUse, Room},
    error::Result,
    events::now_ms,
    record::hex,
    services::Services,
    session,
    store::{blocking, fault},
    workspace_error,
    workspaces::{FILE_BYTES_MAX, Wanted, WorkspaceLease, WorkspaceRef, WorkspaceTurn, Writing, unwritten},
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
/// What is opened again before it is looked at.
const REOPENED: harvest::Bounds = harvest::Bounds {
    entries: 1 << 20,
    depth: 256,
    time: Duration::from_secs(10),
};

#[derive(Clone, Debug, Serialize)]
pub struct FileFacts {
    /// Below the workspace; what is no UTF-8 in it is U+FFFD.
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

/// A workspace that is open for one operation.
pub(super) struct OpenWorkspace {
    pub(crate) root: OwnedFd,
    /// What leaves passes it first.
    pub(crate) redactor: Redactor,
    pub(crate) source: Source,
    /// How much it may have.
    pub(crate) room: Room,
    held: Held,
}

/// What keeps others out of it meanwhile.
struct Held {
    wish: Use,
    turn: Option<session::Turn>,
    lease: WorkspaceLease,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.wish != Use::Read
            && let Some(turn) = &self.turn
        {
            turn.session.look_again();
        }
    }
}

impl OpenWorkspace {
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Keeps other writers out where the workspace is shared; none: a private workspace is its session's.
    pub(crate) fn one_by_one(&self) -> io::Result<Option<Writing<'_>>> {
        self.held.lease.turn().map(WorkspaceTurn::one_by_one).transpose()
    }

    fn put(&self, path: &WorkspacePath, bytes: &[u8]) -> Result<()> {
        let _alone = self.one_by_one().map_err(fault)?;
        self.room.check(self.root(), &[(path, bytes.len() as u64)])?;
        let put = tree::put(self.root(), path, bytes, None, FILE_BYTES_MAX);
        put.map_err(|error| self.unwritten(error))
    }

    pub(crate) fn unwritten(&self, error: TreeError) -> RequestError {
        unwritten(error, &self.held.lease)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    Replace,
}

/// Opens a workspace, once those who are in its way have left it.
pub(super) async fn open(
    services: &Arc<Services>,
    namespace: &Namespace,
    whose: &WorkspaceRef,
    wish: Use,
) -> Result<OpenWorkspace> {
    let wanted = match wish {
        Use::Replace => Wanted::Alone,
        Use::Read | Use::Write => Wanted::Shared,
    };
    let turn = match whose {
        WorkspaceRef::Namespace => None,
        WorkspaceRef::Session(id) => Some(services.sessions.find(namespace, id)?.turn_soon().await?),
    };
    let session = turn.as_ref().map(|turn| &turn.session);
    let workspace = session.map_or(&WorkspaceSource::Namespace, |session| &session.workspace);
    // Another session of the namespace may have left its secrets there, and this one may have those of yesterday.
    let own = session.map_or(&[][..], |session| &session.lease.secrets);
    let redactor = services.secrets.redactor_of_all(namespace, own).await?;
    if let WorkspaceSource::Host { mode, .. } = workspace {
        check_shared(*mode, wish)?;
    }
    if *workspace == WorkspaceSource::Namespace && wish != Use::Read {
        services.disk.check(namespace).await?;
    }
    let lease = services
        .workspaces
        .acquire_for(namespace, workspace, wanted)
        .await?;
    let mut root = lease.open(session.map(|session| &session.dirs))?;
    if !matches!(workspace, WorkspaceSource::Host { .. }) {
        // One that is ours, with every directory in it open to us again.
        let reopen = move || {
            let acting = AsOwner::of(root.as_fd()).map_err(workspace_error::of_tree)?;
            harvest::open_closed_directories(root.as_fd(), REOPENED);
            drop(acting);
            Ok::<_, RequestError>(root)
        };
        root = blocking(reopen).await??;
    }
    let source = match (workspace, whose) {
        (WorkspaceSource::Namespace, _) | (_, WorkspaceRef::Namespace) => Source::Namespace,
        (_, WorkspaceRef::Session(id)) => Source::Session(id.to_string()),
    };
    let room = match session {
        Some(session) => session.room(),
        None => {
            // What the namespace's programs have that ask for nothing.
            let (limits, _) = services.policy.limits_of(namespace);
            Room::of(workspace, &limits, DiskUse::default())
        }
    };
    Ok(OpenWorkspace {
        root,
        redactor,
        source,
        room,
        held: Held { wish, turn, lease },
    })
}

fn check_shared(mode: WorkspaceMode, wish: Use) -> Result<()> {
    let refuse = |what: &str, hint: &str| Err(RequestError::denied(what, hint));
    match (mode, wish) {
        (WorkspaceMode::Rw, Use::Read | Use::Write) | (WorkspaceMode::Ro, Use::Read) => Ok(()),
        (WorkspaceMode::Rw, Use::Replace) => refuse(
            "the session works in a directory that it shares with others, which no snapshot replaces.",
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

/// One workspace. No link in it is followed, and what leaves has no secret in it that its programs could have.
#[derive(Clone, Debug)]
pub struct WorkspaceAccess<'a> {
    pub(super) of: NamespaceAccess<'a>,
    pub(super) whose: WorkspaceRef,
    /// The most that one answer has.
    pub(super) bytes_max: u64,
}

impl<'a> NamespaceAccess<'a> {
    /// The workspace of this namespace, or of one of its sessions.
    pub fn workspace(self, session: Option<SessionId>) -> WorkspaceAccess<'a> {
        WorkspaceAccess {
            of: self,
            whose: session.map_or(WorkspaceRef::Namespace, WorkspaceRef::Session),
            bytes_max: FILE_BYTES_MAX,
        }
    }
}

impl WorkspaceAccess<'_> {
    /// The same with answers of so many bytes at most.
    #[must_use]
    pub fn giving(self, bytes_max: u64) -> Self {
        let bytes_max = bytes_max.min(FILE_BYTES_MAX);
        Self { bytes_max, ..self }
    }

    /// Writes a file, whole or not at all; the directories above it are made. At most 64 MiB.
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

    /// Reads a file: without the secrets that its workspace's programs could have. At most 64 MiB.
    pub async fn get_file(&self, path: &WorkspacePath) -> Result<(FileFacts, Vec<u8>)> {
        let details = json!({"path": path});
        let (path, most) = (path.clone(), self.bytes_max);
        let read = self.with(Use::Read, move |opened| {
            let got = tree::get(opened.root(), &path, most).map_err(unread)?;
            let bytes = opened.redactor.bytes(&got.bytes).into_owned();
            let digest = Sha256::digest(&bytes).into();
            let mut facts = facts(&got.entry, Some(digest), opened);
            facts.size_bytes = bytes.len() as u64;
            Ok((facts, bytes))
        });
        self.read(details, read).await
    }

    /// What is below a directory of the workspace, or in all of it.
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

    /// On a thread of its own, because a disk may take its time. Names in a refusal are a program's words.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        wish: Use,
        act: impl FnOnce(&OpenWorkspace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let opened = open(self.of.services, self.of.namespace, &self.whose, wish).await?;
        let act = move || act(&opened).map_err(|error| clean(error, &opened.redactor));
        blocking(act).await?
    }

    /// Changes something: it is on record before it is done, and after, with its outcome.
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

    /// Reads something: it is on record before it is answered.
    pub(super) async fn read<T>(&self, details: Value, act: impl Future<Output = Result<T>>) -> Result<T> {
        let read = act.await;
        self.of.read(Action::FileRead, self.details(details), read).await
    }

    fn details(&self, mut details: Value) -> Value {
        details["of"] = json!(match &self.whose {
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

/// Names in a refusal are a program's words.
pub(super) fn clean(mut refusal: RequestError, redactor: &Redactor) -> RequestError {
    refusal.message = redactor.text(&refusal.message).into_owned();
    refusal
}

/// What is too large to be given in one answer, or is no file.
fn unread(error: TreeError) -> RequestError {
    let hint = match &error {
        TreeError::TooLarge { .. } => {
            "One answer has no more. Let a program make it an artifact (a file in $RINGFENCE_OUTPUT_DIR), or read it in parts."
        }
        TreeError::Refused { what, .. } if *what == tree::NO_FILE => {
            "Only plain files are read; of a directory `archive: true` gives all."
        }
        _ => return workspace_error::of_tree(error),
    };
    RequestError {
        hint: hint.into(),
        ..workspace_error::of_tree(error)
    }
}
