//! Files of a workspace, seen from outside: a namespace's own, or a session's. Every operation is on record, has the
//! workspace to itself or shares it as a run would, and follows no link.

use super::Engine;
use crate::{
    caller::Caller,
    disk_quota::{DiskUse, Room},
    events::now_ms,
    policy,
    record::{Note, hex, outcome_of},
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
    tree::{self, Bounds, EntryKind, ListBounds, TreeError},
};
use ringfence_types::{
    ErrorCode, Limits, Namespace, RequestError, WorkspaceMode, WorkspacePath, WorkspaceSource,
};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
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
};

/// A file of a workspace.
#[derive(Clone, Debug, Serialize)]
pub struct FileFacts {
    /// Below the workspace; what is no UTF-8 in it is U+FFFD.
    pub path: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    /// Bytes.
    pub size_bytes: u64,
    /// Permissions, as 0644.
    pub mode: String,
    /// Unix time.
    pub modified_unix_ms: i64,
    /// Of the content, lower-case hex; none of what is no plain file, or more than a listing reads.
    pub sha256: Option<String>,
}

/// A workspace that is open for one operation.
pub(crate) struct OpenWorkspace {
    pub(crate) root: OwnedFd,
    /// What leaves passes it first.
    pub(crate) redactor: Redactor,
    /// Whose it is, for a snapshot.
    pub(crate) source: Source,
    /// How much it may have.
    pub(crate) room: Room,
    held: Held,
}

/// What keeps others out of it meanwhile.
struct Held {
    wish: Use,
    session: Option<session::Turn>,
    lent: WorkspaceLease,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.wish != Use::Read
            && let Some(turn) = &self.session
        {
            turn.live().look_again();
        }
    }
}

impl OpenWorkspace {
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Keeps other writers out where the workspace is shared; none: a private workspace is its session's.
    pub(crate) fn one_by_one(&self) -> io::Result<Option<Writing<'_>>> {
        self.held.lent.turn().map(WorkspaceTurn::one_by_one).transpose()
    }

    fn put(&self, path: &WorkspacePath, bytes: &[u8]) -> Result<(), RequestError> {
        let _alone = self.one_by_one().map_err(|error| fault(error.to_string()))?;
        self.room.check(self.root(), &[(path, bytes.len() as u64)])?;
        let put = tree::put(self.root(), path, bytes, None, FILE_BYTES_MAX);
        put.map_err(|error| self.unwritten(&error))
    }

    pub(crate) fn unwritten(&self, error: &TreeError) -> RequestError {
        unwritten(error, &self.held.lent)
    }
}

/// What is done with a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    Replace,
}

/// Opens a workspace, once those who are in its way have left it.
pub(crate) async fn open(
    services: &Arc<Services>,
    namespace: &Namespace,
    whose: &WorkspaceRef,
    wish: Use,
) -> Result<OpenWorkspace, RequestError> {
    let wanted = if wish == Use::Replace {
        Wanted::Alone
    } else {
        Wanted::Shared
    };
    let session = match whose {
        WorkspaceRef::Namespace => None,
        WorkspaceRef::Session(id) => Some(services.sessions.find(namespace, id)?.turn_soon().await?),
    };
    let live = session.as_ref().map(session::Turn::live);
    let workspace = live.map_or(&WorkspaceSource::Namespace, |live| &live.workspace);
    // Another session of the namespace may have left its secrets there, and this one may have those of yesterday.
    let own = live.map_or(&[][..], |live| &live.lease.secrets);
    let redactor = services.secrets.redactor_of_all(namespace, own).await?;
    if let WorkspaceSource::Host { mode, .. } = workspace {
        check_shared(*mode, wish)?;
    }
    if *workspace == WorkspaceSource::Namespace && wish != Use::Read {
        services.disk.check(namespace).await?;
    }
    let lent = services
        .workspaces
        .acquire_for(namespace, workspace, wanted)
        .await?;
    let mut root = lent.open(live.map(|live| &live.dirs))?;
    if !matches!(workspace, WorkspaceSource::Host { .. }) {
        root = reopened(root).await?;
    }
    let source = match (workspace, whose) {
        (WorkspaceSource::Namespace, _) | (_, WorkspaceRef::Namespace) => Source::Namespace,
        (_, WorkspaceRef::Session(id)) => Source::Session(id.to_string()),
    };
    let room = match live {
        Some(live) => live.room(),
        None => Room::of(workspace, &usual_limits(services, namespace), DiskUse::default()),
    };
    Ok(OpenWorkspace {
        root,
        redactor,
        source,
        room,
        held: Held { wish, session, lent },
    })
}

fn check_shared(mode: WorkspaceMode, wish: Use) -> Result<(), RequestError> {
    let refuse = |what: &str, hint: &str| Err(RequestError::new(ErrorCode::PolicyDenied, what, hint));
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

/// A workspace that is ours, with every directory in it open to us again.
async fn reopened(root: OwnedFd) -> Result<OwnedFd, RequestError> {
    let reopen = move || {
        harvest::open_closed_directories(root.as_fd(), REOPENED);
        root
    };
    blocking(reopen).await
}

impl Engine {
    /// Writes a file, whole or not at all; the directories above it are made.
    pub async fn put_file(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        whose: &WorkspaceRef,
        path: &WorkspacePath,
        bytes: Vec<u8>,
    ) -> Result<FileFacts, RequestError> {
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let details = json!({"path": path, "bytes": bytes.len(), "sha256": hex(&digest), "of": of(whose)});
        let put = self.in_workspace(namespace, whose, Use::Write, {
            let path = path.clone();
            move |opened| {
                opened.put(&path, &bytes)?;
                Ok(FileFacts {
                    path: path.to_string(),
                    kind: "file",
                    size_bytes: bytes.len() as u64,
                    mode: "0644".to_owned(),
                    modified_unix_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
                    sha256: Some(hex(&digest)),
                })
            }
        });
        let note = Note::of(caller, namespace.as_str(), Action::FilePut, details);
        self.services().record.around(note, put, |_, _| ()).await
    }

    /// Reads a file: without the secrets that its workspace's programs could have.
    pub async fn get_file(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        whose: &WorkspaceRef,
        path: &WorkspacePath,
        bytes_max: u64,
    ) -> Result<(FileFacts, Vec<u8>), RequestError> {
        let wanted = path.clone();
        let read = self.in_workspace(namespace, whose, Use::Read, move |opened| {
            let most = bytes_max.min(FILE_BYTES_MAX);
            let got = tree::get(opened.root(), &wanted, most).map_err(|error| unread(&error))?;
            let bytes = opened.redactor.bytes(&got.bytes).into_owned();
            let digest = Sha256::digest(&bytes).into();
            let mut facts = facts(&got.entry, Some(digest), opened);
            facts.size_bytes = bytes.len() as u64;
            Ok((facts, bytes))
        });
        let read = read.await;
        let details = json!({"path": path, "of": of(whose)});
        let note = Note::of(caller, namespace.as_str(), Action::FileRead, details);
        self.note(note.ended(outcome_of(&read))).await?;
        read
    }

    /// What is below a directory of a workspace, or in all of it.
    pub async fn list_files(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        whose: &WorkspaceRef,
        below: Option<&WorkspacePath>,
    ) -> Result<Vec<FileFacts>, RequestError> {
        self.note_call(caller, namespace.as_str(), "list_files").await?;
        let below = below.cloned();
        let listed = self.in_workspace(namespace, whose, Use::Read, move |opened| {
            let listed = tree::list(opened.root(), below.as_ref(), LIST_BOUNDS);
            let listed = listed.map_err(|error| workspace_error::of_tree(&error))?;
            Ok(listed
                .iter()
                .map(|one| facts(&one.entry, one.sha256, opened))
                .collect())
        });
        listed.await
    }

    /// On a thread of its own, because a disk may take its time.
    pub(crate) async fn in_workspace<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        whose: &WorkspaceRef,
        wish: Use,
        act: impl FnOnce(&OpenWorkspace) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let opened = open(self.services(), namespace, whose, wish).await?;
        let act = move || act(&opened).map_err(|error| clean(error, &opened.redactor));
        blocking(act).await?
    }
}

/// As it stands on record.
pub(crate) fn of(whose: &WorkspaceRef) -> &str {
    match whose {
        WorkspaceRef::Namespace => "namespace",
        WorkspaceRef::Session(id) => id.as_str(),
    }
}

fn facts(entry: &tree::TreeEntry, sha256: Option<[u8; 32]>, opened: &OpenWorkspace) -> FileFacts {
    let tree::Timestamp(seconds, nanoseconds) = entry.mtime;
    FileFacts {
        path: opened.redactor.text(&entry.path.to_string_lossy()).into_owned(),
        kind: match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link(_) => "link",
            EntryKind::Whiteout | EntryKind::Other => "other",
        },
        size_bytes: entry.size,
        mode: format!("{:04o}", entry.mode),
        modified_unix_ms: seconds
            .saturating_mul(1000)
            .saturating_add(i64::from(nanoseconds / 1_000_000)),
        sha256: sha256.map(|digest| hex(&digest)),
    }
}

/// Names in a refusal are a program's words.
pub(crate) fn clean(mut refusal: RequestError, redactor: &Redactor) -> RequestError {
    refusal.message = redactor.text(&refusal.message).into_owned();
    refusal
}

/// What is too large to be given in one answer, or is no file.
fn unread(error: &TreeError) -> RequestError {
    let refused = workspace_error::of_tree(error);
    let hint = match error {
        TreeError::TooLarge { .. } => {
            "One answer has no more. Let a program make it an artifact (a file in $RINGFENCE_OUTPUT_DIR), or read it in parts."
        }
        TreeError::Refused { what, .. } if *what == tree::NO_FILE => {
            "Only plain files are read; of a directory `archive: true` gives all."
        }
        _ => return refused,
    };
    RequestError {
        hint: hint.into(),
        ..refused
    }
}

/// What a namespace's programs have that ask for nothing.
fn usual_limits(services: &Services, namespace: &Namespace) -> Limits {
    policy::limits_of(&services.policy.current(), &services.policy.own_limits(namespace)).0
}
