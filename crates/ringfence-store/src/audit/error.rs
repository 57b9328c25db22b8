//! Errors of writing and reading the audit record. Each says what to do about it.

use rusqlite::{ErrorCode, ffi::SQLITE_IOERR_SHMSIZE};
use std::path::{Path, PathBuf};

/// An error of the audit record. Each entry of a failed batch gets a clone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error("the audit record's queue is full; try again in a moment")]
    Overloaded,
    #[error("the audit record's writer has ended; start the server again")]
    Stopped,
    #[error("the audit record's writer cannot wait for itself; use `append` there")]
    WouldWaitForItself,
    #[error("`{field}` of an audit entry has {bytes} bytes; {bytes_max} are the most")]
    TooLarge {
        field: &'static str,
        bytes: usize,
        bytes_max: usize,
    },
    #[error("the query of the audit record is wrong: {0}")]
    InvalidQuery(&'static str),
    #[error("{0}: the disk is full; free space there")]
    DiskFull(PathBuf),
    #[error("{0}: it cannot be written; check its mode, its directory's, and how it is mounted")]
    ReadOnly(PathBuf),
    /// Locked for longer than [`LOCKED_MS_MAX`](super::schema::LOCKED_MS_MAX).
    #[error("{0}: another process has held it locked for too long; find it with `fuser`")]
    Locked(PathBuf),
    #[error("the directory {0} does not exist")]
    Gone(PathBuf),
    #[error("{path}: {what}; a server moves it aside when it starts or finds the damage")]
    Damaged { path: PathBuf, what: String },
    /// The database, its `-wal` or its `-shm`.
    #[error("{0}: the file was deleted or replaced while it was open; the next entry begins anew there")]
    Replaced(PathBuf),
    /// `version` is its `user_version`.
    #[error("{path}: a later version wrote it (schema {version}); use that version")]
    NewerSchema { path: PathBuf, version: i64 },
    #[error("{path}: {step}: {what}")]
    Io {
        path: PathBuf,
        step: &'static str,
        what: String,
    },
}

impl AuditError {
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self::Damaged { path, what }
    }

    pub(super) fn newer(path: &Path, version: i64) -> Self {
        let path = path.to_owned();
        Self::NewerSchema { path, version }
    }

    pub(super) fn io(path: &Path, step: &'static str, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self::Io { path, step, what }
    }

    pub(super) fn of_sqlite(path: &Path, step: &'static str, error: &rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let path = path.to_owned();
        let what = error.to_string();
        match error.sqlite_error_code() {
            // the index of the log could not be extended
            _ if matches!(error, E::SqliteFailure(code, _) if code.extended_code == SQLITE_IOERR_SHMSIZE) => {
                Self::DiskFull(path)
            }
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            Some(ErrorCode::ReadOnly) => Self::ReadOnly(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, what },
            Some(_) => Self::Io { path, step, what },
            // a value of another type, size or encoding than was written
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
            _ => Self::io(path, step, error.to_string()),
        }
    }
}
