//! Changes that a program made to a directory of the host through an overlay. They stay in the sandbox's memory until
//! they are accepted or discarded. Accepting names their digest, so that only the changes that were shown are accepted.

use crate::{
    caller::Caller,
    changes::{Base, COMPARE, Difference, WALK},
    error::{Result, denial},
    record::{Note, Record},
    store::blocking,
    sync::lock,
    workspace_error,
    workspaces::WorkspaceLease,
};
use ringfence_redact::Redactor;
use ringfence_store::{
    audit::Action,
    tree::{Changes, CompareBounds, LowerState, TreeError, overlay},
};
use ringfence_types::{
    Denial, ErrorCode, ExecuteRequest, ExecutionResult, Namespace, RequestError, SessionId, WorkspaceMode,
    WorkspaceSource,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    any::Any,
    fmt,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// The rule of a denial that says that a run's changes cannot be read, and so cannot be accepted.
pub const UNTOLD: &str = "workspace.changes_untold";
const NAMED_MAX: usize = 20;

/// The directory of the host below an overlay, as it was opened before the program ran.
pub(crate) struct Lower {
    directory: PathBuf,
    opened: OwnedFd,
    /// Its state before the program ran.
    seen: Mutex<LowerState>,
}

impl Lower {
    /// Reads the state of the whole directory. An error means that changes to it could not be determined later.
    fn read(directory: PathBuf, opened: OwnedFd) -> Result<Self> {
        let seen = LowerState::of(opened.as_fd(), WALK).map_err(|error| {
            RequestError::invalid(
                format!(
                    "the changes to an overlay of {} could not be determined: {error}.",
                    directory.display()
                ),
                "Name a directory further down, or share this one `ro`.",
            )
        })?;
        Ok(Self {
            directory,
            opened,
            seen: Mutex::new(seen),
        })
    }

    fn commit(&self, upper: &OwnedFd, changes: &Changes) -> Result<overlay::Committed, TreeError> {
        let done = overlay::commit(upper.as_fd(), self.opened.as_fd(), changes)?;
        if let Err(error) = lock(&self.seen).record_committed(self.opened.as_fd(), changes) {
            tracing::warn!(%error, "what was committed will count as changed by the host");
        }
        Ok(done)
    }
}

/// Handling of a path that the host has also changed since the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflicts {
    /// Nothing is written.
    #[default]
    Refuse,
    /// The host's version is overwritten.
    Overwrite,
}

#[derive(Clone, Debug)]
pub(crate) enum ChangeOrigin {
    Execution(String),
    /// A session, which makes no call as long as its changes are held.
    Session(SessionId),
}

pub(crate) struct OverlayLayers {
    pub(crate) lower: Arc<Lower>,
    /// Keeps the sandbox's disk alive.
    pub(crate) upper: OwnedFd,
}

/// Changes that are not accepted yet. Dropped, they are discarded.
pub struct HeldChanges {
    record: Record,
    namespace: Namespace,
    of: ChangeOrigin,
    lower: Arc<Lower>,
    upper: OwnedFd,
    changes: Changes,
    difference: Difference,
    /// The turn of their session, which keeps it from its next call.
    pub(crate) turn: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for HeldChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldChanges")
            .field("of", &self.of)
            .field("directory", &self.lower.directory)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct CommittedChanges {
    /// Files, links and directories written.
    pub written: usize,
    pub deleted: usize,
    /// Special files, which are never written. The first twenty.
    pub skipped: Vec<String>,
    /// Directories that were to be deleted but are not empty. The first twenty.
    pub kept: Vec<String>,
    /// Paths that the host changed meanwhile, which were not written. The first twenty.
    pub conflicts: Vec<String>,
}

impl HeldChanges {
    /// Reads the changes after the program's end or in a session's turn. If they change then, a commit writes nothing.
    pub(crate) async fn read(
        record: &Record,
        namespace: &Namespace,
        of: ChangeOrigin,
        layers: OverlayLayers,
        redactor: Redactor,
    ) -> Result<Self> {
        let OverlayLayers { lower, upper } = layers;
        let read = move || {
            let bounds = CompareBounds {
                redact: &|text| redactor.text(text),
                ..COMPARE
            };
            let mut changes = overlay::read(upper.as_fd(), lower.opened.as_fd(), WALK, bounds)?;
            lock(&lower.seen).flag(&mut changes);
            let difference = Difference::of(Base::Directory, &changes.list, &redactor);
            Ok((lower, upper, changes, difference))
        };
        let read = blocking(read).await?;
        let (lower, upper, changes, difference) = read.map_err(workspace_error::of_tree)?;
        Ok(Self {
            record: record.clone(),
            namespace: namespace.clone(),
            of,
            lower,
            upper,
            changes,
            difference,
            turn: None,
        })
    }

    pub fn difference(&self) -> &Difference {
        &self.difference
    }

    pub fn directory(&self) -> &std::path::Path {
        &self.lower.directory
    }

    /// Returns the token that identifies exactly these changes.
    pub fn token(&self) -> String {
        self.changes.token()
    }

    /// Refuses files that the host may later run and whose content was cut from the difference.
    fn check_whole(&self) -> Result<()> {
        let flagged = self.changes.list.iter().filter(|change| !change.risks.is_empty());
        let count = flagged
            .filter(|change| change.cut && change.new.is_some())
            .count();
        if count == 0 {
            return Ok(());
        }
        Err(RequestError::denied(
            format!(
                "the host may later run {count} of the files for {} whose changes could not be shown in full.",
                self.lower.directory.display()
            ),
            "Have the script change fewer of the flagged files at a time, or pack those that it makes into an archive.",
        ))
    }

    pub fn check_shown(&self) -> Result<()> {
        if !self.difference.truncated {
            return self.check_whole();
        }
        Err(RequestError::denied(
            format!(
                "not all of the {} changes to {} could be shown.",
                self.changes.list.len(),
                self.lower.directory.display()
            ),
            "Have the script change fewer files at a time, or pack those that it makes into an archive.",
        ))
    }

    fn check_conflicts(&self) -> Result<()> {
        let conflicts = &self.difference.conflicts;
        if conflicts.is_empty() {
            return Ok(());
        }
        let named: Vec<&str> = conflicts.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = if conflicts.len() > NAMED_MAX {
            ", and more"
        } else {
            ""
        };
        Err(RequestError::new(
            ErrorCode::Conflict,
            format!(
                "the host has changed {} of these in {} since the program began: {}{more}; nothing was written.",
                conflicts.len(),
                self.lower.directory.display(),
                named.join(", ")
            ),
            "Run it again on what is there now, or accept with --overwrite that the host's version is lost.",
        ))
    }

    /// Writes to the host's directory the changes that the token names, all of which were shown, and only over the
    /// state in which they were read. It is on record before it is done, and again with its outcome.
    pub async fn commit(
        self,
        caller: &Caller,
        token: &str,
        conflicts: Conflicts,
    ) -> Result<CommittedChanges> {
        if token != self.token() {
            return Err(RequestError::denied(
                "the token names other changes than these.",
                "Look at the changes again, and accept what you see.",
            ));
        }
        self.check_shown()?;
        if conflicts == Conflicts::Refuse {
            self.check_conflicts()?;
        }
        let (record, namespace, of) = (self.record.clone(), self.namespace.clone(), self.of.clone());
        let mut details = json!({"directory": self.lower.directory, "changes": token});
        if !self.difference.conflicts.is_empty() {
            details["overwritten"] = json!(self.difference.conflicts.len());
        }
        let execution_id = match &of {
            ChangeOrigin::Execution(id) => Some(id.as_str()),
            ChangeOrigin::Session(id) => {
                details["session"] = json!(id);
                None
            }
        };
        let note =
            Note::of(caller, &namespace, Action::WorkspaceCommitted, details).of_execution(execution_id);
        let write = async {
            let write = move || self.lower.commit(&self.upper, &self.changes);
            blocking(write).await?.map_err(workspace_error::of_tree)
        };
        let counts = |done: &overlay::Committed, details: &mut Value| {
            details["written"] = json!(done.written);
            details["deleted"] = json!(done.deleted);
            if !done.conflicts.is_empty() {
                details["conflicts"] = json!(done.conflicts.len());
            }
        };
        let done = record.around(note, write, counts).await?;
        let names = |paths: &[PathBuf]| {
            let named = paths.iter().take(NAMED_MAX);
            named.map(|path| path.to_string_lossy().into_owned()).collect()
        };
        Ok(CommittedChanges {
            written: done.written,
            deleted: done.deleted,
            skipped: names(&done.skipped),
            kept: names(&done.kept),
            conflicts: names(&done.conflicts),
        })
    }
}

/// Opens the directory below an overlay, if any. One whose changes could not be read later is refused before the start.
pub(crate) async fn lower_of(workspace: &WorkspaceLease) -> Result<Option<Arc<Lower>>> {
    let shared = workspace.shared.as_ref();
    let Some(shared) = shared.filter(|shared| shared.mode == WorkspaceMode::Overlay) else {
        return Ok(None);
    };
    let (directory, opened) = (shared.directory.path.clone(), workspace.open(None)?);
    let lower = blocking(move || Lower::read(directory, opened)).await??;
    Ok(Some(Arc::new(lower)))
}

/// True if a run has written to an overlay and its changes are not held: its files are then kept as artifacts only.
pub(crate) fn is_dropped(request: &ExecuteRequest, result: &ExecutionResult) -> bool {
    let is_overlay =
        matches!(&request.workspace, WorkspaceSource::Host { mode, .. } if *mode == WorkspaceMode::Overlay);
    is_overlay && result.session_id.is_none() && !result.artifacts.is_empty()
}

pub(crate) fn not_kept() -> Denial {
    denial(
        "workspace.overlay",
        "workspace",
        "its changes are no longer in the workspace: an overlay ends with its run",
        "A session keeps it (`create_session` with this `workspace`); the operator accepts it with `ringfence session commit`.",
    )
}

/// The denial for a program that has run, but whose changes cannot be read.
pub(crate) fn unreadable(why: &str) -> Denial {
    let what =
        format!("the changes of this run to its overlay cannot be read, so none can be accepted: {why}");
    denial(
        UNTOLD,
        "workspace",
        what,
        "Have the script leave less in the workspace.",
    )
}
