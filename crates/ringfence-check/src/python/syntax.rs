//! Errors of syntax as findings.

use super::findings::Findings;
use crate::{
    registry::python::SYNTAX,
    rule::{Finding, LeftOut},
};
use ruff_python_parser::UnsupportedSyntaxError;
use ruff_text_size::TextRange;

/// So many are told of one text.
const ERRORS_MAX: usize = 20;

/// What an older interpreter does not read.
pub(super) fn newer(unsupported: &[UnsupportedSyntaxError]) -> Vec<Finding> {
    let newer = unsupported.iter().map(|error| Finding {
        hint: Some(format!("Write it as Python {} reads it.", error.target_version)),
        ..finding(error.range, error.to_string())
    });
    newer.collect()
}

/// The first of them; the others are counted.
pub(super) fn tell(findings: impl IntoIterator<Item = Finding>, told: &mut Findings) {
    let mut findings = findings.into_iter();
    told.extend(findings.by_ref().take(ERRORS_MAX));
    told.count(LeftOut {
        errors: findings.count(),
        ..LeftOut::default()
    });
}

pub(super) fn finding(range: TextRange, what: String) -> Finding {
    Finding::new(&SYNTAX, range.to_std_range(), what)
}
