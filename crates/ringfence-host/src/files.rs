//! Reading, listing and writing files of the host for a caller. Each path is resolved once (see
//! [`crate::directories`]); a file is written whole or not at all, keeps its owner and mode, and what it was before can
//! be had back.

use crate::{
    directories::{self, Access, OpenFile, OpenParent, check, look, unopened},
    rule::Rules,
    secret_places,
    undo::Undo,
    words::escaped,
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

/// A file that was read.
#[derive(Debug)]
pub struct FileRead {
    /// Where it is.
    pub path: PathBuf,
    /// Its content: not redacted.
    pub bytes: Vec<u8>,
    /// Permissions.
    pub mode: u32,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// As it is; what is not UTF-8 in it is U+FFFD.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    /// Bytes.
    pub size_bytes: u64,
    /// Permissions.
    pub mode: u32,
    /// Unix time.
    pub modified_unix: i64,
}

/// A file that was written, or would be.
#[derive(Debug)]
pub struct FileWritten {
    /// Where it is.
    pub path: PathBuf,
    /// What it was before.
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

/// What a file is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Written, or only shown.
    pub write: Writing,
}

/// Whether a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It is.
    Now,
    /// Only the change is shown.
    Preview,
}

impl Rules {
    /// Reads a file.
    pub fn read_file(&self, namespace: &str, path: &Path) -> Result<FileRead, RequestError> {
        let found = directories::open(&self.directories, namespace, path, Access::Read)?;
        if found.is_directory() {
            return Err(RequestError::invalid(
                format!("{} is a directory.", escaped(&path.to_string_lossy())),
                "List it with host_file_list.",
            ));
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
            return Err(RequestError::invalid(
                format!("{} is not a directory.", escaped(&path.to_string_lossy())),
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
                format!(
                    "{} has changed since it was written.",
                    escaped(&undo.path.to_string_lossy())
                ),
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
    let failed = |error: std::io::Error| unusable(&found.path, &error);
    let opened = File::open(reopen(&found.handle)).map_err(failed)?;
    let mut bytes = Vec::new();
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(&found.path));
    }
    refuse_key(&found.path, &bytes)?;
    Ok(FileRead {
        path: found.path,
        bytes,
        mode: found.stat.st_mode & 0o7777,
    })
}

fn refuse_key(path: &Path, bytes: &[u8]) -> Result<(), RequestError> {
    match secret_places::is_private_key(bytes) {
        true => Err(RequestError::denied(
            format!("{} holds a private key.", escaped(&path.to_string_lossy())),
            "No rule opens it.",
        )),
        false => Ok(()),
    }
}

/// The same of a file that a command is to print.
pub(crate) fn refuse_key_in(found: &OpenFile) -> Result<(), RequestError> {
    let failed = |error: std::io::Error| unusable(&found.path, &error);
    let opened = File::open(reopen(&found.handle)).map_err(failed)?;
    let mut bytes = Vec::new();
    opened
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    refuse_key(&found.path, &bytes)
}

fn too_large(path: &Path) -> RequestError {
    RequestError::invalid(
        format!(
            "{} has more than {} MiB.",
            escaped(&path.to_string_lossy()),
            FILE_BYTES_MAX >> 20
        ),
        "Read a part of it with `head` or `tail`.",
    )
}

fn unusable(path: &Path, error: &std::io::Error) -> RequestError {
    RequestError::denied(
        format!("{} cannot be used: {error}.", escaped(&path.to_string_lossy())),
        "The server's user needs the right to it.",
    )
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
    let mut bytes = Vec::new();
    let read = File::from(handle)
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes);
    read.map_err(|error| unusable(&place.path, &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(&place.path));
    }
    refuse_key(&place.path, &bytes)?;
    Ok((Some(bytes), Some(stat)))
}

fn check_file(path: &Path, stat: &Stat) -> Result<(), RequestError> {
    check(path, stat)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(RequestError::invalid(
            format!("{} is a directory.", escaped(&path.to_string_lossy())),
            "Name a file.",
        )),
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
    let rename = |from: &OsStr, to: &OsStr, how| {
        rustix::fs::renameat_with(&place.directory, from, &place.directory, to, how)
    };
    let Some(before) = before else {
        return rename(temporary, &place.name, RenameFlags::NOREPLACE).map_err(|error| match error {
            Errno::EXIST => changed(&place.path),
            error => failed(error),
        });
    };
    rename(temporary, &place.name, RenameFlags::EXCHANGE).map_err(failed)?;
    let displaced = look(place.directory.as_fd(), temporary).map_err(failed)?;
    if !displaced.is_some_and(|displaced| is_same(&displaced, before)) {
        rename(temporary, &place.name, RenameFlags::EXCHANGE).map_err(failed)?;
        return Err(changed(&place.path));
    }
    rustix::fs::unlinkat(&place.directory, temporary, AtFlags::empty()).map_err(failed)
}

/// Removes a file, if it is still what was read.
fn remove(place: &OpenParent, read: Option<&Stat>) -> Result<(), RequestError> {
    let failed = |error| unopened(&place.path, error);
    let aside = temporary_name();
    let rename = |from: &OsStr, to: &OsStr| {
        rustix::fs::renameat_with(
            &place.directory,
            from,
            &place.directory,
            to,
            RenameFlags::NOREPLACE,
        )
    };
    rename(&place.name, OsStr::new(&aside)).map_err(failed)?;
    let found = look(place.directory.as_fd(), OsStr::new(&aside)).map_err(failed)?;
    match found.zip(read) {
        Some((found, read)) if is_same(&found, read) => {
            rustix::fs::unlinkat(&place.directory, &aside, AtFlags::empty()).map_err(failed)
        }
        _ => {
            rename(OsStr::new(&aside), &place.name).map_err(failed)?;
            Err(changed(&place.path))
        }
    }
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
        format!("{} has changed meanwhile.", escaped(&path.to_string_lossy())),
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
    let mut file = File::from(
        handle
            .try_clone()
            .map_err(|error| unusable(&place.path, &error))?,
    );
    file.write_all(bytes)
        .map_err(|error| unusable(&place.path, &error))?;
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
