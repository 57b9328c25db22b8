//! The store's directory: its places, held open so that nothing is resolved twice, and its lock.

use super::{ArtifactError, Item, draft, manifest::MANIFEST_BYTES_MAX};
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

const LOCK: &str = "lock";
const COUNT_BYTES_MAX: u64 = 32;
const BLOCK_BYTES: u64 = 4096;

/// The open directory.
#[derive(Debug)]
pub(super) struct Layout {
    path: PathBuf,
    root: OwnedFd,
    pub(super) blobs: OwnedFd,
    pub(super) executions: OwnedFd,
    pub(super) incoming: OwnedFd,
    /// Files without a name can be made here and linked (not so on some overlays, nor without /proc).
    pub(super) nameless: bool,
}

/// Until it is dropped: shared, nobody sweeps; exclusive, nobody adds.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    /// Not by closing alone: a process that is being started holds a copy until it is another program.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock of the artifact store was not given back");
        }
    }
}

/// What the last sweep of any process counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) bytes: u64,
    pub(super) at: SystemTime,
}

impl Layout {
    pub(super) fn open(path: PathBuf) -> Result<Self, ArtifactError> {
        let failed = |error: io::Error| ArtifactError::Io {
            step: "open",
            path: path.clone(),
            error,
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(failed)?;
        let root = File::open(&path).map_err(failed)?;
        let metadata = root.metadata().map_err(failed)?;
        let unusable = |what: &str| {
            Err(ArtifactError::Unusable {
                path: path.clone(),
                what: what.to_owned(),
            })
        };
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return unusable("another user owns it");
        }
        if metadata.mode() & 0o077 != 0 {
            return unusable("others may enter it; chmod it to 0700");
        }
        let place = |name| subdirectory(root.as_fd(), name).map_err(failed);
        let mut layout = Self {
            blobs: place("blobs")?,
            executions: place("executions")?,
            incoming: place("incoming")?,
            root: root.into(),
            nameless: false,
            path: path.clone(),
        };
        layout.begin_count().map_err(failed)?;
        layout.nameless = draft::nameless_works(layout.incoming.as_fd()).map_err(failed)?;
        Ok(layout)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failed(
        &self,
        step: &'static str,
        place: &str,
        error: impl Into<io::Error>,
    ) -> ArtifactError {
        ArtifactError::Io {
            step,
            path: self.path.join(place),
            error: error.into(),
        }
    }

    /// A store without a lock is new: it holds nothing.
    fn begin_count(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.root, LOCK, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => File::from(file).write_all(b"0\n"),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// None when the text is no count: then it is time to count.
    pub(super) fn last_count(&self) -> Result<Option<Count>, ArtifactError> {
        let read = || {
            let file = open_plain(self.root.as_fd(), LOCK, OFlags::RDONLY)?;
            let at = file.metadata()?.modified()?;
            let mut text = Vec::new();
            file.take(COUNT_BYTES_MAX).read_to_end(&mut text)?;
            let bytes = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.trim_end().parse().ok());
            Ok(bytes.map(|bytes| Count { bytes, at }))
        };
        read().map_err(|error: io::Error| self.failed("read", LOCK, error))
    }

    /// Waits while somebody sweeps.
    pub(super) fn lock_shared(&self) -> Result<Lock, ArtifactError> {
        let lock = self.flock(FlockOperation::LockShared)?;
        lock.ok_or_else(|| self.failed("lock", LOCK, Errno::WOULDBLOCK))
    }

    /// None when anybody has it.
    pub(super) fn lock_alone(&self) -> Result<Option<Lock>, ArtifactError> {
        self.flock(FlockOperation::NonBlockingLockExclusive)
    }

    /// Opened anew each time: a lock belongs to the opening, so that threads exclude each other as processes do.
    fn flock(&self, operation: FlockOperation) -> Result<Option<Lock>, ArtifactError> {
        let take = || {
            let file = open_plain(self.root.as_fd(), LOCK, OFlags::RDWR)?;
            match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
                Ok(()) => Ok(Some(Lock(file))),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        take().map_err(|error: io::Error| self.failed("lock", LOCK, error))
    }

    /// The directory of a blob, made when there is none.
    pub(super) fn fan(&self, hex: &str) -> io::Result<OwnedFd> {
        subdirectory(self.blobs.as_fd(), fan_name(hex))
    }

    /// The blob of this digest, if it is a plain file.
    pub(super) fn open_blob(&self, hex: &str) -> Result<Option<File>, ArtifactError> {
        let opened = open_directory(self.blobs.as_fd(), fan_name(hex))
            .and_then(|fan| open_plain(fan.as_fd(), hex, OFlags::RDONLY));
        absent(opened).map_err(|error| self.failed("open", "blobs", error))
    }

    /// The content of this item is in the store, and of its size.
    pub(super) fn expect_blob(&self, item: &Item) -> Result<(), ArtifactError> {
        let hex = to_hex(&item.content.sha256);
        let place = format!("{}/{hex}", fan_name(&hex));
        match rustix::fs::statat(&self.blobs, place, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_plain(&stat) && size_of(&stat) == item.content.size_bytes => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(ArtifactError::Gone(item.name.clone())),
            Err(error) => Err(self.failed("look up", "blobs", error)),
        }
    }

    /// The text of a manifest, at most one byte more than the longest allowed.
    pub(super) fn read_manifest(&self, file_name: &str) -> Result<Option<Vec<u8>>, ArtifactError> {
        let read = || {
            let file = open_plain(self.executions.as_fd(), file_name, OFlags::RDONLY)?;
            let mut text = Vec::new();
            file.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
            Ok(text)
        };
        absent(read()).map_err(|error| self.failed("read", "executions", error))
    }
}

impl Lock {
    /// For the holder of the exclusive lock: what it counted, and by the file's time when.
    pub(super) fn write_count(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(format!("{bytes}\n").as_bytes(), 0)?;
        self.0.set_modified(SystemTime::now())
    }
}

/// A directory's plain files with their attributes. What is not plain or not UTF-8 is no file of the store.
pub(crate) fn plain_files(directory: BorrowedFd<'_>) -> io::Result<Vec<(String, Stat)>> {
    let mut files = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if !matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown) {
            continue;
        }
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_plain(&stat) => files.push((name.to_owned(), stat)),
            // Gone since it was listed, or a stranger.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(files)
}

fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// What a file takes: whole blocks, and one for an empty file, or a million of those would count as nothing.
pub(super) fn disk_bytes(size_bytes: u64) -> u64 {
    size_bytes
        .max(1)
        .div_ceil(BLOCK_BYTES)
        .saturating_mul(BLOCK_BYTES)
}

pub(super) fn manifest_name(execution_id: &str) -> String {
    format!("{execution_id}.json")
}

fn fan_name(hex: &str) -> &str {
    hex.get(..2).unwrap_or(hex)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A String takes everything.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// 64 lower-case digits, nothing else.
pub(crate) fn hex_digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(digest)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

pub(crate) fn subdirectory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match open_directory(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => open_directory(parent, name),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn open_directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Follows no link and waits for no pipe.
pub(crate) fn open_plain(parent: BorrowedFd<'_>, name: &str, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Errno::NOENT.into())
    }
}

/// What is not there, and a link or a stranger in its place, is no error but nothing.
pub(crate) fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    let nothing = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR];
    match result.map_err(|error| (Errno::from_io_error(&error), error)) {
        Ok(found) => Ok(Some(found)),
        Err((Some(errno), _)) if nothing.contains(&errno) => Ok(None),
        Err((_, error)) => Err(error),
    }
}

/// Gone already is as good: a pin is dropped without the lock.
pub(crate) fn unlink(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
