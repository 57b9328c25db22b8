//! Tests of the findings for whole programs.

mod advice;
mod hostile;
mod programs;
mod rules;
mod speed;
mod strict;
mod syntax;

use super::*;
use crate::processor_time::processor_time;
use ringfence_types::{Language, Profile, Rules};
use std::{collections::BTreeSet, time::Duration};

pub(super) fn question(profile: Profile) -> CodeQuestion {
    let imports = profile::modules(profile);
    CodeQuestion::of(Language::Python, Rules { profile, imports })
}

fn found(code: &str, profile: Profile) -> Vec<Finding> {
    let mut findings = check(code, &question(profile)).findings;
    findings.sort_by_key(|finding| (finding.range.start, finding.range.end, finding.rule.id));
    findings
}

fn line_of(code: &str, finding: &Finding) -> usize {
    code[..finding.range.start].matches('\n').count() + 1
}

/// Returns `line rule severity: what` for each finding.
fn report(code: &str, profile: Profile) -> Vec<String> {
    found(code, profile)
        .iter()
        .map(|finding| {
            let line = line_of(code, finding);
            format!(
                "{line} {} {}: {}",
                finding.rule.id,
                finding.severity.as_str(),
                finding.what
            )
        })
        .collect()
}

fn errors(code: &str, profile: Profile) -> Vec<String> {
    let lines = report(code, profile).into_iter();
    lines.filter(|line| line.contains(" error: ")).collect()
}

/// Returns the cases of a table: section, program and expected result.
pub(super) fn cases(table: &'static str) -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let mut section = "";
    table.lines().filter_map(move |line| {
        let case = line.rsplit_once(" =>");
        if case.is_none() && line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        let (code, expect) = case?;
        Some((section, code.replace("\\n", "\n"), expect.trim()))
    })
}
