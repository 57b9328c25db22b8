//! Errors of a table, listed up to a limit and counted beyond it.

use crate::unknown::cut;
use ringfence_types::{CsvError, ISSUES_MAX};

const VALUE_CHARS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) listed: Vec<CsvError>,
    pub(super) total: u64,
}

impl Faults {
    /// Counts an error, and builds and lists it if there is room.
    pub(super) fn add(&mut self, error: impl FnOnce() -> CsvError) {
        self.total += 1;
        if self.listed.len() < ISSUES_MAX {
            self.listed.push(error());
        }
    }

    pub(super) fn add_row(&mut self, row: u64, value: &[u8], expected: &str, message: &str) {
        self.add(|| CsvError {
            row,
            column: None,
            value: shown(value),
            expected: expected.to_owned(),
            message: message.to_owned(),
        });
    }
}

/// A field, or its beginning.
pub(super) fn shown(field: &[u8]) -> String {
    // Enough bytes for the characters.
    let beginning = field.get(..VALUE_CHARS_MAX * 4 + 4).unwrap_or(field);
    cut(&String::from_utf8_lossy(beginning), VALUE_CHARS_MAX)
}

/// The name of a row in messages; row 0 is the header.
pub(super) fn place(row: u64) -> String {
    match row {
        0 => "The header".to_owned(),
        row => format!("Data row {row}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_field_is_truncated() {
        assert_eq!(shown(b"abc"), "abc");
        assert_eq!(shown("ä".repeat(200).as_bytes()), "ä".repeat(200));
        assert_eq!(
            shown("🦀".repeat(1000).as_bytes()),
            format!("{}…", "🦀".repeat(200))
        );
        assert_eq!(shown(b"a\xffb"), "a\u{fffd}b");
    }
}
