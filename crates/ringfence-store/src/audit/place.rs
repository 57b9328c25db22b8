//! Where the record is kept: making the file, taking hold of it, moving a damaged one aside.
//!
//! `audit.open.lock` beside the database is held while one opens it or moves files, so that nobody opens half of
//! another's files. Servers that have a file open which is moved see so before their next record, and open what is
//! there then.

use super::{
    AuditError, Head, Place,
    chain::{self, Broken, Writer},
    record::NO_HASH,
    schema::{self, Form, LOCKED_MS_MAX},
    segments::{self, Segment},
};
use rusqlite::{Connection, config::DbConfig};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};
use serde_json::{Map, Value};
use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How often the lock is looked at while another process moves files.
const LOCK_LOOK_MS: u64 = 10;
/// Damaged files of one second, before moving aside is refused.
const ASIDE_NAMES_MAX: u32 = 100;

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Nothing; a chain was begun.
    Fresh,
    /// A chain that ends here, which is continued.
    Continued(Head),
    /// A damaged file. It was moved aside and a new chain was begun.
    MovedAside {
        /// Where it is now.
        to: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
}

/// A database that was opened and examined.
pub(super) struct OpenDatabase {
    pub(super) connection: Connection,
    /// None for a database in memory.
    pub(super) hold: Option<Hold>,
    pub(super) head: Head,
}

/// Why a database is opened.
#[derive(Clone)]
pub(super) enum Opening {
    /// For the first time.
    First,
    /// The file was lost that this process had written up to that head.
    Again(Head),
    /// The same, and it was met with damage. It is moved aside, unless another has done so already.
    Damaged { known: Head, what: String, files: Files },
}

impl Opening {
    fn known(&self) -> Option<Head> {
        match self {
            Self::First => None,
            Self::Again(known) | Self::Damaged { known, .. } => Some(*known),
        }
    }
}

/// Of the database, its `-wal` and its `-shm`: device and inode.
pub(super) type Files = [(u64, u64); 3];

/// Which files the connection has open.
pub(super) struct Hold {
    path: PathBuf,
    files: Files,
}

impl Hold {
    /// Do the three names still lead to the files that are open.
    pub(super) fn is_in_place(&self) -> bool {
        identities(&self.path).is_ok_and(|now| now == self.files)
    }

    pub(super) fn files(&self) -> Files {
        self.files
    }
}

/// Opens, makes or, when it is damaged, replaces the database.
pub(super) fn open(
    place: &Place,
    writer: &Writer,
    opening: Opening,
) -> Result<(OpenDatabase, Opened), AuditError> {
    let Place::File(path) = place else {
        let step = "making it in memory";
        let failed = |broken: Broken| broken.told(&place.shown(), step);
        let mut connection =
            schema::connect_writer(None, writer.durability).map_err(|error| failed(error.into()))?;
        let head = chain::begin(&mut connection, writer, None, chain::reason("new", None)).map_err(failed)?;
        let open = OpenDatabase {
            connection,
            hold: None,
            head,
        };
        return Ok((open, Opened::Fresh));
    };
    let _lock = lock(path)?;
    let (connection, head, opened) = open_file(path, writer, &opening)?;
    let files = identities(path).map_err(|error| AuditError::of_io(path, "looking at it", &error))?;
    let hold = Hold {
        path: path.clone(),
        files,
    };
    let open = OpenDatabase {
        connection,
        hold: Some(hold),
        head,
    };
    Ok((open, opened))
}

fn open_file(
    path: &Path,
    writer: &Writer,
    opening: &Opening,
) -> Result<(Connection, Head, Opened), AuditError> {
    make(path)?;
    let (what, head) = match met_damage(path, opening) {
        Some(what) => (what, opening.known()),
        None => match continue_chain(path, writer, opening) {
            Ok((connection, head, opened)) => return Ok((connection, head, opened)),
            Err(Refusal::Told(error)) => return Err(error),
            Err(Refusal::Damage { what, head }) => (what, head.or(opening.known())),
        },
    };
    let to = move_aside(path)?;
    make(path)?;
    let failed = |broken: Broken| broken.told(path, "beginning a new segment");
    let mut connection =
        schema::connect_writer(Some(path), writer.durability).map_err(|error| failed(error.into()))?;
    let mut details = chain::reason("damaged", head);
    details.insert("damage".to_owned(), Value::from(what.clone()));
    details.insert("moved_to".to_owned(), Value::from(to.to_string_lossy()));
    let head = begin_after(path, &mut connection, writer, head, details).map_err(failed)?;
    Ok((connection, head, Opened::MovedAside { to, reason: what }))
}

/// The damage that this process has met in the very file that is there.
fn met_damage(path: &Path, opening: &Opening) -> Option<String> {
    match opening {
        Opening::Damaged { what, files, .. } if identities(path).is_ok_and(|now| now[0] == files[0]) => {
            Some(what.clone())
        }
        _ => None,
    }
}

/// The first record of a file. It follows the head that was there, as far as that is known, and the closed segments.
fn begin_after(
    path: &Path,
    connection: &mut Connection,
    writer: &Writer,
    head: Option<Head>,
    mut details: Map<String, Value>,
) -> Result<Head, Broken> {
    let segments = segments::list(path, u64::MAX).map_err(Broken::Io)?;
    let closed = segments.last();
    if let Some(closed) = closed {
        details.insert(chain::ARCHIVED_UNTIL.to_owned(), Value::from(closed.last));
    }
    let of_closed = |closed: &Segment| {
        let last = closed.last_record();
        last.map(|last| last.head()).unwrap_or(Head {
            seq: closed.last,
            hash: NO_HASH,
            time_us: 0,
        })
    };
    let after = match (head, closed) {
        (Some(head), Some(closed)) if head.seq < closed.last => Some(of_closed(closed)),
        (None, Some(closed)) => Some(of_closed(closed)),
        (head, _) => head,
    };
    chain::begin(connection, writer, after, details)
}

enum Refusal {
    /// The file's contents are at fault.
    Damage { what: String, head: Option<Head> },
    /// Anything else.
    Told(AuditError),
}

/// Goes on with what is there, or begins in an empty file.
fn continue_chain(
    path: &Path,
    writer: &Writer,
    opening: &Opening,
) -> Result<(Connection, Head, Opened), Refusal> {
    let refused = |broken: Broken| match broken {
        Broken::Damage { what, head } => Refusal::Damage { what, head },
        Broken::Io(error) => Refusal::Told(AuditError::of_io(path, "opening it", &error)),
        Broken::Sqlite(error) => match AuditError::of_sqlite(path, "opening it", &error) {
            AuditError::Damaged { what, .. } => Refusal::Damage { what, head: None },
            error => Refusal::Told(error),
        },
    };
    let mut connection =
        schema::connect_writer(Some(path), writer.durability).map_err(|error| refused(error.into()))?;
    let looked = look(&mut connection, &writer.public_key);
    if looked.is_err() {
        keep_log(&connection);
    }
    let head = match (looked.map_err(refused)?, opening.known()) {
        (Found::Newer(version), _) => {
            let path = path.to_owned();
            return Err(Refusal::Told(AuditError::NewerSchema { path, version }));
        }
        (Found::Nothing, known) => {
            let is_new =
                known.is_none() && segments::list(path, u64::MAX).is_ok_and(|closed| closed.is_empty());
            let details = chain::reason(if is_new { "new" } else { "replaced" }, known);
            let head = begin_after(path, &mut connection, writer, known, details).map_err(refused)?;
            return Ok((connection, head, Opened::Fresh));
        }
        (Found::Chain(head), None) => head,
        (Found::Chain(head), Some(known)) => {
            chain::tell_break(&mut connection, writer, head, known).map_err(refused)?
        }
    };
    schema::use_log(&connection).map_err(|error| refused(error.into()))?;
    Ok((connection, head, Opened::Continued(head)))
}

enum Found {
    Nothing,
    Chain(Head),
    Newer(i64),
}

/// In one transaction: between two reads another server may append.
fn look(connection: &mut Connection, public_key: &[u8; 32]) -> Result<Found, Broken> {
    let moment = connection.transaction()?;
    match schema::form(&moment)? {
        Form::Empty => Ok(Found::Nothing),
        Form::Newer(version) => Ok(Found::Newer(version)),
        Form::Foreign(what) => Err(Broken::Damage { what, head: None }),
        Form::Ours => chain::examine(&moment, public_key).map(Found::Chain),
    }
}

/// A damaged database is moved as it was found: closing it must not write its log into it.
pub(super) fn keep_log(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "the log of a damaged audit record may be merged into it");
    }
}

/// Held until it is dropped: nobody else opens the database or moves its files.
fn lock(database: &Path) -> Result<File, AuditError> {
    let path = database.with_extension("open.lock");
    let failed = |error: Errno| match database.parent() {
        Some(directory) if error == Errno::NOENT && !directory.exists() => {
            AuditError::Gone(directory.to_owned())
        }
        _ => AuditError::of_io(&path, "locking it", &error.into()),
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?);
    let until = Instant::now() + Duration::from_millis(LOCKED_MS_MAX);
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        if Instant::now() >= until {
            return Err(AuditError::Locked(path));
        }
        // Another process moves files; a lock has nothing that could be waited on with a limit of time.
        thread::sleep(Duration::from_millis(LOCK_LOOK_MS));
    }
}

/// Makes an empty file of mode 0600 when there is none. An existing one is never opened here: to close it would drop
/// the locks that SQLite holds on it elsewhere in this process (fcntl(2), "record locks").
fn make(path: &Path) -> Result<(), AuditError> {
    let failed = |error: &io::Error| AuditError::of_io(path, "making it", error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(_) => {
            // the log of a database that is gone must not be taken for the new one's
            let strays = ["-wal", "-shm"].map(|end| with_end(path, end));
            if strays.iter().any(|stray| stray.exists()) {
                let aside = free_name(path)?;
                for (stray, end) in strays.iter().zip(["-wal", "-shm"]) {
                    rename_if_there(stray, &with_end(&aside, end))?;
                }
            }
            Ok(())
        }
        Err(Errno::EXIST) => {
            let found = schema::regular(path)?;
            if found.mode() & 0o077 != 0 {
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))
                    .map_err(|error| failed(&error))?;
            }
            Ok(())
        }
        Err(error) => Err(failed(&error.into())),
    }
}

fn move_aside(path: &Path) -> Result<PathBuf, AuditError> {
    let to = free_name(path)?;
    // The database first: a log without one is set aside by `make`, a database without its log would look older.
    for end in ["", "-wal", "-shm"] {
        rename_if_there(&with_end(path, end), &with_end(&to, end))?;
    }
    Ok(to)
}

/// `audit-<seconds>.damaged.db`, with a number if that is taken.
fn free_name(path: &Path) -> Result<PathBuf, AuditError> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let taken = |name: &PathBuf| {
        ["", "-wal", "-shm"]
            .iter()
            .any(|end| fs::symlink_metadata(with_end(name, end)).is_ok())
    };
    (0..ASIDE_NAMES_MAX)
        .map(|count| match count {
            0 => path.with_file_name(format!("{stem}-{seconds}.damaged.db")),
            _ => path.with_file_name(format!("{stem}-{seconds}-{count}.damaged.db")),
        })
        .find(|name| !taken(name))
        .ok_or_else(|| AuditError::Io {
            path: path.to_owned(),
            step: "moving it aside",
            what: "every name for it is taken".to_owned(),
        })
}

fn rename_if_there(from: &Path, to: &Path) -> Result<(), AuditError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(AuditError::of_io(from, "moving it aside", &error))
        }
        _ => Ok(()),
    }
}

fn identities(path: &Path) -> io::Result<Files> {
    let of = |end: &str| {
        let found = fs::symlink_metadata(with_end(path, end))?;
        io::Result::Ok((found.dev(), found.ino()))
    };
    Ok([of("")?, of("-wal")?, of("-shm")?])
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}
