//! The directories behind `/workspace` that outlive a run. Each namespace has one that the server keeps; the operator
//! may have listed others. Runs share the workspace of the namespace; a restore of a snapshot has it exclusively.

use crate::{
    backend::SandboxDirs,
    disk::Disk,
    disk_quota::DiskUse,
    error::{self, Result},
    policy::Grant,
    runtimes,
    sandbox::Sandboxes,
    store::{blocking, fault},
    workspace_error,
};
use ringfence_jail::{HostWorkspace, Known, Pinned, Quota, harvest};
use ringfence_store::{
    FileError, make_own_directory,
    snapshots::{SnapshotError, SnapshotStore},
    tree::{AsOwner, TreeError},
};
use ringfence_types::{Namespace, RequestError, SessionId, Tier, WorkspaceMode, WorkspaceSource};
use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

const DIRECTORY: &str = "workspaces";
/// Most names read of one directory.
const NAMES_MAX: usize = 100_000;
/// Most namespaces that may have a workspace.
const NAMESPACES_MAX: usize = 10_000;
/// Time to wait for a workspace that others use.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of a lock, whose release is not signalled.
const POLL_EVERY: Duration = Duration::from_millis(10);

pub(crate) struct Workspaces {
    directory: PathBuf,
    /// Files that decide what is run and allowed.
    guarded: Vec<PathBuf>,
    sandboxes: Arc<Sandboxes>,
    disk: Arc<Disk>,
}

/// The purpose for which a workspace is opened. A snapshot that replaces it excludes all other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    Replace,
}

/// A lock on the workspace of a namespace, among the tasks of all servers of this user.
#[derive(Debug)]
pub(crate) struct WorkspaceTurn {
    directory: Pinned,
    root: OwnedFd,
    /// The lock file, opened for this turn alone; unlocked when it is closed. No program inherits it.
    _lock: File,
    /// The lock file of writers from outside the sandbox.
    writing: PathBuf,
}

/// A run's hold on the directory of the host behind its workspace.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceLease {
    pub(crate) shared: Option<HostWorkspace>,
    /// The one descriptor by which the server reads and writes that directory, and finds it again.
    root: Option<OwnedFd>,
    turn: Option<WorkspaceTurn>,
}

impl WorkspaceLease {
    /// True if its files stay in place after the run.
    pub(crate) fn stays(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.mode == WorkspaceMode::Rw)
    }

    /// Returns the directory itself rather than the sandbox's view of it, in which files have other owners.
    fn root(&self) -> Option<BorrowedFd<'_>> {
        let own = self.turn.as_ref().map(|turn| &turn.root);
        own.or(self.root.as_ref()).map(AsFd::as_fd)
    }

    /// Returns a descriptor by which the server reads and writes the workspace; `private` is the sandbox's own.
    pub(crate) fn open(&self, private: Option<&SandboxDirs>) -> Result<OwnedFd> {
        let root = self.root().or(private.map(|dirs| dirs.changes.as_fd()));
        let root = root.ok_or_else(|| fault("there is no workspace"))?;
        root.try_clone_to_owned()
            .map_err(|error| fault(format!("the workspace cannot be opened: {error}")))
    }

    /// Returns the directory before the run, if the run's changes have to be distinguished from its content.
    pub(crate) fn baseline_root(&self) -> Option<BorrowedFd<'_>> {
        let overlaid = |shared: &HostWorkspace| shared.mode == WorkspaceMode::Overlay;
        self.root()
            .filter(|_| !self.shared.as_ref().is_some_and(overlaid))
    }

    /// Returns the names in its top directory; empty if it cannot be listed: then nothing can be imported from it.
    pub(crate) fn names(&self) -> HashSet<String> {
        let list = |root| {
            let _acting = AsOwner::of(root).ok()?;
            harvest::names(root, NAMES_MAX).ok()
        };
        let names = self.root().and_then(list).unwrap_or_default();
        names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    /// Returns the usage of a writable directory of the host before the run, to measure its growth.
    pub(crate) async fn found(&self) -> Result<DiskUse> {
        let (Some(root), true) = (&self.root, self.stays()) else {
            return Ok(DiskUse::default());
        };
        let root = root.try_clone().map_err(fault)?;
        // A directory that cannot be measured now cannot be measured later either: nothing is put there from outside.
        Ok(blocking(move || DiskUse::of(root.as_fd()))
            .await?
            .unwrap_or_default())
    }

    /// Excludes other writers of a shared workspace from outside, from checking the free space to the end of writing:
    /// a sandbox that measures it counts no half-written files. `None`: a private one has no writer but its session.
    pub(crate) fn lock_for_writing(&self) -> io::Result<Option<File>> {
        let Some(turn) = &self.turn else { return Ok(None) };
        let file = open_lock(&turn.writing)?;
        file.lock()?;
        Ok(Some(file))
    }
}

/// Opens a directory of the host. Its path had no symlink in it when the operator named it; one that is there now was
/// made by a program that may write to a parent directory.
fn open_host(private: &[PathBuf], directory: &Path) -> Result<(Pinned, OwnedFd)> {
    let refuse = |what: &str| {
        Err(RequestError::denied(
            format!("{} cannot be a workspace: {what}.", directory.display()),
            "Name a project directory by its real path, with no program's workspace above it.",
        ))
    };
    let opened = Pinned::open(directory).map_err(|error| {
        RequestError::invalid(
            format!("the workspace {} cannot be opened: {error}.", directory.display()),
            "Name a directory that the server may read.",
        )
    })?;
    let Some((pinned, root)) = opened else {
        return refuse("a link leads there");
    };
    // Compared by identity, since it may be mounted at other paths.
    if private
        .iter()
        .flat_map(|own| own.ancestors())
        .any(|own| pinned.is_at(own))
    {
        return refuse("the server keeps its record and its keys there");
    }
    Ok((pinned, root))
}

impl Workspaces {
    pub(crate) fn new(guarded: Vec<PathBuf>, disk: Arc<Disk>) -> Self {
        Self {
            directory: disk.sandboxes.state_dir.join(DIRECTORY),
            guarded,
            sandboxes: disk.sandboxes.clone(),
            disk,
        }
    }

    /// Waits for the lock, at most [`LOCK_TIMEOUT`]. The workspace is made when it is first used.
    pub(crate) async fn turn(&self, namespace: &Namespace, access: Use) -> Result<WorkspaceTurn> {
        let by = Instant::now() + LOCK_TIMEOUT;
        let unusable = |error: io::Error| unusable(namespace, &error);
        let files = self.make(namespace).map_err(unusable)?;
        // Closed while a restore waits, so that new runs do not pass it.
        acquire(&files.gate, namespace, access, by).await?;
        acquire(&files.lock, namespace, access, by).await?;
        drop(files.gate);
        let opened = Pinned::open(&files.directory).map_err(unusable)?;
        let (directory, root) = opened.ok_or_else(|| unusable(io::Error::other("a link leads there")))?;
        let root = match access {
            Use::Read | Use::Write => resume(&self.disk.snapshots, root).await?,
            // A restore of a snapshot begins with completing an interrupted one.
            Use::Replace => root,
        };
        Ok(WorkspaceTurn {
            directory,
            root,
            _lock: files.lock,
            writing: files.writing,
        })
    }

    /// Makes the directory and its lock files. No namespace begins with a dot.
    fn make(&self, namespace: &Namespace) -> io::Result<WorkspaceFiles> {
        let directory = self.directory.join(namespace.as_str());
        make_own_directory(&self.directory)?;
        if !directory.exists() && fs::read_dir(&self.directory)?.count() >= 4 * NAMESPACES_MAX {
            let many = format!("{NAMESPACES_MAX} namespaces have a workspace");
            return Err(io::Error::other(many));
        }
        ringfence_store::reclaim_own_directory(&directory)?;
        let beside = |name: &str| self.directory.join(format!(".{namespace}.{name}"));
        open_lock(&beside("writing"))?;
        Ok(WorkspaceFiles {
            directory: directory.canonicalize()?,
            gate: open_lock(&beside("gate"))?,
            lock: open_lock(&beside("lock"))?,
            writing: beside("writing"),
        })
    }

    /// Acquires the directory behind a granted request's workspace, for as long as the run lasts.
    pub(crate) async fn acquire(&self, grant: &Grant) -> Result<WorkspaceLease> {
        let request = &grant.request;
        let mut lease = self
            .acquire_for(&request.namespace, &request.workspace, Use::Write)
            .await?;
        if let (Some(shared), WorkspaceSource::Namespace) = (&mut lease.shared, &request.workspace) {
            shared.known = self.disk.known(&request.namespace).await?;
        }
        Ok(lease)
    }

    /// Acquires the directory behind a workspace, without a request.
    pub(crate) async fn acquire_for(
        &self,
        namespace: &Namespace,
        source: &WorkspaceSource,
        access: Use,
    ) -> Result<WorkspaceLease> {
        let (shared, root, turn) = match source {
            WorkspaceSource::Private => return Ok(WorkspaceLease::default()),
            WorkspaceSource::Listed(name) => {
                // The policy has replaced the name by its directory.
                return Err(fault(format!("the workspace `{name}` was not looked up")));
            }
            WorkspaceSource::Host { directory, mode } => {
                let (directory, root) = open_host(&self.sandboxes.policy.private, directory)?;
                self.check_programs(&directory, *mode)?;
                let shared = HostWorkspace {
                    directory,
                    mode: *mode,
                    quota: Quota::Growth,
                    writing: None,
                    known: Known::default(),
                };
                (shared, Some(root), None)
            }
            WorkspaceSource::Namespace => {
                let turn = self.turn(namespace, access).await?;
                let shared = HostWorkspace {
                    directory: turn.directory.clone(),
                    mode: WorkspaceMode::Rw,
                    quota: Quota::Total,
                    writing: Some(turn.writing.clone()),
                    known: Known::default(),
                };
                (shared, None, Some(turn))
            }
        };
        self.check_tier(&shared)?;
        Ok(WorkspaceLease {
            shared: Some(shared),
            root,
            turn,
        })
    }

    /// Refuses a writable directory that holds a file that decides what is run and allowed.
    fn check_programs(&self, pinned: &Pinned, mode: WorkspaceMode) -> Result<()> {
        let directory = &pinned.path;
        if mode != WorkspaceMode::Rw {
            return Ok(());
        }
        let refuse = |what: String, hint: String| {
            let message = format!("{} cannot be written to: {what}.", directory.display());
            Err(RequestError::denied(message, hint))
        };
        if let Some((language, part)) = runtimes::overlapping_part(directory, &self.sandboxes.runtimes) {
            let (part, key) = (part.display(), language.runs_as());
            let what = format!("{part}, of the {language} that runs programs here, lies in it");
            let hint =
                format!("Share it as `overlay` or `ro`, or set runtimes.{key} to an interpreter elsewhere.");
            return refuse(what, hint);
        }
        let holds = |file: &&PathBuf| file.ancestors().any(|above| pinned.is_at(above));
        if let Some(file) = self.guarded.iter().find(holds) {
            let file = file.display();
            let what = format!("{file} lies in it, which decides what programs are run or what they may do");
            let hint =
                "Share it as `overlay` or `ro`, share a directory below it, or move that file.".to_owned();
            return refuse(what, hint);
        }
        Ok(())
    }

    /// Refuses what the tier lacks: without its own root a program sees the directory itself, its owner and no overlay.
    fn check_tier(&self, shared: &HostWorkspace) -> Result<()> {
        let refuse = |what: &str, hint: &str| Err(RequestError::unsupported(what, hint));
        match (self.sandboxes.tier, shared.mode) {
            (Tier::Full | Tier::Gvisor | Tier::Container, _) => Ok(()),
            (Tier::Landlock, WorkspaceMode::Overlay) => refuse(
                "the tier `landlock` has no overlay for a workspace.",
                "Share the directory `ro`, or use the tier `full`.",
            ),
            (Tier::Landlock, _) if self.sandboxes.native.host.own_uids => refuse(
                "the tier `landlock` shares no directory where the server is root: its programs are other users.",
                "Run the server as the directory's owner, or use the tier `full`.",
            ),
            (Tier::Landlock, _) => Ok(()),
        }
    }
}

/// The directory of a namespace's workspace, and its lock files, opened for one turn: flock(2) excludes other open file
/// descriptions, of this process as well as of others.
struct WorkspaceFiles {
    directory: PathBuf,
    gate: File,
    lock: File,
    writing: PathBuf,
}

/// Locks the file until it is closed; for [`Use::Replace`] exclusively.
async fn acquire(file: &File, namespace: &Namespace, access: Use, by: Instant) -> Result<()> {
    loop {
        let locked = match access {
            Use::Read | Use::Write => file.try_lock_shared(),
            Use::Replace => file.try_lock(),
        };
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < by => tokio::time::sleep(POLL_EVERY).await,
            Err(TryLockError::WouldBlock) => return Err(busy(namespace)),
            Err(TryLockError::Error(error)) => return Err(unusable(namespace, &error)),
        }
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Completes an interrupted restore before the workspace is used.
async fn resume(snapshots: &Arc<SnapshotStore>, root: OwnedFd) -> Result<OwnedFd> {
    let store = snapshots.clone();
    let resumed = blocking(move || {
        let resumed = store.resume(root.as_fd())?;
        Ok::<_, SnapshotError>((root, resumed))
    });
    match resumed.await? {
        Ok((root, None)) => Ok(root),
        Ok((root, Some(resumed))) => {
            tracing::warn!(?resumed, "the restore of a snapshot had been interrupted");
            Ok(root)
        }
        Err(error) => Err(workspace_error::of_snapshot(error)),
    }
}

fn busy(namespace: &Namespace) -> RequestError {
    error::busy(
        format!("the workspace of `{namespace}` is in use."),
        "Runs and sessions share it; a snapshot that is restored has it alone. Send it again when they have ended.",
        1000,
    )
}

fn unusable(namespace: &Namespace, error: &io::Error) -> RequestError {
    fault(format!("the workspace of `{namespace}` cannot be used: {error}"))
}

/// The largest file that is written or read in one piece.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Converts an error of writing a file to one for callers: on a disk of the host, that disk is full.
pub(crate) fn write_error(error: TreeError, lease: &WorkspaceLease) -> RequestError {
    match &error {
        TreeError::Io(FileError { error, .. })
            if workspace_error::is_full(error) && lease.root().is_some() =>
        {
            workspace_error::disk_full()
        }
        _ => workspace_error::of_tree(error),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceRef {
    /// The workspace that is kept for the namespace.
    Namespace,
    /// A session's workspace, of any kind.
    Session(SessionId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_store::{FileError, tree::TreeError};
    use ringfence_types::ErrorCode;

    #[test]
    fn full_host_disk_and_full_private_disk_have_different_errors() {
        let full = || TreeError::Io(FileError::at("write", "file")(io::ErrorKind::StorageFull));
        let on_host = WorkspaceLease {
            root: Some(File::open("/").unwrap().into()),
            ..WorkspaceLease::default()
        };
        let error = write_error(full(), &on_host);
        assert_eq!(error.code, ErrorCode::StoreFault);
        assert!(!error.hint.contains("max_disk_mb"), "{error}");
        let error = write_error(full(), &WorkspaceLease::default());
        assert_eq!(error.code, ErrorCode::PolicyDenied);
        assert!(error.hint.contains("max_disk_mb"), "{error}");
    }
}
