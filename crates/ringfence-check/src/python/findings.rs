//! What is found, each thing once. More findings than anybody reads are counted and not kept, the least grave first.

use crate::rule::{Finding, LeftOut};
use ringfence_types::Severity;
use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

/// So many findings are kept.
const FINDINGS_MAX: usize = 20_000;

/// The findings of a text.
#[derive(Debug)]
pub(super) struct Findings {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    notes: Vec<Finding>,
    left_out: LeftOut,
    /// Of place, rule and text.
    known: HashSet<u64>,
    state: RandomState,
    most: usize,
}

impl Findings {
    pub(super) fn new() -> Self {
        Self::with_most(FINDINGS_MAX)
    }

    fn with_most(most: usize) -> Self {
        Self {
            errors: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            left_out: LeftOut::default(),
            known: HashSet::new(),
            state: RandomState::new(),
            most,
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds a finding, unless it is there already.
    pub(super) fn add(&mut self, finding: Finding) {
        let same = (&finding.range, finding.rule.id, &finding.what);
        if !self.known.insert(self.state.hash_one(same)) {
            return;
        }
        let severity = finding.severity;
        if self.kept() >= self.most && !self.make_room(severity) {
            self.left_out.add(severity, 1);
            return;
        }
        match severity {
            Severity::Error => self.errors.push(finding),
            Severity::Warning => self.warnings.push(finding),
            Severity::Info => self.notes.push(finding),
        }
    }

    /// Adds several.
    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// There are more of which nothing else is known.
    pub(super) fn count(&mut self, left_out: LeftOut) {
        self.left_out.join(left_out);
    }

    /// What is kept, and what is only counted.
    pub(super) fn all(self) -> (Vec<Finding>, LeftOut) {
        let mut all = self.errors;
        all.extend(self.warnings);
        all.extend(self.notes);
        (all, self.left_out)
    }

    fn kept(&self) -> usize {
        self.errors.len() + self.warnings.len() + self.notes.len()
    }

    /// Gives up something less grave.
    fn make_room(&mut self, severity: Severity) -> bool {
        let given_up = match severity {
            Severity::Error => self.notes.pop().or_else(|| self.warnings.pop()),
            Severity::Warning => self.notes.pop(),
            Severity::Info => None,
        };
        let Some(given_up) = given_up else { return false };
        self.left_out.add(given_up.severity, 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::python::SYNTAX;

    fn finding(at: usize, severity: Severity) -> Finding {
        Finding {
            range: at..at + 1,
            rule: &SYNTAX,
            severity,
            what: "something".to_owned(),
            hint: None,
        }
    }

    #[test]
    fn what_is_graver_is_kept_and_everything_is_counted() {
        let mut told = Findings::with_most(4);
        told.extend((0..10).map(|at| finding(at, Severity::Info)));
        told.extend((10..13).map(|at| finding(at, Severity::Warning)));
        told.extend((20..22).map(|at| finding(at, Severity::Error)));
        told.extend((30..40).map(|at| finding(at, Severity::Info)));
        let (kept, left_out) = told.all();
        let ends: Vec<usize> = kept.iter().map(|finding| finding.range.start).collect();
        assert_eq!(ends, [20, 21, 10, 11]);
        let expect = LeftOut {
            errors: 0,
            warnings: 1,
            notes: 20,
        };
        assert_eq!(left_out, expect);
    }

    #[test]
    fn errors_over_the_limit_are_counted() {
        let mut told = Findings::with_most(2);
        told.extend((0..5).map(|at| finding(at, Severity::Error)));
        let (kept, left_out) = told.all();
        assert_eq!((kept.len(), left_out.errors), (2, 3));
    }

    #[test]
    fn the_same_is_told_once() {
        let mut told = Findings::new();
        told.extend([1, 1, 2, 1].map(|at| finding(at, Severity::Info)));
        let (kept, left_out) = told.all();
        assert_eq!((kept.len(), left_out.total()), (2, 0));
    }
}
