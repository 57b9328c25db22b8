//! A directory for one test, gone afterwards.

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The directory `inside`, in a directory of its own, so that a test may have something beside it.
pub(in crate::tree) struct Scratch {
    base: PathBuf,
    root: File,
}

impl Scratch {
    pub(in crate::tree) fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!("ringfence-tree-{name}-{}-{number}", std::process::id());
        let base = std::env::temp_dir().join(own);
        std::fs::create_dir_all(base.join("inside")).unwrap();
        let root = File::open(base.join("inside")).unwrap();
        Self { base, root }
    }

    pub(in crate::tree) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(in crate::tree) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.base.join("inside").join(below)
    }

    /// Beside the directory, where nothing of it may reach.
    pub(in crate::tree) fn outside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.base) {
            eprintln!("{}: {error}", self.base.display());
        }
    }
}
