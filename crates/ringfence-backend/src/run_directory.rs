//! The directory of one container on the host: what is mounted into it. A lock says that its server lives.

use ringfence_jail::{ExportDirectory, remove_tree};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt, fchown, lchown},
    path::{Path, PathBuf},
};

/// Who the program of a container is, on this side of the engine's own mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A uid and gid of its own, from here on: the server is root.
    OwnFrom(u32),
    /// This one.
    Fixed { uid: u32, gid: u32 },
}

/// Those of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Of which a container gets one.
const OWN_IDS: u32 = 1 << 26;

impl User {
    /// The ids of one more container.
    pub(crate) fn next(self) -> Ids {
        match self {
            Self::Fixed { uid, gid } => Ids { uid, gid },
            Self::OwnFrom(first) => {
                let random = uuid::Uuid::now_v7().as_u128() % u128::from(OWN_IDS);
                let id = first + u32::try_from(random).unwrap_or(0);
                Ids { uid: id, gid: id }
            }
        }
    }
}

pub(crate) const WORKSPACE: &str = "workspace";
pub(crate) const OUTPUT: &str = "output";
pub(crate) const CODE: &str = "code";
pub(crate) const RESOLVER: &str = "resolv.conf";

#[derive(Debug)]
pub(crate) struct RunDirectory {
    pub(crate) path: PathBuf,
    pub(crate) ids: Ids,
    _lock: File,
}

impl RunDirectory {
    pub(crate) fn create(runs: &Path, name: &str, ids: Ids, resolver: &str) -> io::Result<Self> {
        let make = |path: &Path, mode| DirBuilder::new().mode(mode).recursive(true).create(path);
        make(runs, 0o711)?;
        let path = runs.join(name);
        make(&path, 0o700)?;
        let lock = File::open(&path)?;
        lock.lock()?;
        let made = Self {
            path,
            ids,
            _lock: lock,
        };
        make(&made.path.join(CODE), 0o755)?;
        fs::set_permissions(made.path.join(CODE), fs::Permissions::from_mode(0o755))?;
        std::os::unix::fs::symlink(
            "/workspace/node_modules",
            made.path.join(CODE).join("node_modules"),
        )?;
        for name in [WORKSPACE, OUTPUT] {
            let directory = made.path.join(name);
            make(&directory, 0o700)?;
            made.give(&directory)?;
        }
        let file = made.path.join(RESOLVER);
        fs::write(&file, resolver)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o444))?;
        Ok(made)
    }

    /// Makes it the program's. An ordinary user's is its own; where the engine maps users, see [`Self::open_to_all`].
    fn give(&self, path: &Path) -> io::Result<()> {
        let Ids { uid, gid } = self.ids;
        own_already(lchown(path, Some(uid), Some(gid)))
    }

    /// Lets whatever user the engine maps the program to write.
    pub(crate) fn open_to_all(&self) -> io::Result<()> {
        [WORKSPACE, OUTPUT]
            .into_iter()
            .try_for_each(|name| fs::set_permissions(self.path.join(name), fs::Permissions::from_mode(0o777)))
    }

    /// A file beside the code, to be read.
    pub(crate) fn put_code(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(CODE).join(name);
        fs::write(&path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o444))
    }

    /// A new file in the workspace. Nothing of the request has run yet, but the image's interpreter may have: no link
    /// of its making is followed, and nothing is replaced.
    pub(crate) fn put_file(&self, below: &Path, bytes: &[u8]) -> io::Result<()> {
        let workspace = ExportDirectory::open(&self.path.join(WORKSPACE))?;
        let mut file = workspace.create(below)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        let Ids { uid, gid } = self.ids;
        own_already(fchown(&file, Some(uid), Some(gid)))?;
        let above = below
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        above
            .into_iter()
            .try_for_each(|above| own_already(workspace.give(above, uid, gid)))
    }
}

/// An ordinary user's server gives nothing away: it is that user's already.
fn own_already(given: io::Result<()>) -> io::Result<()> {
    match given {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        given => given,
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start's sweep.
        drop(remove_tree(&self.path));
    }
}

/// Whether a server that lives holds it.
pub(crate) fn is_held(directory: &Path) -> bool {
    File::open(directory).is_ok_and(|lock| lock.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_an_image_has_left_leads_no_file_elsewhere() {
        let base = std::env::temp_dir().join(format!("ringfence-run-directory-{}", std::process::id()));
        drop(fs::remove_dir_all(&base));
        let own = fs::metadata("/proc/self").unwrap();
        use std::os::unix::fs::MetadataExt;
        let ids = Ids {
            uid: own.uid(),
            gid: own.gid(),
        };
        let directory = RunDirectory::create(&base, "one", ids, "").unwrap();
        let elsewhere = base.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let workspace = directory.path.join(WORKSPACE);
        symlink(elsewhere.join("x"), workspace.join("file")).unwrap();
        symlink(&elsewhere, workspace.join("directory")).unwrap();
        directory.put_file(Path::new("a/b.txt"), b"fine").unwrap();
        assert_eq!(fs::read(workspace.join("a/b.txt")).unwrap(), b"fine");
        for name in ["file", "directory/x", "directory/y/x"] {
            assert!(directory.put_file(Path::new(name), b"x").is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(is_held(&directory.path));
        drop(directory);
        assert!(!is_held(&base.join("one")) && !base.join("one").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
