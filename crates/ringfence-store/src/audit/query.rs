//! Reading the record page by page, with or without a running server.

use super::{
    Action, AuditError, Outcome, Record,
    record::COLUMNS,
    schema,
    segments::{self, Segment},
};
use ringfence_types::UnknownWord;
use rusqlite::{Connection, ToSql, params_from_iter};
use std::{collections::VecDeque, path::Path, str::FromStr};

pub(super) const PAGE_RECORDS_MAX: usize = 10_000;
/// A page ends early when its texts are larger than this.
const PAGE_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actions {
    One(Action),
    /// All actions of this one's group: `execution.` for `execution.started`.
    GroupOf(Action),
}

impl FromStr for Actions {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let of_group = Action::ALL.iter().find(|action| group(**action) == text);
        of_group.map_or_else(
            || text.parse().map(Self::One),
            |action| Ok(Self::GroupOf(*action)),
        )
    }
}

/// The records to read. All given conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub namespace: Option<String>,
    pub actions: Option<Actions>,
    /// Only this outcome. For `pending`, only records of actions that have not ended since.
    pub outcome: Option<Outcome>,
    pub execution_id: Option<String>,
    /// At or after this time, in microseconds since 1970.
    pub since_us: Option<i64>,
    pub until_us: Option<i64>,
    pub before_seq: Option<u64>,
    pub after_seq: Option<u64>,
    /// Records per page: 1 to 10 000.
    pub limit: usize,
    pub newest_first: bool,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            namespace: None,
            actions: None,
            outcome: None,
            execution_id: None,
            since_us: None,
            until_us: None,
            before_seq: None,
            after_seq: None,
            limit: 100,
            newest_first: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub records: Vec<Record>,
    /// The query of the next page; `None` on the last page.
    pub next: Option<Query>,
    /// Files that could not be read, or not to their end, with the reason. All other records are included.
    pub damaged: Vec<String>,
}

/// Reads one page of a record, its closed segments included. It checks no signatures: see [`super::verify`].
pub fn query(path: &Path, query: &Query) -> Result<Page, AuditError> {
    check(query)?;
    let connection = schema::connect_reader(path)?;
    let failed = |error: rusqlite::Error| AuditError::of_sqlite(path, "reading it", &error);
    // One snapshot: records that are archived meanwhile are still here.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let sql = "SELECT min(seq) FROM record";
    let first: Option<i64> = snapshot.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
    let segments = segments::names(path, first.map_or(u64::MAX, i64::cast_unsigned));
    let segments = segments.map_err(|error| AuditError::of_io(path, "listing its segments", &error))?;
    // `None`: the database.
    let mut parts: Vec<Option<&Segment>> = segments.iter().map(Some).chain([None]).collect();
    if query.newest_first {
        parts.reverse();
    }
    let mut all = Page::default();
    parts.retain(|part| part.is_none_or(|segment| query.may_match(segment)));
    for part in parts {
        if let (true, Some(last)) = (all.records.len() >= query.limit, all.records.last()) {
            all.next = Some(query.after(last.seq));
            break;
        }
        let rest = Query {
            limit: query.limit - all.records.len(),
            ..query.clone()
        };
        let page = match part {
            None => page(&snapshot, path, &rest)?,
            Some(segment) => closed_page(segment, &rest),
        };
        all.records.extend(page.records);
        all.damaged.extend(page.damaged);
        if let Some(next) = page.next {
            let limit = query.limit;
            all.next = Some(Query { limit, ..next });
            break;
        }
    }
    Ok(all)
}

/// Reads a page of a closed segment. All of it may be read; it is not much larger than the largest page.
fn closed_page(segment: &Segment, query: &Query) -> Page {
    let mut page = Page::default();
    let mut found = VecDeque::new();
    let (mut is_more, mut end) = (false, 0);
    for record in segment.read() {
        match record {
            Ok(record) => {
                end = record.seq;
                if query.matches(&record) {
                    found.push_back(record);
                }
            }
            Err(error) => page.damaged.push(format!("{}: {error}", segment.path.display())),
        }
        if found.len() <= query.limit {
            continue;
        }
        is_more = true;
        // Newest first: only the last records are wanted. Oldest first: none after the first ones.
        if query.newest_first {
            found.pop_front();
        } else {
            found.pop_back();
            end = segment.last;
            break;
        }
    }
    if end != segment.last && page.damaged.is_empty() {
        let path = segment.path.display();
        page.damaged.push(format!("{path}: its last record is missing"));
    }
    page.records = found.into();
    if query.newest_first {
        page.records.reverse();
    }
    let last = page.records.last().filter(|_| is_more);
    page.next = last.map(|last| query.after(last.seq));
    page
}

fn check(query: &Query) -> Result<(), AuditError> {
    if (1..=PAGE_RECORDS_MAX).contains(&query.limit) {
        return Ok(());
    }
    Err(AuditError::InvalidQuery("`limit` is 1 to 10000"))
}

pub(super) fn page(connection: &Connection, path: &Path, query: &Query) -> Result<Page, AuditError> {
    check(query)?;
    read(connection, query).map_err(|error| AuditError::of_sqlite(path, "reading it", &error))
}

fn read(connection: &Connection, query: &Query) -> rusqlite::Result<Page> {
    let (sql, values) = select(query);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = Page::default();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if let Some(last) = page.records.last()
            && (page.records.len() == query.limit || bytes >= PAGE_BYTES_MAX)
        {
            page.next = Some(query.after(last.seq));
            break;
        }
        let record = Record::of_row(row)?;
        bytes += record.details.len() + record.namespace.len() + record.caller.len();
        page.records.push(record);
    }
    Ok(page)
}

impl Query {
    /// Segments are not searched for `pending`: open operations stay in the database, unless that is too large.
    fn may_match(&self, segment: &Segment) -> bool {
        self.outcome != Some(Outcome::Pending)
            && self.before_seq.is_none_or(|before| segment.first < before)
            && self.after_seq.is_none_or(|after| segment.last > after)
    }

    /// Applies the conditions of [`select`] to a record of a closed segment.
    fn matches(&self, record: &Record) -> bool {
        let is = |wanted: Option<&str>, found: Option<&str>| wanted.is_none() || wanted == found;
        let action = match self.actions {
            None => true,
            Some(Actions::One(action)) => record.action == action.as_str(),
            Some(Actions::GroupOf(action)) => record.action.starts_with(group(action)),
        };
        action
            && is(self.namespace.as_deref(), Some(&record.namespace))
            && is(self.execution_id.as_deref(), record.execution_id.as_deref())
            && is(self.outcome.map(Outcome::as_str), Some(&record.outcome))
            && self.since_us.is_none_or(|since| record.time_us >= since)
            && self.until_us.is_none_or(|until| record.time_us < until)
            && self.before_seq.is_none_or(|before| record.seq < before)
            && self.after_seq.is_none_or(|after| record.seq > after)
    }

    fn after(&self, seq: u64) -> Self {
        let mut next = self.clone();
        if self.newest_first {
            next.before_seq = Some(seq);
        } else {
            next.after_seq = Some(seq);
        }
        next
    }
}

fn select(query: &Query) -> (String, Vec<Box<dyn ToSql>>) {
    fn boxed(value: impl ToSql + 'static) -> Box<dyn ToSql> {
        Box::new(value)
    }
    let Query { outcome, .. } = *query;
    let (one, of_group) = match query.actions {
        None => (None, None),
        Some(Actions::One(action)) => (Some(action.as_str()), None),
        Some(Actions::GroupOf(action)) => (None, Some(group(action))),
    };
    let is_pending = outcome == Some(Outcome::Pending);
    let wanted = [
        ("namespace = ?", query.namespace.clone().map(boxed)),
        ("action = ?", one.map(boxed)),
        ("action >= ?", of_group.map(boxed)),
        // `/` is the character after `.`
        ("action < ?", of_group.map(|group| boxed(group.replace('.', "/")))),
        ("outcome = ?", outcome.map(|outcome| boxed(outcome.as_str()))),
        (STILL_OPEN, is_pending.then(|| boxed(true))),
        ("execution_id = ?", query.execution_id.clone().map(boxed)),
        ("time_us >= ?", query.since_us.map(boxed)),
        ("time_us < ?", query.until_us.map(boxed)),
        ("seq < ?", query.before_seq.map(boxed)),
        ("seq > ?", query.after_seq.map(boxed)),
    ];
    let given = wanted
        .into_iter()
        .filter_map(|(term, value)| Some((term, value?)));
    let (terms, values): (Vec<&str>, Vec<_>) = given.unzip();
    let terms = match terms.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", terms.join(" AND ")),
    };
    let order = if query.newest_first { "DESC" } else { "ASC" };
    // one more than the page, to detect a next page
    let limit = query.limit + 1;
    let sql = format!("SELECT {COLUMNS} FROM record{terms} ORDER BY seq {order} LIMIT {limit}");
    (sql, values)
}

/// Returns the number of the first record up to `until` that begins an operation without an end on record.
pub(super) fn first_open(connection: &Connection, until: u64) -> rusqlite::Result<Option<u64>> {
    let sql = format!("SELECT min(seq) FROM record WHERE seq <= ? AND outcome = 'pending' AND {STILL_OPEN}");
    connection.query_row(&sql, (until, true), |row| row.get(0))
}

/// True for a record of an execution that has no later record of the same group.
const STILL_OPEN: &str = "? = (execution_id IS NOT NULL AND NOT EXISTS(SELECT 1 FROM record AS later \
     WHERE later.execution_id = record.execution_id AND later.seq > record.seq \
     AND substr(later.action, 1, instr(later.action, '.')) = substr(record.action, 1, instr(record.action, '.'))))";

/// Returns the word up to and including its dot.
fn group(action: Action) -> &'static str {
    action.as_str().split_inclusive('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, tests::fixture},
        *,
    };
    use crate::audit::{Audit, Storage};

    fn filled() -> (fixture::Directory, Audit) {
        let directory = fixture::Directory::new();
        let audit = directory.open(Durability::Process);
        for number in 0..20u64 {
            let mut entry = fixture::entry(number);
            if number % 2 == 1 {
                entry.action = Action::ExecutionCompleted;
                entry.namespace = "odd".to_owned();
                entry.execution_id = Some(format!("e{number}"));
            }
            if number % 5 == 0 {
                entry.outcome = Outcome::Denied;
            }
            audit.append_and_wait(entry).unwrap();
        }
        (directory, audit)
    }

    fn seqs(page: &Page) -> Vec<u64> {
        page.records.iter().map(|record| record.seq).collect()
    }

    #[test]
    fn each_query_condition_filters_its_records() {
        let (directory, audit) = filled();
        let check = |expect: usize, filter: &dyn Fn(&mut Query)| {
            let mut query = Query::default();
            filter(&mut query);
            let page = query_of(&directory, &query);
            assert_eq!(page, audit.query(&query).unwrap());
            assert_eq!(page.records.len(), expect, "{query:?}");
        };
        let actions = |word: &str| Some(word.parse().unwrap());
        check(21, &|_| {});
        check(10, &|query| query.namespace = Some("odd".to_owned()));
        check(0, &|query| query.namespace = Some("ODD".to_owned()));
        check(10, &|query| query.actions = actions("execution."));
        check(10, &|query| query.actions = actions("execution.completed"));
        check(0, &|query| query.actions = actions("execution.started"));
        check(1, &|query| query.actions = actions("audit."));
        check(4, &|query| query.outcome = Some(Outcome::Denied));
        check(1, &|query| query.execution_id = Some("e7".to_owned()));
        check(3, &|query| {
            (query.after_seq, query.before_seq) = (Some(5), Some(9))
        });
        check(5, &|query| {
            query.after_seq = Some(11);
            query.namespace = Some("odd".to_owned());
        });
        let all = query_of(&directory, &Query::default()).records;
        let (since, until) = (all[5].time_us, all[15].time_us);
        let within = all
            .iter()
            .filter(|record| (since..until).contains(&record.time_us));
        check(within.count(), &|query| {
            (query.since_us, query.until_us) = (Some(since), Some(until))
        });
    }

    fn query_of(directory: &fixture::Directory, query: &Query) -> Page {
        super::query(&directory.database(), query).unwrap()
    }

    #[test]
    fn pages_join_without_gaps_in_both_directions() {
        let (directory, _audit) = filled();
        for newest_first in [false, true] {
            let mut next = Some(Query {
                limit: 4,
                newest_first,
                ..Query::default()
            });
            let mut seen = Vec::new();
            while let Some(query) = next {
                let page = query_of(&directory, &query);
                assert!(page.records.len() <= 4);
                seen.extend(seqs(&page));
                next = page.next;
            }
            let mut expect: Vec<u64> = (1..=21).collect();
            if newest_first {
                expect.reverse();
            }
            assert_eq!(seen, expect);
        }
    }

    #[test]
    fn exactly_full_page_has_no_next_page() {
        let (directory, _audit) = filled();
        let page = query_of(
            &directory,
            &Query {
                limit: 21,
                ..Query::default()
            },
        );
        assert_eq!((page.records.len(), page.next), (21, None));
    }

    #[test]
    fn invalid_queries_are_refused() {
        let (directory, _audit) = filled();
        for limit in [0, PAGE_RECORDS_MAX + 1] {
            let refused = query(
                &directory.database(),
                &Query {
                    limit,
                    ..Query::default()
                },
            );
            assert!(matches!(refused, Err(AuditError::InvalidQuery(_))));
        }
        let refused = query(
            &directory.database(),
            &Query {
                after_seq: Some(u64::MAX),
                ..Query::default()
            },
        );
        assert!(refused.is_err());
        for word in ["", ".", "execution", "execution.x", "exec.", "execution.started."] {
            assert!(word.parse::<Actions>().is_err(), "{word:?}");
        }
    }

    #[test]
    fn page_of_large_records_ends_early_and_continues() {
        let audit = Audit::open(
            Storage::Memory,
            Durability::Process,
            crate::Signer::in_memory().unwrap(),
            "server".to_owned(),
        )
        .unwrap();
        let large = "x".repeat(60 << 10);
        for number in 0..300 {
            let mut entry = fixture::entry(number);
            entry.details.insert("large".to_owned(), large.as_str().into());
            audit.append_and_wait(entry).unwrap();
        }
        let first = audit
            .query(&Query {
                limit: PAGE_RECORDS_MAX,
                ..Query::default()
            })
            .unwrap();
        assert!(
            (200..300).contains(&first.records.len()),
            "{}",
            first.records.len()
        );
        let second = audit.query(&first.next.unwrap()).unwrap();
        assert_eq!(first.records.len() + second.records.len(), 301);
        assert_eq!(second.next, None);
    }

    #[test]
    fn missing_file_is_an_error_and_is_not_created() {
        let directory = fixture::Directory::new();
        assert!(query(&directory.database(), &Query::default()).is_err());
        assert!(!directory.database().exists());
    }
}
