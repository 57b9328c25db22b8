//! The directories of the store and their locks: one directory for each namespace, so that nothing of one is observable
//! in another, and one for the journals of restores.

use super::SnapshotError;
use crate::artifacts::layout::{
    open_directory, open_plain, plain_files, size_of, subdirectory, to_hex, unlink,
};
use ringfence_types::Namespace;
use rustix::{
    fs::{Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// What a file is called until it is whole. Nobody reads such a file, and a collection removes it.
pub(super) const UNFINISHED: &str = ".new";

/// Shared: no collection comes. Exclusive: nobody adds or reads.
const LOCK: &str = "lock";
/// Whoever changes the list has it.
const LIST_LOCK: &str = "list.lock";

/// The open directory.
#[derive(Debug)]
pub(super) struct Layout {
    path: PathBuf,
    namespaces: OwnedFd,
    pub(super) journals: OwnedFd,
}

/// What one namespace has.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    pub(super) root: OwnedFd,
    pub(super) packs: OwnedFd,
    pub(super) manifests: OwnedFd,
}

/// Until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    /// Not by closing alone: a process that is being started holds a copy until it is another program.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock of the snapshots was not given back");
        }
    }
}

impl Layout {
    pub(super) fn open(path: PathBuf) -> Result<Self, SnapshotError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(SnapshotError::std("create", &path))?;
        let root = File::open(&path).map_err(SnapshotError::std("open", &path))?;
        let metadata = root.metadata().map_err(SnapshotError::std("look at", &path))?;
        let unusable = |what: &str| SnapshotError::Unusable {
            path: path.clone(),
            what: what.to_owned(),
        };
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(unusable("another user owns it"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(unusable("others may enter it; chmod it to 0700"));
        }
        let place =
            |name| subdirectory(root.as_fd(), name).map_err(SnapshotError::std("open", path.join(name)));
        Ok(Self {
            namespaces: place("namespaces")?,
            journals: place("journals")?,
            path,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The namespace's directory, which is made when there is none. A namespace is a name without `/` that does not
    /// begin with a dot.
    pub(super) fn make(&self, namespace: &Namespace) -> Result<Place, SnapshotError> {
        let path = self.path.join("namespaces").join(namespace.as_str());
        let root = subdirectory(self.namespaces.as_fd(), namespace.as_str());
        Place::open(root.map_err(SnapshotError::std("open", &path))?, path)
    }

    /// None when it never had a snapshot.
    pub(super) fn find(&self, namespace: &Namespace) -> Result<Option<Place>, SnapshotError> {
        let path = self.path.join("namespaces").join(namespace.as_str());
        match open_directory(self.namespaces.as_fd(), namespace.as_str()) {
            Ok(root) => Place::open(root, path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SnapshotError::Io {
                step: "open",
                path,
                error,
            }),
        }
    }

    /// What all other namespaces take.
    pub(super) fn stored_bytes_beside(&self, namespace: &Namespace) -> Result<u64, SnapshotError> {
        let failed = || SnapshotError::io("list", self.path.join("namespaces"));
        let mut sum = 0_u64;
        for entry in Dir::read_from(&self.namespaces).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Neither `.` nor `..` is one.
            let other = Namespace::try_from(name).ok().filter(|name| name != namespace);
            if let Some(place) = other.and_then(|name| self.find(&name).transpose()) {
                sum = sum.saturating_add(place?.stored_bytes()?);
            }
        }
        Ok(sum)
    }
}

impl Place {
    fn open(root: OwnedFd, path: PathBuf) -> Result<Self, SnapshotError> {
        let place =
            |name| subdirectory(root.as_fd(), name).map_err(SnapshotError::std("open", path.join(name)));
        Ok(Self {
            packs: place("packs")?,
            manifests: place("manifests")?,
            root,
            path,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What all its packs and manifests take.
    pub(super) fn stored_bytes(&self) -> Result<u64, SnapshotError> {
        let mut sum = 0;
        for directory in [&self.packs, &self.manifests] {
            let files = plain_files(directory.as_fd()).map_err(SnapshotError::std("list", &self.path))?;
            sum += files.iter().map(|(_, stat)| size_of(stat)).sum::<u64>();
        }
        Ok(sum)
    }

    /// Waits while somebody collects.
    pub(super) fn lock_shared(&self) -> Result<Lock, SnapshotError> {
        self.wait_for(LOCK, FlockOperation::LockShared)
    }

    /// Waits while somebody else changes the list, which is short.
    pub(super) fn lock_list(&self) -> Result<Lock, SnapshotError> {
        self.wait_for(LIST_LOCK, FlockOperation::LockExclusive)
    }

    /// None when anybody has it.
    pub(super) fn lock_alone(&self) -> Result<Option<Lock>, SnapshotError> {
        let taken = self.flock(LOCK, FlockOperation::NonBlockingLockExclusive);
        taken.map_err(SnapshotError::std("lock", self.path.join(LOCK)))
    }

    fn wait_for(&self, name: &str, operation: FlockOperation) -> Result<Lock, SnapshotError> {
        let taken = self.flock(name, operation);
        let lock = taken.map_err(SnapshotError::std("lock", self.path.join(name)))?;
        lock.ok_or_else(|| SnapshotError::io("lock", self.path.join(name))(Errno::WOULDBLOCK))
    }

    /// Opened anew each time: a lock belongs to the opening, so that threads exclude each other as processes do.
    fn flock(&self, name: &str, operation: FlockOperation) -> io::Result<Option<Lock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, name, flags, Mode::from_raw_mode(0o600))?;
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
            Ok(()) => Ok(Some(Lock(file.into()))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Written beside its place, on the disk, then renamed: whole or not at all.
pub(super) fn write_whole(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = format!("{}{UNFINISHED}", random_name()?);
    let mut file = create(directory, &beside)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(rustix::fs::renameat(directory, &beside, directory, name)?));
    if written.is_err() {
        unlink(directory, &beside)?;
    }
    written?;
    Ok(rustix::fs::fsync(directory)?)
}

pub(super) fn create(directory: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    Ok(file.into())
}

/// At most one byte more than the longest allowed.
pub(super) fn read_whole(directory: BorrowedFd<'_>, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_plain(directory, name, OFlags::RDONLY)?;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(to_hex(&bytes))
}
