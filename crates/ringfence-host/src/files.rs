//! Reading, listing and writing files of the host. Each path is resolved once (see [`crate::directories`]); a file is
//! written whole or not at all, keeps its owner and mode, and its former content can be restored.

use crate::{
    directories::{
        self, Access, OpenFile, OpenParent, PERMISSION_NEEDED, denied, displayed, invalid, open_error,
        stat_entry,
    },
    rule::Rules,
    secret_places,
    undo::Undo,
};
use ringfence_types::{ErrorCode, RequestError, unified_diff};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};
use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Maximum bytes of a file that is read or written.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
const ENTRIES_MAX: usize = 2000;
const DIFF_BYTES_MAX: usize = 16 << 10;
/// Time limit of a diff; beyond it the diff is the whole old text and the whole new text.
const DIFF_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct FileRead {
    pub path: PathBuf,
    /// The content, not redacted.
    pub bytes: Vec<u8>,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The name, not escaped; bytes that are not UTF-8 become U+FFFD.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    pub size_bytes: u64,
    pub mode: u32,
    pub modified_unix: i64,
}

/// A file that was written, or would be by a preview.
#[derive(Debug)]
pub struct FileWritten {
    pub path: PathBuf,
    pub undo: Undo,
    /// True if a rule for this path allows reading.
    is_readable: bool,
}

impl FileWritten {
    /// Returns the change as a unified diff of both texts after `redact`. Where either content is not UTF-8, or no rule
    /// lets the file be read, only the sizes.
    pub fn diff(&self, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        let (before, after) = (self.undo.before.as_deref().unwrap_or_default(), &self.undo.after);
        let (true, Ok(old), Ok(new)) = (self.is_readable, str::from_utf8(before), str::from_utf8(after))
        else {
            return format!("{} bytes become {}\n", before.len(), after.len());
        };
        let name = self.path.display().to_string();
        let end = Instant::now() + DIFF_TIME;
        unified_diff([&name, &name], [&redact(old), &redact(new)], end, DIFF_BYTES_MAX).0
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub bytes: &'a [u8],
    pub write: Writing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    Now,
    /// Nothing is written; the caller only gets the change.
    Preview,
}

impl Rules {
    pub fn read_file(&self, namespace: &str, path: &Path) -> Result<FileRead, RequestError> {
        let found = directories::open(&self.directories.mounted()?, namespace, path, Access::Read)?;
        if found.is_directory() {
            return Err(invalid(path, "is a directory", "List it with host_file_list."));
        }
        read(found)
    }

    /// Lists a directory, sorted by name. True: the list is cut at the maximum number of entries.
    pub fn list_directory(
        &self,
        namespace: &str,
        path: &Path,
    ) -> Result<(Vec<FileEntry>, bool), RequestError> {
        let found = directories::open(&self.directories.mounted()?, namespace, path, Access::List)?;
        if !found.is_directory() {
            return Err(invalid(
                path,
                "is not a directory",
                "Read it with host_file_read.",
            ));
        }
        let failed = |error: std::io::Error| unusable(&found.path, &error);
        let reopened = std::fs::read_dir(reopen(&found.handle)).map_err(failed)?;
        let mut entries = Vec::new();
        let mut is_cut = false;
        for entry in reopened {
            if entries.len() == ENTRIES_MAX {
                is_cut = true;
                break;
            }
            let name = entry.map_err(failed)?.file_name();
            if let Ok(Some(stat)) = stat_entry(found.handle.as_fd(), &name) {
                entries.push(entry_of(name.to_string_lossy().into_owned(), &stat));
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((entries, is_cut))
    }

    /// Writes a file whole or not at all, or only reports what that would change. `keep` gets the change before it is
    /// made; if the file changes meanwhile, it is not made.
    pub fn write_file(
        &self,
        namespace: &str,
        path: &Path,
        content: Content<'_>,
        keep: impl FnOnce(&Undo) -> Result<(), RequestError>,
    ) -> Result<FileWritten, RequestError> {
        if content.bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large(path));
        }
        let parent = directories::open_parent(&self.directories.mounted()?, namespace, path)?;
        let (before, stat) = current(&parent)?;
        let written = FileWritten {
            is_readable: self
                .directories
                .rule_for(&parent.path, namespace, Access::Read)
                .is_some(),
            undo: Undo {
                path: parent.path.clone(),
                before,
                after: content.bytes.to_vec(),
            },
            path: parent.path.clone(),
        };
        if content.write == Writing::Now {
            keep(&written.undo)?;
            replace(&parent, content.bytes, stat.as_ref())?;
        }
        Ok(written)
    }

    /// Restores the former content of a file, if the file still holds what was written.
    pub fn undo_write(&self, namespace: &str, undo: &Undo) -> Result<(), RequestError> {
        let parent = directories::open_parent(&self.directories.mounted()?, namespace, &undo.path)?;
        let (now, stat) = current(&parent)?;
        if now.as_deref() != Some(undo.after.as_slice()) {
            return Err(RequestError::new(
                ErrorCode::Conflict,
                format!("{} has changed since it was written.", displayed(&undo.path)),
                "Look at it; it is not put back over another change.",
            ));
        }
        match &undo.before {
            Some(before) => replace(&parent, before, stat.as_ref()),
            None => remove(&parent, stat.as_ref()),
        }
    }
}

/// Path by which the same file is opened again from its descriptor.
fn reopen(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

fn read(found: OpenFile) -> Result<FileRead, RequestError> {
    let opened = File::open(reopen(&found.handle)).map_err(|error| unusable(&found.path, &error))?;
    Ok(FileRead {
        bytes: content(opened, &found.path)?,
        path: found.path,
        mode: found.stat.st_mode & 0o7777,
    })
}

/// Returns the content of a file; refuses a file that is too large or holds a private key.
fn content(opened: File, path: &Path) -> Result<Vec<u8>, RequestError> {
    let bytes = read_up_to(opened, path, FILE_BYTES_MAX + 1)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(path));
    }
    refuse_key(path, &bytes)?;
    Ok(bytes)
}

fn read_up_to(opened: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let read = opened.take(bytes_max).read_to_end(&mut bytes);
    read.map_err(|error| unusable(path, &error))?;
    Ok(bytes)
}

fn refuse_key(path: &Path, bytes: &[u8]) -> Result<(), RequestError> {
    match secret_places::is_private_key(bytes) {
        true => Err(denied(path, "holds a private key", "No rule opens it.")),
        false => Ok(()),
    }
}

/// Refuses a private key in a file that a command reads; checks its first `FILE_BYTES_MAX` bytes.
pub(crate) fn refuse_key_in(found: &OpenFile) -> Result<(), RequestError> {
    let opened = File::open(reopen(&found.handle)).map_err(|error| unusable(&found.path, &error))?;
    refuse_key(&found.path, &read_up_to(opened, &found.path, FILE_BYTES_MAX)?)
}

fn too_large(path: &Path) -> RequestError {
    let what = format!("has more than {} MiB", FILE_BYTES_MAX >> 20);
    invalid(path, &what, "Read a part of it with `head` or `tail`.")
}

fn unusable(path: &Path, error: &std::io::Error) -> RequestError {
    denied(path, &format!("cannot be used: {error}"), PERMISSION_NEEDED)
}

fn entry_of(name: String, stat: &Stat) -> FileEntry {
    FileEntry {
        name,
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "directory",
            FileType::Symlink => "link",
            _ => "other",
        },
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_unix: stat.st_mtime,
    }
}

/// Returns the current content and stat of a file. `None`: the file does not exist.
fn current(parent: &OpenParent) -> Result<(Option<Vec<u8>>, Option<Stat>), RequestError> {
    let Some(file) = &parent.file else {
        return Ok((None, None));
    };
    if file.is_directory() {
        return Err(invalid(&file.path, "is a directory", "Name a file."));
    }
    let opened = File::open(reopen(&file.handle)).map_err(|error| unusable(&file.path, &error))?;
    Ok((Some(content(opened, &file.path)?), Some(file.stat)))
}

/// Replaces the file by a new one with its owner and mode; without a file, with its directory's owner and mode 0644.
fn replace(parent: &OpenParent, bytes: &[u8], before: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| open_error(&parent.path, error);
    let temporary = temporary_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(&parent.directory, &temporary, flags, Mode::from_raw_mode(0o600))
        .map_err(failed)?;
    let done = write_content(&handle, bytes, before, parent)
        .and_then(|()| exchange(parent, OsStr::new(&temporary), before));
    if done.is_err() {
        // An error is ignored: the name is unique and in the way of no other file.
        rustix::fs::unlinkat(&parent.directory, &temporary, AtFlags::empty()).ok();
    }
    done?;
    rustix::fs::fsync(&parent.directory).map_err(failed)
}

/// Exchanges the new file with the old one, if the old one is still what was read; otherwise undoes the exchange.
fn exchange(parent: &OpenParent, temporary: &OsStr, before: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| open_error(&parent.path, error);
    let Some(before) = before else {
        return rename(parent, [temporary, &parent.name], RenameFlags::NOREPLACE).map_err(
            |error| match error {
                Errno::EXIST => changed(&parent.path),
                error => failed(error),
            },
        );
    };
    let exchange = || rename(parent, [temporary, &parent.name], RenameFlags::EXCHANGE).map_err(failed);
    exchange()?;
    let displaced = stat_entry(parent.directory.as_fd(), temporary).map_err(failed)?;
    if !displaced.is_some_and(|displaced| is_same(&displaced, before)) {
        exchange()?;
        return Err(changed(&parent.path));
    }
    rustix::fs::unlinkat(&parent.directory, temporary, AtFlags::empty()).map_err(failed)
}

/// Removes a file if it is still what was read; otherwise moves it back.
fn remove(parent: &OpenParent, read: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| open_error(&parent.path, error);
    let aside = temporary_name();
    let aside = OsStr::new(&aside);
    rename(parent, [&parent.name, aside], RenameFlags::NOREPLACE).map_err(failed)?;
    let found = stat_entry(parent.directory.as_fd(), aside).map_err(failed)?;
    match found.zip(read) {
        Some((found, read)) if is_same(&found, read) => {
            rustix::fs::unlinkat(&parent.directory, aside, AtFlags::empty()).map_err(failed)
        }
        _ => {
            rename(parent, [aside, &parent.name], RenameFlags::NOREPLACE).map_err(failed)?;
            Err(changed(&parent.path))
        }
    }
}

fn rename(parent: &OpenParent, [from, to]: [&OsStr; 2], how: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(&parent.directory, from, &parent.directory, to, how)
}

fn temporary_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(".ringfence-{}-{number}", std::process::id())
}

/// True if both are the same file with the same size and time of modification.
fn is_same(one: &Stat, other: &Stat) -> bool {
    let facts = |stat: &Stat| {
        (
            stat.st_dev,
            stat.st_ino,
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec,
        )
    };
    facts(one) == facts(other)
}

fn changed(path: &Path) -> RequestError {
    RequestError::new(
        ErrorCode::Conflict,
        format!("{} has changed meanwhile.", displayed(path)),
        "Look at it, and do it again.",
    )
}

fn write_content(
    handle: &OwnedFd,
    bytes: &[u8],
    before: Option<&Stat>,
    parent: &OpenParent,
) -> Result<(), RequestError> {
    let failed = |error| open_error(&parent.path, error);
    let written = handle
        .try_clone()
        .and_then(|file| File::from(file).write_all(bytes));
    written.map_err(|error| unusable(&parent.path, &error))?;
    let (uid, gid, mode) = match before {
        Some(stat) => (stat.st_uid, stat.st_gid, stat.st_mode & 0o777),
        None => {
            let above = rustix::fs::fstat(&parent.directory).map_err(failed)?;
            (above.st_uid, above.st_gid, 0o644)
        }
    };
    let own = rustix::fs::fstat(handle).map_err(failed)?;
    if (own.st_uid, own.st_gid) != (uid, gid) {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::fchown(handle, Some(uid), Some(gid)).map_err(failed)?;
    }
    rustix::fs::fchmod(handle, Mode::from_raw_mode(mode)).map_err(failed)?;
    rustix::fs::fsync(handle).map_err(failed)
}
