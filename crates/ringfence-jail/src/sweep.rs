//! Removes what supervisors leave behind when they are killed, with their helper or with the whole server: empty
//! cgroups, and run directories of the tier `landlock`. A live supervisor holds a lock on its directory.

use crate::cgroup::Parent;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, lchown, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

/// The directory of the run directories, below the state directory.
pub const RUNS: &str = "runs";

#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    pub cgroups: usize,
    pub directories: usize,
    /// Leftovers not removed yet: cgroups that still hold a process, directories that may be too new to be locked.
    pub held: usize,
}

pub fn sweep(cgroups: &Parent, state_dir: &Path) -> Swept {
    let (gone, held) = cgroups.sweep();
    let mut swept = Swept {
        cgroups: gone,
        directories: 0,
        held,
    };
    for run in fs::read_dir(state_dir.join(RUNS)).into_iter().flatten().flatten() {
        match remove_if_abandoned(&run.path()) {
            Ok(Abandoned::Gone) => swept.directories += 1,
            Ok(Abandoned::New) => swept.held += 1,
            // In use, or removed meanwhile.
            Ok(Abandoned::No) | Err(_) => {}
        }
    }
    swept
}

enum Abandoned {
    No,
    New,
    Gone,
}

/// A directory younger than this may not be locked yet.
const NEW: Duration = Duration::from_secs(5);

fn remove_if_abandoned(directory: &Path) -> io::Result<Abandoned> {
    let lock = File::open(directory)?;
    if lock.try_lock().is_err() {
        return Ok(Abandoned::No);
    }
    let made = lock.metadata()?.modified()?;
    if made.elapsed().is_ok_and(|age| age < NEW) {
        return Ok(Abandoned::New);
    }
    ringfence_sys::file::remove_tree(directory)?;
    Ok(Abandoned::Gone)
}

/// The directory of one run in the tier `landlock`: created, locked, owned by the sandbox's user, and removed on drop.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    pub(crate) fn create(layout: &crate::Layout, owner: Option<u32>) -> io::Result<Option<Self>> {
        let Some(path) = &layout.host_directory else {
            return Ok(None);
        };
        let private = |path: &Path| fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
        if let Some(runs) = path.parent() {
            fs::DirBuilder::new().mode(0o711).recursive(true).create(runs)?;
        }
        fs::DirBuilder::new().mode(0o700).create(path)?;
        let lock = File::open(path)?;
        lock.lock()?;
        let made = Self {
            path: path.clone(),
            _lock: lock,
        };
        let own = layout.writable().into_iter().chain([layout.code.as_path()]);
        // A shared workspace lies elsewhere and belongs to the host.
        for directory in own.filter(|directory| directory.starts_with(path)) {
            private(directory)?;
            if let Some(id) = owner {
                lchown(directory, Some(id), Some(id))?;
            }
        }
        let modules = [&layout.workspace, &layout.code].map(|directory| directory.join("node_modules"));
        symlink(&modules[0], &modules[1])?;
        if let Some(id) = owner {
            lchown(path, Some(id), Some(id))?;
        }
        Ok(Some(made))
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // The sweep at the next start removes what is left.
        drop(ringfence_sys::file::remove_tree(&self.path));
    }
}
