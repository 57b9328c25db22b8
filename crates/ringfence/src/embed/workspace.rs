//! The files of a workspace, and its saved states, without a program.

use super::Sandbox;
use ringfence_engine::{
    Difference, DirectoryGot, DirectoryPut, FILE_BYTES_MAX, FileFacts, SnapshotFacts, SnapshotMade,
    WorkspaceAccess,
};
use ringfence_store::snapshots::Restored;
use ringfence_types::{Namespace, RequestError, SessionId, WorkspacePath};

impl Sandbox {
    /// The workspace that is kept for a namespace; with a session, that session's, whatever directory that is.
    ///
    /// ```standalone_crate
    /// use ringfence::{Namespace, Sandbox};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     ringfence::init();
    ///     tokio::runtime::Runtime::new()?.block_on(async {
    /// #       let directory = std::env::temp_dir().join(format!("ringfence-doc-files-{}", std::process::id()));
    ///         let sandbox = Sandbox::builder().state_dir(&directory).build().await?;
    ///         let namespace = Namespace::default_name();
    ///         let workspace = sandbox.workspace(&namespace, None);
    ///         workspace.put_file(&"data/in.csv".parse()?, b"a,b\n".to_vec()).await?;
    ///         let saved = workspace.save("before".to_owned()).await?;
    ///         workspace.put_file(&"data/in.csv".parse()?, b"ruined".to_vec()).await?;
    ///         sandbox.snapshots(&namespace).restore(&saved.snapshot.snapshot_id, None).await?;
    ///         assert_eq!(workspace.get_file(&"data/in.csv".parse()?).await?.1, b"a,b\n");
    ///         sandbox.shutdown().await;
    /// #       std::fs::remove_dir_all(&directory)?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn workspace<'a>(&'a self, namespace: &'a Namespace, session: Option<&SessionId>) -> Workspace<'a> {
        Workspace {
            sandbox: self,
            namespace,
            session: session.cloned(),
        }
    }

    /// The saved workspaces of a namespace; [`Workspace::save`] makes them.
    pub fn snapshots<'a>(&'a self, namespace: &'a Namespace) -> Snapshots<'a> {
        Snapshots {
            sandbox: self,
            namespace,
        }
    }
}

/// One workspace. No link in it is followed, and what leaves has no secret in it that its programs could have.
#[derive(Clone, Debug)]
pub struct Workspace<'a> {
    sandbox: &'a Sandbox,
    namespace: &'a Namespace,
    session: Option<SessionId>,
}

impl Workspace<'_> {
    fn access(&self) -> WorkspaceAccess<'_> {
        let (engine, caller) = self.sandbox.parts();
        engine.workspace(caller, self.namespace, self.session.clone())
    }

    /// Writes a file, whole or not at all; the directories above it are made. At most 64 MiB.
    pub async fn put_file(&self, path: &WorkspacePath, bytes: Vec<u8>) -> Result<FileFacts, RequestError> {
        self.access().put_file(path, bytes).await
    }

    /// Reads a file. At most 64 MiB.
    pub async fn get_file(&self, path: &WorkspacePath) -> Result<(FileFacts, Vec<u8>), RequestError> {
        self.access().get_file(path, FILE_BYTES_MAX).await
    }

    /// What is below a directory, or in all of it.
    pub async fn list_files(&self, below: Option<&WorkspacePath>) -> Result<Vec<FileFacts>, RequestError> {
        self.access().list_files(below).await
    }

    /// Unpacks a tar archive, plain or in gzip, below a directory or in the workspace itself: all of it, or nothing.
    pub async fn put_directory(
        &self,
        below: Option<WorkspacePath>,
        archive: Vec<u8>,
    ) -> Result<DirectoryPut, RequestError> {
        self.access().put_directory(below, archive).await
    }

    /// Packs a directory, or the workspace itself, as a tar archive. At most 64 MiB.
    pub async fn get_directory(&self, below: Option<WorkspacePath>) -> Result<DirectoryGot, RequestError> {
        self.access().get_directory(below, FILE_BYTES_MAX).await
    }

    /// Saves it as it is now.
    pub async fn save(&self, description: String) -> Result<SnapshotMade, RequestError> {
        self.access().create_snapshot(description).await
    }

    /// What it has that a snapshot has not, and the other way round: without an id, its latest. An overlay is compared
    /// with the directory below it.
    pub async fn diff(&self, snapshot: Option<&str>) -> Result<Difference, RequestError> {
        self.access().diff(snapshot).await
    }
}

/// The saved workspaces of one namespace. To any other they are not there.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots<'a> {
    sandbox: &'a Sandbox,
    namespace: &'a Namespace,
}

impl Snapshots<'_> {
    /// The oldest first.
    pub async fn list(&self) -> Result<Vec<SnapshotFacts>, RequestError> {
        let (engine, caller) = self.sandbox.parts();
        engine.snapshots(caller, self.namespace).await
    }

    /// Makes the workspace from which it was taken, or a session's, what it was: all of it or nothing.
    pub async fn restore(&self, id: &str, into: Option<SessionId>) -> Result<Restored, RequestError> {
        let (engine, caller) = self.sandbox.parts();
        engine.restore_snapshot(caller, self.namespace, id, into).await
    }

    /// Forgets one; its room is given back.
    pub async fn delete(&self, id: &str) -> Result<(), RequestError> {
        let (engine, caller) = self.sandbox.parts();
        engine.delete_snapshot(caller, self.namespace, id).await
    }
}
