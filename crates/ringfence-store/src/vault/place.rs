//! A file that is whole at every moment, at a path that the operator chose. What a crash leaves beside it has a name of
//! ours and is removed when the vault is opened next.

use super::error::VaultError;
use crate::whole_file::{self, Directory, FileError, FileLock, Taken, is_unfinished_name};
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

pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// The same place from every working directory, and the name of a file.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, VaultError> {
    let absolute = std::path::absolute(path).map_err(FileError::at("find", path))?;
    // without a slash at the end, to which no suffix could be added
    let absolute: PathBuf = absolute.components().collect();
    match absolute.file_name() {
        Some(_) => Ok(absolute),
        None => Err(FileError::at("find", path)(io::Error::other("it names no file")).into()),
    }
}

/// Opens a regular file, and only that, for reading. An error of the kind `Other` says what else is there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    whole_file::open_regular(CWD, path, OFlags::RDONLY).map_err(|error| match error {
        Errno::LOOP => io::Error::other("it is a symbolic link; name the file itself"),
        Errno::NXIO => io::Error::other("it is no regular file"),
        error => error.into(),
    })
}

pub(super) fn put(path: &Path, bytes: &[u8], taken: Taken) -> Result<File, VaultError> {
    let (directory, name) = Directory::of_file(path)?;
    Ok(directory.write(&name, bytes, taken)?)
}

/// Waits until the lock is free, which is milliseconds unless its holder was stopped. The file stays: if the holder
/// removed it, two could hold two.
pub(super) fn lock(path: &Path, patience: Duration) -> Result<FileLock, VaultError> {
    let (directory, name) = Directory::of_file(path)?;
    Ok(directory.lock_within(&name, patience)?)
}

/// Removes what a crash left beside this place. The caller holds the lock, so that no such file is being written.
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
    fn only_names_of_ours_are_removed() {
        let directory = Directory::new();
        let place = directory.path("vault");
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
        clean(&place).unwrap();
        for name in ours {
            assert!(!directory.path(name).exists(), "{name}");
        }
        for name in theirs.into_iter().chain(["vault.aaaaaaaaaaaaaaaa.new"]) {
            assert!(directory.path(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_lock_that_is_never_given_back_is_an_error_and_no_wait_for_ever() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let _held = lock(&path, LOCK_PATIENCE).unwrap();
        let refused = lock(&path, Duration::from_millis(20));
        assert!(matches!(
            refused,
            Err(VaultError::File(FileError { step: "lock", .. }))
        ));
    }

    #[test]
    fn a_path_is_the_same_from_everywhere() {
        assert_eq!(absolute(Path::new("/a/./b/")).unwrap(), Path::new("/a/b"));
        assert!(absolute(Path::new("vault")).unwrap().is_absolute());
        for nameless in ["", "/", "/a/.."] {
            assert!(absolute(Path::new(nameless)).is_err(), "{nameless:?}");
        }
    }

    #[test]
    fn a_place_is_taken_or_kept_and_nothing_stays_beside() {
        let directory = Directory::new();
        let place = directory.path("vault");
        put(&place, b"one", Taken::Refused).unwrap();
        let kept = put(&place, b"two", Taken::Refused).unwrap_err();
        assert!(
            matches!(kept, VaultError::File(FileError { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists)
        );
        assert_eq!(fs::read(&place).unwrap(), b"one");
        put(&place, b"three", Taken::Replaced).unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"three");
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(directory.names(), ["vault"]);
        fs::create_dir(directory.path("taken")).unwrap();
        assert!(put(&directory.path("taken"), b"x", Taken::Replaced).is_err());
        assert_eq!(directory.names(), ["taken", "vault"]);
    }

    #[test]
    fn a_lock_that_was_removed_while_one_waited_is_taken_again() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let first = lock(&path, LOCK_PATIENCE).unwrap();
        let has_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                has_begun.store(true, Ordering::Relaxed);
                lock(&path, LOCK_PATIENCE).unwrap()
            });
            while !has_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // In one step: in between the waiter could make the file itself.
            let other = directory.path("other.lock");
            let newcomer = lock(&other, LOCK_PATIENCE).unwrap();
            fs::rename(&other, &path).unwrap();
            drop(first);
            drop(newcomer);
            let got = waiter.join().unwrap().0.metadata().unwrap().ino();
            assert_eq!(
                got,
                fs::metadata(&path).unwrap().ino(),
                "a lock on a file that nobody else finds"
            );
        });
    }
}
