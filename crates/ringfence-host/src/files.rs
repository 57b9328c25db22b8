//! Reading, listing and writing files of the host for a caller. Each path is resolved once (see
//! [`crate::directories`]); a file is written whole or not at all, keeps its owner and mode, and what it was before can
//! be had back.

use crate::{
    directories::{
        self, Access, OpenFile, OpenParent, RIGHT_TO_IT, check, denied, invalid, look, shown, unopened,
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

/// Bytes of one file that is read or written.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
const ENTRIES_MAX: usize = 2000;
const DIFF_BYTES_MAX: usize = 16 << 10;
/// Beyond it the difference is everything old and everything new.
const DIFF_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct FileRead {
    pub path: PathBuf,
    /// Its content: not redacted.
    pub bytes: Vec<u8>,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// As it is; what is not UTF-8 in it is U+FFFD.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    pub size_bytes: u64,
    pub mode: u32,
    pub modified_unix: i64,
}

/// A file that was written, or would be.
#[derive(Debug)]
pub struct FileWritten {
    pub path: PathBuf,
    pub undo: Undo,
    /// A rule lets its content be read.
    is_readable: bool,
}

impl FileWritten {
    /// What changes, as a unified diff of what may be shown of either text; of no text, and of a file that cannot be
    /// read, the sizes.
    pub fn diff(&self, shown: impl Fn(&str) -> Cow<'_, str>) -> String {
        let (before, after) = (self.undo.before.as_deref().unwrap_or_default(), &self.undo.after);
        let (true, Ok(old), Ok(new)) = (self.is_readable, str::from_utf8(before), str::from_utf8(after))
        else {
            return format!("{} bytes become {}\n", before.len(), after.len());
        };
        let name = self.path.display().to_string();
        let until = Instant::now() + DIFF_TIME;
        unified_diff([&name, &name], [&shown(old), &shown(new)], until, DIFF_BYTES_MAX).0
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
    /// Only the change is shown.
    Preview,
}

impl Rules {
    pub fn read_file(&self, namespace: &str, path: &Path) -> Result<FileRead, RequestError> {
        let found = directories::open(&self.directories, namespace, path, Access::Read)?;
        if found.is_directory() {
            return Err(invalid(path, "is a directory", "List it with host_file_list."));
        }
        read(found)
    }

    /// Lists a directory, in the order of the names.
    pub fn list_directory(
        &self,
        namespace: &str,
        path: &Path,
    ) -> Result<(Vec<FileEntry>, bool), RequestError> {
        let found = directories::open(&self.directories, namespace, path, Access::List)?;
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
            if let Ok(Some(stat)) = look(found.handle.as_fd(), &name) {
                entries.push(entry_of(name.to_string_lossy().into_owned(), &stat));
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((entries, is_cut))
    }

    /// Writes a file whole or not at all, or shows what that would change.
    pub fn write_file(
        &self,
        namespace: &str,
        path: &Path,
        content: Content<'_>,
    ) -> Result<FileWritten, RequestError> {
        if content.bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large(path));
        }
        let place = directories::open_parent(&self.directories, namespace, path)?;
        let (before, stat) = present(&place)?;
        let written = FileWritten {
            is_readable: self
                .directories
                .rule_of(&place.path, namespace, Access::Read)
                .is_some(),
            undo: Undo {
                path: place.path.clone(),
                before,
                after: content.bytes.to_vec(),
            },
            path: place.path.clone(),
        };
        if content.write == Writing::Now {
            replace(&place, content.bytes, stat.as_ref())?;
        }
        Ok(written)
    }

    /// Puts back what a file was before, if it is still what was written then.
    pub fn undo_write(&self, namespace: &str, undo: &Undo) -> Result<(), RequestError> {
        let place = directories::open_parent(&self.directories, namespace, &undo.path)?;
        let (now, stat) = present(&place)?;
        if now.as_deref() != Some(undo.after.as_slice()) {
            return Err(RequestError::new(
                ErrorCode::Conflict,
                format!("{} has changed since it was written.", shown(&undo.path)),
                "Look at it; it is not put back over another change.",
            ));
        }
        match &undo.before {
            Some(before) => replace(&place, before, stat.as_ref()),
            None => remove(&place, stat.as_ref()),
        }
    }
}

/// Another opening of the same file, by its descriptor.
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

/// All of a file, unless it is too much or a private key.
fn content(opened: File, path: &Path) -> Result<Vec<u8>, RequestError> {
    let bytes = beginning(opened, path, FILE_BYTES_MAX + 1)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(path));
    }
    refuse_key(path, &bytes)?;
    Ok(bytes)
}

fn beginning(opened: File, path: &Path, most: u64) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let read = opened.take(most).read_to_end(&mut bytes);
    read.map_err(|error| unusable(path, &error))?;
    Ok(bytes)
}

fn refuse_key(path: &Path, bytes: &[u8]) -> Result<(), RequestError> {
    match secret_places::is_private_key(bytes) {
        true => Err(denied(path, "holds a private key", "No rule opens it.")),
        false => Ok(()),
    }
}

/// The same of a file that a command is to print.
pub(crate) fn refuse_key_in(found: &OpenFile) -> Result<(), RequestError> {
    let opened = File::open(reopen(&found.handle)).map_err(|error| unusable(&found.path, &error))?;
    refuse_key(&found.path, &beginning(opened, &found.path, FILE_BYTES_MAX)?)
}

fn too_large(path: &Path) -> RequestError {
    let what = format!("has more than {} MiB", FILE_BYTES_MAX >> 20);
    invalid(path, &what, "Read a part of it with `head` or `tail`.")
}

fn unusable(path: &Path, error: &std::io::Error) -> RequestError {
    denied(path, &format!("cannot be used: {error}"), RIGHT_TO_IT)
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

/// What the file is now; nothing: it is not there.
fn present(place: &OpenParent) -> Result<(Option<Vec<u8>>, Option<Stat>), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match look(place.directory.as_fd(), &place.name).map_err(failed)? {
        None => return Ok((None, None)),
        Some(stat) => check_file(&place.path, &stat)?,
    }
    let handle = rustix::fs::openat(&place.directory, &place.name, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&handle).map_err(failed)?;
    check_file(&place.path, &stat)?;
    let bytes = content(handle.into(), &place.path)?;
    Ok((Some(bytes), Some(stat)))
}

fn check_file(path: &Path, stat: &Stat) -> Result<(), RequestError> {
    check(path, stat)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(invalid(path, "is a directory", "Name a file.")),
    }
}

/// A new file takes the place of the old one, with its owner and mode; where there was none it gets those of its
/// directory's owner.
fn replace(place: &OpenParent, bytes: &[u8], before: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let temporary = temporary_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(&place.directory, &temporary, flags, Mode::from_raw_mode(0o600))
        .map_err(failed)?;
    let done =
        fill(&handle, bytes, before, place).and_then(|()| exchange(place, OsStr::new(&temporary), before));
    if done.is_err() {
        // It has a name of its own, and is in the way of no other.
        rustix::fs::unlinkat(&place.directory, &temporary, AtFlags::empty()).ok();
    }
    done?;
    rustix::fs::fsync(&place.directory).map_err(failed)
}

/// Puts the new file in the place of the old one, if that is still what was read; else all stays as it is.
fn exchange(place: &OpenParent, temporary: &OsStr, before: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let Some(before) = before else {
        return rename(place, [temporary, &place.name], RenameFlags::NOREPLACE).map_err(
            |error| match error {
                Errno::EXIST => changed(&place.path),
                error => failed(error),
            },
        );
    };
    let exchange = || rename(place, [temporary, &place.name], RenameFlags::EXCHANGE).map_err(failed);
    exchange()?;
    let displaced = look(place.directory.as_fd(), temporary).map_err(failed)?;
    if !displaced.is_some_and(|displaced| is_same(&displaced, before)) {
        exchange()?;
        return Err(changed(&place.path));
    }
    rustix::fs::unlinkat(&place.directory, temporary, AtFlags::empty()).map_err(failed)
}

/// Removes a file, if it is still what was read.
fn remove(place: &OpenParent, read: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let aside = temporary_name();
    let aside = OsStr::new(&aside);
    rename(place, [&place.name, aside], RenameFlags::NOREPLACE).map_err(failed)?;
    let found = look(place.directory.as_fd(), aside).map_err(failed)?;
    match found.zip(read) {
        Some((found, read)) if is_same(&found, read) => {
            rustix::fs::unlinkat(&place.directory, aside, AtFlags::empty()).map_err(failed)
        }
        _ => {
            rename(place, [aside, &place.name], RenameFlags::NOREPLACE).map_err(failed)?;
            Err(changed(&place.path))
        }
    }
}

fn rename(place: &OpenParent, [from, to]: [&OsStr; 2], how: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(&place.directory, from, &place.directory, to, how)
}

fn temporary_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(".ringfence-{}-{number}", std::process::id())
}

/// The same file with the same content, as far as the kernel tells.
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
        format!("{} has changed meanwhile.", shown(path)),
        "Look at it, and do it again.",
    )
}

fn fill(
    handle: &OwnedFd,
    bytes: &[u8],
    before: Option<&Stat>,
    place: &OpenParent,
) -> Result<(), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let written = handle
        .try_clone()
        .and_then(|file| File::from(file).write_all(bytes));
    written.map_err(|error| unusable(&place.path, &error))?;
    let (uid, gid, mode) = match before {
        Some(stat) => (stat.st_uid, stat.st_gid, stat.st_mode & 0o777),
        None => {
            let above = rustix::fs::fstat(&place.directory).map_err(failed)?;
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
