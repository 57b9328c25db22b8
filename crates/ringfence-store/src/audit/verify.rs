//! Walks the whole chain and names the first record that is not what was written.

use super::{
    Action, AuditError, Head, Record, chain,
    record::{COLUMNS, NO_HASH, bytes},
    schema,
    segments::{self, Segment},
};
use rusqlite::{Connection, params};
use serde_json::Value;
use std::{fmt, io, num::NonZero, path::Path, thread};

/// Records that are held at once.
const CHUNK: usize = 512;
/// Threads that check signatures.
const THREADS_MAX: usize = 8;
/// Breaks whose numbers are kept.
const BREAKS_MAX: usize = 100;

/// How much was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Hashes, links and signatures.
    Signed,
    /// Hashes and links only: no key was given. Whoever can write the file can make such a chain.
    Unsigned,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How much was checked.
    pub scope: Scope,
    /// Good records before the first bad one.
    pub records: u64,
    /// The number of the first record; none in a chain without any.
    pub first_seq: Option<u64>,
    /// The head, if it is there and is true.
    pub head: Option<Head>,
    /// The first thing that is wrong.
    pub bad: Option<Bad>,
    /// Records that are dated before the one in front of them: the clock was set back.
    pub set_back: u64,
    /// Records that tell of a break: a chain that follows a damaged or replaced file. The first hundred.
    pub breaks: Vec<u64>,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The record concerned; the one that ought to stand there if it is missing.
    pub seq: u64,
    /// What is wrong with it.
    pub what: Fault,
}

/// The ways in which a chain is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The record is not there, and later ones are.
    Missing,
    /// A record stands where none can.
    Misplaced,
    /// A column cannot be read as what it is.
    Unreadable(String),
    /// The contents do not have the record's hash.
    Edited,
    /// It does not follow the record before it.
    Unlinked,
    /// The key did not sign it.
    Forged,
    /// It stands behind the head.
    BehindHead,
    /// The head says that it was written, and nothing is there.
    Cut,
    /// The head row is gone.
    HeadMissing,
    /// The key did not sign the head.
    HeadForged,
    /// The head has another hash or time than its record.
    HeadDiffers,
    /// The head that was noted elsewhere is beyond the end: the file is an older copy, or was begun anew.
    ExpectedMissing,
    /// The head that was noted elsewhere has another hash: this is another chain.
    ExpectedDiffers,
    /// The records are right and the database's own checks fail: queries may hide records.
    Index(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "it is missing",
            Self::Misplaced => "it stands where none can",
            Self::Unreadable(what) => return write!(f, "it cannot be read: {what}"),
            Self::Edited => "its contents were edited",
            Self::Unlinked => "it does not follow the record before it",
            Self::Forged => "it is not signed with this key",
            Self::BehindHead => "it stands behind the head",
            Self::Cut => "the head says it was written, and it is gone",
            Self::HeadMissing => "the head is missing",
            Self::HeadForged => "the head is not signed with this key",
            Self::HeadDiffers => "the head is not this record's",
            Self::ExpectedMissing => {
                "the expected head is not in the chain: the file is an older copy or a new one"
            }
            Self::ExpectedDiffers => "the expected head is another: this is another chain",
            Self::Index(what) => return write!(f, "the database is inconsistent: {what}"),
        })
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.seq, self.what)
    }
}

/// Checks a record, its closed segments and its database, also beside a live server: the chain as it is at the
/// beginning. `expected_head` is a number and hash noted earlier; a file that was set back to an older copy does not
/// hold it. `progress` is told how many records of how many are done.
pub fn verify(
    path: &Path,
    public_key: Option<&[u8; 32]>,
    expected_head: Option<(u64, [u8; 32])>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verdict, AuditError> {
    let connection = schema::connect_reader(path)?;
    let failed = |error: rusqlite::Error| AuditError::of_sqlite(path, "verifying it", &error);
    // Of one moment: what is closed meanwhile is still here.
    let moment = connection.unchecked_transaction().map_err(failed)?;
    let (head, first, last) = ends(&moment).map_err(failed)?;
    let mut walk = Walk::new(public_key, expected_head, head);
    let segments = segments::list(path, first)
        .map_err(|error| AuditError::of_io(path, "listing its segments", &error))?;
    for segment in &segments {
        walk.segment(segment);
        progress(walk.seq, last.max(0).cast_unsigned());
    }
    walk.is_database = true;
    while walk.bad.is_none() {
        let after = if walk.has_rows { walk.seq } else { 0 };
        let (chunk, unreadable) = chunk(&moment, after, last).map_err(failed)?;
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
    if walk.bad.is_none()
        && let Some(what) = inconsistency(&moment).map_err(failed)?
    {
        walk.fail(walk.seq, Fault::Index(what));
    }
    Ok(walk.verdict())
}

/// The head's row and the first and the last record's number.
fn ends(snapshot: &Connection) -> rusqlite::Result<(HeadRow, u64, i64)> {
    let head = match chain::read_head(snapshot) {
        Ok(Some((head, signature))) => HeadRow::Read(head, signature),
        Ok(None) => HeadRow::Missing,
        Err(error) if error.sqlite_error_code().is_none() => HeadRow::Unreadable,
        Err(error) => return Err(error),
    };
    let last: Option<i64> = snapshot.query_row("SELECT max(seq) FROM record", [], |row| row.get(0))?;
    let first: Option<i64> = snapshot.query_row("SELECT min(seq) FROM record", [], |row| row.get(0))?;
    let first = first.map_or(u64::MAX, |first| first.max(0).cast_unsigned());
    Ok((head, first, last.unwrap_or(0)))
}

enum HeadRow {
    Read(Head, [u8; 64]),
    Missing,
    Unreadable,
}

/// The next records, up to one that cannot be read. The first chunk takes also what stands before record 1.
fn chunk(connection: &Connection, after: u64, last: i64) -> rusqlite::Result<(Vec<Record>, Option<String>)> {
    let sql = format!("SELECT {COLUMNS} FROM record WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT {CHUNK}");
    let mut statement = connection.prepare_cached(&sql)?;
    let from = if after == 0 {
        i64::MIN
    } else {
        chain::signed(after)?
    };
    let mut rows = statement.query(params![from, last])?;
    let mut records = Vec::new();
    loop {
        match rows.next().and_then(|row| row.map(Record::of_row).transpose()) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return Ok((records, None)),
            Err(error) if is_of_contents(&error) => return Ok((records, Some(error.to_string()))),
            Err(error) => return Err(error),
        }
    }
}

fn is_of_contents(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        None | Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
    )
}

/// SQLite's own check, indexes included: an index that lacks a record hides it from queries.
fn inconsistency(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let said: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((said != "ok").then_some(said))
}

struct Walk<'a> {
    key: Option<&'a [u8; 32]>,
    expected: Option<(u64, [u8; 32])>,
    /// None: missing, unreadable or forged.
    head: Option<Head>,
    headless: Option<Fault>,
    seq: u64,
    hash: [u8; 32],
    time_us: i64,
    first_seq: Option<u64>,
    set_back: u64,
    breaks: Vec<u64>,
    bad: Option<Bad>,
    /// Good ones.
    records: u64,
    /// The closed segments are done.
    is_database: bool,
    /// Of the database.
    has_rows: bool,
    /// What came before the first record, which was removed; something later has to say so.
    removed: Option<Removed>,
}

/// The last record of what is not there any more; without a hash, whichever it was.
#[derive(Clone, Copy)]
struct Removed {
    seq: u64,
    hash: Option<[u8; 32]>,
}

impl<'a> Walk<'a> {
    fn new(key: Option<&'a [u8; 32]>, expected: Option<(u64, [u8; 32])>, head: HeadRow) -> Self {
        let (head, headless) = match head {
            HeadRow::Missing => (None, Some(Fault::HeadMissing)),
            HeadRow::Unreadable => (None, Some(Fault::HeadForged)),
            HeadRow::Read(head, signature) => {
                let forged = key.is_some_and(|key| !crate::verify(key, &head.signed_bytes(), &signature));
                if forged {
                    (None, Some(Fault::HeadForged))
                } else {
                    (Some(head), None)
                }
            }
        };
        Self {
            key,
            expected,
            head,
            headless,
            seq: 0,
            hash: NO_HASH,
            time_us: i64::MIN,
            first_seq: None,
            set_back: 0,
            breaks: Vec::new(),
            bad: None,
            records: 0,
            is_database: false,
            has_rows: false,
            removed: None,
        }
    }

    /// A closed segment.
    fn segment(&mut self, segment: &Segment) {
        let failed = |walk: &mut Self, error: io::Error| {
            let what = format!("{}: {error}", segment.name());
            walk.fail(walk.seq.max(segment.first - 1) + 1, Fault::Unreadable(what));
        };
        let records = match segment.read() {
            Ok(records) => records,
            Err(error) => return failed(self, error),
        };
        let mut chunk = Vec::new();
        for record in records {
            match record {
                Ok(record) => chunk.push(record),
                Err(error) => {
                    self.chunk(&chunk);
                    return failed(self, error);
                }
            }
            if chunk.len() == CHUNK {
                self.chunk(&chunk);
                chunk.clear();
            }
        }
        self.chunk(&chunk);
        if self.seq != segment.last {
            self.fail(self.seq + 1, Fault::Missing);
        }
    }

    fn fail(&mut self, seq: u64, what: Fault) {
        if self.bad.is_none() {
            self.bad = Some(Bad { seq, what });
        }
    }

    fn chunk(&mut self, records: &[Record]) {
        if self.bad.is_some() {
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
            self.first_seq = self.first_seq.or(Some(record.seq));
            self.set_back += u64::from(record.time_us < self.time_us);
            if tells_break(record) && self.breaks.len() < BREAKS_MAX {
                self.breaks.push(record.seq);
            }
            self.note_removal(record);
            self.records += 1;
            self.has_rows |= self.is_database;
            (self.seq, self.hash, self.time_us) = (record.seq, record.hash, record.time_us);
        }
    }

    /// Against itself.
    fn contents_fault(&self, record: &Record) -> Option<Fault> {
        let is_misplaced = record.seq <= self.seq || record.seq == 0;
        let misplaced = is_misplaced.then_some(Fault::Misplaced);
        misplaced
            .or_else(|| {
                let is_gap = record.seq > self.seq + 1 && self.follows(record).is_none();
                is_gap.then_some(Fault::Missing)
            })
            .or_else(|| (record.computed_hash() != record.hash).then_some(Fault::Edited))
    }

    /// Against the record before it.
    fn link_fault(&mut self, record: &Record) -> Option<Fault> {
        match self.follows(record) {
            None => Some(Fault::Unlinked),
            Some(removed) => {
                if self.first_seq.is_none() {
                    self.removed = removed;
                }
                None
            }
        }
    }

    /// May it stand after what was seen: linked to it, as the first of a new file that says what it follows, or as
    /// the first of all, where what was before has been removed.
    fn follows(&self, record: &Record) -> Option<Option<Removed>> {
        if record.seq == self.seq + 1 && record.prev_hash == self.hash {
            return Some(None);
        }
        let begins_file = || {
            let says = record.action == Action::AuditBegan.as_str();
            says && record.detail(chain::BEGINS_FILE) == Some(Value::from(true))
        };
        if begins_file() {
            let archived = record.detail(chain::ARCHIVED_UNTIL).and_then(|seq| seq.as_u64());
            let archived = archived.unwrap_or(0);
            let removed = Removed {
                seq: archived,
                hash: None,
            };
            return match self.first_seq {
                // All that was closed before it has been seen.
                Some(_) => (archived <= self.seq).then_some(None),
                None => Some((archived > 0).then_some(removed)),
            };
        }
        (self.first_seq.is_none() && record.seq > 1).then_some(Some(Removed {
            seq: record.seq - 1,
            hash: Some(record.prev_hash),
        }))
    }

    /// A record that says what was removed answers for what is missing in front.
    fn note_removal(&mut self, record: &Record) {
        let Some(removed) = self.removed else { return };
        if record.action != Action::AuditRemoved.as_str() {
            return;
        }
        let until = record.detail("last_seq").and_then(|seq| seq.as_u64());
        let hash = record.detail("last_hash");
        let hash = hash.as_ref().and_then(|hash| hash.as_str()).and_then(bytes);
        let is_same = removed.hash.is_none() || hash.is_none() || removed.hash == hash;
        if until == Some(removed.seq) && is_same {
            self.removed = None;
        }
    }

    /// Against the head, and the one that was noted elsewhere.
    fn head_fault(&self, record: &Record) -> Option<Fault> {
        if self.head.is_some_and(|head| record.seq > head.seq) {
            return Some(Fault::BehindHead);
        }
        let differs = |(seq, hash)| seq == record.seq && hash != record.hash;
        self.expected
            .is_some_and(differs)
            .then_some(Fault::ExpectedDiffers)
    }

    /// What only the end shows.
    fn end(&mut self) {
        if self.removed.is_some() {
            self.fail(1, Fault::Missing);
        }
        if let Some(fault) = self.headless.take() {
            self.fail(self.seq, fault);
        }
        if let Some(head) = self.head {
            if head.seq > self.seq {
                self.fail(self.seq + 1, Fault::Cut);
            } else if (head.hash, head.time_us) != (self.hash, self.time_us) {
                self.fail(self.seq, Fault::HeadDiffers);
            }
        }
        if let Some((seq, _)) = self.expected
            && !(self.first_seq.unwrap_or(1)..=self.seq).contains(&seq)
        {
            self.fail(seq, Fault::ExpectedMissing);
        }
    }

    fn verdict(self) -> Verdict {
        Verdict {
            scope: if self.key.is_some() {
                Scope::Signed
            } else {
                Scope::Unsigned
            },
            records: self.records,
            first_seq: self.first_seq,
            head: self.head,
            bad: self.bad,
            set_back: self.set_back,
            breaks: self.breaks,
        }
    }
}

fn tells_break(record: &Record) -> bool {
    let reason = || {
        serde_json::from_str::<Value>(&record.details)
            .ok()?
            .get("reason")?
            .as_str()
            .map(str::to_owned)
    };
    record.action == Action::AuditBegan.as_str() && reason().as_deref() != Some("new")
}

/// Checking signatures is nearly all of the work, and each stands for itself.
fn first_forged(key: &[u8; 32], records: &[Record]) -> Option<usize> {
    let threads = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(THREADS_MAX);
    let share = records.len().div_ceil(threads).max(1);
    let forged = |share: &[Record]| share.iter().position(|record| !record.is_signed_by(key));
    thread::scope(|scope| {
        let shares: Vec<_> = records
            .chunks(share)
            .map(|part| scope.spawn(move || forged(part)))
            .collect();
        let found = shares.into_iter().map(|part| part.join());
        // a thread that panicked has vouched for nothing
        let firsts = found
            .enumerate()
            .filter_map(|(at, first)| Some(at * share + first.unwrap_or(Some(0))?));
        firsts.min()
    })
}
