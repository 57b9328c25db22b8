//! The directories of the store and their locks: one directory per namespace, so that no namespace can observe another,
//! and one for the journals of restores.

use super::SnapshotError;
use crate::whole_file::{Directory, FileError, FileLock, size_of};
use ringfence_types::Namespace;
use rustix::fs::FlockOperation;
use std::path::PathBuf;

/// Held shared, no collection runs; held exclusively, no snapshot is created or read.
const LOCK: &str = "lock";
const LIST_LOCK: &str = "list.lock";

#[derive(Debug)]
pub(super) struct SnapshotsDir {
    namespaces: Directory,
    pub(super) journals: Directory,
}

#[derive(Debug)]
pub(super) struct NamespaceDir {
    pub(super) namespace: Namespace,
    pub(super) root: Directory,
    pub(super) packs: Directory,
    pub(super) manifests: Directory,
}

impl SnapshotsDir {
    pub(super) fn open(path: PathBuf) -> Result<Self, SnapshotError> {
        let root = Directory::private(path)?;
        Ok(Self {
            namespaces: root.subdirectory("namespaces")?,
            journals: root.subdirectory("journals")?,
        })
    }

    /// Opens a namespace's directory, creating it if missing. Its name has no `/` and does not begin with a dot.
    pub(super) fn make(&self, namespace: &Namespace) -> Result<NamespaceDir, FileError> {
        NamespaceDir::open(namespace, self.namespaces.subdirectory(namespace.as_str())?)
    }

    pub(super) fn find(&self, namespace: &Namespace) -> Result<Option<NamespaceDir>, FileError> {
        let found = self.namespaces.find(namespace.as_str())?;
        found.map(|root| NamespaceDir::open(namespace, root)).transpose()
    }

    pub(super) fn stored_bytes_beside(&self, namespace: &Namespace) -> Result<u64, FileError> {
        let mut sum = 0_u64;
        for name in self.namespaces.names()? {
            let other = Namespace::try_from(name).ok().filter(|name| name != namespace);
            if let Some(found) = other.and_then(|name| self.find(&name).transpose()) {
                sum = sum.saturating_add(found?.stored_bytes()?);
            }
        }
        Ok(sum)
    }
}

impl NamespaceDir {
    fn open(namespace: &Namespace, root: Directory) -> Result<Self, FileError> {
        Ok(Self {
            namespace: namespace.clone(),
            packs: root.subdirectory("packs")?,
            manifests: root.subdirectory("manifests")?,
            root,
        })
    }

    pub(super) fn stored_bytes(&self) -> Result<u64, FileError> {
        let mut sum = 0;
        for directory in [&self.packs, &self.manifests] {
            let files = directory.files()?;
            sum += files.iter().map(|(_, stat)| size_of(stat)).sum::<u64>();
        }
        Ok(sum)
    }

    pub(super) fn lock_shared(&self) -> Result<FileLock, FileError> {
        self.root.lock_waiting(LOCK, FlockOperation::LockShared)
    }

    /// Waits while another process or thread changes the list, which is short.
    pub(super) fn lock_list(&self) -> Result<FileLock, FileError> {
        self.root.lock_waiting(LIST_LOCK, FlockOperation::LockExclusive)
    }

    pub(super) fn lock_alone(&self) -> Result<Option<FileLock>, FileError> {
        self.root.lock(LOCK, FlockOperation::NonBlockingLockExclusive)
    }
}
