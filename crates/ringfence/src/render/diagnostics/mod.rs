//! Findings about code and data as text: each with its position, its line of code and carets below. The code is
//! untrusted: all of it that reaches a terminal or a model is neutralised and bounded.

mod difference;
mod line;

pub(crate) use difference::difference;

use crate::{sentence::counted, terminal::neutral};
use ringfence_types::{CsvReport, ISSUES_MAX, Issue, JsonReport, Severity, Validation, Verdict};
use std::cmp::Reverse;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Error,
    Warning,
    Info,
    Good,
    /// Line numbers, arrows and other guides.
    Guide,
    Added,
    Removed,
}

/// Neutralised text, in pieces of different styles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StyledText(Vec<(Style, String)>);

impl StyledText {
    fn put(&mut self, style: Style, text: impl Into<String>) {
        self.0.push((style, text.into()));
    }

    pub(crate) fn line(&mut self, style: Style, text: &str) {
        self.put(style, text);
        self.put(Style::Plain, "\n");
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Style, &str)> {
        self.0.iter().map(|(style, text)| (*style, text.as_str()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, text)| text.len()).sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    findings: usize,
    bytes: usize,
    least: Severity,
}

impl Bounds {
    /// For the text of a tool's answer; its facts have all findings.
    pub(crate) const ANSWER: Self = Self {
        findings: 20,
        bytes: 16 << 10,
        least: Severity::Info,
    };
    pub(crate) const TERMINAL: Self = Self {
        findings: ISSUES_MAX,
        bytes: 4 << 20,
        least: Severity::Info,
    };
    /// For a terminal that also shows a program's output.
    pub(crate) const BESIDE: Self = Self {
        least: Severity::Warning,
        ..Self::TERMINAL
    };
}

const MESSAGE_CHARS_MAX: usize = 1000;
const VALUE_CHARS_MAX: usize = 200;

/// A frame for each finding about code, by position; by severity if there are more than `bounds` allow.
pub(crate) fn of_code(name: &str, code: &str, found: &Validation, bounds: Bounds) -> StyledText {
    let lines: Vec<&str> = code.split('\n').collect();
    let counts = |issue: &&Issue| issue.severity >= bounds.least;
    let mut chosen: Vec<&Issue> = found.issues.iter().filter(counts).collect();
    let below_least = (found.issues.len() - chosen.len()) as u64;
    if chosen.len() > bounds.findings {
        chosen.sort_by_key(|issue| Reverse(issue.severity));
    }
    let chosen = chosen.into_iter().take(bounds.findings);
    let frames = chosen.map(|issue| frame(name, &lines, issue));
    bounded(
        frames,
        u64::from(found.issues_total).saturating_sub(below_least),
        bounds,
    )
}

/// Appends frames up to the limit of bytes, then the number of findings left out.
fn bounded(frames: impl Iterator<Item = StyledText>, total: u64, bounds: Bounds) -> StyledText {
    let mut styled = StyledText::default();
    let mut shown = 0;
    for frame in frames {
        if styled.bytes() + frame.bytes() > bounds.bytes {
            break;
        }
        styled.append(frame);
        shown += 1;
    }
    if shown < total {
        styled.line(Style::Guide, &format!("and {} more findings", total - shown));
    }
    styled
}

fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Error => Style::Error,
        Severity::Warning => Style::Warning,
        Severity::Info => Style::Info,
    }
}

fn frame(name: &str, lines: &[&str], issue: &Issue) -> StyledText {
    let style = style_of(issue.severity);
    let mut styled = StyledText::default();
    head(
        &mut styled,
        style,
        &format!("{}[{}]", issue.severity.as_str(), issue.rule),
        &issue.message,
    );
    let number = issue.line.to_string();
    let margin = " ".repeat(number.len());
    let mut place = format!("{}:{}:{}", neutral::line(name), issue.line, issue.column);
    if issue.end_line > issue.line {
        place += &format!(" to {}:{}", issue.end_line, issue.end_column);
    }
    styled.put(Style::Guide, format!("{margin}--> "));
    styled.line(Style::Plain, &place);
    let at = usize::try_from(issue.line)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    if let Some(text) = lines.get(at) {
        let shown = line::shown(text.strip_suffix('\r').unwrap_or(text), &line::range_of(issue));
        styled.line(Style::Guide, &format!("{margin} |"));
        styled.put(Style::Guide, format!("{number} | "));
        styled.line(Style::Plain, shown.text.trim_end());
        styled.put(Style::Guide, format!("{margin} | {}", " ".repeat(shown.before)));
        styled.line(style, &"^".repeat(shown.marked));
    }
    note(&mut styled, &margin, "help", &issue.hint);
    styled
}

fn head(styled: &mut StyledText, style: Style, title: &str, message: &str) {
    styled.put(style, neutral::line(title));
    let message = beginning(&neutral::line(message), MESSAGE_CHARS_MAX);
    styled.line(Style::Plain, &format!(": {message}"));
}

fn note(styled: &mut StyledText, margin: &str, word: &str, text: &str) {
    if !text.is_empty() {
        let text = beginning(&neutral::line(text), MESSAGE_CHARS_MAX);
        styled.put(Style::Guide, format!("{margin} = "));
        styled.put(Style::Info, format!("{word}: "));
        styled.line(Style::Plain, &text);
    }
}

pub(crate) fn beginning(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

pub(crate) fn of_json(name: &str, report: &JsonReport, bounds: Bounds) -> StyledText {
    let frames = report.errors.iter().take(bounds.findings).map(|error| {
        let pointer = match error.path.as_str() {
            "" => "the whole document".to_owned(),
            path => short(path),
        };
        let mut styled = data_frame(name, &format!("json.{}", error.keyword), &error.message, &pointer);
        for (word, value) in [("expected", &error.expected), ("actual", &error.actual)] {
            if !value.is_null() {
                note(&mut styled, " ", word, &short(&value.to_string()));
            }
        }
        styled
    });
    bounded(frames, report.errors_total, bounds)
}

fn data_frame(name: &str, rule: &str, message: &str, place: &str) -> StyledText {
    let mut styled = StyledText::default();
    head(&mut styled, Style::Error, &format!("error[{rule}]"), message);
    styled.put(Style::Guide, " --> ");
    styled.line(Style::Plain, &format!("{}: {place}", neutral::line(name)));
    styled
}

/// Untrusted text for one line, neutralised and shortened.
fn short(text: &str) -> String {
    beginning(&neutral::line(text), VALUE_CHARS_MAX)
}

pub(crate) fn of_csv(name: &str, report: &CsvReport, bounds: Bounds) -> StyledText {
    let errors = report.errors.iter().take(bounds.findings).map(|error| {
        let (rule, mut place) = match error.row {
            0 => ("csv.header", "the header".to_owned()),
            row => ("csv.value", format!("row {row}")),
        };
        if let Some(column) = &error.column {
            place += &format!(", column `{}`", short(column));
        }
        let mut styled = data_frame(name, rule, &error.message, &place);
        note(&mut styled, " ", "expected", &error.expected);
        note(&mut styled, " ", "value", &short(&error.value));
        styled
    });
    bounded(errors, report.errors_total, bounds)
}

pub(crate) fn summary(name: &str, found: &Validation) -> StyledText {
    let (style, word) = match found.verdict {
        Verdict::Pass => (Style::Good, "passed"),
        Verdict::Fixed => (Style::Good, "fixed"),
        Verdict::Reject => (Style::Error, "rejected"),
    };
    let of = |severity| {
        let issues = found.issues.iter();
        issues.filter(|issue| issue.severity == severity).count()
    };
    let added = format!(" added: {}", short(&found.fixes_applied.join("; ")));
    let mut counts = vec![
        (of(Severity::Error), "error", ""),
        (of(Severity::Warning), "warning", ""),
        (of(Severity::Info), "note", ""),
    ];
    let all = usize::try_from(found.issues_total).unwrap_or(usize::MAX);
    if all > found.issues.len() {
        counts.push((all, "finding", " in all"));
    }
    counts.push((found.fixes_applied.len(), "import", &added));
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what, how)| counted(count, what) + how)
        .collect();
    match counts.is_empty() {
        true => verdict(name, style, word, "nothing was found"),
        false => verdict(name, style, word, &counts.join(", ")),
    }
}

pub(crate) fn json_summary(name: &str, report: &JsonReport) -> StyledText {
    let schema = short(&report.schema);
    let errors = counted(report.errors_total, "error");
    data_verdict(
        name,
        report.valid,
        &format!("{errors} against the schema `{schema}`"),
    )
}

pub(crate) fn csv_summary(name: &str, report: &CsvReport) -> StyledText {
    let (errors, rows) = (
        counted(report.errors_total, "error"),
        counted(report.row_count, "row"),
    );
    let columns = counted(report.column_count, "column");
    data_verdict(name, report.valid, &format!("{errors}, {rows}, {columns}"))
}

#[expect(clippy::fn_params_excessive_bools, reason = "the field `valid` of a report")]
fn data_verdict(name: &str, is_valid: bool, what: &str) -> StyledText {
    match is_valid {
        true => verdict(name, Style::Good, "valid", what),
        false => verdict(name, Style::Error, "not valid", what),
    }
}

fn verdict(name: &str, style: Style, word: &str, what: &str) -> StyledText {
    let mut styled = StyledText::default();
    styled.put(Style::Plain, format!("{}: ", neutral::line(name)));
    styled.put(style, word);
    styled.line(Style::Plain, &format!(": {what}"));
    styled
}

#[cfg(test)]
pub(crate) mod tests;
