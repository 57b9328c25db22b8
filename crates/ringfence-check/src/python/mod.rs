//! Checks of Python code, with the parser of ruff.

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

/// The check of a higher tree recurses more deeply than the usual stack allows.
const HEIGHT_USUAL: u32 = 1500;
/// Only the used part of the stack takes memory.
const STACK_BYTES: usize = 256 << 20;

pub(crate) fn check(code: &str, question: &CodeQuestion) -> Checked {
    match nesting::height_bound(code) {
        None => refused(&registry::NESTING, "brackets, blocks or operators in each other"),
        Some(height) if height > HEIGHT_USUAL => stacker::grow(STACK_BYTES, || read(code, question)),
        Some(_) => read(code, question),
    }
}

fn read(code: &str, question: &CodeQuestion) -> Checked {
    let version = question.python.map_or(PythonVersion::latest(), Into::into);
    // The grammar is that of the interpreter that will run the code.
    let options = ParseOptions::from(PySourceType::Python).with_target_version(version);
    let Some(parsed) = parse_unchecked(code, options).try_into_module() else {
        return refused(&registry::SYNTAX, "the text is no module");
    };
    let mut findings = rules::check_direction(code, &question.rules);
    findings.extend(rules::check_encoding(code, &question.rules));
    if parsed.has_syntax_errors() {
        let newer = syntax::newer(parsed.unsupported_syntax_errors());
        // The worker process ends with the answer: trees with errors are never dropped.
        let errors = syntax::explain(code, parsed);
        findings.extend(errors.into_iter().chain(newer).take(ERRORS_MAX));
        return concluded(findings, Checked::default());
    }
    let module = parsed.syntax();
    let (names, refused) = Names::compiled(module, code, version);
    findings.extend(refused.into_iter().take(ERRORS_MAX));
    let missing = match findings.iter().any(|finding| finding.severity == Severity::Error) {
        true => fix::Missing::default(),
        false => fix::find_missing(code, &parsed, &names, question),
    };
    let mut checked = rules::check(code, module, &names, question);
    findings.append(&mut checked.findings);
    findings.extend(missing.findings);
    checked.fix = missing.fix;
    concluded(findings, checked)
}

/// Removes duplicate findings: code may be checked in more than one way.
fn concluded(mut findings: Vec<Finding>, checked: Checked) -> Checked {
    let key = |finding: &Finding| (finding.range.start, finding.range.end, finding.rule.id);
    findings.sort_by(|one, other| (key(one), &one.what).cmp(&(key(other), &other.what)));
    findings.dedup_by(|one, other| key(one) == key(other) && one.what == other.what);
    Checked { findings, ..checked }
}

fn refused(rule: &'static Rule, what: &str) -> Checked {
    Checked {
        findings: vec![Finding::new(rule, 0..0, what).with_severity(Severity::Error)],
        ..Checked::default()
    }
}

#[cfg(test)]
mod tests;
