//! A store, a workspace and its contents, for tests.

pub(in crate::snapshots) use crate::tests::namespace;
use crate::{snapshots::*, tests::TestDir};
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_OMIT};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
};

pub(in crate::snapshots) const LIMITS: SnapshotLimits = SnapshotLimits {
    entries: 20_000,
    bytes: 1 << 30,
    stored_bytes: 1 << 30,
    total_bytes: 1 << 32,
    snapshots: 100,
};

/// A directory with the store, `store`, and the workspace, `inside`.
pub(in crate::snapshots) struct Scratch {
    pub(in crate::snapshots) base: TestDir,
    pub(in crate::snapshots) signer: Signer,
}

impl Scratch {
    pub(in crate::snapshots) fn new() -> Self {
        let base = TestDir::new();
        fs::create_dir(base.join("inside")).unwrap();
        Self::at(base)
    }

    /// Uses this directory; the signing key is beside the store.
    pub(in crate::snapshots) fn at(base: TestDir) -> Self {
        let signer = Signer::load_or_create(&base.join("key")).unwrap();
        Self { base, signer }
    }

    pub(in crate::snapshots) fn store(&self) -> SnapshotStore {
        self.store_with(LIMITS)
    }

    pub(in crate::snapshots) fn store_with(&self, limits: SnapshotLimits) -> SnapshotStore {
        SnapshotStore::open(self.base.join("store"), self.signer.clone(), limits).unwrap()
    }

    pub(in crate::snapshots) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.base.join("inside").join(below)
    }

    pub(in crate::snapshots) fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(in crate::snapshots) fn root(&self) -> File {
        File::open(self.path("")).unwrap()
    }

    pub(in crate::snapshots) fn create(&self, store: &SnapshotStore) -> Created {
        store.create(self.root().as_fd(), about("ours")).unwrap()
    }

    pub(in crate::snapshots) fn restore(&self, store: &SnapshotStore, id: SnapshotId) -> Restored {
        store
            .restore(&Source::Namespace, id, &namespace("ours"), self.root().as_fd())
            .unwrap()
    }

    pub(in crate::snapshots) fn state(&self) -> State {
        state(&self.path(""))
    }

    /// Every file of the store.
    pub(in crate::snapshots) fn stored(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.base.join("store")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

pub(in crate::snapshots) fn about(name: &str) -> About {
    About {
        namespace: namespace(name),
        description: "before the change".to_owned(),
        source: Source::Namespace,
        time_unix_ms: 1_700_000_000_000,
    }
}

/// By path, everything that a restore must restore: mode, mtime and content.
pub(in crate::snapshots) type State = BTreeMap<PathBuf, (u32, (i64, i64), EntryContent)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::snapshots) enum EntryContent {
    /// BLAKE3 of the bytes.
    File(String),
    Directory,
    Link(PathBuf),
    Other,
}

impl EntryContent {
    pub(in crate::snapshots) fn of(bytes: &[u8]) -> Self {
        Self::File(blake3::hash(bytes).to_string())
    }
}

pub(in crate::snapshots) fn state(root: &Path) -> State {
    let mut found = State::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let thing = if metadata.is_symlink() {
            EntryContent::Link(fs::read_link(&path).unwrap())
        } else if metadata.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            EntryContent::Directory
        } else if metadata.is_file() {
            EntryContent::of(&fs::read(&path).unwrap())
        } else {
            EntryContent::Other
        };
        // The mode of the workspace itself is not compared.
        let mode = if path == root { 0 } else { metadata.mode() & 0o7777 };
        let times = (metadata.mtime(), metadata.mtime_nsec());
        let relative = path.strip_prefix(root).unwrap().to_owned();
        found.insert(relative, (mode, times, thing));
    }
    found
}

pub(in crate::snapshots) fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub(in crate::snapshots) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Deterministic random bytes.
pub(in crate::snapshots) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Fills a workspace with entries of every kind.
pub(in crate::snapshots) fn populate(scratch: &Scratch) {
    use std::os::unix::{ffi::OsStrExt, fs::FileExt};
    scratch.write("plain.txt", "words\n");
    scratch.write("empty", "");
    scratch.write("deep/er/file", noise(300_000, 1));
    scratch.write("deep/text", "line of text\n".repeat(20_000));
    scratch.write("script.sh", "#!/bin/sh\n");
    chmod(&scratch.path("script.sh"), 0o755);
    fs::create_dir(scratch.path("nothing in it")).unwrap();
    chmod(&scratch.path("nothing in it"), 0o700);
    std::os::unix::fs::symlink("../../etc/passwd", scratch.path("deep/out")).unwrap();
    std::os::unix::fs::symlink("plain.txt", scratch.path("in")).unwrap();
    scratch.write("deep/name", "");
    let name = std::ffi::OsStr::from_bytes(b"deep/\xff\xfe no text");
    fs::rename(scratch.path("deep/name"), scratch.path(name)).unwrap();
    let sparse = File::create(scratch.path("sparse")).unwrap();
    sparse.write_all_at(b"start", 0).unwrap();
    sparse.write_all_at(&noise(70_000, 2), 5_000_000).unwrap();
    sparse.set_len(20_000_000).unwrap();
    drop(sparse);
    set_mtime(&scratch.path("in"), 1_000_000_001, 1);
    set_mtime(&scratch.path("plain.txt"), 1_000_000_002, 999_999_999);
    set_mtime(&scratch.path("deep/er"), -5, 7);
    set_mtime(&scratch.path("deep"), 1_000_000_003, 3);
    set_mtime(&scratch.path(""), 1_000_000_004, 4);
}

/// Waits until the timestamps of new files are old enough to be trusted.
pub(in crate::snapshots) fn settle(scratch: &Scratch) {
    let newest = || {
        let entries = crate::tree::walk(
            scratch.root().as_fd(),
            crate::tree::Bounds {
                entries: 20_000,
                depth: 100,
            },
        );
        let stamps = entries.unwrap().into_iter().map(|entry| entry.stamp.ctime).max();
        stamps.map(|crate::tree::Timestamp(seconds, nanoseconds)| {
            std::time::Duration::new(u64::try_from(seconds).unwrap(), nanoseconds)
        })
    };
    let Some(newest) = newest() else { return };
    let begun = std::time::Instant::now();
    let age = || std::time::UNIX_EPOCH.elapsed().unwrap().saturating_sub(newest);
    while age() < std::time::Duration::from_millis(100) {
        assert!(begun.elapsed().as_secs() < 5, "the clock stands");
        std::thread::yield_now();
    }
}
