//! A file that is replaced atomically, at a path that the operator chose. A temporary file that a crash leaves beside
//! it has a recognizable name and is removed when the vault is opened next.

use super::error::VaultError;
use crate::whole_file::{self, Directory, FileError, FileLock, IfExists, is_unfinished_name};
use rustix::{
    fs::{CWD, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// Returns the path as an absolute one, which ends in the name of a file.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, VaultError> {
    let absolute = std::path::absolute(path).map_err(FileError::at("find", path))?;
    // Without a slash at the end, so that a suffix can be appended.
    let absolute: PathBuf = absolute.components().collect();
    match absolute.file_name() {
        Some(_) => Ok(absolute),
        None => Err(FileError::at("find", path)(io::Error::other("it names no file")).into()),
    }
}

/// Opens a regular file for reading. For anything else the error has the kind `Other` and names what is there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    whole_file::open_regular(CWD, path, OFlags::RDONLY).map_err(|error| match error {
        Errno::LOOP => io::Error::other("it is a symbolic link; name the file itself"),
        Errno::NXIO => io::Error::other("it is not a regular file"),
        error => error.into(),
    })
}

pub(super) fn put(path: &Path, bytes: &[u8], if_exists: IfExists) -> Result<File, VaultError> {
    let (directory, name) = Directory::of_file(path)?;
    Ok(directory.write(&name, bytes, if_exists)?)
}

/// Waits for the lock. The lock file is never removed, or two processes could each lock a different file.
pub(super) fn lock(path: &Path, timeout: Duration) -> Result<FileLock, VaultError> {
    let (directory, name) = Directory::of_file(path)?;
    Ok(directory.lock_within(&name, timeout)?)
}

/// Removes temporary files that a crash left beside this path. The caller holds the lock, so none is being written.
pub(super) fn clean(path: &Path) -> Result<(), VaultError> {
    let (directory, name) = Directory::of_file(path)?;
    for (found, _) in directory.files()? {
        if is_unfinished_name(&found, &name) {
            directory.remove(&found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::tests::fixture::Directory;
    use std::{
        fs,
        os::unix::fs::MetadataExt,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    #[test]
    fn only_temporary_files_of_vault_are_removed() {
        let directory = Directory::new();
        let vault_path = directory.path("vault");
        let ours = ["vault.0123456789abcdef.new", "vault.ffffffffffffffff.new"];
        let theirs = [
            "vault",
            "vault.lock",
            "vault.new",
            "vault.0123456789abcde.new",
            "vault.0123456789abcdef0.new",
            "vault.0123456789ABCDEF.new",
            "vault.0123456789abcdef.new~",
            "my-vault.0123456789abcdef.new",
            "vault2.0123456789abcdef.new",
        ];
        for name in ours.iter().chain(&theirs) {
            fs::write(directory.path(name), "x").unwrap();
        }
        fs::create_dir(directory.path("vault.aaaaaaaaaaaaaaaa.new")).unwrap();
        let ours_now = whole_file::unfinished_name("vault").unwrap();
        assert!(is_unfinished_name(&ours_now, "vault"), "{ours_now}");
        clean(&vault_path).unwrap();
        for name in ours {
            assert!(!directory.path(name).exists(), "{name}");
        }
        for name in theirs.into_iter().chain(["vault.aaaaaaaaaaaaaaaa.new"]) {
            assert!(directory.path(name).exists(), "{name}");
        }
    }

    #[test]
    fn lock_never_released_is_an_error_after_timeout() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let _held = lock(&path, LOCK_TIMEOUT).unwrap();
        let refused = lock(&path, Duration::from_millis(20));
        assert!(matches!(
            refused,
            Err(VaultError::File(FileError { step: "lock", .. }))
        ));
    }

    #[test]
    fn vault_path_is_made_absolute() {
        assert_eq!(absolute(Path::new("/a/./b/")).unwrap(), Path::new("/a/b"));
        assert!(absolute(Path::new("vault")).unwrap().is_absolute());
        for nameless in ["", "/", "/a/.."] {
            assert!(absolute(Path::new(nameless)).is_err(), "{nameless:?}");
        }
    }

    #[test]
    fn existing_file_is_replaced_or_kept_without_leftovers() {
        let directory = Directory::new();
        let vault_path = directory.path("vault");
        put(&vault_path, b"one", IfExists::Fail).unwrap();
        let kept = put(&vault_path, b"two", IfExists::Fail).unwrap_err();
        assert!(
            matches!(kept, VaultError::File(FileError { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists)
        );
        assert_eq!(fs::read(&vault_path).unwrap(), b"one");
        put(&vault_path, b"three", IfExists::Replace).unwrap();
        assert_eq!(fs::read(&vault_path).unwrap(), b"three");
        assert_eq!(fs::metadata(&vault_path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(directory.names(), ["vault"]);
        fs::create_dir(directory.path("taken")).unwrap();
        assert!(put(&directory.path("taken"), b"x", IfExists::Replace).is_err());
        assert_eq!(directory.names(), ["taken", "vault"]);
    }

    #[test]
    fn lock_file_replaced_during_wait_is_locked_again() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let first = lock(&path, LOCK_TIMEOUT).unwrap();
        let has_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                has_begun.store(true, Ordering::Relaxed);
                lock(&path, LOCK_TIMEOUT).unwrap()
            });
            while !has_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // In one step: otherwise the waiter could create the file itself in between.
            let other = directory.path("other.lock");
            let newcomer = lock(&other, LOCK_TIMEOUT).unwrap();
            fs::rename(&other, &path).unwrap();
            drop(first);
            drop(newcomer);
            let got = waiter.join().unwrap().0.metadata().unwrap().ino();
            assert_eq!(
                got,
                fs::metadata(&path).unwrap().ino(),
                "the lock is on a file that is no longer at the path"
            );
        });
    }
}
