//! Checks the rows one after the other, reusing the memory of a row.

use super::{
    constraint::{Constraint, FieldFault},
    faults::{self, Faults},
    header::Header,
    quotes::{self, Misquoted},
    text::Text,
    unique::Seen,
};
use crate::{CsvQuestion, question::Unusable};
use csv::{ByteRecord, Reader, ReaderBuilder};
use ringfence_types::{CsvError, CsvReport};
use std::{
    collections::HashSet,
    io::{self, Read},
};

/// Maximum bytes read for one row; bounds what an unclosed quote may swallow and the memory of fields.
const ROW_BYTES_MAX: usize = 16 << 20;
/// Maximum number of fields shown of a row with another number of fields than the header.
const CELLS_SHOWN: usize = 200;
/// Size of the parser's buffer.
const BUFFER_BYTES: usize = 64 << 10;

pub(super) fn check(
    question: &CsvQuestion,
    constraints: Vec<(String, Constraint)>,
    text: &Text<'_>,
    delimiter: u8,
) -> Result<CsvReport, Unusable> {
    let feed = Feed {
        rest: &text.bytes,
        left: ROW_BYTES_MAX,
    };
    let mut builder = ReaderBuilder::new();
    builder
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .buffer_capacity(BUFFER_BYTES);
    let mut table = Table {
        reader: builder.from_reader(feed),
        text,
        delimiter,
        faults: Faults::default(),
    };
    let mut record = ByteRecord::new();
    let header = match table.next(0, &mut record) {
        Next::Row => Some(Header::of(&record)?),
        Next::End | Next::TooLong => None,
    };
    if header.is_none() && table.faults.total == 0 {
        let message = "The table is empty: it has no header.";
        table.faults.add_row(0, b"", "a header", message);
    }
    // Before the rows, because errors are listed in the order of rows and the list may end early.
    let missing_headers = missing(question, header.as_ref());
    table.add_missing(&missing_headers);
    let row_count = match &header {
        Some(header) => {
            table.check_header(header, &record);
            table.check_rows(header, constraints, record)?
        }
        None => 0,
    };
    let header = header.unwrap_or_default();
    Ok(CsvReport {
        valid: table.faults.total == 0,
        row_count,
        column_count: header.names.len() as u64,
        missing_headers,
        headers: header.names,
        errors: table.faults.listed,
        errors_total: table.faults.total,
    })
}

/// Reader of the table's bytes that fails if one row needs more than [`ROW_BYTES_MAX`].
struct Feed<'a> {
    rest: &'a [u8],
    left: usize,
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.left = self.left.checked_sub(read).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

struct Table<'a> {
    reader: Reader<Feed<'a>>,
    text: &'a Text<'a>,
    delimiter: u8,
    faults: Faults,
}

enum Next {
    Row,
    End,
    TooLong,
}

impl Table<'_> {
    /// Reads the next row, and adds the errors of the row as such.
    fn next(&mut self, row: u64, record: &mut ByteRecord) -> Next {
        let start = self.reader.position().byte();
        let (next, end) = match self.reader.read_byte_record(record) {
            Ok(false) => return Next::End,
            Ok(true) => (Next::Row, self.reader.position().byte()),
            // The only possible error: the bytes are in memory, and rows may have any number of fields.
            Err(_) => (Next::TooLong, u64::MAX),
        };
        self.reader.get_mut().left = ROW_BYTES_MAX;
        self.check_bytes(row, start, end);
        if let Next::TooLong = next {
            let (place, most) = (faults::place(row), ROW_BYTES_MAX >> 20);
            let message = format!("{place} is longer than {most} MiB; nothing after it was looked at.");
            self.faults.add_row(row, b"", "a shorter row", &message);
        }
        next
    }

    fn check_bytes(&mut self, row: u64, start: u64, end: u64) {
        let length = self.text.bytes.len();
        let size = |at: u64| usize::try_from(at).map_or(length, |at| at.min(length));
        let start = size(start);
        let bytes = self.text.bytes.get(start..size(end)).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(bytes) {
            let at = error.valid_up_to();
            let byte = self.text.before + start + at + 1;
            let message = format!("{} is not UTF-8 at byte {byte} of the table.", faults::place(row));
            let value = bytes.get(at..bytes.len().min(at + 16)).unwrap_or_default();
            let expected = "UTF-8, or UTF-16 with a byte-order mark";
            self.faults.add_row(row, value, expected, &message);
        }
        if !bytes.contains(&b'"') {
            return;
        }
        let (expected, what) = match quotes::check(bytes, self.delimiter) {
            None => return,
            Some(Misquoted::TextAfter(field)) => (
                "a delimiter or a line end after a closing quote, and quotes inside of quotes doubled",
                format!("has text after the closing quote of its field {}.", field + 1),
            ),
            Some(Misquoted::NeverClosed(field)) => {
                let what = format!("has a quote in its field {} that is never closed", field + 1);
                ("a closing quote", what + ": the rest of the table is in it.")
            }
        };
        let message = format!("{} {what}", faults::place(row));
        self.faults.add_row(row, bytes.trim_ascii(), expected, &message);
    }

    fn add_missing(&mut self, names: &[String]) {
        for name in names {
            self.faults.add(|| {
                let name = faults::shown(name.as_bytes());
                CsvError {
                    row: 0,
                    message: format!("The column `{name}` is missing."),
                    column: Some(name),
                    value: String::new(),
                    expected: "a column of this name".to_owned(),
                }
            });
        }
    }

    fn check_header(&mut self, header: &Header, record: &ByteRecord) {
        if record.as_slice().contains(&0) {
            let message =
                "The header has bytes that are zero: the table may be UTF-16 without a byte-order mark.";
            self.faults.add_row(0, b"", "text", message);
        }
        for name in &header.repeated {
            let name = faults::shown(name.as_bytes());
            self.faults.add(|| CsvError {
                row: 0,
                message: format!("The header has the name `{name}` more than once."),
                column: Some(name.clone()),
                value: name,
                expected: "each name once".to_owned(),
            });
        }
    }

    fn check_rows(
        &mut self,
        header: &Header,
        constraints: Vec<(String, Constraint)>,
        mut record: ByteRecord,
    ) -> Result<u64, Unusable> {
        let placed = |(name, constraint): (String, Constraint)| Some((header.position(&name)?, constraint));
        let mut columns: Vec<(usize, Constraint)> = constraints.into_iter().filter_map(placed).collect();
        // Errors of a row are reported from left to right.
        columns.sort_by_key(|(position, _)| *position);
        let mut seen = Seen::default();
        for row in 1.. {
            match self.next(row, &mut record) {
                Next::End => return Ok(row - 1),
                Next::TooLong => return Ok(row),
                Next::Row => {}
            }
            let is_ragged = record.len() != header.names.len();
            if is_ragged {
                self.add_ragged(row, header.names.len(), &record);
            }
            for (column, constraint) in &columns {
                let value = constraint.value(record.get(*column).unwrap_or_default());
                let fault = match constraint.fault(value) {
                    None if constraint.is_unique && !value.is_empty() => {
                        let is_new = seen.is_new(*column, value)?;
                        (!is_new).then_some(FieldFault::Repeated)
                    }
                    fault => fault.filter(|_| !is_ragged),
                };
                if let Some(fault) = fault {
                    let wrong = || wrong_field(row, header.shown(*column), constraint, fault, value);
                    self.faults.add(wrong);
                }
            }
        }
        Ok(0)
    }

    fn add_ragged(&mut self, row: u64, columns: usize, record: &ByteRecord) {
        let counted = |fields: usize| match fields {
            1 => "1 field".to_owned(),
            count => format!("{count} fields"),
        };
        let cells = || record.iter().take(CELLS_SHOWN).collect::<Vec<&[u8]>>();
        self.faults.add(|| CsvError {
            row,
            column: None,
            value: faults::shown(&cells().join(&self.delimiter)),
            expected: format!("{}, as the header has", counted(columns)),
            message: format!(
                "{} has {}; the header has {columns}.",
                faults::place(row),
                counted(record.len())
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
    let value = faults::shown(value);
    let (place, name) = (faults::place(row), column.as_deref().unwrap_or_default());
    let place = format!("{place}, column `{name}`");
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

/// Columns of the question that are missing: required ones, and those with constraints.
fn missing(question: &CsvQuestion, header: Option<&Header>) -> Vec<String> {
    let mut known = HashSet::new();
    let constrained = question.type_constraints.keys();
    let wanted = question.required_headers.iter().chain(constrained);
    let missing = wanted.filter(|name| {
        header.is_none_or(|header| header.position(name).is_none()) && known.insert(name.as_str())
    });
    missing.cloned().collect()
}
