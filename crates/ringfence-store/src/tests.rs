//! Shared by all tests of this crate: a directory per test, removed with it, and names.

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

    /// A directory made by another process.
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
        // The test may have removed it already; a failed test has reported its own error.
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

pub(crate) fn namespace(name: &str) -> Namespace {
    name.to_owned().try_into().unwrap()
}
