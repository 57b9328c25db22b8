//! What is found, each thing once. More findings than anybody reads are counted and not kept, the least grave first.

use crate::rule::{Finding, LeftOut};
use ringfence_types::{Profile, Severity};
use serde::Deserialize;
use std::{
    cmp::Reverse,
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

/// So many findings are kept.
const FINDINGS_MAX: usize = 20_000;

#[derive(Debug)]
pub(super) struct Findings {
    kept: Vec<Finding>,
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
            kept: Vec::new(),
            left_out: LeftOut::default(),
            known: HashSet::new(),
            state: RandomState::new(),
            most,
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        let mut kept = self.kept.iter();
        kept.any(|finding| finding.severity == Severity::Error)
    }

    /// Adds a finding, unless it is there already.
    pub(super) fn add(&mut self, finding: Finding) {
        let same = (&finding.range, finding.rule.id, &finding.what);
        if self.known.insert(self.state.hash_one(same)) {
            self.kept.push(finding);
        }
        if self.kept.len() >= 2 * self.most {
            self.drop_least();
        }
    }

    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// There are more of which nothing else is known.
    pub(super) fn count(&mut self, left_out: LeftOut) {
        self.left_out.join(left_out);
    }

    /// What is kept, the gravest first, and what is only counted.
    pub(super) fn all(mut self) -> (Vec<Finding>, LeftOut) {
        self.drop_least();
        (self.kept, self.left_out)
    }

    fn drop_least(&mut self) {
        self.kept.sort_by_key(|finding| Reverse(finding.severity));
        for finding in self.kept.drain(self.most.min(self.kept.len())..) {
            self.left_out.add(finding.severity, 1);
        }
    }
}

/// How bad a finding is: as a rule, and under the profile `strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// Ordinary, and nothing under `strict`.
    Usual,
    /// Ordinary where the profile is not `strict`.
    Noted,
    /// Ordinary, but a way around the rules.
    Suspect,
    /// Few ordinary programs do it.
    Warned,
    /// Few ordinary programs do it, and it is a way around the rules.
    Grave,
    /// Only `strict` speaks of it.
    StrictWarning,
    /// Only `strict` forbids it.
    StrictError,
}

impl Weight {
    pub(super) fn under(self, profile: Profile) -> Option<Severity> {
        let is_strict = profile == Profile::Strict;
        match self {
            Self::Usual => (!is_strict).then_some(Severity::Info),
            Self::Noted if !is_strict => Some(Severity::Info),
            Self::Suspect if !is_strict => Some(Severity::Info),
            Self::Noted | Self::Warned => Some(Severity::Warning),
            Self::Grave if !is_strict => Some(Severity::Warning),
            Self::Suspect | Self::Grave => Some(Severity::Error),
            Self::StrictWarning => is_strict.then_some(Severity::Warning),
            Self::StrictError => is_strict.then_some(Severity::Error),
        }
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
