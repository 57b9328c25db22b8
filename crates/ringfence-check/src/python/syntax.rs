//! Errors of syntax as findings.

use crate::{registry::python::SYNTAX, rule::Finding};
use ruff_python_parser::UnsupportedSyntaxError;
use ruff_text_size::TextRange;

/// So many are told of one text: more say nothing new.
pub(super) const ERRORS_MAX: usize = 20;

/// What an older interpreter does not read.
pub(super) fn newer(unsupported: &[UnsupportedSyntaxError]) -> Vec<Finding> {
    let newer = unsupported.iter().map(|error| {
        let hint = format!("Write it as Python {} reads it.", error.target_version);
        finding(error.range, error.to_string()).with_hint(hint)
    });
    newer.collect()
}

pub(super) fn finding(range: TextRange, what: impl Into<String>) -> Finding {
    Finding::new(&SYNTAX, range.to_std_range(), what)
}
