//! What is wrong with a table, listed up to a limit and counted beyond it.

use super::constraint::cut;
use ringfence_types::{CsvError, ISSUES_MAX};

/// Of a field in an answer.
const VALUE_CHARS_MAX: usize = 200;
/// Bytes enough for them.
const VALUE_BYTES_MAX: usize = VALUE_CHARS_MAX * 4 + 4;

/// The errors so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) listed: Vec<CsvError>,
    pub(super) total: u64,
}

impl Faults {
    /// One more. What it says is asked for only if there is room for it.
    pub(super) fn add(&mut self, error: impl FnOnce() -> CsvError) {
        self.total += 1;
        if self.listed.len() < ISSUES_MAX {
            self.listed.push(error());
        }
    }
}

/// A field, or its beginning.
pub(super) fn shown(field: &[u8]) -> String {
    let beginning = field.get(..VALUE_BYTES_MAX).unwrap_or(field);
    cut(&String::from_utf8_lossy(beginning), VALUE_CHARS_MAX)
}

/// "Data row 3, column `age`", or without the column, or the header, which is not counted.
pub(super) fn place(row: u64, column: Option<&str>) -> String {
    let row = if row == 0 {
        "The header".to_owned()
    } else {
        format!("Data row {row}")
    };
    match column {
        Some(column) => format!("{row}, column `{column}`"),
        None => row,
    }
}

/// "1 field", "2 fields".
pub(super) fn counted(fields: usize) -> String {
    match fields {
        1 => "1 field".to_owned(),
        count => format!("{count} fields"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_field_is_told_by_its_beginning() {
        assert_eq!(shown(b"abc"), "abc");
        assert_eq!(shown("ä".repeat(200).as_bytes()), "ä".repeat(200));
        assert_eq!(
            shown("🦀".repeat(1000).as_bytes()),
            format!("{}…", "🦀".repeat(200))
        );
        assert_eq!(shown(b"a\xffb"), "a\u{fffd}b");
    }
}
