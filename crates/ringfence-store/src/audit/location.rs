//! The location of the record: creating and opening the file, and moving a damaged one aside.
//!
//! `audit.open.lock` beside the database is held while a server opens or moves the files, so that none opens only some
//! of them. A server whose open file is moved detects that before its next record, and opens the new one.

use super::{
    AuditError, Head,
    chain::{self, ChainError, Writer},
    record::NO_HASH,
    schema::{self, Form, LOCKED_MS_MAX},
    segments::{self, Segment},
};
use crate::whole_file::{Directory, FileError, FileLock};
use rusqlite::Connection;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use serde_json::{Map, Value};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Maximum damaged files within one second; moving another one aside fails.
const ASIDE_NAMES_MAX: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A database file. Its directory must exist and be closed to other users.
    File(PathBuf),
    Memory,
}

impl Storage {
    /// Makes the path absolute, so that a later change of the working directory does not matter.
    pub(super) fn absolute(self) -> Result<Self, AuditError> {
        let Self::File(path) = self else { return Ok(self) };
        match std::path::absolute(&path) {
            Ok(path) => Ok(Self::File(path)),
            Err(error) => Err(AuditError::of_io(&path, "looking for it", &error)),
        }
    }

    pub(super) fn display_path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory => PathBuf::from(":memory:"),
        }
    }
}

pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    /// None for a database in memory.
    pub(super) open_files: Option<OpenFiles>,
    pub(super) head: Head,
}

/// The reason for opening a database; by default, the first time.
#[derive(Default)]
pub(super) struct Opening {
    /// The last head that this process wrote or checked in the file that it lost.
    pub(super) known: Option<Head>,
    /// Damage found in these files, which are moved aside unless another process has done so already.
    pub(super) damage: Option<(String, Files)>,
}

/// Suffixes of a database and of the files that SQLite keeps beside it.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// Device and inode of each.
pub(super) type Files = [(u64, u64); 3];

pub(super) struct OpenFiles {
    path: PathBuf,
    pub(super) files: Files,
}

impl OpenFiles {
    /// Returns true if the three names still lead to the open files.
    pub(super) fn is_in_place(&self) -> bool {
        identities(&self.path).is_ok_and(|now| now == self.files)
    }
}

pub(super) fn open(
    location: &Storage,
    writer: &Writer,
    opening: Opening,
) -> Result<OpenDatabase, AuditError> {
    let Storage::File(path) = location else {
        let failed = |broken: ChainError| broken.at(&location.display_path(), "making it in memory");
        let connected = schema::connect_writer(None, writer.durability);
        let mut connection = connected.map_err(|error| failed(error.into()))?;
        let head = chain::begin(&mut connection, writer, None, chain::reason("new", None)).map_err(failed)?;
        return Ok(OpenDatabase {
            connection,
            open_files: None,
            head,
        });
    };
    let _lock = lock(path)?;
    let (connection, head) = open_file(path, writer, &opening)?;
    let files = identities(path).map_err(|error| AuditError::of_io(path, "looking at it", &error))?;
    let path = path.clone();
    Ok(OpenDatabase {
        connection,
        open_files: Some(OpenFiles { path, files }),
        head,
    })
}

fn open_file(path: &Path, writer: &Writer, opening: &Opening) -> Result<(Connection, Head), AuditError> {
    make(path)?;
    // Only damage found in the file that is still there counts.
    let is_there = |files: &Files| identities(path).is_ok_and(|now| now[0] == files[0]);
    let met = opening.damage.as_ref().filter(|(_, files)| is_there(files));
    let (what, head) = match met.map(|(what, _)| what.clone()) {
        Some(what) => (what, opening.known),
        None => match continue_chain(path, writer, opening) {
            Ok(continued) => return Ok(continued),
            Err(ChainError::Damage { what, head }) => (what, head.or(opening.known)),
            Err(broken) => match broken.at(path, "opening it") {
                AuditError::Damaged { what, .. } => (what, opening.known),
                error => return Err(error),
            },
        },
    };
    let to = move_aside(path, &SUFFIXES)?;
    tracing::error!(%what, ?to, "the audit record was damaged; it is moved aside, and a new segment begins");
    make(path)?;
    let failed = |broken: ChainError| broken.at(path, "beginning a new segment");
    let connected = schema::connect_writer(Some(path), writer.durability);
    let mut connection = connected.map_err(|error| failed(error.into()))?;
    let mut details = chain::reason("damaged", head);
    details.insert("damage".to_owned(), Value::from(what));
    details.insert("moved_to".to_owned(), Value::from(to.to_string_lossy()));
    let head = begin_after(path, &mut connection, writer, head, details).map_err(failed)?;
    Ok((connection, head))
}

/// Writes the first record of a file, after the previous head, if known, or the closed segments if they go further.
fn begin_after(
    path: &Path,
    connection: &mut Connection,
    writer: &Writer,
    head: Option<Head>,
    mut details: Map<String, Value>,
) -> Result<Head, ChainError> {
    let segments = segments::list(path, u64::MAX)?;
    let closed = segments.iter().rfind(|segment| segment.is_file());
    if let Some(closed) = closed {
        details.insert(chain::ARCHIVED_UNTIL.to_owned(), Value::from(closed.last));
    }
    let of_closed = |closed: &Segment| {
        let (seq, hash, time_us) = (closed.last, NO_HASH, 0);
        let lost = Head { seq, hash, time_us };
        let last = closed.last_record(&writer.public_key);
        last.ok().flatten().unwrap_or(lost)
    };
    let after = match (head, closed) {
        (Some(head), Some(closed)) if head.seq < closed.last => Some(of_closed(closed)),
        (None, Some(closed)) => Some(of_closed(closed)),
        (head, _) => head,
    };
    chain::begin(connection, writer, after, details)
}

fn continue_chain(path: &Path, writer: &Writer, opening: &Opening) -> Result<(Connection, Head), ChainError> {
    let mut connection = schema::connect_writer(Some(path), writer.durability)?;
    let found = examine_chain(&mut connection, &writer.public_key)?;
    let head = match (found, opening.known) {
        (None, known) => {
            let closed = segments::list(path, u64::MAX);
            let is_new = known.is_none() && closed.is_ok_and(|closed| !closed.iter().any(Segment::is_file));
            let details = chain::reason(if is_new { "new" } else { "replaced" }, known);
            let head = begin_after(path, &mut connection, writer, known, details)?;
            return Ok((connection, head));
        }
        (Some(head), None) => head,
        (Some(head), Some(known)) => chain::record_break(&mut connection, writer, head, known)?,
    };
    schema::use_log(&connection)?;
    Ok((connection, head))
}

/// Returns the head, if there is a chain. Reads in one transaction, since another server may append between two reads.
fn examine_chain(connection: &mut Connection, public_key: &[u8; 32]) -> Result<Option<Head>, ChainError> {
    let snapshot = connection.transaction()?;
    match schema::form(&snapshot)? {
        Form::Empty => Ok(None),
        Form::Newer(version) => Err(ChainError::Newer(version)),
        Form::Foreign(what) => Err(ChainError::Damage { what, head: None }),
        Form::Ours => chain::examine(&snapshot, public_key).map(Some),
    }
}

/// Locks the database: until this is dropped, no other server opens it or moves its files.
pub(super) fn lock(database: &Path) -> Result<FileLock, AuditError> {
    let path = database.with_extension("open.lock");
    let timeout = Duration::from_millis(LOCKED_MS_MAX);
    let opened = Directory::of_file(&path);
    let locked = opened.and_then(|(directory, name)| directory.lock_within(&name, timeout));
    locked.map_err(
        |FileError { error, .. }| match (error.kind(), database.parent()) {
            (io::ErrorKind::NotFound, Some(directory)) if !directory.exists() => {
                AuditError::Gone(directory.to_owned())
            }
            (io::ErrorKind::WouldBlock, _) => AuditError::Locked(path),
            _ => AuditError::of_io(&path, "locking it", &error),
        },
    )
}

/// Creates an empty file of mode 0600. An existing one is closed to others by its mode and never opened: closing that
/// would drop the locks that SQLite holds on it elsewhere in this process (fcntl(2), "record locks").
fn make(path: &Path) -> Result<(), AuditError> {
    let failed = |error: &io::Error| AuditError::of_io(path, "making it", error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(_) => {
            // the log of a missing database must not be used for the new one
            let strays = &SUFFIXES[1..];
            if strays.iter().any(|end| with_suffix(path, end).exists()) {
                move_aside(path, strays)?;
            }
            Ok(())
        }
        Err(Errno::EXIST) => {
            let found = schema::check_regular_file(path)?;
            if found.mode() & 0o077 != 0 {
                let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
                closed.map_err(|error| failed(&error))?;
            }
            Ok(())
        }
        Err(error) => Err(failed(&error.into())),
    }
}

fn move_aside(path: &Path, suffixes: &[&str]) -> Result<PathBuf, AuditError> {
    let to = free_name(path)?;
    // The database first: `make` moves a lone log aside, but a database without its log would look older.
    for suffix in suffixes {
        let from = with_suffix(path, suffix);
        match fs::rename(&from, with_suffix(&to, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(AuditError::of_io(&from, "moving it aside", &error));
            }
            _ => {}
        }
    }
    Ok(to)
}

/// Returns `audit-<seconds>.damaged.db`, with a number if that name is taken.
fn free_name(path: &Path) -> Result<PathBuf, AuditError> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let taken = |name: &PathBuf| {
        let is_there = |end: &&str| fs::symlink_metadata(with_suffix(name, end)).is_ok();
        SUFFIXES.iter().any(is_there)
    };
    (0..ASIDE_NAMES_MAX)
        .map(|count| match count {
            0 => path.with_file_name(format!("{stem}-{seconds}.damaged.db")),
            _ => path.with_file_name(format!("{stem}-{seconds}-{count}.damaged.db")),
        })
        .find(|name| !taken(name))
        .ok_or_else(|| AuditError::io(path, "moving it aside", "every name for it is taken"))
}

fn identities(path: &Path) -> io::Result<Files> {
    let of = |end: &str| {
        let found = fs::symlink_metadata(with_suffix(path, end))?;
        io::Result::Ok((found.dev(), found.ino()))
    };
    Ok([of(SUFFIXES[0])?, of(SUFFIXES[1])?, of(SUFFIXES[2])?])
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
