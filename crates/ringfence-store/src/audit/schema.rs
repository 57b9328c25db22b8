//! The database's schema: its tables, the setup of a connection, and the check that the schema is ours.

use super::AuditError;
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use std::{fs, path::Path, time::Duration};

const VERSION: i64 = 1;

/// Maximum time to wait while another process holds the database.
pub(super) const LOCKED_MS_MAX: u64 = 5_000;

/// Pages of the log at which a commit moves them into the database. The writer does so long before, when no caller
/// waits; this is for many short-lived servers beside an idle one.
const LOG_PAGES_MAX: u32 = 4_000;

/// Failures that a record survives once it is reported as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Process,
    /// A power loss too; every commit waits for the disk.
    Power,
}

ringfence_types::closed_words!(Durability: Process = "process", Power = "power");

/// SQLite keeps these texts as they are; a schema with other texts is not ours.
const STATEMENTS: [&str; 5] = [
    "CREATE TABLE record(seq INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, server_id TEXT NOT NULL, \
     action TEXT NOT NULL, outcome TEXT NOT NULL, namespace TEXT NOT NULL, execution_id TEXT, caller TEXT NOT NULL, \
     details TEXT NOT NULL, prev_hash BLOB NOT NULL, hash BLOB NOT NULL, signature BLOB NOT NULL) STRICT",
    "CREATE TABLE head(one INTEGER PRIMARY KEY CHECK(one = 1), seq INTEGER NOT NULL, time_us INTEGER NOT NULL, \
     hash BLOB NOT NULL, signature BLOB NOT NULL) STRICT",
    "CREATE INDEX record_of_namespace ON record(namespace)",
    "CREATE INDEX record_of_execution ON record(execution_id) WHERE execution_id IS NOT NULL",
    "CREATE INDEX record_of_time ON record(time_us)",
];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Empty,
    Ours,
    Foreign(String),
    Newer(i64),
}

pub(super) fn form(connection: &Connection) -> rusqlite::Result<Form> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > VERSION {
        return Ok(Form::Newer(version));
    }
    let mut found = connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql")?;
    let texts = found.query_map([], |row| row.get(0))?.take(STATEMENTS.len() + 1);
    let found: Vec<String> = texts.collect::<Result<_, _>>()?;
    if found.is_empty() && version == 0 {
        return Ok(Form::Empty);
    }
    let mut ours = STATEMENTS;
    ours.sort_unstable();
    Ok(if version == VERSION && found == ours {
        Form::Ours
    } else {
        Form::Foreign("its schema is not the one that was written".to_owned())
    })
}

pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    for statement in STATEMENTS {
        connection.execute(statement, [])?;
    }
    connection.pragma_update(None, "user_version", VERSION)
}

/// Opens a connection for writing. The file must exist.
pub(super) fn connect_writer(path: Option<&Path>, durability: Durability) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match path {
        Some(path) => Connection::open_with_flags(path, flags)?,
        None => Connection::open_in_memory_with_flags(flags)?,
    };
    harden(&connection)?;
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX)?;
    // Closing does not wait for the disk, and a damaged database is moved as found, without its log written into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Enables the write-ahead log, so that readers and the writer do not wait for each other.
pub(super) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if matches!(mode.as_str(), "wal" | "memory") {
        return Ok(());
    }
    let what = format!("the file system allows no log: the journal stays {mode}");
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    Err(rusqlite::Error::SqliteFailure(code, Some(what)))
}

/// Opens a connection for reading, also beside a running server, and checks the schema first.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, AuditError> {
    check_regular_file(path)?;
    let failed = |error: rusqlite::Error| AuditError::of_sqlite(path, "opening it to read", &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    harden(&connection).map_err(failed)?;
    match form(&connection).map_err(failed)? {
        Form::Ours => Ok(connection),
        Form::Empty => Err(AuditError::damaged(path, "nothing was ever recorded in it")),
        Form::Foreign(what) => Err(AuditError::damaged(path, what)),
        Form::Newer(version) => Err(AuditError::newer(path, version)),
    }
}

/// Refuses anything but a plain file, such as a link or a pipe, before SQLite opens it.
pub(super) fn check_regular_file(path: &Path) -> Result<fs::Metadata, AuditError> {
    let found =
        fs::symlink_metadata(path).map_err(|error| AuditError::of_io(path, "looking at it", &error))?;
    match found.is_file() {
        true => Ok(found),
        false => Err(AuditError::io(path, "looking at it", "it is not a plain file")),
    }
}

/// Prevents execution of functions, triggers and views that a user with write access may have put into the schema.
fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_millis(LOCKED_MS_MAX))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "cell_size_check", true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_schema_is_rejected() {
        let connection = connect_writer(None, Durability::Process).unwrap();
        assert_eq!(form(&connection).unwrap(), Form::Empty);
        create(&connection).unwrap();
        assert_eq!(form(&connection).unwrap(), Form::Ours);
        connection
            .execute(
                "CREATE TRIGGER forget AFTER INSERT ON record BEGIN DELETE FROM record; END",
                [],
            )
            .unwrap();
        assert!(matches!(form(&connection).unwrap(), Form::Foreign(_)));
        connection.execute("DROP TRIGGER forget", []).unwrap();
        assert_eq!(form(&connection).unwrap(), Form::Ours);
        connection.pragma_update(None, "user_version", 0).unwrap();
        assert!(matches!(form(&connection).unwrap(), Form::Foreign(_)));
        connection
            .pragma_update(None, "user_version", VERSION + 1)
            .unwrap();
        assert_eq!(form(&connection).unwrap(), Form::Newer(VERSION + 1));
    }
}
