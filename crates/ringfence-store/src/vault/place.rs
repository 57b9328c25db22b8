//! A file that is whole at every moment: written beside its place, synced, and put there in one step. What a crash
//! leaves beside it has a name of ours and is removed by the next that opens the vault.

use super::error::VaultError;
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const SUFFIX: &[u8] = b".new";
const RANDOM_BYTES: usize = 8;
/// The longest that others are waited for, and how often it is tried.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What to do when the place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The new file takes it.
    Replaced,
    /// An error of the kind `AlreadyExists`.
    Refused,
}

/// Why a path gave no file to read.
#[derive(Debug)]
pub(super) enum Unopened {
    /// There is nothing.
    Absent,
    /// It leads elsewhere, perhaps to where another may write.
    Link,
    /// It is a directory, a pipe or the like.
    Special,
    /// What the system said.
    Failed(io::Error),
}

/// Alone among all who know the lock's file, until it is dropped.
pub(super) struct PlaceLock {
    held: fs::File,
}

impl Drop for PlaceLock {
    /// Not by closing alone: a process that is being started holds a copy until it is another program.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.held, FlockOperation::Unlock) {
            tracing::warn!(%error, "the vault's lock was not given back");
        }
    }
}

pub(super) fn failed(path: &Path, step: &'static str, error: impl Into<io::Error>) -> VaultError {
    VaultError::File {
        path: path.to_owned(),
        step,
        error: error.into(),
    }
}

pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// The same place from every working directory, and the name of a file.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, VaultError> {
    let absolute = std::path::absolute(path).map_err(|error| failed(path, "find", error))?;
    // without a slash at the end, to which no suffix could be added
    let absolute: PathBuf = absolute.components().collect();
    match absolute.file_name() {
        Some(_) => Ok(absolute),
        None => Err(failed(path, "find", io::Error::other("it names no file"))),
    }
}

/// Opens a regular file, and only that, for reading.
pub(super) fn open(path: &Path) -> Result<(fs::File, fs::Metadata), Unopened> {
    // without waiting: opening a pipe would wait for a writer
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT) => return Err(Unopened::Absent),
        Err(Errno::LOOP) => return Err(Unopened::Link),
        Err(error) => return Err(Unopened::Failed(error.into())),
    };
    let metadata = file.metadata().map_err(Unopened::Failed)?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(Unopened::Special)
    }
}

/// Puts these bytes there, with mode 0600, and gives the file back.
pub(super) fn put(path: &Path, bytes: &[u8], taken: Taken) -> Result<fs::File, VaultError> {
    let beside = beside(path).map_err(|error| failed(path, "draw a name beside", error))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = rustix::fs::open(&beside, flags, Mode::RUSR | Mode::WUSR)
        .map(fs::File::from)
        .map_err(|error| failed(&beside, "make", error))?;
    let moved = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| failed(&beside, "write", error))
        .and_then(|()| {
            match taken {
                Taken::Replaced => fs::rename(&beside, path),
                Taken::Refused => fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside)),
            }
            .map_err(|error| failed(path, "put the new file in the place of", error))
        });
    if let Err(error) = moved {
        return match fs::remove_file(&beside) {
            // the first error is the one to tell; what stays beside is removed by the next that opens the vault
            Ok(()) | Err(_) => Err(error),
        };
    }
    sync_directory(path)?;
    Ok(file)
}

/// Waits until nobody else has it, which is milliseconds unless somebody was stopped with it. The file stays: if the holder removed it, two could hold two.
pub(super) fn lock(path: &Path) -> Result<PlaceLock, VaultError> {
    lock_within(path, LOCK_PATIENCE)
}

fn lock_within(path: &Path, patience: Duration) -> Result<PlaceLock, VaultError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let until = Instant::now() + patience;
    loop {
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map(fs::File::from)
            .map_err(|error| failed(path, "open", error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                thread::sleep(LOCK_PAUSE);
                continue;
            }
            Err(error) => return Err(failed(path, "lock", error)),
        }
        let held = file.metadata().map_err(|error| failed(path, "look at", error))?;
        // someone may have removed it while we waited; then the name leads to another file, or to none
        match fs::symlink_metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (held.dev(), held.ino()) => {
                return Ok(PlaceLock { held: file });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(path, "look at", error)),
        }
    }
}

/// Removes what a crash left beside this place. The caller holds the lock, so nobody is writing one.
pub(super) fn clean(path: &Path) -> Result<(), VaultError> {
    let directory = directory(path);
    let listing = fs::read_dir(directory).map_err(|error| failed(directory, "list", error))?;
    for entry in listing {
        let entry = entry.map_err(|error| failed(directory, "list", error))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_beside(path, &entry.file_name()) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&entry.path(), "remove", error));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

/// `vault` -> `vault.0123456789abcdef.new`
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut number = [0; RANDOM_BYTES];
    random(&mut number)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_le_bytes(number)));
    name.push(OsStr::from_bytes(SUFFIX));
    Ok(PathBuf::from(name))
}

fn is_beside(path: &Path, name: &OsStr) -> bool {
    let own = path.file_name().unwrap_or_default();
    let number = name
        .as_bytes()
        .strip_prefix(own.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    number.is_some_and(|digits| {
        digits.len() == 2 * RANDOM_BYTES
            && digits
                .iter()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Of an absolute path.
fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn sync_directory(path: &Path) -> Result<(), VaultError> {
    let directory = directory(path);
    fs::File::open(directory)
        .and_then(|opened| opened.sync_all())
        .map_err(|error| failed(directory, "sync the directory", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::fixture::Directory;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        assert!(is_beside(&place, beside(&place).unwrap().file_name().unwrap()));
        clean(&place).unwrap();
        for name in ours {
            assert!(!directory.path(name).exists(), "{name}");
        }
        for name in theirs.into_iter().chain(["vault.aaaaaaaaaaaaaaaa.new"]) {
            assert!(directory.path(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_place_is_taken_or_kept_and_nothing_stays_beside() {
        let directory = Directory::new();
        let place = directory.path("vault");
        put(&place, b"one", Taken::Refused).unwrap();
        let kept = put(&place, b"two", Taken::Refused).unwrap_err();
        assert!(
            matches!(kept, VaultError::File { error, .. } if error.kind() == io::ErrorKind::AlreadyExists)
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
    fn a_lock_that_is_never_given_back_is_an_error_and_no_wait_for_ever() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let _held = lock(&path).unwrap();
        let refused = lock_within(&path, Duration::from_millis(20));
        assert!(matches!(refused, Err(VaultError::File { step: "lock", .. })));
    }

    #[test]
    fn a_lock_that_was_removed_while_one_waited_is_taken_again() {
        let directory = Directory::new();
        let path = directory.path("vault.lock");
        let first = lock(&path).unwrap();
        let has_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                has_begun.store(true, Ordering::Relaxed);
                lock(&path).unwrap()
            });
            while !has_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // In one step: in between the waiter could make the file itself.
            let other = directory.path("other.lock");
            let newcomer = lock(&other).unwrap();
            fs::rename(&other, &path).unwrap();
            drop(first);
            drop(newcomer);
            let got = waiter.join().unwrap().held.metadata().unwrap().ino();
            assert_eq!(
                got,
                fs::metadata(&path).unwrap().ino(),
                "a lock on a file that nobody else finds"
            );
        });
    }

    #[test]
    fn a_path_is_the_same_from_everywhere() {
        assert_eq!(absolute(Path::new("/a/./b/")).unwrap(), Path::new("/a/b"));
        assert!(absolute(Path::new("vault")).unwrap().is_absolute());
        for nameless in ["", "/", "/a/.."] {
            assert!(absolute(Path::new(nameless)).is_err(), "{nameless:?}");
        }
    }
}
