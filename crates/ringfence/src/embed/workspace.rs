//! The files of a workspace, and its snapshots, without running a program.

use super::Sandbox;
pub use ringfence_engine::WorkspaceAccess as Workspace;
use ringfence_engine::{NamespaceAccess, SnapshotFacts};
use ringfence_store::snapshots::Restored;
use ringfence_types::{Namespace, RequestError, SessionId};

impl Sandbox {
    /// The workspace that is kept for a namespace; with a session, that session's, which may be any directory.
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
        self.namespace(namespace).workspace(session.cloned())
    }

    /// The snapshots of a namespace's workspaces, which [`Workspace::save`] makes.
    pub fn snapshots<'a>(&'a self, namespace: &'a Namespace) -> Snapshots<'a> {
        Snapshots {
            access: self.namespace(namespace),
        }
    }
}

/// The snapshots of one namespace, invisible to any other.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots<'a> {
    access: NamespaceAccess<'a>,
}

impl Snapshots<'_> {
    /// Lists the snapshots, the oldest first.
    pub async fn list(&self) -> Result<Vec<SnapshotFacts>, RequestError> {
        self.access.snapshots().await
    }

    /// Restores the workspace from which the snapshot was taken, or a session's: all of it or nothing.
    pub async fn restore(&self, id: &str, into: Option<SessionId>) -> Result<Restored, RequestError> {
        self.access.restore_snapshot(id, into).await
    }

    /// Deletes a snapshot, and frees its space.
    pub async fn delete(&self, id: &str) -> Result<(), RequestError> {
        self.access.delete_snapshot(id).await
    }
}
