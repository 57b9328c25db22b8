//! The header row, and the delimiter.

use super::text::Text;
use crate::{CsvQuestion, question::Unusable, unknown::cut};
use csv::{ByteRecord, ReaderBuilder};
use std::{cmp::Reverse, collections::HashMap};

const COLUMNS_MAX: usize = 10_000;
const HEADER_BYTES_MAX: usize = 1 << 20;
const NAME_CHARS_MAX: usize = 200;

/// Delimiters that are detected; of equally good ones the first wins.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Size of the beginning in which the delimiter is detected.
const SAMPLE_BYTES: usize = 64 << 10;
const SAMPLE_ROWS: usize = 20;

/// Checks a delimiter that the question or the table names.
pub(super) fn checked(delimiter: char) -> Result<u8, Unusable> {
    match u8::try_from(delimiter) {
        Ok(byte) if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n' | 0) => Ok(byte),
        _ => Err(Unusable::new(
            format!("{delimiter:?} cannot be a delimiter."),
            "Send one ASCII character that is neither a quote nor a line end, or none.",
        )),
    }
}

/// Detects the delimiter: the one that gives most of the wanted columns; of equal ones, the one by which most of the
/// first rows have as many fields as the header; of those, the one that gives the most columns.
pub(super) fn detect(text: &Text<'_>, question: &CsvQuestion) -> u8 {
    let sample = text.bytes.get(..SAMPLE_BYTES).unwrap_or(&text.bytes);
    let score = |delimiter: &u8| Reverse(score(sample, *delimiter, question));
    DELIMITERS.into_iter().min_by_key(score).unwrap_or(b',')
}

/// Counts wanted columns, rows as long as the header, and columns; the latter two are 0 if there is only one column.
fn score(sample: &[u8], delimiter: u8, question: &CsvQuestion) -> [usize; 3] {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(delimiter);
    let mut reader = builder.from_reader(sample);
    // The last row may end in the middle of a field.
    let rows = reader.byte_records().map_while(Result::ok).take(SAMPLE_ROWS);
    let rows: Vec<ByteRecord> = rows.collect();
    let Some(header) = rows.first() else {
        return [0; 3];
    };
    let is_required = |name: &str| question.required_headers.iter().any(|known| known == name);
    let is_wanted = |name: &&[u8]| {
        let name = std::str::from_utf8(name.trim_ascii());
        name.is_ok_and(|name| question.type_constraints.contains_key(name) || is_required(name))
    };
    let wanted = header.iter().take(COLUMNS_MAX).filter(is_wanted).count();
    let even_rows = rows.iter().filter(|row| row.len() == header.len()).count();
    match header.len() {
        ..=1 => [wanted, 0, 0],
        columns => [wanted, even_rows, columns],
    }
}

#[derive(Debug, Default)]
pub(super) struct Header {
    /// The names as they are in the table.
    pub(super) names: Vec<String>,
    /// The first position of each name, without spaces around it.
    positions: HashMap<String, usize>,
    /// Repetitions of earlier names, sorted.
    pub(super) repeated: Vec<String>,
}

impl Header {
    pub(super) fn of(record: &ByteRecord) -> Result<Self, Unusable> {
        if record.len() > COLUMNS_MAX {
            let columns = record.len();
            let message = format!("the table has {columns} columns; {COLUMNS_MAX} are allowed.");
            let hint = "Say which delimiter it has, or check it in parts.";
            return Err(Unusable::new(message, hint));
        }
        if record.as_slice().len() > HEADER_BYTES_MAX {
            let message = format!("the header is longer than {HEADER_BYTES_MAX} bytes.");
            let hint = "The first row has to be the names of the columns.";
            return Err(Unusable::new(message, hint));
        }
        let mut header = Self::default();
        for (at, name) in record.iter().enumerate() {
            let name = String::from_utf8_lossy(name).into_owned();
            if header.positions.contains_key(name.trim()) {
                header.repeated.push(name.trim().to_owned());
            } else {
                header.positions.insert(name.trim().to_owned(), at);
            }
            header.names.push(name);
        }
        header.repeated.sort_unstable();
        Ok(header)
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name.trim()).copied()
    }

    pub(super) fn shown(&self, column: usize) -> Option<String> {
        self.names.get(column).map(|name| cut(name, NAME_CHARS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::text, *};

    #[test]
    fn delimiter_is_one_ascii_character_without_another_meaning() {
        for delimiter in [',', ';', '\t', '|', ' ', '\u{1}'] {
            assert_eq!(checked(delimiter), Ok(delimiter as u8));
        }
        for delimiter in ['"', '\n', '\r', '\0', 'é', '→'] {
            assert!(checked(delimiter).is_err(), "{delimiter:?}");
        }
    }

    #[test]
    fn delimiter_is_detected_from_the_first_rows() {
        let check = |table: &str, wanted: &[&str], expect: char| {
            let question = CsvQuestion {
                required_headers: wanted.iter().map(|name| (*name).to_owned()).collect(),
                ..CsvQuestion::default()
            };
            assert_eq!(
                char::from(detect(&text::of(table.as_bytes()), &question)),
                expect,
                "{table}"
            );
        };
        check("a,b\n1,2\n", &[], ',');
        check("a;b\n1,5;2,5\n", &[], ';');
        check("a\tb\n1\t2\n", &[], '\t');
        check("a|b|c\n1|2|3\n", &[], '|');
        check("a\n1\n", &[], ',');
        check("", &[], ',');
        check("\"a,b,c\";d\n\"1,2,3\";4\n", &[], ';');
        check("name, first;age\nx, y;3\n", &[], ',');
        check("name, first;age\nx, y;3\n", &["age"], ';');
        check("a,b;c\n1,2;3\n4;5\n", &[], ';');
        check("time;note\n1;a,b\n2;c\n3;d,e,f\n", &[], ';');
    }

    #[test]
    fn column_names_are_compared_without_surrounding_spaces() {
        let header = Header::of(&ByteRecord::from(vec![" a", "b ", "a", "", "b", "b"])).expect("a header");
        assert_eq!(header.position("b"), Some(1));
        assert_eq!(header.position("c"), None);
        assert_eq!(header.repeated, ["a", "b", "b"]);
        assert_eq!(header.names[0], " a");
    }
}
