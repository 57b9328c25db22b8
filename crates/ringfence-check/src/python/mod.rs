//! Python, by the parser of ruff.

mod fix;
mod metrics;
mod module_attributes;
mod names;
mod nesting;
pub mod profile;
mod resolve;
mod rules;
mod spine;
mod syntax;
mod table;
mod weight;
mod well_known;

use crate::{
    CodeQuestion,
    registry::python as registry,
    rule::{Checked, Finding, Rule},
};
use names::Names;
use ringfence_types::Severity;
use ruff_python_ast::{PySourceType, PythonVersion};
use ruff_python_parser::{ParseOptions, parse_unchecked};
use syntax::ERRORS_MAX;

pub use well_known::check_known_import;

/// What checks a higher tree recurses further than the usual stack is deep.
const HEIGHT_USUAL: u32 = 1500;
/// It takes memory where it is used.
const STACK_BYTES: usize = 256 << 20;

/// Everything that is found of a text.
pub(crate) fn check(code: &str, asked: &CodeQuestion) -> Checked {
    match nesting::look(code) {
        None => refused(&registry::NESTING, "brackets, blocks or operators in each other"),
        Some(height) if height > HEIGHT_USUAL => stacker::grow(STACK_BYTES, || read(code, asked)),
        Some(_) => read(code, asked),
    }
}

fn read(code: &str, asked: &CodeQuestion) -> Checked {
    let version = asked.python.map_or(PythonVersion::latest(), PythonVersion::from);
    // By the grammar of the interpreter that will read it.
    let options = ParseOptions::from(PySourceType::Python).with_target_version(version);
    let Some(parsed) = parse_unchecked(code, options).try_into_module() else {
        return refused(&registry::SYNTAX, "the text is no module");
    };
    let mut told = rules::check_direction(code, &asked.rules);
    told.extend(rules::check_encoding(code, &asked.rules));
    if parsed.has_syntax_errors() {
        let newer = syntax::newer(parsed.unsupported_syntax_errors());
        // The process that answers ends with the answer: trees with errors are never dropped.
        let errors = syntax::explain(code, parsed);
        told.extend(errors.into_iter().chain(newer).take(ERRORS_MAX));
        return concluded(told, Checked::default());
    }
    let module = parsed.syntax();
    let (names, refused) = Names::compiled(module, code, version);
    told.extend(refused.into_iter().take(ERRORS_MAX));
    let missing = match told.iter().any(|finding| finding.severity == Severity::Error) {
        true => fix::Missing::default(),
        false => fix::look(code, &parsed, &names, asked),
    };
    let mut checked = rules::check(code, module, &names, asked);
    told.append(&mut checked.findings);
    told.extend(missing.findings);
    checked.fix = missing.fix;
    concluded(told, checked)
}

/// Each finding once: a text may be looked at in more than one way.
fn concluded(mut findings: Vec<Finding>, checked: Checked) -> Checked {
    let key = |finding: &Finding| (finding.range.start, finding.range.end, finding.rule.id);
    findings.sort_by(|one, other| (key(one), &one.what).cmp(&(key(other), &other.what)));
    findings.dedup_by(|one, other| key(one) == key(other) && one.what == other.what);
    Checked { findings, ..checked }
}

/// What cannot be read any further is an error.
fn refused(rule: &'static Rule, what: &str) -> Checked {
    Checked {
        findings: vec![Finding::new(rule, 0..0, what).with_severity(Severity::Error)],
        ..Checked::default()
    }
}

#[cfg(test)]
mod tests;
