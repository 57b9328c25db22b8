//! Export of the record as lines of JSON, for other tools.

use super::{AuditError, Query, Record, query};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    vec,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The record with everything needed to check its hash and signature.
    Json,
    Ocsf,
}

/// All records of a query, read page by page: `limit` is the page size here. Includes records appended meanwhile.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
    page: vec::IntoIter<Record>,
    next: Option<Query>,
    damaged: Vec<String>,
}

impl Records {
    /// Reads nothing until the first record is requested.
    pub fn of(path: &Path, query: Query) -> Self {
        Self {
            path: path.to_owned(),
            page: Vec::new().into_iter(),
            next: Some(query),
            damaged: Vec::new(),
        }
    }

    /// Returns the files that could not be read, or not to their end, among those read so far.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }
}

impl Iterator for Records {
    type Item = Result<Record, AuditError>;

    /// Ends after an error.
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

/// The error that ended an export early. All lines before it are complete.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Read(AuditError),
    #[error("writing the export: {0}")]
    Write(io::Error),
}

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
    fn export_writes_one_line_per_record_for_any_page_size() {
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
    fn export_distinguishes_read_and_write_errors() {
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
