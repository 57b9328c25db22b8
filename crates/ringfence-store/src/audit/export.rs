//! Writing the record out as lines of JSON, for other tools to read.

use super::{AuditError, Query, Record, query};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    vec,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The record with all that is needed to check its hash and signature.
    Json,
    Ocsf,
}

/// All records of a query, read page by page: `limit` is the size of a page here. Records that are appended meanwhile
/// are among them.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
    page: vec::IntoIter<Record>,
    next: Option<Query>,
    damaged: Vec<String>,
}

impl Records {
    /// Nothing is read before the first is asked for.
    pub fn of(path: &Path, query: Query) -> Self {
        Self {
            path: path.to_owned(),
            page: Vec::new().into_iter(),
            next: Some(query),
            damaged: Vec::new(),
        }
    }

    /// Files that could not be read, or not to their end, as far as has been read.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }
}

impl Iterator for Records {
    type Item = Result<Record, AuditError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
            let page = match query(&self.path, &self.next.take()?) {
                Ok(page) => page,
                Err(error) => return Some(Err(error)),
            };
            for file in page.damaged {
                if !self.damaged.contains(&file) {
                    self.damaged.push(file);
                }
            }
            self.page = page.records.into_iter();
            self.next = page.next;
        }
    }
}

/// Why an export ended early; what was written before is whole lines.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Read(AuditError),
    #[error("writing the export: {0}")]
    Write(io::Error),
}

/// Writes one line per record, and says how many.
pub fn export(
    records: impl Iterator<Item = Result<Record, AuditError>>,
    format: Format,
    to: &mut dyn Write,
) -> Result<u64, ExportError> {
    let mut lines = 0;
    for record in records {
        let record = record.map_err(ExportError::Read)?;
        let mut line = match format {
            Format::Json => record.to_json(),
            Format::Ocsf => record.to_ocsf().to_string(),
        };
        line.push('\n');
        to.write_all(line.as_bytes()).map_err(ExportError::Write)?;
        lines += 1;
    }
    to.flush().map_err(ExportError::Write)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, tests::fixture},
        *,
    };
    use serde_json::Value;

    #[test]
    fn every_record_is_one_line_whatever_the_page() {
        let directory = fixture::Directory::new();
        let audit = directory.open(Durability::Process);
        for number in 0..10 {
            audit.append_and_wait(fixture::entry(number)).unwrap();
        }
        for format in [Format::Json, Format::Ocsf] {
            for limit in [1, 3, 11, 100] {
                let mut out = Vec::new();
                let query = Query {
                    limit,
                    ..Query::default()
                };
                let lines = export(Records::of(&directory.database(), query), format, &mut out).unwrap();
                assert_eq!(lines, 11);
                let text = String::from_utf8(out).unwrap();
                let lines: Vec<Value> = text
                    .lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect();
                assert_eq!(lines.len(), 11);
                let number = |line: &Value| match format {
                    Format::Json => line["seq"].to_string(),
                    Format::Ocsf => line["metadata"]["uid"].as_str().unwrap().to_owned(),
                };
                let numbers: Vec<String> = lines.iter().map(number).collect();
                let expect: Vec<String> = (1..=11).map(|seq: u64| seq.to_string()).collect();
                assert_eq!(numbers, expect);
            }
        }
    }

    #[test]
    fn an_export_that_cannot_be_read_or_written_says_which() {
        let directory = fixture::Directory::new();
        let records = || Records::of(&directory.database(), Query::default());
        let unread = export(records(), Format::Json, &mut io::sink());
        assert!(matches!(unread, Err(ExportError::Read(_))));
        let audit = directory.open(Durability::Process);
        drop(audit);
        let unwritten = export(records(), Format::Json, &mut [0u8; 4].as_mut_slice());
        assert!(matches!(unwritten, Err(ExportError::Write(_))));
    }
}
