//! What all tests of this crate share: a directory of a test's own, which goes away with it, and names.

use ringfence_types::Namespace;
use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringfence-store-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// One that another process made.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TestDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // The test may have removed it, and one that failed has said so already.
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

pub(crate) fn namespace(name: &str) -> Namespace {
    name.to_owned().try_into().unwrap()
}
