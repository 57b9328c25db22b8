//! The end of the chain: reading it and appending to it, within one transaction.

use super::{Action, AuditError, Durability, Head, Receipt, Record, entry::Encoded, record::COLUMNS, schema};
use crate::{Signer, digest::to_hex};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::{Map, Value};
use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const FORGET_RECORDS: u64 = 1_000;

/// Marks, in the details, a record that is the first in its file.
pub(super) const BEGINS_FILE: &str = "begins_file";
/// The number of the last archived record, in the same details.
pub(super) const ARCHIVED_UNTIL: &str = "archived_until";

pub(super) struct Writer {
    pub(super) signer: Signer,
    pub(super) public_key: [u8; 32],
    pub(super) server_id: String,
    pub(super) durability: Durability,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ChainError {
    /// `head` is set if its row could be read and is signed with this host's key.
    #[error("{what}")]
    Damage { what: String, head: Option<Head> },
    #[error("schema {0}")]
    Newer(i64),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl ChainError {
    pub(super) fn at(self, path: &Path, step: &'static str) -> AuditError {
        match self {
            Self::Damage { what, .. } => AuditError::damaged(path, what),
            Self::Newer(version) => AuditError::newer(path, version),
            Self::Sqlite(error) => AuditError::of_sqlite(path, step, &error),
            Self::Io(error) => AuditError::of_io(path, step, &error),
        }
    }
}

/// Returns the head on disk, after checking that it and the last record agree and are signed with this key.
pub(super) fn examine(connection: &Connection, public_key: &[u8; 32]) -> Result<Head, ChainError> {
    let Some((head, signature)) = read_head(connection)? else {
        return Err(damage("its head is missing", None));
    };
    if !crate::verify(public_key, &head.signed_bytes(), &signature) {
        return Err(damage("its head is not signed with this host's key", None));
    }
    check_tail(connection, &head)?;
    let sql = format!("SELECT {COLUMNS} FROM record WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let last = statement.query_row([head.seq], Record::of_row)?;
    if last.head() != head || !last.follows(None) || !last.is_signed_by(public_key) {
        return Err(damage("its last record was edited", Some(head)));
    }
    Ok(head)
}

pub(super) fn read_head(connection: &Connection) -> rusqlite::Result<Option<(Head, [u8; 64])>> {
    let mut statement = connection.prepare_cached("SELECT seq, time_us, hash, signature FROM head")?;
    statement
        .query_row([], |row| {
            let head = Head {
                seq: row.get(0)?,
                time_us: row.get(1)?,
                hash: row.get(2)?,
            };
            Ok((head, row.get(3)?))
        })
        .optional()
}

pub(super) fn hash_at(connection: &Connection, seq: u64) -> rusqlite::Result<Option<[u8; 32]>> {
    let mut statement = connection.prepare_cached("SELECT hash FROM record WHERE seq = ?1")?;
    statement.query_row([seq], |row| row.get(0)).optional()
}

/// Creates the tables and the first record, which follows `after`.
pub(super) fn begin(
    connection: &mut Connection,
    writer: &Writer,
    after: Option<Head>,
    mut details: Map<String, Value>,
) -> Result<Head, ChainError> {
    details.insert(BEGINS_FILE.to_owned(), Value::from(true));
    schema::use_log(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    schema::create(&transaction)?;
    let began = [Encoded::of_record(Action::AuditBegan, "default", details.into())];
    let (head, _) = extend(&transaction, writer, after, &began)?;
    transaction.commit()?;
    Ok(head)
}

/// Records a break in the chain itself, if it does not contain the last record that this process wrote.
pub(super) fn record_break(
    connection: &mut Connection,
    writer: &Writer,
    head: Head,
    known: Head,
) -> Result<Head, ChainError> {
    if has(connection, known)? {
        return Ok(head);
    }
    let details = reason("replaced", Some(known)).into();
    let began = [Encoded::of_record(Action::AuditBegan, "default", details)];
    append(connection, writer, head, &began, None).map(|(head, _)| head)
}

/// Returns details that give the reason for a new chain or for a break, and the previous head.
pub(super) fn reason(word: &str, before: Option<Head>) -> Map<String, Value> {
    let mut details = Map::from_iter([("reason".to_owned(), Value::from(word))]);
    if let Some(head) = before {
        details.insert("previous_head_seq".to_owned(), Value::from(head.seq));
        details.insert("previous_head_hash".to_owned(), Value::from(to_hex(&head.hash)));
    }
    details
}

/// Appends a batch at the current end, in one transaction. Keeps only about the last `kept` records, if given.
pub(super) fn append(
    connection: &mut Connection,
    writer: &Writer,
    known: Head,
    batch: &[Encoded],
    kept: Option<u64>,
) -> Result<(Head, Vec<Receipt>), ChainError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = current(&transaction, writer, known)?;
    let extended = extend(&transaction, writer, Some(head), batch)?;
    if let Some(kept) = kept {
        delete_oldest(&transaction, extended.0.seq.saturating_sub(kept), batch.len())?;
    }
    transaction.commit()?;
    Ok(extended)
}

pub(super) fn current(transaction: &Connection, writer: &Writer, known: Head) -> Result<Head, ChainError> {
    // written or checked by this process: its signature need not be checked again
    if let Some((head, _)) = read_head(transaction)?.filter(|(head, _)| *head == known) {
        check_tail(transaction, &head)?;
        return Ok(head);
    }
    let head = examine(transaction, &writer.public_key)?;
    if head.seq < known.seq || !has(transaction, known)? {
        let what = "records that this server wrote are gone: the file was set back";
        return Err(damage(what, Some(head)));
    }
    Ok(head)
}

/// Returns true if the database contains this record, or begins after it because it was archived.
fn has(connection: &Connection, known: Head) -> rusqlite::Result<bool> {
    if hash_at(connection, known.seq)? == Some(known.hash) {
        return Ok(true);
    }
    let first: Option<u64> = connection.query_row("SELECT min(seq) FROM record", [], |row| row.get(0))?;
    Ok(first.is_some_and(|first| known.seq < first))
}

/// Deletes the oldest records, many at once. Only for a record in memory, which is bounded and never verified.
fn delete_oldest(connection: &Connection, until: u64, appended: usize) -> Result<(), ChainError> {
    if until > 0 && until % FORGET_RECORDS < appended as u64 {
        let mut delete = connection.prepare_cached("DELETE FROM record WHERE seq <= ?1")?;
        delete.execute([until])?;
    }
    Ok(())
}

fn check_tail(connection: &Connection, head: &Head) -> Result<(), ChainError> {
    let sql = "SELECT seq, hash FROM record ORDER BY seq DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let last = statement.query_row([], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, [u8; 32]>(1)?)));
    match last.optional()? {
        Some((seq, hash)) if seq == head.seq && hash == head.hash => Ok(()),
        Some((seq, _)) => {
            let what = format!("its head is at record {} and its last record is {seq}", head.seq);
            Err(damage(what, Some(*head)))
        }
        None => Err(damage("all its records are gone", Some(*head))),
    }
}

pub(super) fn extend(
    transaction: &Transaction<'_>,
    writer: &Writer,
    mut head: Option<Head>,
    batch: &[Encoded],
) -> rusqlite::Result<(Head, Vec<Receipt>)> {
    let mut receipts = Vec::with_capacity(batch.len());
    let sql = format!("INSERT INTO record({COLUMNS}) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
    let mut insert = transaction.prepare_cached(&sql)?;
    for entry in batch {
        let record = Record::next(head.as_ref(), entry, &writer.server_id, now_us(), &writer.signer);
        insert.execute(params![
            record.seq,
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
        let (seq, hash) = (record.seq, record.hash);
        receipts.push(Receipt { seq, hash });
        head = Some(record.head());
    }
    let head = head.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let signature = writer.signer.sign(&head.signed_bytes());
    let sql = "REPLACE INTO head(one, seq, time_us, hash, signature) VALUES(1,?1,?2,?3,?4)";
    let mut statement = transaction.prepare_cached(sql)?;
    statement.execute(params![head.seq, head.time_us, head.hash, signature])?;
    Ok((head, receipts))
}

pub(super) fn damage(what: impl Into<String>, head: Option<Head>) -> ChainError {
    let what = what.into();
    ChainError::Damage { what, head }
}

/// Returns microseconds since 1970; negative for a clock before 1970.
pub(super) fn now_us() -> i64 {
    let us = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => us(since),
        Err(before) => -us(before.duration()),
    }
}
