//! Reading the record page by page, beside a live server or without one.

use super::{
    Action, AuditError, Outcome, Record, UnknownWord,
    chain::signed,
    record::COLUMNS,
    schema,
    segments::{self, Segment},
};
use rusqlite::{Connection, ToSql, params_from_iter};
use std::{collections::VecDeque, io, path::Path, str::FromStr};

/// Records of one page.
pub(super) const PAGE_RECORDS_MAX: usize = 10_000;
/// A page ends early when its texts are larger than this.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Which actions: one, or all of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actions {
    /// This one.
    One(Action),
    /// All whose word begins with this one's group: `execution.` for `execution.started`.
    GroupOf(Action),
}

impl FromStr for Actions {
    type Err = UnknownWord;

    /// `execution.started`, or `execution.` for the group.
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let mut of_group = Action::ALL
            .into_iter()
            .filter(|action| text.ends_with('.') && group(*action) == text);
        match of_group.next() {
            Some(action) => Ok(Self::GroupOf(action)),
            None => text.parse().map(Self::One),
        }
    }
}

/// What to read. Everything that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Of this tenant.
    pub namespace: Option<String>,
    /// Of these actions.
    pub actions: Option<Actions>,
    /// With this outcome. Of `pending`, what has not ended since.
    pub outcome: Option<Outcome>,
    /// Of this execution.
    pub execution_id: Option<String>,
    /// Not before this time, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// Before this time.
    pub until_us: Option<i64>,
    /// Only records with a smaller number.
    pub before_seq: Option<u64>,
    /// Only records with a larger number.
    pub after_seq: Option<u64>,
    /// The records of one page: 1 to 10 000.
    pub limit: usize,
    /// The last record first.
    pub newest_first: bool,
}

impl Default for Query {
    /// Everything, a hundred to a page, oldest first.
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

/// Some records, and how to ask for those that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order that was asked for.
    pub records: Vec<Record>,
    /// The query of the next page; none when this is the last.
    pub next: Option<Query>,
    /// Files of the record that could not be read, or not to their end, and why. The rest is here.
    pub damaged: Vec<String>,
}

/// Reads one page of a record, its closed segments included. It checks no signatures: see [`super::verify`].
pub fn query(path: &Path, query: &Query) -> Result<Page, AuditError> {
    check(query)?;
    let connection = schema::connect_reader(path)?;
    let failed = |error: rusqlite::Error| AuditError::of_sqlite(path, "reading it", &error);
    // Of one moment: what is closed meanwhile is still here.
    let moment = connection.unchecked_transaction().map_err(failed)?;
    let first = moment.query_row("SELECT min(seq) FROM record", [], |row| {
        row.get::<_, Option<i64>>(0)
    });
    let first = first.map_err(failed)?.map_or(u64::MAX, i64::cast_unsigned);
    let segments = segments::list(path, first)
        .map_err(|error| AuditError::of_io(path, "listing its segments", &error))?;
    let mut parts: Vec<Part<'_>> = segments.iter().map(Part::Closed).collect();
    parts.push(Part::Open(&moment, path));
    if query.newest_first {
        parts.reverse();
    }
    let mut all = Page::default();
    for part in parts.into_iter().filter(|part| part.may_hold(query)) {
        if let (true, Some(last)) = (all.records.len() >= query.limit, all.records.last()) {
            all.next = Some(query.after(last.seq));
            break;
        }
        let rest = Query {
            limit: query.limit - all.records.len(),
            ..query.clone()
        };
        let page = part.page(&rest)?;
        all.records.extend(page.records);
        all.damaged.extend(page.damaged);
        if page.next.is_some() {
            all.next = page.next.map(|next| Query {
                limit: query.limit,
                ..next
            });
            break;
        }
    }
    Ok(all)
}

/// A database or a closed segment.
enum Part<'a> {
    Closed(&'a Segment),
    Open(&'a Connection, &'a Path),
}

impl Part<'_> {
    fn may_hold(&self, query: &Query) -> bool {
        match self {
            Self::Open(..) => true,
            // What is open has its beginning in the database, or died with its server, which the next one has closed.
            Self::Closed(_) if query.outcome == Some(Outcome::Pending) => false,
            Self::Closed(segment) => {
                query.before_seq.is_none_or(|before| segment.first < before)
                    && query.after_seq.is_none_or(|after| segment.last > after)
            }
        }
    }

    fn page(&self, query: &Query) -> Result<Page, AuditError> {
        match self {
            Self::Open(connection, path) => page(connection, path, query),
            Self::Closed(segment) => Ok(closed_page(segment, query)),
        }
    }
}

/// All of a segment is read; it is not much larger than the largest page.
fn closed_page(segment: &Segment, query: &Query) -> Page {
    let mut page = Page::default();
    let damaged = |error: &io::Error| format!("{}: {error}", segment.path.display());
    let mut found = VecDeque::new();
    match segment.read() {
        Err(error) => page.damaged.push(damaged(&error)),
        Ok(records) => {
            for record in records {
                match record {
                    Ok(record) if query.matches(&record) => found.push_back(record),
                    Ok(_) => {}
                    Err(error) => page.damaged.push(damaged(&error)),
                }
                // Of the newest, only the last are wanted; of the oldest, nothing after the first.
                if found.len() > query.limit && query.newest_first {
                    found.pop_front();
                    page.next = Some(query.clone());
                } else if found.len() > query.limit {
                    found.pop_back();
                    page.next = Some(query.clone());
                    break;
                }
            }
        }
    }
    page.records = found.into();
    if query.newest_first {
        page.records.reverse();
    }
    page.next = match (page.next, page.records.last()) {
        (Some(_), Some(last)) => Some(query.after(last.seq)),
        _ => None,
    };
    page
}

fn check(query: &Query) -> Result<(), AuditError> {
    if (1..=PAGE_RECORDS_MAX).contains(&query.limit) {
        return Ok(());
    }
    Err(AuditError::InvalidQuery("`limit` is 1 to 10000"))
}

/// Reads one page on an open connection.
pub(super) fn page(connection: &Connection, path: &Path, query: &Query) -> Result<Page, AuditError> {
    check(query)?;
    read(connection, query).map_err(|error| AuditError::of_sqlite(path, "reading it", &error))
}

fn read(connection: &Connection, query: &Query) -> rusqlite::Result<Page> {
    let (sql, values) = select(query)?;
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut records: Vec<Record> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if let Some(last) = records.last()
            && (records.len() == query.limit || bytes >= PAGE_BYTES_MAX)
        {
            let next = Some(query.after(last.seq));
            return Ok(Page {
                records,
                next,
                damaged: Vec::new(),
            });
        }
        let record = Record::of_row(row)?;
        bytes += record.details.len() + record.namespace.len() + record.caller.len();
        records.push(record);
    }
    Ok(Page {
        records,
        ..Page::default()
    })
}

impl Query {
    /// The same as [`select`], for a record of a closed segment.
    fn matches(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let action = match self.actions {
            None => true,
            Some(Actions::One(action)) => record.action == action.as_str(),
            Some(Actions::GroupOf(action)) => record.action.starts_with(group(action)),
        };
        action
            && is(&self.namespace, Some(&record.namespace))
            && is(&self.execution_id, record.execution_id.as_deref())
            && self
                .outcome
                .is_none_or(|outcome| record.outcome == outcome.as_str())
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

fn select(query: &Query) -> rusqlite::Result<(String, Vec<Box<dyn ToSql>>)> {
    let mut terms = Vec::new();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut term = |sql: &'static str, value: Box<dyn ToSql>| {
        terms.push(sql);
        values.push(value);
    };
    if let Some(namespace) = &query.namespace {
        term("namespace = ?", Box::new(namespace.clone()));
    }
    match query.actions {
        None => {}
        Some(Actions::One(action)) => term("action = ?", Box::new(action.as_str())),
        Some(Actions::GroupOf(action)) => {
            term("action >= ?", Box::new(group(action)));
            // `/` follows `.`
            term("action < ?", Box::new(group(action).replace('.', "/")));
        }
    }
    if let Some(outcome) = query.outcome {
        term("outcome = ?", Box::new(outcome.as_str()));
    }
    if query.outcome == Some(Outcome::Pending) {
        term(STILL_OPEN, Box::new(true));
    }
    if let Some(id) = &query.execution_id {
        term("execution_id = ?", Box::new(id.clone()));
    }
    if let Some(since_us) = query.since_us {
        term("time_us >= ?", Box::new(since_us));
    }
    if let Some(until_us) = query.until_us {
        term("time_us < ?", Box::new(until_us));
    }
    if let Some(seq) = query.before_seq {
        term("seq < ?", Box::new(signed(seq)?));
    }
    if let Some(seq) = query.after_seq {
        term("seq > ?", Box::new(signed(seq)?));
    }
    let terms = if terms.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", terms.join(" AND "))
    };
    let order = if query.newest_first { "DESC" } else { "ASC" };
    // one more than the page, to know whether there is a next
    let limit = query.limit + 1;
    let sql = format!("SELECT {COLUMNS} FROM record{terms} ORDER BY seq {order} LIMIT {limit}");
    Ok((sql, values))
}

/// Of what was begun, what has no later record of its group.
const STILL_OPEN: &str = "? = (execution_id IS NOT NULL AND NOT EXISTS(SELECT 1 FROM record AS later \
     WHERE later.execution_id = record.execution_id AND later.seq > record.seq \
     AND substr(later.action, 1, instr(later.action, '.')) = substr(record.action, 1, instr(record.action, '.'))))";

/// The word up to and with its dot.
fn group(action: Action) -> &'static str {
    action.as_str().split_inclusive('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, tests::fixture},
        *,
    };
    use crate::audit::{Audit, Place};

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
    fn each_term_of_a_query_takes_away_what_it_says() {
        let (directory, audit) = filled();
        let check = |expect: usize, narrow: &dyn Fn(&mut Query)| {
            let mut query = Query::default();
            narrow(&mut query);
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
    fn pages_join_without_a_gap_in_both_directions() {
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
    fn a_page_that_is_just_full_has_no_empty_one_behind_it() {
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
    fn queries_that_cannot_be_meant_are_refused() {
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
    fn a_page_of_large_records_ends_early_and_goes_on() {
        let audit = Audit::open(
            Place::Memory,
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
    fn no_file_is_an_error_and_is_not_made() {
        let directory = fixture::Directory::new();
        assert!(query(&directory.database(), &Query::default()).is_err());
        assert!(!directory.database().exists());
    }
}
