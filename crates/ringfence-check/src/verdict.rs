//! Turns findings into the verdict for the caller.

use crate::{
    CodeAnswer,
    rule::{Checked, Finding},
    unknown::cut,
};
use ringfence_types::{Complexity, ERRORS_MAX, ISSUES_MAX, Issue, Severity, Summary, Validation, Verdict};
use std::cmp::Reverse;

pub(crate) fn conclude(code: &str, checked: Checked) -> CodeAnswer {
    let (mut findings, mut analysis, fix) = (checked.findings, checked.analysis, checked.fix);
    let by_position = |finding: &Finding| (finding.range.start, finding.range.end, finding.rule.id);
    findings.sort_by_key(by_position);
    let issues_total = u32::try_from(findings.len()).unwrap_or(u32::MAX);
    let count = |severity| findings.iter().filter(|one| one.severity == severity).count();
    let (errors_total, warnings_total) = (count(Severity::Error), count(Severity::Warning));
    let recommendations = recommendations(&findings);
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings.truncate(ISSUES_MAX);
    findings.sort_by_key(by_position);
    let lines = Lines::of(code);
    let issues = findings.into_iter().map(|finding| issue(finding, &lines));
    let issues: Vec<Issue> = issues.collect();
    analysis.imports = checked.imports.into_iter().collect();
    analysis.domains = checked.hosts.into_iter().collect();
    analysis.line_count = u32::try_from(code.lines().count()).unwrap_or(u32::MAX);
    analysis.character_count = u32::try_from(code.chars().count()).unwrap_or(u32::MAX);
    analysis.estimated_complexity = match analysis.cyclomatic_complexity {
        0..=10 => Complexity::Low,
        11..=50 => Complexity::Medium,
        _ => Complexity::High,
    };
    let verdict = match (errors_total, &fix) {
        (0, Some(_)) => Verdict::Fixed,
        (0, None) => Verdict::Pass,
        _ => Verdict::Reject,
    };
    let (patches, fixed_code) = match fix {
        Some(fix) => (fix.patches, Some(fix.code)),
        None => (Vec::new(), None),
    };
    let validation = Validation {
        valid: verdict != Verdict::Reject,
        verdict,
        validation: summary(&issues, errors_total, warnings_total),
        issues,
        issues_total,
        fixes_applied: patches.iter().map(|patch| patch.statement.clone()).collect(),
        fixed_code,
        analysis,
        recommendations,
    };
    CodeAnswer { validation, patches }
}

/// Returns the hints of errors and warnings, each once, in the order of the findings.
fn recommendations(findings: &[Finding]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let is_problem = |finding: &&Finding| finding.severity > Severity::Info;
    for advice in findings.iter().filter(is_problem).map(advice) {
        if all.len() < RECOMMENDATIONS_MAX && !all.contains(&advice) {
            all.push(advice);
        }
    }
    all
}

fn issue(finding: Finding, lines: &Lines<'_>) -> Issue {
    let (line, column) = lines.position(finding.range.start);
    let (end_line, end_column) = lines.position(finding.range.end);
    let why = finding.rule.why;
    Issue {
        line,
        column,
        end_line,
        end_column,
        rule: finding.rule.id.to_owned(),
        severity: finding.severity,
        message: match why.is_empty() {
            true => cut(&finding.what, TEXT_CHARS_MAX),
            false => format!("{}: {why}", cut(&finding.what, TEXT_CHARS_MAX)),
        },
        hint: advice(&finding),
    }
}

fn advice(finding: &Finding) -> String {
    let hint = finding.hint.as_deref().unwrap_or(finding.rule.hint);
    cut(hint, TEXT_CHARS_MAX)
}

/// Maximum length of a text: a name may be as long as the code.
const TEXT_CHARS_MAX: usize = 500;
const RECOMMENDATIONS_MAX: usize = 20;

fn summary(issues: &[Issue], errors_total: usize, warnings_total: usize) -> Summary {
    let errors = issues.iter().filter(|issue| issue.severity == Severity::Error);
    let described = |issue: &Issue| format!("line {}: {}", issue.line, issue.message);
    let errors: Vec<String> = errors.take(ERRORS_MAX).map(described).collect();
    let first = errors.first().map_or("", String::as_str);
    let message = match (errors_total, warnings_total) {
        (0, 0) => "Nothing was found.".to_owned(),
        (0, 1) => "There is 1 warning.".to_owned(),
        (0, count) => format!("There are {count} warnings."),
        (1, _) => first.to_owned(),
        (count, _) => format!("There are {count} errors; the first is in {first}"),
    };
    Summary {
        valid: errors_total == 0,
        errors,
        message,
    }
}

pub(crate) struct Lines<'a> {
    code: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(code: &'a str) -> Self {
        let after = |(at, _): (usize, &str)| at + 1;
        let starts = code.match_indices('\n').map(after);
        Self {
            code,
            starts: std::iter::once(0).chain(starts).collect(),
        }
    }

    /// Returns line and column, from 1; the column counts characters.
    pub(crate) fn position(&self, offset: usize) -> (u32, u32) {
        let lines = self.starts.partition_point(|start| *start <= offset);
        let line = lines.saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let before = self.code.get(start..offset).unwrap_or_default();
        let column = before.chars().count();
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        (number(line), number(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_from_one() {
        let lines = Lines::of("a\näö = x\n");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(2), (2, 1));
        assert_eq!(lines.position(6), (2, 3));
        assert_eq!(lines.position(11), (3, 1));
        assert_eq!(lines.position(7), (2, 4));
    }
}
