//! The end of the chain: reading it, and adding to it, within one transaction.

use super::{
    AuditError, Durability, Head, Place, Receipt, Record,
    entry::Fitted,
    place::{self, Opening},
    record::{COLUMNS, hex, seq_of},
    schema::{self, LOCKED_MS_MAX},
};
use crate::Signer;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::{Map, Value};
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Records that a record in memory keeps, about a kibibyte each; the first go.
const MEMORY_RECORDS_MAX: u64 = 200_000;
/// So many at once.
const FORGET_RECORDS: u64 = 1_000;

/// Who writes: what every record of this server has in common.
pub(super) struct Writer {
    pub(super) signer: Signer,
    pub(super) public_key: [u8; 32],
    pub(super) server_id: String,
    pub(super) durability: Durability,
}

/// The open database with the head that this process last wrote or checked.
pub(super) struct Chain {
    place: Place,
    writer: Writer,
    /// None: the file was replaced; the next batch opens what is there now.
    open: Option<Open>,
    head: Head,
}

/// A database that was opened and examined.
pub(super) struct Open {
    pub(super) connection: Connection,
    /// None for a database in memory.
    pub(super) hold: Option<place::Hold>,
    pub(super) head: Head,
}

/// Why a chain cannot be continued.
pub(super) enum Broken {
    /// By what is in it. The head is told if its row could be read, whether or not it is true.
    Damage { what: String, head: Option<Head> },
    /// By the system.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Broken {
    pub(super) fn told(self, path: &Path, step: &'static str) -> AuditError {
        match self {
            Self::Damage { what, .. } => AuditError::damaged(path, what),
            Self::Sqlite(error) => AuditError::of_sqlite(path, step, &error),
        }
    }
}

impl Chain {
    pub(super) fn open(place: Place, writer: Writer) -> Result<(Self, place::Opened), AuditError> {
        let place = place.absolute()?;
        let (open, opened) = place::open(&place, &writer, Opening::First)?;
        let head = open.head;
        let chain = Self {
            place,
            writer,
            open: Some(open),
            head,
        };
        Ok((chain, opened))
    }

    /// All of the batch, or an error and none of it.
    pub(super) fn append(&mut self, batch: &[Fitted]) -> Result<Vec<Receipt>, AuditError> {
        if self.open.is_none() {
            let (open, _) = place::open(&self.place, &self.writer, Opening::Again(self.head))?;
            self.head = open.head;
            self.open = Some(open);
        }
        let path = self.place.shown();
        let Some(open) = &mut self.open else {
            return Err(AuditError::Replaced(path));
        };
        let in_place = |hold: &Option<place::Hold>| hold.as_ref().is_none_or(place::Hold::is_in_place);
        let appended = if in_place(&open.hold) {
            let kept = matches!(self.place, Place::Memory).then_some(MEMORY_RECORDS_MAX);
            append(&mut open.connection, &self.writer, self.head, batch, kept)
                .map_err(|broken| broken.told(&path, "appending to it"))
        } else {
            Err(AuditError::Replaced(path.clone()))
        };
        // What was committed into a file that has just lost its name is lost too.
        if !in_place(&open.hold) {
            self.open = None;
            return Err(AuditError::Replaced(path));
        }
        let (head, receipts) = appended?;
        self.head = head;
        Ok(receipts)
    }

    /// The same for one entry, without waiting for another process that writes. None: there is one.
    pub(super) fn append_unless_locked(&mut self, entry: &Fitted) -> Option<Result<Receipt, AuditError>> {
        let waits = |chain: &Self, time| chain.connection().map(|connection| connection.busy_timeout(time));
        if !matches!(waits(self, Duration::ZERO), Some(Ok(()))) {
            return None;
        }
        let appended = self.append(std::slice::from_ref(entry));
        let restored = waits(self, Duration::from_millis(LOCKED_MS_MAX));
        match (appended, restored) {
            (Err(AuditError::Locked(_)), _) => None,
            (_, Some(Err(error))) => Some(Err(
                Broken::from(error).told(&self.place.shown(), "waiting for others")
            )),
            (appended, _) => {
                Some(appended.and_then(|mut receipts| receipts.pop().ok_or(AuditError::Stopped)))
            }
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Moves what was committed from the log into the database, without waiting for readers. It fails harmlessly: the
    /// log is only longer then, and the next commit tries again.
    pub(super) fn checkpoint(&self) {
        let Some(open) = &self.open else { return };
        let done = open
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "the audit record's log was not moved into its database");
        }
    }

    /// The open connection; none while a replaced file has not been opened again.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.connection)
    }
}

/// The head as it stands on disk, if the chain's end is whole: the head signed by this key, and the last record its own.
pub(super) fn examine(connection: &Connection, public_key: &[u8; 32]) -> Result<Head, Broken> {
    let Some((head, signature)) = read_head(connection)? else {
        return Err(damage("its head is missing", None));
    };
    if !crate::verify(public_key, &head.signed_bytes(), &signature) {
        return Err(damage("its head is not signed with this host's key", Some(head)));
    }
    check_tail(connection, &head)?;
    let sql = format!("SELECT {COLUMNS} FROM record WHERE seq = ?1");
    let last = connection
        .prepare_cached(&sql)?
        .query_row([signed(head.seq)?], Record::of_row)?;
    if last.head() != head || last.computed_hash() != last.hash || !last.is_signed_by(public_key) {
        return Err(damage("its last record was edited", Some(head)));
    }
    Ok(head)
}

/// The head row and its signature, unchecked.
pub(super) fn read_head(connection: &Connection) -> rusqlite::Result<Option<(Head, [u8; 64])>> {
    let mut statement = connection.prepare_cached("SELECT seq, time_us, hash, signature FROM head")?;
    statement
        .query_row([], |row| {
            let head = Head {
                seq: seq_of(row, 0)?,
                time_us: row.get(1)?,
                hash: row.get(2)?,
            };
            Ok((head, row.get(3)?))
        })
        .optional()
}

/// The hash of one record.
pub(super) fn hash_at(connection: &Connection, seq: u64) -> rusqlite::Result<Option<[u8; 32]>> {
    let mut statement = connection.prepare_cached("SELECT hash FROM record WHERE seq = ?1")?;
    statement.query_row([signed(seq)?], |row| row.get(0)).optional()
}

/// SQLite's numbers have a sign.
pub(super) fn signed(seq: u64) -> rusqlite::Result<i64> {
    i64::try_from(seq).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Makes the tables and the first record.
pub(super) fn begin(
    connection: &mut Connection,
    writer: &Writer,
    details: Map<String, Value>,
) -> Result<Head, Broken> {
    schema::use_log(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    schema::create(&transaction)?;
    let (head, _) = extend(&transaction, writer, None, &[began(details)])?;
    transaction.commit()?;
    Ok(head)
}

/// Tells in the chain itself, if it is so, that it does not hold what this process wrote last.
pub(super) fn tell_break(
    connection: &mut Connection,
    writer: &Writer,
    head: Head,
    known: Head,
) -> Result<Head, Broken> {
    if hash_at(connection, known.seq)? == Some(known.hash) {
        return Ok(head);
    }
    let details = reason("replaced", Some(known));
    append(connection, writer, head, &[began(details)], None).map(|(head, _)| head)
}

/// Why a chain begins or goes on after a break, and the head that was there before it.
pub(super) fn reason(word: &str, before: Option<Head>) -> Map<String, Value> {
    let mut details = Map::from_iter([("reason".to_owned(), Value::from(word))]);
    if let Some(head) = before {
        details.insert("previous_head_seq".to_owned(), Value::from(head.seq));
        details.insert("previous_head_hash".to_owned(), Value::from(hex(&head.hash)));
    }
    details
}

/// One transaction: looks where the chain ends now, and goes on from there.
fn append(
    connection: &mut Connection,
    writer: &Writer,
    known: Head,
    batch: &[Fitted],
    kept: Option<u64>,
) -> Result<(Head, Vec<Receipt>), Broken> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = match read_head(&transaction)? {
        // ours, or checked before: its signature need not be checked again
        Some((head, _)) if head == known => {
            check_tail(&transaction, &head)?;
            head
        }
        _ => {
            let head = examine(&transaction, &writer.public_key)?;
            if head.seq < known.seq || hash_at(&transaction, known.seq)? != Some(known.hash) {
                return Err(damage(
                    "records that this server wrote are gone: the file was set back",
                    Some(head),
                ));
            }
            head
        }
    };
    let extended = extend(&transaction, writer, Some(head), batch)?;
    if let Some(kept) = kept {
        forget(&transaction, extended.0.seq.saturating_sub(kept), batch.len())?;
    }
    transaction.commit()?;
    Ok(extended)
}

/// Lets the first records go, many at once: what is in memory is bounded, and nobody verifies it.
fn forget(connection: &Connection, until: u64, appended: usize) -> Result<(), Broken> {
    if until > 0 && until % FORGET_RECORDS < appended as u64 {
        let mut delete = connection.prepare_cached("DELETE FROM record WHERE seq <= ?1")?;
        delete.execute([signed(until)?])?;
    }
    Ok(())
}

/// Is the head's record there, and nothing behind it.
fn check_tail(connection: &Connection, head: &Head) -> Result<(), Broken> {
    let mut statement =
        connection.prepare_cached("SELECT seq, hash FROM record ORDER BY seq DESC LIMIT 1")?;
    let last: Option<(u64, [u8; 32])> = statement
        .query_row([], |row| Ok((seq_of(row, 0)?, row.get(1)?)))
        .optional()?;
    match last {
        Some((seq, hash)) if seq == head.seq && hash == head.hash => Ok(()),
        Some((seq, _)) => Err(damage(
            format!("its head is at record {} and its last record is {seq}", head.seq),
            Some(*head),
        )),
        None => Err(damage("all its records are gone", Some(*head))),
    }
}

fn extend(
    transaction: &Transaction<'_>,
    writer: &Writer,
    mut head: Option<Head>,
    batch: &[Fitted],
) -> rusqlite::Result<(Head, Vec<Receipt>)> {
    let mut receipts = Vec::with_capacity(batch.len());
    let sql = format!("INSERT INTO record({COLUMNS}) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
    let mut insert = transaction.prepare_cached(&sql)?;
    for entry in batch {
        let record = Record::next(head.as_ref(), entry, &writer.server_id, now_us(), &writer.signer);
        insert.execute(params![
            signed(record.seq)?,
            record.time_us,
            record.server_id,
            record.action,
            record.outcome,
            record.namespace,
            record.execution_id,
            record.caller,
            record.details,
            record.prev_hash,
            record.hash,
            record.signature,
        ])?;
        receipts.push(Receipt {
            seq: record.seq,
            hash: record.hash,
        });
        head = Some(record.head());
    }
    let head = head.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    transaction
        .prepare_cached("REPLACE INTO head(one, seq, time_us, hash, signature) VALUES(1,?1,?2,?3,?4)")?
        .execute(params![
            signed(head.seq)?,
            head.time_us,
            head.hash,
            writer.signer.sign(&head.signed_bytes()),
        ])?;
    Ok((head, receipts))
}

fn began(details: Map<String, Value>) -> Fitted {
    Fitted {
        action: super::Action::AuditBegan,
        outcome: super::Outcome::Ok,
        namespace: "default".to_owned(),
        execution_id: None,
        caller: "ringfence".to_owned(),
        details: Value::Object(details).to_string(),
    }
}

fn damage(what: impl Into<String>, head: Option<Head>) -> Broken {
    Broken::Damage {
        what: what.into(),
        head,
    }
}

/// A clock before 1970 is recorded as it is.
fn now_us() -> i64 {
    let us = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => us(since),
        Err(before) => -us(before.duration()),
    }
}

impl Place {
    /// The same wherever this process may go afterwards.
    fn absolute(self) -> Result<Self, AuditError> {
        match self {
            Self::File(path) => match std::path::absolute(&path) {
                Ok(path) => Ok(Self::File(path)),
                Err(error) => Err(AuditError::of_io(&path, "looking for it", &error)),
            },
            Self::Memory => Ok(self),
        }
    }

    /// For messages.
    pub(super) fn shown(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory => PathBuf::from(":memory:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixture;

    #[test]
    fn a_record_in_memory_lets_its_first_records_go_and_goes_on() {
        let signer = Signer::in_memory().unwrap();
        let writer = Writer {
            public_key: signer.public_key(),
            signer,
            server_id: "test".to_owned(),
            durability: Durability::Process,
        };
        let (mut chain, _) = Chain::open(Place::Memory, writer).unwrap();
        let batch: Vec<Fitted> = (0..250)
            .map(|number| fixture::entry(number).fitted().unwrap())
            .collect();
        let open = chain.open.as_mut().unwrap();
        for _ in 0..9 {
            let appended = append(&mut open.connection, &chain.writer, chain.head, &batch, Some(500));
            chain.head = appended
                .map_err(|broken| broken.told(Path::new("memory"), "append"))
                .unwrap()
                .0;
        }
        let count = |sql: &str| {
            open.connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(count("SELECT max(seq) FROM record"), 9 * 250 + 1);
        let kept = count("SELECT count(*) FROM record");
        assert!((500..500 + 1000 + 250).contains(&kept), "{kept}");
    }
}
