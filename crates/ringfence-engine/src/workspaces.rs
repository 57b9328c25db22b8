//! The directories behind `/workspace` that outlive a run. Each namespace has one that the server keeps; the operator
//! may have listed others. Runs share a workspace of the namespace; whatever puts another state in its place has it
//! alone.

use crate::{
    backend::SandboxDirs,
    disk::Disk,
    disk_quota::DiskUse,
    error::{self, Result},
    policy::Grant,
    runtimes,
    sandbox::Sandboxes,
    store::{blocking, fault},
    sync::lock,
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
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions, TryLockError},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

const DIRECTORY: &str = "workspaces";
/// Names in one directory that are looked at.
const NAMES_MAX: usize = 100_000;
/// Namespaces that may have one.
const NAMESPACES_MAX: usize = 10_000;
/// How long one waits for others to let go of a workspace.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a lock that another process holds, which does not tell when it lets go.
const LOOK: Duration = Duration::from_millis(10);

/// Where the workspaces are, and who has them.
pub(crate) struct Workspaces {
    directory: PathBuf,
    turns: Mutex<HashMap<Namespace, Arc<RwLock<OneByOne>>>>,
    /// Files that decide what is run and allowed.
    guarded: Vec<PathBuf>,
    sandboxes: Arc<Sandboxes>,
    disk: Arc<Disk>,
}

/// Held by one at a time of those who share a workspace.
type OneByOne = Mutex<()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Shared,
    /// Without any other meanwhile.
    Alone,
}

/// A turn at one workspace of a namespace, among the tasks of this server and among the servers of this user.
#[derive(Debug)]
pub(crate) struct WorkspaceTurn {
    directory: Pinned,
    root: OwnedFd,
    own: TurnGuard,
    /// Unlocked when it is closed; no program inherits it.
    _others: File,
    /// Locked by writers from outside.
    writing: PathBuf,
}

/// Held by a writer from outside, alone among all servers. A sandbox that looks how full the
/// workspace is does not count what is half written.
pub(crate) struct Writing<'a> {
    _own: MutexGuard<'a, ()>,
    _others: File,
}

#[derive(Debug)]
enum TurnGuard {
    Shared(OwnedRwLockReadGuard<OneByOne>),
    Alone(OwnedRwLockWriteGuard<OneByOne>),
}

impl WorkspaceTurn {
    /// Keeps other writers out, between looking at how full it is and writing.
    pub(crate) fn one_by_one(&self) -> std::io::Result<Writing<'_>> {
        let lock: &OneByOne = match &self.own {
            TurnGuard::Shared(own) => own,
            TurnGuard::Alone(own) => own,
        };
        let own = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let others = open_lock(&self.writing)?;
        others.lock()?;
        Ok(Writing {
            _own: own,
            _others: others,
        })
    }
}

/// What a run has of the host behind its workspace.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceLease {
    pub(crate) shared: Option<HostWorkspace>,
    /// The one descriptor by which the server reads and writes that directory, and finds it again.
    root: Option<OwnedFd>,
    turn: Option<WorkspaceTurn>,
}

impl WorkspaceLease {
    /// It stays where it is when the run has ended.
    pub(crate) fn stays(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.mode == WorkspaceMode::Rw)
    }

    /// The directory itself rather than what the sandbox sees of it, where its files have other owners.
    fn root(&self) -> Option<BorrowedFd<'_>> {
        let own = self.turn.as_ref().map(|turn| &turn.root);
        own.or(self.root.as_ref()).map(AsFd::as_fd)
    }

    /// The descriptor by which the server reads and writes the workspace, whichever it is; `private` is the sandbox's
    /// own.
    pub(crate) fn open(&self, private: Option<&SandboxDirs>) -> Result<OwnedFd> {
        let root = self.root().or(private.map(|dirs| dirs.changes.as_fd()));
        let root = root.ok_or_else(|| fault("there is no workspace"))?;
        root.try_clone_to_owned()
            .map_err(|error| fault(format!("the workspace cannot be opened: {error}")))
    }

    /// The directory as the run finds it, where its changes are to be told from what was there.
    pub(crate) fn lies_below(&self) -> Option<BorrowedFd<'_>> {
        let overlaid = |shared: &HostWorkspace| shared.mode == WorkspaceMode::Overlay;
        self.root()
            .filter(|_| !self.shared.as_ref().is_some_and(overlaid))
    }

    /// The names in its first directory. One that cannot be listed cannot be imported from either.
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

    /// What lies in a directory of the host's that may be written, by which is known what comes to it.
    pub(crate) async fn found(&self) -> Result<DiskUse> {
        let (Some(root), true) = (&self.root, self.stays()) else {
            return Ok(DiskUse::default());
        };
        let root = root.try_clone().map_err(fault)?;
        // What cannot be counted now cannot be counted later either: nothing is put there from outside.
        Ok(blocking(move || DiskUse::of(root.as_fd()))
            .await?
            .unwrap_or_default())
    }

    /// Its turn, where others share the workspace.
    pub(crate) fn turn(&self) -> Option<&WorkspaceTurn> {
        self.turn.as_ref()
    }
}

/// Opens a directory of the host's. Its path had no link in it when the operator named it; one that is there now was
/// laid by a program that may write above.
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
    // Whatever name it has been mounted by.
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
            turns: Mutex::default(),
            guarded,
            sandboxes: disk.sandboxes.clone(),
            disk,
        }
    }

    /// Waits for it, at most [`PATIENCE`]. The workspace is made when it is first used.
    pub(crate) async fn turn(&self, namespace: &Namespace, wanted: Wanted) -> Result<WorkspaceTurn> {
        let by = Instant::now() + PATIENCE;
        let own = self.own_turn(namespace);
        let own = async {
            match wanted {
                Wanted::Shared => TurnGuard::Shared(own.read_owned().await),
                Wanted::Alone => TurnGuard::Alone(own.write_owned().await),
            }
        };
        let own = tokio::time::timeout(PATIENCE, own)
            .await
            .map_err(|_| busy(namespace))?;
        let (directory, file, writing) = self
            .make(namespace)
            .map_err(|error| unusable(namespace, &error))?;
        loop {
            let locked = match wanted {
                Wanted::Shared => file.try_lock_shared(),
                Wanted::Alone => file.try_lock(),
            };
            match locked {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < by => tokio::time::sleep(LOOK).await,
                Err(TryLockError::WouldBlock) => return Err(busy(namespace)),
                Err(TryLockError::Error(error)) => return Err(unusable(namespace, &error)),
            }
        }
        let opened = Pinned::open(&directory).map_err(|error| unusable(namespace, &error))?;
        let linked = || unusable(namespace, &std::io::Error::other("a link leads there"));
        let (directory, root) = opened.ok_or_else(linked)?;
        let root = match wanted {
            Wanted::Shared => resume(&self.disk.snapshots, root).await?,
            // Putting another state there begins with that.
            Wanted::Alone => root,
        };
        Ok(WorkspaceTurn {
            directory,
            root,
            own,
            _others: file,
            writing,
        })
    }

    fn own_turn(&self, namespace: &Namespace) -> Arc<RwLock<OneByOne>> {
        let mut turns = lock(&self.turns);
        // Those that are neither held nor waited for say nothing.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(namespace.clone()).or_default().clone()
    }

    /// The directory, and the file by which processes tell each other who has it. No namespace begins with a dot.
    fn make(&self, namespace: &Namespace) -> std::io::Result<(PathBuf, File, PathBuf)> {
        let directory = self.directory.join(namespace.as_str());
        make_own_directory(&self.directory)?;
        if !directory.exists() && fs::read_dir(&self.directory)?.count() >= 3 * NAMESPACES_MAX {
            let many = format!("{NAMESPACES_MAX} namespaces have a workspace");
            return Err(std::io::Error::other(many));
        }
        ringfence_store::take_back_own_directory(&directory)?;
        let directory = directory.canonicalize()?;
        let file = open_lock(&self.directory.join(format!(".{namespace}.lock")))?;
        let writing = self.directory.join(format!(".{namespace}.writing"));
        open_lock(&writing)?;
        Ok((directory, file, writing))
    }

    /// The directory behind a granted request's workspace, for as long as the run lasts.
    pub(crate) async fn acquire(&self, grant: &Grant) -> Result<WorkspaceLease> {
        let request = &grant.request;
        let mut lent = self
            .acquire_for(&request.namespace, &request.workspace, Wanted::Shared)
            .await?;
        if let (Some(shared), WorkspaceSource::Namespace) = (&mut lent.shared, &request.workspace) {
            shared.known = self.disk.known(&request.namespace).await?;
        }
        Ok(lent)
    }

    /// The directory behind a workspace, without a request.
    pub(crate) async fn acquire_for(
        &self,
        namespace: &Namespace,
        source: &WorkspaceSource,
        wanted: Wanted,
    ) -> Result<WorkspaceLease> {
        let (shared, root, turn) = match source {
            WorkspaceSource::Private => return Ok(WorkspaceLease::default()),
            WorkspaceSource::Listed(name) => {
                // Policy has replaced the name by its directory.
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
                let turn = self.turn(namespace, wanted).await?;
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

    /// Programs write nothing that decides what is run and allowed.
    fn check_programs(&self, pinned: &Pinned, mode: WorkspaceMode) -> Result<()> {
        let directory = &pinned.path;
        if mode != WorkspaceMode::Rw {
            return Ok(());
        }
        let refuse = |what: String, hint: String| {
            let message = format!("{} cannot be written to: {what}.", directory.display());
            Err(RequestError::denied(message, hint))
        };
        if let Some((language, part)) = runtimes::within(directory, &self.sandboxes.runtimes) {
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

    /// Without a root of its own a program meets the directory as it is, without an overlay and with its real owner.
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

fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Completes a restore that was interrupted, before the workspace is seen.
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

fn unusable(namespace: &Namespace, error: &std::io::Error) -> RequestError {
    fault(format!("the workspace of `{namespace}` cannot be used: {error}"))
}

/// The largest file that is put or given in one piece.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// What a caller may know of a file that could not be written: on a disk of the host's, that disk is full.
pub(crate) fn unwritten(error: TreeError, lent: &WorkspaceLease) -> RequestError {
    match &error {
        TreeError::Io(FileError { error, .. })
            if workspace_error::is_full(error) && lent.root().is_some() =>
        {
            workspace_error::disk_full()
        }
        _ => workspace_error::of_tree(error),
    }
}

/// Whose workspace is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceRef {
    /// The one that is kept for the namespace.
    Namespace,
    /// A session's, whatever directory that is.
    Session(SessionId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_store::{FileError, tree::TreeError};
    use ringfence_types::ErrorCode;
    use std::io;

    #[test]
    fn a_full_disk_of_the_host_is_told_as_that_and_a_full_private_one_as_its_limit() {
        let full = || TreeError::Io(FileError::at("write", "file")(io::ErrorKind::StorageFull));
        let on_host = WorkspaceLease {
            root: Some(File::open("/").unwrap().into()),
            ..WorkspaceLease::default()
        };
        let told = unwritten(full(), &on_host);
        assert_eq!(told.code, ErrorCode::StoreFault);
        assert!(!told.hint.contains("max_disk_mb"), "{told}");
        let told = unwritten(full(), &WorkspaceLease::default());
        assert_eq!(told.code, ErrorCode::PolicyDenied);
        assert!(told.hint.contains("max_disk_mb"), "{told}");
    }
}
