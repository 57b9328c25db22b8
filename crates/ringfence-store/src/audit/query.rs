//! Reading the record page by page, beside a live server or without one.

use super::{Action, AuditError, Record, UnknownWord, chain::signed, record::COLUMNS, schema};
use rusqlite::{Connection, ToSql, params_from_iter};
use std::{path::Path, str::FromStr};

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
    /// With this outcome.
    pub outcome: Option<super::Outcome>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In the order that was asked for.
    pub records: Vec<Record>,
    /// The query of the next page; none when this is the last.
    pub next: Option<Query>,
}

/// Reads one page of a file. It checks no signatures: see [`super::verify`].
pub fn query(path: &Path, query: &Query) -> Result<Page, AuditError> {
    page(&schema::connect_reader(path)?, path, query)
}

/// Reads one page on an open connection.
pub(super) fn page(connection: &Connection, path: &Path, query: &Query) -> Result<Page, AuditError> {
    if !(1..=PAGE_RECORDS_MAX).contains(&query.limit) {
        return Err(AuditError::InvalidQuery("`limit` is 1 to 10000"));
    }
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
            return Ok(Page { records, next });
        }
        let record = Record::of_row(row)?;
        bytes += record.details.len() + record.namespace.len() + record.caller.len();
        records.push(record);
    }
    Ok(Page { records, next: None })
}

impl Query {
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

/// The word up to and with its dot.
fn group(action: Action) -> &'static str {
    action.as_str().split_inclusive('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, fixture},
        *,
    };
    use crate::audit::{Audit, Outcome, Place};

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
