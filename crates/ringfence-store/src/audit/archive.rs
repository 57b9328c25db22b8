//! Closing segments, and removing those over the limits of age and size.

use super::{
    Action, Head, Record,
    chain::{self, ChainError, Writer, damage},
    entry::Encoded,
    query,
    record::COLUMNS,
    segments::{self, Segment},
};
use crate::{clock, digest::to_hex};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use serde_json::json;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
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

/// The size of all closed segments, in the details of the records about them.
const CLOSED_BYTES: &str = "closed_bytes";

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
    let mut in_files = 0;
    for left in segments::list(database, u64::MAX)? {
        match left.first >= first {
            true => std::fs::remove_file(&left.path)?,
            false => in_files += std::fs::symlink_metadata(&left.path)?.len(),
        }
    }
    if oldest_bytes.is_some() && until < first + (head.seq - first) / 4 {
        return Ok(None); // too little for a file
    }
    let before = closed_bytes(&transaction, &writer.public_key)?;
    let before = before.map_or(in_files, |bytes| bytes.min(in_files));
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
            if !record.follows(before) {
                return Err(edited(&record));
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
        CLOSED_BYTES: before + written.bytes,
    });
    let archived = [Encoded::of_record(Action::AuditArchived, "", details)];
    let (head, _) = chain::extend(&transaction, writer, Some(head), &archived)?;
    transaction.execute("DELETE FROM record WHERE seq <= ?1", [written.last.seq])?;
    transaction.commit()?;
    Ok(Some((written.segment.path, head)))
}

fn edited(record: &Record) -> ChainError {
    damage(format!("record {} is not what was written", record.seq), None)
}

/// Returns a number in the details of the newest record of one of these actions. Errors: `Damage` if it was edited.
fn noted(
    connection: &Connection,
    public_key: &[u8; 32],
    detail: &str,
    actions: &str,
) -> Result<Option<u64>, ChainError> {
    let sql = format!("SELECT {COLUMNS} FROM record WHERE action IN ({actions}) ORDER BY seq DESC LIMIT 1");
    let found = connection.query_row(&sql, [], Record::of_row).optional()?;
    let is_edited = |record: &Record| !record.follows(None) || !record.is_signed_by(public_key);
    match found {
        Some(record) if is_edited(&record) => Err(edited(&record)),
        found => Ok(found.and_then(|record| record.detail(detail)?.as_u64())),
    }
}

/// Returns the size of all closed segments; `None` in a new database, or one of an earlier version.
fn closed_bytes(connection: &Connection, public_key: &[u8; 32]) -> Result<Option<u64>, ChainError> {
    let actions = "'audit.archived', 'audit.removed'";
    noted(connection, public_key, CLOSED_BYTES, actions)
}

/// Segments that were not removed: their last record, or `None` if they are damaged. They are not read again.
pub(super) type Kept = HashMap<PathBuf, Option<Head>>;

/// Returns the closed segments over the limits of age and size, oldest first, with the entries for their removal; none
/// for one whose removal is the last on record. The files only say when to look: what counts is the time of a verified
/// segment's last record, and the size on record. A damaged segment is never removed.
pub(super) fn removals(
    connection: &Connection,
    database: &Path,
    keep: Keep,
    public_key: &[u8; 32],
    kept: &mut Kept,
) -> Result<Vec<(Segment, Option<Encoded>)>, ChainError> {
    let mut found = Vec::new();
    for segment in segments::list(database, u64::MAX)? {
        let metadata = std::fs::symlink_metadata(&segment.path)?;
        found.push((segment, metadata.len(), metadata.modified()?));
    }
    if found.is_empty() || (keep.total_bytes == 0 && keep.age.is_zero()) {
        return Ok(Vec::new());
    }
    // Records that were inserted without the key count for no more than a full database.
    let used = used_bytes(connection)?.min(keep.segment_bytes);
    let is_over = |bytes: u64| keep.total_bytes > 0 && used.saturating_add(bytes) > keep.total_bytes;
    let now = clock::for_retention(database, SystemTime::now());
    let is_old = |time: SystemTime| {
        let age = now.and_then(|now| now.duration_since(time).ok());
        !keep.age.is_zero() && age.is_some_and(|age| age > keep.age)
    };
    let in_files = found.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    let may_be_old = found.iter().any(|(_, _, time)| is_old(*time));
    if !is_over(in_files) && !may_be_old {
        return Ok(Vec::new());
    }
    let mut total = closed_bytes(connection, public_key)?.map(|bytes| bytes.min(in_files));
    let removed_last = noted(connection, public_key, "last_seq", "'audit.removed'")?;
    let mut removals = Vec::new();
    for (segment, bytes, _) in found {
        if removed_last == Some(segment.last) {
            // Its removal was cut off.
            removals.push((segment, None));
            continue;
        }
        let is_over = total.is_some_and(is_over);
        if !is_over && !may_be_old {
            break;
        }
        let known = kept.get(&segment.path).copied();
        let Some(last) = known.unwrap_or_else(|| segment.last_record(public_key)) else {
            if kept.insert(segment.path.clone(), None).is_none() {
                tracing::error!(file = ?segment.path, "a closed segment is damaged; it is not removed");
            }
            continue;
        };
        let time = UNIX_EPOCH + Duration::from_micros(last.time_us.max(0).cast_unsigned());
        let why = match is_old(time) {
            true => "age",
            false if is_over => "size",
            false => {
                kept.insert(segment.path, Some(last));
                break;
            }
        };
        total = total.map(|total| total.saturating_sub(bytes));
        let details = json!({
            "file": segment.name(),
            "first_seq": segment.first,
            "last_seq": segment.last,
            "last_hash": to_hex(&last.hash),
            "bytes": bytes,
            "why": why,
            CLOSED_BYTES: total,
        });
        let removed = Encoded::of_record(Action::AuditRemoved, "", details);
        removals.push((segment, Some(removed)));
    }
    Ok(removals)
}
