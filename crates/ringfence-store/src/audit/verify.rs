//! Verification: walks the whole chain and names the first record that is not what was written.

use super::{
    Action, AuditError, Head, Record, chain,
    record::{COLUMNS, NO_HASH},
    schema,
    segments::{self, Segment},
};
use crate::digest::from_hex;
use rusqlite::{Connection, ErrorCode, params};
use serde_json::Value;
use std::{io, num::NonZero, path::Path, thread};

const CHUNK: usize = 512;
const THREADS_MAX: usize = 8;
const BREAKS_MAX: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Good records before the first bad one.
    pub records: u64,
    /// The number of the first record; `None` for an empty chain.
    pub first_seq: Option<u64>,
    /// The head, if it exists and is not forged.
    pub head: Option<Head>,
    pub bad: Option<Bad>,
    /// Records dated before the one in front of them, because the clock was set back.
    pub set_back: u64,
    /// Records of a break, where the chain follows a damaged or replaced file. The first hundred.
    pub breaks: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {what}")]
pub struct Bad {
    /// The number of the bad or missing record.
    pub seq: u64,
    pub what: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it is missing")]
    Missing,
    #[error("its number is out of order")]
    Misplaced,
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("its contents were edited")]
    Edited,
    #[error("it does not follow the record before it")]
    Unlinked,
    #[error("it is not signed with this key")]
    Forged,
    #[error("it comes after the head")]
    BehindHead,
    #[error("the head says it was written, but it is missing")]
    Cut,
    #[error("the head is missing")]
    HeadMissing,
    #[error("the head is not signed with this key")]
    HeadForged,
    #[error("the head does not match this record")]
    HeadDiffers,
    #[error("the expected head is not in the chain: the file is an older copy or a new one")]
    ExpectedMissing,
    #[error("the expected head differs: this is another chain")]
    ExpectedDiffers,
    /// The records are valid, but the database's own checks fail: queries may miss records.
    #[error("the database is inconsistent: {0}")]
    Index(String),
}

/// Verifies a record, its segments and its database, as of the start of the call, also beside a running server.
/// `expected_head` is a number and hash noted earlier; a file that was set back lacks it. Without a key only hashes and
/// links are checked, which a user with write access can forge. `progress` gets the records done and the total.
pub fn verify(
    path: &Path,
    public_key: Option<&[u8; 32]>,
    expected_head: Option<(u64, [u8; 32])>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verdict, AuditError> {
    let connection = schema::connect_reader(path)?;
    let failed = |error: rusqlite::Error| AuditError::of_sqlite(path, "verifying it", &error);
    // One snapshot: records that are archived meanwhile are still here.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let (head, first, last) = ends(&snapshot).map_err(failed)?;
    let mut walk = Walk::new(public_key, expected_head, head);
    let segments = segments::list(path, first)
        .map_err(|error| AuditError::of_io(path, "listing its segments", &error))?;
    for segment in &segments {
        if !segment.is_file() {
            tracing::error!(file = ?segment.path, "it is in place of a closed segment, but is not a file");
            continue;
        }
        walk.segment(segment);
        progress(walk.seq, last.max(0).cast_unsigned());
    }
    walk.is_database = true;
    while walk.verdict.bad.is_none() {
        let after = if walk.has_rows { walk.seq } else { 0 };
        let (chunk, unreadable) = chunk(&snapshot, after, last).map_err(failed)?;
        let is_last = chunk.is_empty();
        walk.chunk(&chunk);
        if let Some(error) = unreadable {
            walk.fail(walk.seq + 1, Fault::Unreadable(error));
        }
        progress(walk.seq, last.max(0).cast_unsigned());
        if is_last {
            break;
        }
    }
    walk.end();
    if walk.verdict.bad.is_none() {
        let report = snapshot.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
        let report = report.map_err(failed)?;
        if report != "ok" {
            walk.fail(walk.seq, Fault::Index(report));
        }
    }
    Ok(walk.verdict)
}

fn ends(snapshot: &Connection) -> rusqlite::Result<(HeadRow, u64, i64)> {
    let head = match chain::read_head(snapshot) {
        Ok(read) => read.ok_or(Fault::HeadMissing),
        Err(error) if error.sqlite_error_code().is_none() => Err(Fault::HeadForged),
        Err(error) => return Err(error),
    };
    let last: Option<i64> = snapshot.query_row("SELECT max(seq) FROM record", [], |row| row.get(0))?;
    let first: Option<i64> = snapshot.query_row("SELECT min(seq) FROM record", [], |row| row.get(0))?;
    let first = first.map_or(u64::MAX, |first| first.max(0).cast_unsigned());
    Ok((head, first, last.unwrap_or(0)))
}

/// The head with its signature, unchecked.
type HeadRow = Result<(Head, [u8; 64]), Fault>;

/// Returns the next records, up to one that cannot be read. The first chunk includes records before number 1.
fn chunk(connection: &Connection, after: u64, last: i64) -> rusqlite::Result<(Vec<Record>, Option<String>)> {
    let sql = format!("SELECT {COLUMNS} FROM record WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT {CHUNK}");
    let mut statement = connection.prepare_cached(&sql)?;
    let from = if after == 0 { i64::MIN } else { after.cast_signed() };
    let mut rows = statement.query(params![from, last])?;
    let mut records = Vec::new();
    loop {
        match rows.next().and_then(|row| row.map(Record::of_row).transpose()) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return Ok((records, None)),
            Err(error) => match error.sqlite_error_code() {
                // Invalid contents.
                None | Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    return Ok((records, Some(error.to_string())));
                }
                Some(_) => return Err(error),
            },
        }
    }
}

struct Walk<'a> {
    key: Option<&'a [u8; 32]>,
    expected: Option<(u64, [u8; 32])>,
    verdict: Verdict,
    /// The head is missing, unreadable or forged.
    bad_head: Option<Fault>,
    seq: u64,
    hash: [u8; 32],
    time_us: i64,
    is_database: bool,
    has_rows: bool,
    /// The records removed before the first one; a later record must account for them.
    removed: Option<Removed>,
}

/// The last removed record; without a hash, any record of this number.
#[derive(Clone, Copy)]
struct Removed {
    seq: u64,
    hash: Option<[u8; 32]>,
}

impl<'a> Walk<'a> {
    fn new(key: Option<&'a [u8; 32]>, expected: Option<(u64, [u8; 32])>, head: HeadRow) -> Self {
        let is_signed = |(head, signature): &(Head, [u8; 64])| {
            key.is_none_or(|key| crate::verify(key, &head.signed_bytes(), signature))
        };
        let (head, bad_head) = match head {
            Ok(row) if is_signed(&row) => (Some(row.0), None),
            Ok(_) => (None, Some(Fault::HeadForged)),
            Err(fault) => (None, Some(fault)),
        };
        Self {
            key,
            expected,
            verdict: Verdict {
                head,
                ..Verdict::default()
            },
            bad_head,
            seq: 0,
            hash: NO_HASH,
            time_us: i64::MIN,
            is_database: false,
            has_rows: false,
            removed: None,
        }
    }

    fn segment(&mut self, segment: &Segment) {
        if let Err(error) = self.records(segment) {
            let what = format!("{}: {error}", segment.name());
            self.fail(self.seq.max(segment.first - 1) + 1, Fault::Unreadable(what));
        } else if self.seq != segment.last {
            self.fail(self.seq + 1, Fault::Missing);
        }
    }

    fn records(&mut self, segment: &Segment) -> io::Result<()> {
        let mut records = segment.read();
        loop {
            let (mut chunk, mut unreadable) = (Vec::new(), None);
            for record in records.by_ref().take(CHUNK) {
                match record {
                    Ok(record) => chunk.push(record),
                    Err(error) => unreadable = Some(error),
                }
            }
            self.chunk(&chunk);
            match unreadable {
                Some(error) => return Err(error),
                None if chunk.len() < CHUNK => return Ok(()),
                None => {}
            }
        }
    }

    fn fail(&mut self, seq: u64, what: Fault) {
        if self.verdict.bad.is_none() {
            self.verdict.bad = Some(Bad { seq, what });
        }
    }

    fn chunk(&mut self, records: &[Record]) {
        if self.verdict.bad.is_some() {
            return;
        }
        let forged = self.key.and_then(|key| first_forged(key, records));
        for (at, record) in records.iter().enumerate() {
            let signature = (forged == Some(at)).then_some(Fault::Forged);
            let fault = self.contents_fault(record).or(signature);
            let fault = fault.or_else(|| self.link_fault(record));
            if let Some(fault) = fault.or_else(|| self.head_fault(record)) {
                let missing = fault == Fault::Missing;
                return self.fail(if missing { self.seq + 1 } else { record.seq }, fault);
            }
            self.verdict.first_seq = self.verdict.first_seq.or(Some(record.seq));
            self.verdict.set_back += u64::from(record.time_us < self.time_us);
            if is_break(record) && self.verdict.breaks.len() < BREAKS_MAX {
                self.verdict.breaks.push(record.seq);
            }
            self.note_removal(record);
            self.verdict.records += 1;
            self.has_rows |= self.is_database;
            (self.seq, self.hash, self.time_us) = (record.seq, record.hash, record.time_us);
        }
    }

    fn contents_fault(&self, record: &Record) -> Option<Fault> {
        if record.seq <= self.seq || record.seq == 0 {
            return Some(Fault::Misplaced);
        }
        if record.seq > self.seq + 1 && self.follows(record).is_none() {
            return Some(Fault::Missing);
        }
        (record.computed_hash() != record.hash).then_some(Fault::Edited)
    }

    fn link_fault(&mut self, record: &Record) -> Option<Fault> {
        let Some(removed) = self.follows(record) else {
            return Some(Fault::Unlinked);
        };
        if self.verdict.first_seq.is_none() {
            self.removed = removed;
        }
        None
    }

    /// Returns `Some` if the record may come next: linked to the last one; the first of a new file that says what it
    /// follows; or the first of all, where those before it have been removed, which it then returns.
    fn follows(&self, record: &Record) -> Option<Option<Removed>> {
        if record.seq == self.seq + 1 && record.prev_hash == self.hash {
            return Some(None);
        }
        let begins_file = || {
            let is_begin = record.action == Action::AuditBegan.as_str();
            is_begin && record.detail(chain::BEGINS_FILE) == Some(Value::from(true))
        };
        if begins_file() {
            let archived = record.detail(chain::ARCHIVED_UNTIL).and_then(|seq| seq.as_u64());
            let (seq, hash) = (archived.unwrap_or(0), None);
            return match self.verdict.first_seq {
                // All records archived before it have been seen.
                Some(_) => (seq <= self.seq).then_some(None),
                None => Some((seq > 0).then_some(Removed { seq, hash })),
            };
        }
        let (seq, hash) = (record.seq - 1, Some(record.prev_hash));
        (self.verdict.first_seq.is_none() && record.seq > 1).then_some(Some(Removed { seq, hash }))
    }

    /// Clears `removed` if this record accounts for the missing records.
    fn note_removal(&mut self, record: &Record) {
        let Some(removed) = self.removed else { return };
        if record.action != Action::AuditRemoved.as_str() {
            return;
        }
        let until = record.detail("last_seq").and_then(|seq| seq.as_u64());
        let hash = record.detail("last_hash");
        let hash = hash.as_ref().and_then(|hash| hash.as_str()).and_then(from_hex);
        let is_same = removed.hash.is_none() || hash.is_none() || removed.hash == hash;
        if until == Some(removed.seq) && is_same {
            self.removed = None;
        }
    }

    fn head_fault(&self, record: &Record) -> Option<Fault> {
        if self.verdict.head.is_some_and(|head| record.seq > head.seq) {
            return Some(Fault::BehindHead);
        }
        let differs = |(seq, hash)| seq == record.seq && hash != record.hash;
        let is_other = self.expected.is_some_and(differs);
        is_other.then_some(Fault::ExpectedDiffers)
    }

    fn end(&mut self) {
        if self.removed.is_some() {
            self.fail(1, Fault::Missing);
        }
        if let Some(fault) = self.bad_head.take() {
            self.fail(self.seq, fault);
        }
        if let Some(head) = self.verdict.head {
            if head.seq > self.seq {
                self.fail(self.seq + 1, Fault::Cut);
            } else if (head.hash, head.time_us) != (self.hash, self.time_us) {
                self.fail(self.seq, Fault::HeadDiffers);
            }
        }
        if let Some((seq, _)) = self.expected
            && !(self.verdict.first_seq.unwrap_or(1)..=self.seq).contains(&seq)
        {
            self.fail(seq, Fault::ExpectedMissing);
        }
    }
}

fn is_break(record: &Record) -> bool {
    let is_new = || record.detail("reason") == Some(Value::from("new"));
    record.action == Action::AuditBegan.as_str() && !is_new()
}

/// Returns the index of the first bad signature. Checking them is nearly all of the work, so several threads share it.
fn first_forged(key: &[u8; 32], records: &[Record]) -> Option<usize> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = records.len().div_ceil(threads.min(THREADS_MAX)).max(1);
    let forged = |share: &[Record]| share.iter().position(|record| !record.is_signed_by(key));
    thread::scope(|scope| {
        let parts = records.chunks(share);
        let shares: Vec<_> = parts.map(|part| scope.spawn(move || forged(part))).collect();
        let found = shares.into_iter().map(|part| part.join());
        // a thread that panicked counts as a bad first signature
        let first = |(at, first): (usize, thread::Result<_>)| Some(at * share + first.unwrap_or(Some(0))?);
        found.enumerate().filter_map(first).min()
    })
}
