//! Why an action is not recorded, or a record not read. Each says what to do about it.

use rusqlite::{ErrorCode, ffi::SQLITE_IOERR_SHMSIZE};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A fault of the audit record. Clones go to everyone whose entry was in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditError {
    /// Too many entries wait to be written.
    Overloaded,
    /// The writer has ended.
    Stopped,
    /// Waiting on the writer's own thread would wait for ever.
    WouldWaitForItself,
    /// A text is longer than its limit.
    TooLarge {
        /// Which one.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A query that cannot be meant.
    InvalidQuery(&'static str),
    /// No space is left.
    DiskFull(PathBuf),
    /// The file or its directory cannot be written.
    ReadOnly(PathBuf),
    /// Another process held the database for longer than the five seconds that are waited.
    Locked(PathBuf),
    /// The directory of the record is not there.
    Gone(PathBuf),
    /// The file is not what was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// Since it was opened, the file, its `-wal` or its `-shm` was deleted or another put in its place.
    Replaced(PathBuf),
    /// A later version wrote it.
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its `user_version`.
        version: i64,
    },
    /// Anything else that the system or SQLite refused.
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// The refusal.
        what: String,
    },
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded => f.write_str("the audit record's queue is full; try again in a moment"),
            Self::Stopped => f.write_str("the audit record's writer has ended; start the server again"),
            Self::WouldWaitForItself => {
                f.write_str("the audit record's writer cannot wait for itself; use `append` there")
            }
            Self::TooLarge {
                field,
                bytes,
                bytes_max,
            } => {
                write!(
                    f,
                    "`{field}` of an audit entry has {bytes} bytes; {bytes_max} are the most"
                )
            }
            Self::InvalidQuery(what) => write!(f, "the query of the audit record is wrong: {what}"),
            Self::DiskFull(path) => {
                write!(f, "{}: the disk is full; free space there", path.display())
            }
            Self::ReadOnly(path) => write!(
                f,
                "{}: it cannot be written; check its mode, its directory's, and how it is mounted",
                path.display()
            ),
            Self::Locked(path) => write!(
                f,
                "{}: another process has held it locked for too long; find it with `fuser`",
                path.display()
            ),
            Self::Gone(path) => write!(
                f,
                "the directory {} is not there any more; start the server again, which makes it anew",
                path.display()
            ),
            Self::Damaged { path, what } => write!(
                f,
                "{}: {what}; a server moves it aside when it meets the damage, or starts",
                path.display()
            ),
            Self::Replaced(path) => write!(
                f,
                "{}: the file was deleted or replaced while it was open; the next entry begins anew there",
                path.display()
            ),
            Self::NewerSchema { path, version } => write!(
                f,
                "{}: a later version wrote it (schema {version}); use that version",
                path.display()
            ),
            Self::Io { path, step, what } => write!(f, "{}: {step}: {what}", path.display()),
        }
    }
}

impl std::error::Error for AuditError {}

impl AuditError {
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// What SQLite's refusal means here.
    pub(super) fn of_sqlite(path: &Path, step: &'static str, error: &rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let path = path.to_owned();
        let what = error.to_string();
        match error.sqlite_error_code() {
            // the index of its log could not be made longer
            _ if is_extended(error, SQLITE_IOERR_SHMSIZE) => Self::DiskFull(path),
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            Some(ErrorCode::ReadOnly) => Self::ReadOnly(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, what },
            Some(_) => Self::Io { path, step, what },
            // a value of the wrong type, size or encoding where we wrote a right one
            None if matches!(
                error,
                E::FromSqlConversionFailure(..) | E::InvalidColumnType(..) | E::IntegralValueOutOfRange(..)
            ) =>
            {
                Self::Damaged { path, what }
            }
            None => Self::Io { path, step, what },
        }
    }

    pub(super) fn of_io(path: &Path, step: &'static str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        match error.kind() {
            K::StorageFull | K::QuotaExceeded => Self::DiskFull(path.to_owned()),
            K::ReadOnlyFilesystem | K::PermissionDenied => Self::ReadOnly(path.to_owned()),
            _ => Self::Io {
                path: path.to_owned(),
                step,
                what: error.to_string(),
            },
        }
    }
}

fn is_extended(error: &rusqlite::Error, code: std::ffi::c_int) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(error, _) if error.extended_code == code)
}
