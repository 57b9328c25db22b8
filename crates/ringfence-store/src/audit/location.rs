//! Where the record is kept: making the file, taking hold of it, moving a damaged one aside.
//!
//! `audit.open.lock` beside the database is held while a server opens it or moves files, so that no other opens half of
//! its files. Servers that have a file open which is moved see so before their next record, and open what is
//! there then.

use super::{
    AuditError, Head,
    chain::{self, Broken, Writer},
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

/// Damaged files of one second, before moving aside is refused.
const ASIDE_NAMES_MAX: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A database file. Its directory exists, and is its owner's alone.
    File(PathBuf),
    /// As long as the process.
    Memory,
}

impl Storage {
    /// The same wherever this process may go afterwards.
    pub(super) fn absolute(self) -> Result<Self, AuditError> {
        let Self::File(path) = self else { return Ok(self) };
        match std::path::absolute(&path) {
            Ok(path) => Ok(Self::File(path)),
            Err(error) => Err(AuditError::of_io(&path, "looking for it", &error)),
        }
    }

    pub(super) fn shown(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory => PathBuf::from(":memory:"),
        }
    }
}

pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    /// None for a database in memory.
    pub(super) hold: Option<Hold>,
    pub(super) head: Head,
}

/// Why a database is opened; by default for the first time.
#[derive(Default)]
pub(super) struct Opening {
    /// Up to where this process had written the file that it lost.
    pub(super) known: Option<Head>,
    /// Met in these files, which are moved aside unless another process has done so already.
    pub(super) damage: Option<(String, Files)>,
}

/// Of a database and of each file that SQLite keeps beside it.
const ENDS: [&str; 3] = ["", "-wal", "-shm"];

/// The device and inode of each.
pub(super) type Files = [(u64, u64); 3];

pub(super) struct Hold {
    path: PathBuf,
    pub(super) files: Files,
}

impl Hold {
    /// Whether the three names still lead to the files that are open.
    pub(super) fn is_in_place(&self) -> bool {
        identities(&self.path).is_ok_and(|now| now == self.files)
    }
}

/// Opens, makes or, when it is damaged, replaces the database.
pub(super) fn open(
    location: &Storage,
    writer: &Writer,
    opening: Opening,
) -> Result<OpenDatabase, AuditError> {
    let Storage::File(path) = location else {
        let failed = |broken: Broken| broken.told(&location.shown(), "making it in memory");
        let connected = schema::connect_writer(None, writer.durability);
        let mut connection = connected.map_err(|error| failed(error.into()))?;
        let head = chain::begin(&mut connection, writer, None, chain::reason("new", None)).map_err(failed)?;
        return Ok(OpenDatabase {
            connection,
            hold: None,
            head,
        });
    };
    let _lock = lock(path)?;
    let (connection, head) = open_file(path, writer, &opening)?;
    let files = identities(path).map_err(|error| AuditError::of_io(path, "looking at it", &error))?;
    let path = path.clone();
    Ok(OpenDatabase {
        connection,
        hold: Some(Hold { path, files }),
        head,
    })
}

fn open_file(path: &Path, writer: &Writer, opening: &Opening) -> Result<(Connection, Head), AuditError> {
    make(path)?;
    // Damage that was met in the very file that is there.
    let is_there = |files: &Files| identities(path).is_ok_and(|now| now[0] == files[0]);
    let met = opening.damage.as_ref().filter(|(_, files)| is_there(files));
    let (what, head) = match met.map(|(what, _)| what.clone()) {
        Some(what) => (what, opening.known),
        None => match continue_chain(path, writer, opening) {
            Ok(continued) => return Ok(continued),
            Err(Broken::Damage { what, head }) => (what, head.or(opening.known)),
            Err(broken) => match broken.told(path, "opening it") {
                AuditError::Damaged { what, .. } => (what, opening.known),
                error => return Err(error),
            },
        },
    };
    let to = move_aside(path, &ENDS)?;
    tracing::error!(%what, ?to, "the audit record was damaged; it is moved aside, and a new segment begins");
    make(path)?;
    let failed = |broken: Broken| broken.told(path, "beginning a new segment");
    let connected = schema::connect_writer(Some(path), writer.durability);
    let mut connection = connected.map_err(|error| failed(error.into()))?;
    let mut details = chain::reason("damaged", head);
    details.insert("damage".to_owned(), Value::from(what));
    details.insert("moved_to".to_owned(), Value::from(to.to_string_lossy()));
    let head = begin_after(path, &mut connection, writer, head, details).map_err(failed)?;
    Ok((connection, head))
}

/// The first record of a file. It follows the head that was there, as far as that is known, and the closed segments.
fn begin_after(
    path: &Path,
    connection: &mut Connection,
    writer: &Writer,
    head: Option<Head>,
    mut details: Map<String, Value>,
) -> Result<Head, Broken> {
    let segments = segments::list(path, u64::MAX)?;
    let closed = segments.last();
    if let Some(closed) = closed {
        details.insert(chain::ARCHIVED_UNTIL.to_owned(), Value::from(closed.last));
    }
    let of_closed = |closed: &Segment| match closed.last_record() {
        Some(last) => last.head(),
        None => Head {
            seq: closed.last,
            hash: NO_HASH,
            time_us: 0,
        },
    };
    let after = match (head, closed) {
        (Some(head), Some(closed)) if head.seq < closed.last => Some(of_closed(closed)),
        (None, Some(closed)) => Some(of_closed(closed)),
        (head, _) => head,
    };
    chain::begin(connection, writer, after, details)
}

fn continue_chain(path: &Path, writer: &Writer, opening: &Opening) -> Result<(Connection, Head), Broken> {
    let mut connection = schema::connect_writer(Some(path), writer.durability)?;
    let found = look(&mut connection, &writer.public_key)?;
    let head = match (found, opening.known) {
        (None, known) => {
            let closed = segments::list(path, u64::MAX);
            let is_new = known.is_none() && closed.is_ok_and(|closed| closed.is_empty());
            let details = chain::reason(if is_new { "new" } else { "replaced" }, known);
            let head = begin_after(path, &mut connection, writer, known, details)?;
            return Ok((connection, head));
        }
        (Some(head), None) => head,
        (Some(head), Some(known)) => chain::tell_break(&mut connection, writer, head, known)?,
    };
    schema::use_log(&connection)?;
    Ok((connection, head))
}

/// The head, if there is a chain. In one transaction: between two reads another server may append.
fn look(connection: &mut Connection, public_key: &[u8; 32]) -> Result<Option<Head>, Broken> {
    let moment = connection.transaction()?;
    match schema::form(&moment)? {
        Form::Empty => Ok(None),
        Form::Newer(version) => Err(Broken::Newer(version)),
        Form::Foreign(what) => Err(Broken::Damage { what, head: None }),
        Form::Ours => chain::examine(&moment, public_key).map(Some),
    }
}

/// Held until it is dropped: no other server opens the database or moves its files.
pub(super) fn lock(database: &Path) -> Result<FileLock, AuditError> {
    let path = database.with_extension("open.lock");
    let patience = Duration::from_millis(LOCKED_MS_MAX);
    let opened = Directory::of_file(&path);
    let locked = opened.and_then(|(directory, name)| directory.lock_within(&name, patience));
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

/// Makes an empty file of mode 0600 if it is missing. An existing one is never opened here: to close it would drop
/// the locks that SQLite holds on it elsewhere in this process (fcntl(2), "record locks").
fn make(path: &Path) -> Result<(), AuditError> {
    let failed = |error: &io::Error| AuditError::of_io(path, "making it", error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(_) => {
            // the log of a database that is gone must not be taken for the new one's
            let strays = &ENDS[1..];
            if strays.iter().any(|end| with_end(path, end).exists()) {
                move_aside(path, strays)?;
            }
            Ok(())
        }
        Err(Errno::EXIST) => {
            let found = schema::regular(path)?;
            if found.mode() & 0o077 != 0 {
                let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
                closed.map_err(|error| failed(&error))?;
            }
            Ok(())
        }
        Err(error) => Err(failed(&error.into())),
    }
}

fn move_aside(path: &Path, ends: &[&str]) -> Result<PathBuf, AuditError> {
    let to = free_name(path)?;
    // The database first: a log without one is set aside by `make`, a database without its log would look older.
    for end in ends {
        let from = with_end(path, end);
        match fs::rename(&from, with_end(&to, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(AuditError::of_io(&from, "moving it aside", &error));
            }
            _ => {}
        }
    }
    Ok(to)
}

/// `audit-<seconds>.damaged.db`, with a number if that is taken.
fn free_name(path: &Path) -> Result<PathBuf, AuditError> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let taken = |name: &PathBuf| {
        ENDS.iter()
            .any(|end| fs::symlink_metadata(with_end(name, end)).is_ok())
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
        let found = fs::symlink_metadata(with_end(path, end))?;
        io::Result::Ok((found.dev(), found.ino()))
    };
    Ok([of(ENDS[0])?, of(ENDS[1])?, of(ENDS[2])?])
}

pub(super) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}
