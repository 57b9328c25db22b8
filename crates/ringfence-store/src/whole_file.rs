//! The stores' own files. They are named relative to an open directory, so that nothing is resolved twice; a link in
//! place of a file is never followed; and a file is written whole or not at all.

use crate::digest::to_hex;
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::CStr,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The suffix of a file that is being written. A sweep removes such a file if no process is writing it.
pub(crate) const UNFINISHED: &str = ".new";
const LOCK_PAUSE: Duration = Duration::from_millis(2);
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug, thiserror::Error)]
#[error("{step} {path}: {error}")]
pub struct FileError {
    /// A verb, as in "cannot read".
    pub step: &'static str,
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
}

impl FileError {
    pub fn at<E: Into<io::Error>>(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |error| {
            let error = error.into();
            Self { step, path, error }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    opened: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfExists {
    Replace,
    /// Fails with an error of the kind `AlreadyExists`.
    Fail,
}

/// A lock (flock(2)), held until this is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(pub(crate) File);

impl Drop for FileLock {
    /// Unlocks explicitly: until a child process executes its program, it holds a copy of the descriptor.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock of a store was not released");
        }
    }
}

impl Directory {
    /// Opens a store's directory, creating it (mode 0700) if missing. It must be this user's and closed to others.
    pub(crate) fn private(path: PathBuf) -> Result<Self, FileError> {
        let open = || -> io::Result<OwnedFd> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            let opened = File::open(&path)?;
            let metadata = opened.metadata()?;
            if metadata.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other("another user owns it"));
            }
            if metadata.mode() & 0o077 != 0 {
                return Err(io::Error::other("others may enter it; chmod it to 0700"));
            }
            Ok(opened.into())
        };
        match open() {
            Ok(opened) => Ok(Self { path, opened }),
            Err(error) => Err(FileError::at("open", path)(error)),
        }
    }

    /// Opens the parent directory of a path, without checking its owner or mode, and returns it with the file's name.
    pub(crate) fn of_file(path: &Path) -> Result<(Self, String), FileError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let nameless = || FileError::at("find", path)(io::Error::other("it is not the name of a file"));
        let name = name.ok_or_else(nameless)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(parent, flags, Mode::empty()).map_err(FileError::at("find", path))?;
        let (path, name) = (parent.to_owned(), name.to_owned());
        Ok((Self { path, opened }, name))
    }

    /// Opens a subdirectory, creating it (mode 0700) if it is missing.
    pub(crate) fn subdirectory(&self, name: &str) -> Result<Self, FileError> {
        if let Some(found) = self.find(name)? {
            return Ok(found);
        }
        match rustix::fs::mkdirat(&self.opened, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.failed("make", name)(error)),
        }
        let made = self.find(name)?;
        made.ok_or_else(|| self.failed("open", name)(Errno::NOTDIR))
    }

    pub(crate) fn find(&self, name: &str) -> Result<Option<Self>, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.opened, name, flags, Mode::empty()) {
            Ok(opened) => {
                let path = self.path.join(name);
                Ok(Some(Self { path, opened }))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(self.failed("open", name)(error)),
        }
    }

    pub(crate) fn failed<E: Into<io::Error>>(
        &self,
        step: &'static str,
        name: &str,
    ) -> impl FnOnce(E) -> FileError + use<E> {
        FileError::at(step, self.path.join(name))
    }

    /// Returns the names of all entries that are UTF-8.
    pub(crate) fn names(&self) -> Result<Vec<String>, FileError> {
        let names = list(&self.opened, usize::MAX).map_err(self.failed("list", ""))?;
        let texts = names.iter().filter_map(|name| name.to_str().ok());
        Ok(texts.map(str::to_owned).collect())
    }

    /// Returns the regular files with their attributes. Other entries are not part of a store.
    pub(crate) fn files(&self) -> Result<Vec<(String, Stat)>, FileError> {
        let mut files = Vec::new();
        for name in self.names()? {
            let found = self.stat(&name)?;
            files.extend(found.map(|stat| (name, stat)));
        }
        Ok(files)
    }

    /// Returns the attributes of a regular file. `None` if there is no such file.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<Stat>, FileError> {
        match rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(is_regular(&stat).then_some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.failed("look at", name)(error)),
        }
    }

    /// Opens a regular file. `None` if there is no such file.
    pub(crate) fn open(&self, name: &str, access: OFlags) -> Result<Option<File>, FileError> {
        match open_regular(self.as_fd(), Path::new(name), access) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => Ok(None),
            Err(error) => Err(self.failed("open", name)(error)),
        }
    }

    /// Reads a regular file, at most one byte more than `bytes_max`. `None` if there is no such file.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
        let Some(file) = self.open(name, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(self.failed("read", name))?;
        Ok(Some(bytes))
    }

    pub(crate) fn create(&self, name: &str) -> Result<File, FileError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.opened, name, flags, PRIVATE_FILE);
        made.map(File::from).map_err(self.failed("make", name))
    }

    /// Writes a file of mode 0600 atomically. It is on the disk when this returns.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], if_exists: IfExists) -> Result<File, FileError> {
        let file = self.write_then(name, bytes, if_exists, File::sync_all)?;
        self.sync()?;
        Ok(file)
    }

    /// As [`Self::write`], but a power loss may damage the file.
    pub(crate) fn write_unsynced(&self, name: &str, bytes: &[u8], how: IfExists) -> Result<(), FileError> {
        self.write_then(name, bytes, how, |_| Ok(())).map(drop)
    }

    fn write_then(
        &self,
        name: &str,
        bytes: &[u8],
        if_exists: IfExists,
        then: impl Fn(&File) -> io::Result<()>,
    ) -> Result<File, FileError> {
        let temporary = unfinished_name(name).map_err(self.failed("choose a temporary name for", name))?;
        let mut file = self.create(&temporary)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| then(&file))
            .map_err(self.failed("write", name))
            .and_then(|()| self.put(&temporary, name, if_exists));
        let removed = match (&written, if_exists) {
            (Ok(()), IfExists::Replace) => Ok(()),
            _ => self.remove(&temporary),
        };
        written.and(removed)?;
        Ok(file)
    }

    fn put(&self, temporary: &str, name: &str, if_exists: IfExists) -> Result<(), FileError> {
        let directory = self.as_fd();
        let put = match if_exists {
            IfExists::Replace => rustix::fs::renameat(directory, temporary, directory, name),
            IfExists::Fail => rustix::fs::linkat(directory, temporary, directory, name, AtFlags::empty()),
        };
        put.map_err(self.failed("put in place", name))
    }

    pub(crate) fn sync(&self) -> Result<(), FileError> {
        rustix::fs::fsync(&self.opened).map_err(self.failed("sync the directory", ""))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.opened, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed("remove", name)(error)),
        }
    }

    /// Locks a file, creating it if it is missing. Each call opens the file anew, so that threads exclude each other as
    /// processes do. `None` if another process or thread holds the lock and `operation` does not wait.
    pub(crate) fn lock(&self, name: &str, operation: FlockOperation) -> Result<Option<FileLock>, FileError> {
        let failed = |step| self.failed::<Errno>(step, name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let file = rustix::fs::openat(&self.opened, name, flags, PRIVATE_FILE).map_err(failed("open"))?;
            match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(failed("lock")(error)),
            }
            let lock = FileLock(file.into());
            let own = rustix::fs::fstat(&lock.0).map_err(failed("look at"))?;
            if !is_regular(&own) {
                return Err(failed("lock")(Errno::NXIO));
            }
            // The last holder may have removed the file while this call waited; the name then leads elsewhere.
            let named = self.stat(name)?;
            if named.is_some_and(|named| (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)) {
                return Ok(Some(lock));
            }
        }
    }

    /// Takes an exclusive lock, waiting up to `timeout`. The lock files are not removed. A waiter holds `<name>.next`:
    /// the holder of the lock does not take it again before.
    pub(crate) fn lock_within(&self, name: &str, timeout: Duration) -> Result<FileLock, FileError> {
        let until = Instant::now() + timeout;
        // A courtesy: its holder may be stopped, or the directory closed to new files.
        let turn_until = Instant::now() + timeout / 2;
        let _next = self.lock_until(&format!("{name}.next"), turn_until).ok();
        self.lock_until(name, until)
    }

    fn lock_until(&self, name: &str, until: Instant) -> Result<FileLock, FileError> {
        loop {
            if let Some(lock) = self.lock(name, FlockOperation::NonBlockingLockExclusive)? {
                return Ok(lock);
            }
            if Instant::now() >= until {
                return Err(self.failed("lock", name)(Errno::WOULDBLOCK));
            }
            // flock(2) has no timeout.
            thread::sleep(LOCK_PAUSE);
        }
    }

    /// As [`Self::lock`], for an operation that waits.
    pub(crate) fn lock_waiting(&self, name: &str, operation: FlockOperation) -> Result<FileLock, FileError> {
        let lock = self.lock(name, operation)?;
        lock.ok_or_else(|| self.failed("lock", name)(Errno::WOULDBLOCK))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

/// Returns the names in a directory, at most `names_max`.
pub(crate) fn list(directory: &OwnedFd, names_max: usize) -> rustix::io::Result<Vec<Box<CStr>>> {
    let mut names: Vec<Box<CStr>> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().into());
        }
        if names.len() == names_max {
            break;
        }
    }
    Ok(names)
}

/// Opens a regular file; follows no link at the end of `name` and waits for no pipe. `Errno::NXIO` for anything else.
pub(crate) fn open_regular(
    directory: BorrowedFd<'_>,
    name: &Path,
    access: OFlags,
) -> rustix::io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    match is_regular(&rustix::fs::fstat(&file)?) {
        true => Ok(file.into()),
        false => Err(Errno::NXIO),
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Returns the modification time, at the earliest 1970.
pub(crate) fn modified(stat: &Stat) -> SystemTime {
    let (seconds, nanoseconds) = (u64::try_from(stat.st_mtime), u32::try_from(stat.st_mtime_nsec));
    let since = Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0));
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns true for an id that is a safe file name: 1 to 64 ASCII letters, digits or `-`.
pub(crate) fn is_plain_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&id.len()) && id.bytes().all(is_plain)
}

pub(crate) fn random_hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(to_hex(&bytes))
}

/// `vault` -> `vault.0123456789abcdef.new`
pub(crate) fn unfinished_name(name: &str) -> io::Result<String> {
    Ok(format!("{name}.{}{UNFINISHED}", random_hex::<8>()?))
}

/// Returns true if `found` has the form of a name that [`unfinished_name`] made for `name`.
pub(crate) fn is_unfinished_name(found: &str, name: &str) -> bool {
    let rest = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    let random = rest.and_then(|rest| rest.strip_suffix(UNFINISHED));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    random.is_some_and(|random| random.len() == 16 && random.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TestDir;
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        sync::mpsc,
    };

    fn scratch() -> (TestDir, PathBuf, Directory) {
        let around = TestDir::new();
        let path = around.join("store");
        let directory = Directory::private(path.clone()).unwrap();
        (around, path, directory)
    }

    #[test]
    fn write_replaces_or_fails_and_leaves_no_temporary_file() {
        let (_around, path, directory) = scratch();
        directory.write("file", b"one", IfExists::Fail).unwrap();
        let taken = directory.write("file", b"two", IfExists::Fail).unwrap_err();
        assert_eq!(taken.error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(directory.read("file", 9).unwrap().unwrap(), b"one");
        let mode = fs::metadata(path.join("file")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        directory
            .write_unsynced("file", b"three", IfExists::Replace)
            .unwrap();
        assert_eq!(
            directory.read("file", 3).unwrap().unwrap(),
            b"thre",
            "one byte over the bound"
        );
        fs::create_dir(path.join("directory")).unwrap();
        assert!(directory.write("directory", b"x", IfExists::Replace).is_err());
        let mut names = directory.names().unwrap();
        names.sort_unstable();
        assert_eq!(names, ["directory", "file"]);
    }

    #[test]
    fn symlink_or_pipe_in_place_of_file_or_directory_is_not_used() {
        let (_around, path, directory) = scratch();
        fs::create_dir(path.join("real")).unwrap();
        fs::write(path.join("real/file"), "canary").unwrap();
        symlink("real", path.join("link")).unwrap();
        symlink("real/file", path.join("file")).unwrap();
        rustix::fs::mkfifoat(&directory, "pipe", PRIVATE_FILE).unwrap();
        // The control: the same names below the real directory.
        let real = directory.find("real").unwrap().unwrap();
        assert_eq!(real.read("file", 9).unwrap().unwrap(), b"canary");
        assert!(directory.find("link").unwrap().is_none() && directory.subdirectory("link").is_err());
        for name in ["file", "pipe", "real", "absent"] {
            assert!(directory.read(name, 9).unwrap().is_none(), "{name}");
            assert!(directory.stat(name).unwrap().is_none(), "{name}");
        }
        for name in ["file", "pipe"] {
            let locked = directory.lock(name, FlockOperation::NonBlockingLockExclusive);
            assert!(locked.is_err(), "{name}");
        }
    }

    #[test]
    fn lock_is_exclusive_and_is_taken_anew_if_its_file_was_removed() {
        let (_around, path, directory) = scratch();
        let try_lock = || {
            directory
                .lock("lock", FlockOperation::NonBlockingLockExclusive)
                .unwrap()
        };
        let held = try_lock().unwrap();
        assert!(try_lock().is_none());
        fs::remove_file(path.join("lock")).unwrap();
        let anew = try_lock().unwrap();
        drop(held);
        assert!(try_lock().is_none(), "the new file's lock is held");
        drop(anew);
        assert!(try_lock().is_some());
    }

    #[test]
    fn waiter_gets_a_lock_before_its_holder_gets_it_again() {
        let (_around, _, directory) = scratch();
        let (patience, directory) = (Duration::from_secs(20), &directory);
        let (taken, order) = mpsc::channel();
        let held = directory.lock_within("lock", patience).unwrap();
        thread::scope(|scope| {
            let waiter = taken.clone();
            scope.spawn(move || {
                let _lock = directory.lock_within("lock", patience).unwrap();
                waiter.send("waiter").unwrap();
            });
            let end = Instant::now() + patience;
            let try_next = || directory.lock("lock.next", FlockOperation::NonBlockingLockExclusive);
            while try_next().unwrap().is_some() {
                assert!(Instant::now() < end, "nothing waits");
                thread::yield_now();
            }
            drop(held);
            let _again = directory.lock_within("lock", patience).unwrap();
            taken.send("holder").unwrap();
        });
        drop(taken);
        assert_eq!(order.iter().collect::<Vec<_>>(), ["waiter", "holder"]);
    }

    #[test]
    fn lock_is_taken_without_a_turn_if_its_holder_is_stopped_or_it_cannot_be_made() {
        let (_around, path, directory) = scratch();
        let next = directory.lock_within("lock.next", Duration::ZERO).unwrap();
        let lock = directory.lock_within("lock", Duration::from_millis(20)).unwrap();
        let failed = directory
            .lock_within("lock", Duration::from_millis(20))
            .unwrap_err();
        assert_eq!(failed.path, path.join("lock"));
        drop((next, lock));
        fs::remove_file(path.join("lock.next")).unwrap();
        fs::create_dir(path.join("lock.next")).unwrap();
        directory.lock_within("lock", Duration::ZERO).unwrap();
    }

    #[test]
    fn directory_open_to_others_is_refused() {
        let (_around, path, _) = scratch();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o710)).unwrap();
        let refused = Directory::private(path).unwrap_err().to_string();
        assert!(refused.contains("chmod it to 0700"), "{refused}");
    }
}
