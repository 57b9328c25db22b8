//! The database's form: its tables, how a connection to it is set up, and whether it is still ours.

use super::AuditError;
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use std::{fs, path::Path, time::Duration};

const VERSION: i64 = 1;

/// How long another process may hold the database before that is an error.
pub(super) const LOCKED_MS_MAX: u64 = 5_000;

/// Pages of the log at which a commit itself moves it into the database. The writer does so long before, when no
/// caller waits; this is for many short-lived servers beside an idle one.
const LOG_PAGES_MAX: u32 = 4_000;

/// What a record that was reported as written survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Process,
    /// A loss of power too; every commit waits for the disk.
    Power,
}

ringfence_types::closed_words!(Durability: Process = "process", Power = "power");

/// SQLite keeps these texts as they are; any other text in their place is not our schema.
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
    /// Ours, of a later version.
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

/// A connection that writes. The file exists already: nothing here makes one.
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
    // Closing waits for no disk. And a damaged database is moved as it was found, not with its log written into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Commits go to a log beside the database, so that readers and the writer do not wait for each other.
pub(super) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if matches!(mode.as_str(), "wal" | "memory") {
        return Ok(());
    }
    let what = format!("the file system allows no log: the journal stays {mode}");
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    Err(rusqlite::Error::SqliteFailure(code, Some(what)))
}

/// A connection that only reads, also beside a live server. It looks at the schema first.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, AuditError> {
    regular(path)?;
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

/// The database is a plain file: a link or a pipe in its place is refused before SQLite follows it.
pub(super) fn regular(path: &Path) -> Result<fs::Metadata, AuditError> {
    let found =
        fs::symlink_metadata(path).map_err(|error| AuditError::of_io(path, "looking at it", &error))?;
    match found.is_file() {
        true => Ok(found),
        false => Err(AuditError::io(path, "looking at it", "it is not a plain file")),
    }
}

/// A user who could write the file could have put functions and views into its schema; none of them is run.
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
    fn only_the_schema_that_was_written_is_ours() {
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
