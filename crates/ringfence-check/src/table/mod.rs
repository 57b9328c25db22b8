//! Tables of comma-separated values: what RFC 4180 says, and what people send.
//!
//! - **Text.** UTF-8, with or without a byte-order mark, or UTF-16 with one. A row that is not UTF-8 is an error.
//! - **Lines** end with LF, CRLF or CR. Empty lines are not rows.
//! - **Delimiter.** As asked; else as a first line `sep=;` says, which is neither header nor row; else the one of `,`
//!   `;` tab `|` by which the first rows fall into equally many fields.
//! - **Quotes.** A field in quotes may have delimiters, line ends and doubled quotes. A quote inside of an unquoted
//!   field is a character, as for most readers; text after a closing quote and a quote that is never closed are errors.
//! - **Header.** The first row. Names are compared without spaces around them, and must differ. Those that are missing
//!   are errors of row 0, and listed by themselves, too.
//! - **Rows** are counted from 1, without the header. A row with too few or too many fields is one error; of its fields
//!   only those of `unique` columns are looked at, so that no repetition is missed.
//! - **Fields.** See [`constraint`].

mod asked;
mod constraint;
mod dates;
mod faults;
mod header;
mod kinds;
mod quotes;
mod rows;
mod text;
mod unique;

use crate::{CsvQuestion, question::Unusable};
use ringfence_types::CsvReport;

const TABLE_BYTES_MAX: usize = 256 << 20;

/// What a table is, held against what is asked of it.
pub(crate) fn check(asked: &CsvQuestion, body: &[u8]) -> Result<CsvReport, Unusable> {
    if body.len() > TABLE_BYTES_MAX {
        let message = format!("the table is larger than {} MiB.", TABLE_BYTES_MAX >> 20);
        return Err(Unusable::new(message, "Check it in parts."));
    }
    let constraints = asked::read(&asked.type_constraints)?;
    let mut text = text::of(body);
    // A table whose delimiter is `=` may have a column `sep`.
    let named = match asked.delimiter {
        Some('=') => None,
        _ => text.take_separator().filter(|sign| header::given(*sign).is_ok()),
    };
    let delimiter = match asked.delimiter.or(named) {
        Some(delimiter) => header::given(delimiter)?,
        None => header::found(&text, asked),
    };
    rows::check(asked, constraints, &text, delimiter)
}

#[cfg(test)]
mod tests;
