//! A directory for one test, removed afterwards.

use crate::tests::TestDir;
use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

/// The directory `inside` in a private directory, so that a test can create files beside it.
pub(in crate::tree) struct Scratch {
    base: TestDir,
    root: File,
}

impl Scratch {
    pub(in crate::tree) fn new() -> Self {
        let base = TestDir::new();
        std::fs::create_dir(base.join("inside")).unwrap();
        let root = File::open(base.join("inside")).unwrap();
        Self { base, root }
    }

    pub(in crate::tree) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(in crate::tree) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.base.join("inside").join(below)
    }

    /// A path beside the directory, which no operation on it may reach.
    pub(in crate::tree) fn outside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }
}
