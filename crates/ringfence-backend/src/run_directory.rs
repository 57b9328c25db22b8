//! The directory of one container on the host, with its mounted files. A lock shows that its server is running.

use ringfence_jail::{ExportDirectory, remove_tree};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt, fchown, lchown},
    path::{Path, PathBuf},
};

/// The host user of a container's program, before any mapping by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A random uid and gid from this number on, for a server that is root.
    RandomFrom(u32),
    /// This one.
    Fixed { uid: u32, gid: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Size of the range from which a container gets its id.
const OWN_IDS: u32 = 1 << 26;

impl User {
    pub(crate) fn next(self) -> Ids {
        match self {
            Self::Fixed { uid, gid } => Ids { uid, gid },
            Self::RandomFrom(first) => {
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
            made.set_owner(&directory)?;
        }
        let file = made.path.join(RESOLVER);
        fs::write(&file, resolver)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o444))?;
        Ok(made)
    }

    /// Makes the program the owner. For an engine that maps users, see [`Self::make_world_writable`].
    fn set_owner(&self, path: &Path) -> io::Result<()> {
        let Ids { uid, gid } = self.ids;
        ignore_permission_denied(lchown(path, Some(uid), Some(gid)))
    }

    /// Lets every user write, because the engine maps the program to an unknown one.
    pub(crate) fn make_world_writable(&self) -> io::Result<()> {
        [WORKSPACE, OUTPUT]
            .into_iter()
            .try_for_each(|name| fs::set_permissions(self.path.join(name), fs::Permissions::from_mode(0o777)))
    }

    /// Writes a read-only file into the code directory.
    pub(crate) fn put_code(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(CODE).join(name);
        fs::write(&path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o444))
    }

    /// Writes a new file into the workspace. The request's code has not run yet, but the image's interpreter may have:
    /// a link that it has made is not followed, and nothing is replaced.
    pub(crate) fn put_file(&self, below: &Path, bytes: &[u8]) -> io::Result<()> {
        let workspace = ExportDirectory::open(&self.path.join(WORKSPACE))?;
        let mut file = workspace.create(below)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        let Ids { uid, gid } = self.ids;
        ignore_permission_denied(fchown(&file, Some(uid), Some(gid)))?;
        let above = below
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        above
            .into_iter()
            .try_for_each(|above| ignore_permission_denied(workspace.chown(above, uid, gid)))
    }
}

/// Ignores a denied permission: a server without root cannot change owners, and already runs as the right user.
fn ignore_permission_denied(given: io::Result<()>) -> io::Result<()> {
    match given {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        given => given,
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // A directory that cannot be removed now is removed by the sweep of the next start.
        drop(remove_tree(&self.path));
    }
}

/// True if a running server holds its lock.
pub(crate) fn is_held(directory: &Path) -> bool {
    File::open(directory).is_ok_and(|lock| lock.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn link_left_by_an_image_is_not_followed() {
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
