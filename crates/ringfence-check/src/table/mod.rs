//! Tables of comma-separated values, as in RFC 4180 and in practice.
//!
//! - **Encoding.** UTF-8, with or without a byte-order mark, or UTF-16 with one. A row that is not UTF-8 is an error.
//! - **Lines** end with LF, CRLF or CR. Empty lines are not rows.
//! - **Delimiter.** The one in the question; else the one that a first line `sep=;` names, which is neither header nor
//!   row; else the one of `,` `;` tab `|` that fits the wanted columns and the first rows best.
//! - **Quotes.** A quoted field may contain delimiters, line ends and doubled quotes. A quote inside an unquoted field
//!   is a character, as in most readers; text after a closing quote and an unclosed quote are errors.
//! - **Header.** The first row. Names are compared without spaces around them, and must differ. Missing names are
//!   errors of row 0, and are also listed separately.
//! - **Rows** are counted from 1, without the header. A row with too few or too many fields is one error; of its fields
//!   only repetitions in `unique` columns are reported, so that none is missed.
//! - **Fields.** See [`constraint`].

mod asked;
mod constraint;
mod dates;
mod decimal;
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

pub(crate) fn check(question: &CsvQuestion, body: &[u8]) -> Result<CsvReport, Unusable> {
    if body.len() > TABLE_BYTES_MAX {
        let message = format!("the table is larger than {} MiB.", TABLE_BYTES_MAX >> 20);
        return Err(Unusable::new(message, "Check it in parts."));
    }
    let constraints = asked::read(&question.type_constraints)?;
    let mut text = text::of(body);
    // A table whose delimiter is `=` may have a column `sep`.
    let named = match question.delimiter {
        Some('=') => None,
        _ => text.take_separator().filter(|one| header::checked(*one).is_ok()),
    };
    let delimiter = match question.delimiter.or(named) {
        Some(delimiter) => header::checked(delimiter)?,
        None => header::detect(&text, question),
    };
    rows::check(question, constraints, &text, delimiter)
}

#[cfg(test)]
mod tests;
