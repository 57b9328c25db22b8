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
    io,
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

/// The size of the closed segments from `closed_from` on, in the details of the records about segments.
const CLOSED_BYTES: &str = "closed_bytes";
/// The first record whose segment is counted. Segments of an earlier version, or beside a new database, are not.
const CLOSED_FROM: &str = "closed_from";

/// Segments removed in one call, before callers can write again: each is read.
const REMOVALS_AT_ONCE: usize = 4;

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
            true if left.is_file() => std::fs::remove_file(&left.path)?,
            true => {}
            false => in_files += std::fs::symlink_metadata(&left.path)?.len(),
        }
    }
    if oldest_bytes.is_some() && until < first + (head.seq - first) / 4 {
        return Ok(None); // too little for a file
    }
    let closed = Closed::noted(&transaction, &writer.public_key, in_files)?;
    let closed = closed.unwrap_or(Closed {
        from: first,
        bytes: 0,
    });
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
        CLOSED_BYTES: closed.bytes + written.bytes,
        CLOSED_FROM: closed.from,
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

/// Returns the newest record of these actions. Errors: `Damage` if it was edited.
fn newest(
    connection: &Connection,
    public_key: &[u8; 32],
    actions: &str,
) -> Result<Option<Record>, ChainError> {
    let sql = format!("SELECT {COLUMNS} FROM record WHERE action IN ({actions}) ORDER BY seq DESC LIMIT 1");
    let found = connection.query_row(&sql, [], Record::of_row).optional()?;
    let is_edited = |record: &Record| !record.follows(None) || !record.is_signed_by(public_key);
    match found {
        Some(record) if is_edited(&record) => Err(edited(&record)),
        found => Ok(found),
    }
}

/// The size of closed segments that is on record.
#[derive(Clone, Copy)]
struct Closed {
    from: u64,
    bytes: u64,
}

impl Closed {
    /// `bytes_max`: the size of the files, some of which may have been deleted.
    fn noted(
        connection: &Connection,
        public_key: &[u8; 32],
        bytes_max: u64,
    ) -> Result<Option<Self>, ChainError> {
        let record = newest(connection, public_key, "'audit.archived', 'audit.removed'")?;
        let number = |name| record.as_ref()?.detail(name)?.as_u64();
        let noted = number(CLOSED_FROM).zip(number(CLOSED_BYTES));
        Ok(noted.map(|(from, bytes)| Self {
            from,
            bytes: bytes.min(bytes_max),
        }))
    }

    fn without(self, segment: &Segment, bytes: u64) -> Self {
        let counted = if segment.first < self.from { 0 } else { bytes };
        let bytes = self.bytes.saturating_sub(counted);
        Self { bytes, ..self }
    }
}

/// Lists the segments with records from before the first one in the database.
fn segments_before(connection: &Connection, database: &Path) -> Result<Vec<Segment>, ChainError> {
    let sql = "SELECT min(seq) FROM record";
    let first: Option<i64> = connection.query_row(sql, [], |row| row.get(0))?;
    let first = first.map_or(u64::MAX, |first| first.max(0).cast_unsigned());
    Ok(segments::list(database, first)?)
}

/// Segments that were not removed: their last record, or `None` if they are damaged. They are not read again.
pub(super) type Kept = HashMap<PathBuf, Option<Head>>;

/// Reads a segment, or looks into `kept`. The log says what is wrong with it.
fn last_record(segment: &Segment, public_key: &[u8; 32], kept: &mut Kept) -> io::Result<Option<Head>> {
    if let Some(known) = kept.get(&segment.path) {
        return Ok(*known);
    }
    let last = segment.last_record(public_key);
    match &last {
        Ok(Some(_)) => {}
        Ok(None) => tracing::error!(file = ?segment.path, "a closed segment is damaged; it is not removed"),
        Err(error) => tracing::error!(%error, file = ?segment.path, "a closed segment could not be read"),
    }
    let last = last?;
    kept.insert(segment.path.clone(), last);
    Ok(last)
}

/// Returns the closed segments over the limits of age and size, oldest first, with the entries for their removal; none
/// for one whose removal is the last on record. The files only say when to look: what counts is the time of a verified
/// segment's last record, and the size on record. A damaged segment is never removed, and not counted; the newest one
/// is not removed for its size, nor are others if it is damaged.
pub(super) fn removals(
    connection: &Connection,
    database: &Path,
    keep: Keep,
    public_key: &[u8; 32],
    kept: &mut Kept,
) -> Result<Vec<(Segment, Option<Encoded>)>, ChainError> {
    let mut found = Vec::new();
    for segment in segments_before(connection, database)? {
        let metadata = std::fs::symlink_metadata(&segment.path)?;
        found.push((segment, metadata.len(), metadata.modified()?));
    }
    let Some((newest_segment, ..)) = found.last().cloned() else {
        return Ok(Vec::new());
    };
    // Records that were inserted without the key count for no more than a full database.
    let used = used_bytes(connection)?.min(keep.segment_bytes);
    let is_over = |bytes: u64| keep.total_bytes > 0 && used.saturating_add(bytes) > keep.total_bytes;
    let now = clock::for_retention(database, SystemTime::now());
    let is_old = |time: SystemTime| {
        let age = now.and_then(|now| now.duration_since(time).ok());
        !keep.age.is_zero() && age.is_some_and(|age| age > keep.age)
    };
    let in_files = found.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    if !is_over(in_files) && !found.first().is_some_and(|(_, _, time)| is_old(*time)) {
        return Ok(Vec::new());
    }
    let mut closed = Closed::noted(connection, public_key, in_files)?;
    let mut undamaged = closed;
    let removed_last = newest(connection, public_key, "'audit.removed'")?;
    let removed_last = removed_last.and_then(|record| record.detail("last_seq")?.as_u64());
    let mut is_damage_read = false;
    let mut removals = Vec::new();
    for (segment, bytes, time) in found {
        if removed_last == Some(segment.last) {
            // Its removal was cut off.
            removals.push((segment, None));
            continue;
        }
        let is_over = undamaged.is_some_and(|closed| is_over(closed.bytes));
        let may_go = is_old(time) || (is_over && segment != newest_segment);
        if !may_go || removals.len() == REMOVALS_AT_ONCE {
            break;
        }
        let is_known = kept.contains_key(&segment.path);
        let Ok(last) = last_record(&segment, public_key, kept) else {
            break;
        };
        let Some(last) = last else {
            // The next call reads more: no start of a server waits for many.
            if !is_known && std::mem::replace(&mut is_damage_read, true) {
                break;
            }
            undamaged = undamaged.map(|closed| closed.without(&segment, bytes));
            continue;
        };
        let time = UNIX_EPOCH + Duration::from_micros(last.time_us.max(0).cast_unsigned());
        let why = match is_old(time) {
            true => "age",
            false if !is_over || segment == newest_segment => break,
            false if matches!(last_record(&newest_segment, public_key, kept), Ok(Some(_))) => "size",
            false => break,
        };
        undamaged = undamaged.map(|closed| closed.without(&segment, bytes));
        closed = closed.map(|closed| closed.without(&segment, bytes));
        kept.remove(&segment.path);
        let details = json!({
            "file": segment.name(),
            "first_seq": segment.first,
            "last_seq": segment.last,
            "last_hash": to_hex(&last.hash),
            "bytes": bytes,
            "why": why,
            CLOSED_BYTES: closed.map(|closed| closed.bytes),
            CLOSED_FROM: closed.map(|closed| closed.from),
        });
        let removed = Encoded::of_record(Action::AuditRemoved, "", details);
        removals.push((segment, Some(removed)));
    }
    Ok(removals)
}
