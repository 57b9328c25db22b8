//! One row after the other, each in the same memory.

use super::{
    constraint::{Constraint, FieldFault},
    fields::{self, Faults},
    header::Header,
    quotes::{self, Misquoted},
    text::{Encoding, Text},
    unique::Seen,
};
use crate::CsvQuestion;
use crate::question::Unusable;
use csv::{ByteRecord, Reader, ReaderBuilder};
use ringfence_types::{CsvError, CsvReport};
use std::{
    cell::Cell,
    collections::HashSet,
    io::{self, Read},
};

/// Of one row: what a quote that is never closed may swallow, and what fields may take.
const ROW_BYTES_MAX: usize = 16 << 20;
/// Of a row that has others than the header.
const CELLS_SHOWN: usize = 200;
/// What the parser is fed with.
const BUFFER_BYTES: usize = 64 << 10;

pub(super) fn check(
    asked: &CsvQuestion,
    constraints: Vec<(String, Constraint)>,
    text: &Text<'_>,
    delimiter: u8,
) -> Result<CsvReport, Unusable> {
    let left = Cell::new(ROW_BYTES_MAX);
    let feed = Feed {
        rest: &text.bytes,
        left: &left,
    };
    let mut table = Table {
        reader: ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(feed),
        bytes: &text.bytes,
        before: text.before,
        left: &left,
        delimiter,
        look: Look {
            quotes: text.bytes.contains(&b'"'),
            encoding: text.encoding == Encoding::Broken,
        },
        faults: Faults::default(),
    };
    let mut record = ByteRecord::new();
    let header = match table.next(0, &mut record) {
        Next::Row => Header::of(&record)?,
        Next::End | Next::TooLong => return Ok(table.without_header(asked)),
    };
    table.look_at_header(&header, &record);
    let mut columns: Vec<(usize, Constraint)> = constraints
        .into_iter()
        .filter_map(|(name, constraint)| Some((header.position(&name)?, constraint)))
        .collect();
    // Errors of a row are told from left to right.
    columns.sort_by_key(|(position, _)| *position);
    let row_count = table.look_at_rows(&header, &columns, record)?;
    let missing_headers = missing(asked, &header);
    Ok(CsvReport {
        valid: table.faults.total == 0 && missing_headers.is_empty(),
        row_count,
        column_count: header.names.len() as u64,
        missing_headers,
        headers: header.names,
        errors: table.faults.listed,
        errors_total: table.faults.total,
    })
}

/// Bytes of the table, and no more of them for one row than there may be.
struct Feed<'a> {
    rest: &'a [u8],
    left: &'a Cell<usize>,
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        let left = self.left.get().checked_sub(read);
        self.left.set(left.ok_or(io::ErrorKind::FileTooLarge)?);
        Ok(read)
    }
}

struct Table<'a> {
    reader: Reader<Feed<'a>>,
    bytes: &'a [u8],
    /// What the table had before them.
    before: usize,
    left: &'a Cell<usize>,
    delimiter: u8,
    look: Look,
    faults: Faults,
}

/// Which looks at whole rows this table needs.
#[derive(Clone, Copy)]
struct Look {
    quotes: bool,
    encoding: bool,
}

enum Next {
    Row,
    End,
    TooLong,
}

impl Table<'_> {
    /// What is wrong with the row as such is noted.
    fn next(&mut self, row: u64, record: &mut ByteRecord) -> Next {
        let start = self.reader.position().byte();
        let next = match self.reader.read_byte_record(record) {
            Ok(false) => return Next::End,
            Ok(true) => Next::Row,
            // The bytes are in memory, and rows may have any length but this.
            Err(_) => Next::TooLong,
        };
        self.left.set(ROW_BYTES_MAX);
        if self.look.quotes || self.look.encoding {
            let end = match next {
                Next::Row => self.reader.position().byte(),
                _ => u64::MAX,
            };
            self.look_at_bytes(row, start, end);
        }
        if matches!(next, Next::TooLong) {
            let message = format!(
                "{} is longer than {} MiB; nothing after it was looked at.",
                fields::place(row, None),
                ROW_BYTES_MAX >> 20
            );
            self.add_to_row(row, Vec::new(), "a shorter row", message);
        }
        next
    }

    fn add_to_row(&mut self, row: u64, value: Vec<u8>, expected: &str, message: String) {
        self.faults.add(|| CsvError {
            row,
            column: None,
            value: fields::shown(&value),
            expected: expected.to_owned(),
            message,
        });
    }

    fn look_at_bytes(&mut self, row: u64, start: u64, end: u64) {
        let size = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let (start, end) = (size(start), size(end));
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        if self.look.encoding
            && let Err(error) = std::str::from_utf8(bytes)
        {
            let at = self.before + start + error.valid_up_to();
            let message = format!(
                "{} is not UTF-8 at byte {} of the table.",
                fields::place(row, None),
                at + 1
            );
            let rest = bytes.get(error.valid_up_to()..).unwrap_or_default();
            let value = rest.get(..rest.len().min(16)).unwrap_or_default().to_vec();
            self.add_to_row(row, value, "UTF-8, or UTF-16 with a byte-order mark", message);
        }
        if !self.look.quotes || !bytes.contains(&b'"') {
            return;
        }
        let (expected, what) = match quotes::look(bytes, self.delimiter) {
            None => return,
            Some(Misquoted::TextAfter(field)) => (
                "a delimiter or a line end after a closing quote, and quotes inside of quotes doubled",
                format!("has text after the closing quote of its field {}", field + 1),
            ),
            Some(Misquoted::NeverClosed(field)) => (
                "a closing quote",
                format!(
                    "has a quote in its field {} that is never closed: the rest of the table is in it",
                    field + 1
                ),
            ),
        };
        let message = format!("{} {what}.", fields::place(row, None));
        self.add_to_row(row, bytes.trim_ascii().to_vec(), expected, message);
    }

    fn without_header(mut self, asked: &CsvQuestion) -> CsvReport {
        if self.faults.total == 0 {
            let message = "The table is empty: it has no header.".to_owned();
            self.add_to_row(0, Vec::new(), "a header", message);
        }
        CsvReport {
            valid: false,
            row_count: 0,
            column_count: 0,
            headers: Vec::new(),
            missing_headers: missing(asked, &Header::default()),
            errors: self.faults.listed,
            errors_total: self.faults.total,
        }
    }

    fn look_at_header(&mut self, header: &Header, record: &ByteRecord) {
        if record.as_slice().contains(&0) {
            let message =
                "The header has bytes that are zero: the table may be UTF-16 without a byte-order mark.";
            self.add_to_row(0, Vec::new(), "text", message.to_owned());
        }
        for name in header.repeated() {
            let error = || CsvError {
                row: 0,
                column: Some(fields::shown(name.as_bytes())),
                value: fields::shown(name.as_bytes()),
                expected: "each name once".to_owned(),
                message: format!(
                    "The header has the name `{}` more than once.",
                    fields::shown(name.as_bytes())
                ),
            };
            self.faults.add(error);
        }
    }

    /// How many there are.
    fn look_at_rows(
        &mut self,
        header: &Header,
        columns: &[(usize, Constraint)],
        mut record: ByteRecord,
    ) -> Result<u64, Unusable> {
        let mut seen = Seen::default();
        for row in 1.. {
            match self.next(row, &mut record) {
                Next::End => return Ok(row - 1),
                Next::TooLong => return Ok(row),
                Next::Row => {}
            }
            let is_ragged = record.len() != header.names.len();
            if is_ragged {
                self.ragged(row, header.names.len(), &record);
            }
            for (column, constraint) in columns {
                let value = constraint.value(record.get(*column).unwrap_or_default());
                let fault = match constraint.fault(value) {
                    None if constraint.is_unique && !value.is_empty() => {
                        let is_new = seen.is_new(*column, value)?;
                        (!is_new).then_some(FieldFault::Repeated)
                    }
                    fault => fault.filter(|_| !is_ragged),
                };
                if let Some(fault) = fault {
                    self.faults
                        .add(|| wrong_field(row, header.told(*column), constraint, fault, value));
                }
            }
        }
        Ok(0)
    }

    fn ragged(&mut self, row: u64, columns: usize, record: &ByteRecord) {
        self.faults.add(|| CsvError {
            row,
            column: None,
            value: fields::shown(
                &record
                    .iter()
                    .take(CELLS_SHOWN)
                    .collect::<Vec<_>>()
                    .join(&self.delimiter),
            ),
            expected: format!("{}, as the header has", fields::counted(columns)),
            message: format!(
                "{} has {}; the header has {columns}.",
                fields::place(row, None),
                fields::counted(record.len())
            ),
        });
    }
}

fn wrong_field(
    row: u64,
    column: Option<String>,
    constraint: &Constraint,
    fault: FieldFault,
    value: &[u8],
) -> CsvError {
    let expected = constraint.expected(fault);
    let value = fields::shown(value);
    let place = fields::place(row, column.as_deref());
    let message = match fault {
        FieldFault::Missing => format!("{place} is empty."),
        FieldFault::Repeated => format!("{place}: an earlier row has `{value}`, too."),
        _ => format!("{place}: `{value}` is not {expected}."),
    };
    CsvError {
        row,
        column,
        value,
        expected,
        message,
    }
}

/// Columns that are asked for and not there: the required ones, and those with constraints.
fn missing(asked: &CsvQuestion, header: &Header) -> Vec<String> {
    let mut told = HashSet::new();
    let wanted = asked.required_headers.iter().chain(asked.type_constraints.keys());
    wanted
        .filter(|name| header.position(name).is_none() && told.insert(name.as_str()))
        .cloned()
        .collect()
}
