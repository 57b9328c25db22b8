//! Closing segments, and removing those over the limits of age and size.

use super::{
    Action, AuditError, Head, Record,
    chain::{self, ChainError, Writer, damage},
    entry::Encoded,
    query,
    record::COLUMNS,
    segments::{self, Segment},
};
use crate::{clock, digest::to_hex};
use rusqlite::{Connection, TransactionBehavior};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Retention of the record. Zero: no such limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Size of the database above which its oldest records are moved into a closed segment.
    pub segment_bytes: u64,
    /// Maximum size of all closed segments and the database.
    pub total_bytes: u64,
    /// Maximum age of a closed segment's last record.
    pub age: Duration,
}

/// Approximate size of a record beside its details.
const RECORD_BYTES: u64 = 600;

/// Returns the size of the database without its free pages.
pub(super) fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok((pages * number("page_size")?).max(0).cast_unsigned())
}

/// Closes a segment of all records, or of the oldest three quarters but not much more than `oldest_bytes`. It ends
/// before the first open operation, because only the database is searched for those of a dead server; but not if the
/// database has twice `oldest_bytes`, so that one operation does not hold all of the record in it. One transaction: the
/// records are in a file on the disk before they are deleted here. A crash before the commit leaves that file; the next
/// call writes it anew.
pub(super) fn archive(
    connection: &mut Connection,
    writer: &Writer,
    known: Head,
    database: &Path,
    oldest_bytes: Option<u64>,
) -> Result<Option<(PathBuf, Head)>, ChainError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = chain::current(&transaction, writer, known)?;
    let sql = "SELECT min(seq) FROM record";
    let first: u64 = transaction.query_row(sql, [], |row| row.get(0))?;
    let (until, bytes_max) = match oldest_bytes {
        None => (head.seq, u64::MAX),
        Some(bytes_max) => (first + (head.seq - first) / 4 * 3, bytes_max),
    };
    let is_too_large = oldest_bytes.is_some_and(|bytes_max| {
        used_bytes(&transaction).is_ok_and(|used| used > bytes_max.saturating_mul(2))
    });
    let until = match query::first_open(&transaction, until)? {
        Some(open) if !is_too_large => open - 1,
        _ => until,
    };
    for left in segments::list(database, u64::MAX)? {
        if left.first >= first {
            std::fs::remove_file(&left.path)?;
        }
    }
    if oldest_bytes.is_some() && until < first + (head.seq - first) / 4 {
        return Ok(None); // too little for a file
    }
    let written = {
        let sql = format!("SELECT {COLUMNS} FROM record WHERE seq <= ?1 ORDER BY seq");
        let mut statement = transaction.prepare_cached(&sql)?;
        let mut rows = statement.query([until])?;
        let (mut bytes, mut before): (u64, Option<Head>) = (0, None);
        segments::write(database, || {
            if bytes >= bytes_max {
                return Ok(None);
            }
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let record = Record::of_row(row)?;
            let is_next = |before: Head| record.seq == before.seq + 1 && record.prev_hash == before.hash;
            if !before.is_none_or(is_next) || record.computed_hash() != record.hash {
                let what = format!("record {} is not what was written", record.seq);
                return Err(damage(what, Some(head)));
            }
            bytes += RECORD_BYTES + record.details.len() as u64;
            before = Some(record.head());
            Ok(Some(record))
        })?
    };
    let Some(written) = written else {
        return Ok(None);
    };
    let details = json!({
        "file": written.segment.name(),
        "first_seq": written.segment.first,
        "last_seq": written.last.seq,
        "last_hash": to_hex(&written.last.hash),
        "bytes": written.bytes,
    });
    let archived = [Encoded::of_record(Action::AuditArchived, "", details)];
    let (head, _) = chain::extend(&transaction, writer, Some(head), &archived)?;
    transaction.execute("DELETE FROM record WHERE seq <= ?1", [written.last.seq])?;
    transaction.commit()?;
    Ok(Some((written.segment.path, head)))
}

/// Returns the closed segments over the limits of age and size, oldest first, with the entries for their removal.
pub(super) fn removals(
    connection: &Connection,
    database: &Path,
    keep: Keep,
) -> Result<Vec<(Segment, Encoded)>, AuditError> {
    let failed = |error: std::io::Error| AuditError::of_io(database, "listing its segments", &error);
    let mut found = Vec::new();
    for segment in segments::list(database, u64::MAX).map_err(failed)? {
        let metadata = std::fs::symlink_metadata(&segment.path).map_err(failed)?;
        found.push((segment, metadata.len(), metadata.modified().map_err(failed)?));
    }
    if found.is_empty() || (keep.total_bytes == 0 && keep.age.is_zero()) {
        return Ok(Vec::new());
    }
    let used =
        used_bytes(connection).map_err(|error| AuditError::of_sqlite(database, "measuring it", &error))?;
    let mut total = used + found.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    let now = clock::for_retention(database, SystemTime::now());
    let is_old = |time: SystemTime| {
        let age = now.and_then(|now| now.duration_since(time).ok());
        !keep.age.is_zero() && age.is_some_and(|age| age > keep.age)
    };
    let mut removals = Vec::new();
    for (segment, bytes, time) in found {
        let why = match is_old(time) {
            true => "age",
            false if keep.total_bytes > 0 && total > keep.total_bytes => "size",
            false => break,
        };
        total = total.saturating_sub(bytes);
        let details = json!({
            "file": segment.name(),
            "first_seq": segment.first,
            "last_seq": segment.last,
            // Null if the segment cannot be read.
            "last_hash": segment.last_record().map(|last| to_hex(&last.hash)),
            "bytes": bytes,
            "why": why,
        });
        removals.push((segment, Encoded::of_record(Action::AuditRemoved, "", details)));
    }
    Ok(removals)
}
