//! What was found of code and data, as a person reads it: each finding with its place, the line it is in, and a caret
//! below it. The code is a stranger's: nothing of it reaches a terminal, or a model, that is not harmless and bounded.

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
    /// What leads the eye: line numbers, arrows.
    Guide,
    Added,
    Removed,
}

/// Harmless text, in pieces of different colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StyledText(Vec<(Style, String)>);

impl StyledText {
    fn put(&mut self, ink: Style, text: impl Into<String>) {
        self.0.push((ink, text.into()));
    }

    pub(crate) fn line(&mut self, ink: Style, text: &str) {
        self.put(ink, text);
        self.put(Style::Plain, "\n");
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Style, &str)> {
        self.0.iter().map(|(ink, text)| (*ink, text.as_str()))
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
    /// Of a tool's words; its facts have all.
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
    /// Of a terminal that shows what a program says.
    pub(crate) const BESIDE: Self = Self {
        least: Severity::Warning,
        ..Self::TERMINAL
    };
}

const MESSAGE_CHARS_MAX: usize = 1000;
const VALUE_CHARS_MAX: usize = 200;

/// Of code: a frame for each finding, by position.
pub(crate) fn of_code(name: &str, code: &str, found: &Validation, bounds: Bounds) -> StyledText {
    let lines: Vec<&str> = code.split('\n').collect();
    let counts = |issue: &&Issue| issue.severity >= bounds.least;
    let mut chosen: Vec<&Issue> = found.issues.iter().filter(counts).collect();
    let of_less = (found.issues.len() - chosen.len()) as u64;
    if chosen.len() > bounds.findings {
        // Where not all have room, the gravest do.
        chosen.sort_by_key(|issue| Reverse(issue.severity));
    }
    let frames = chosen
        .into_iter()
        .take(bounds.findings)
        .map(|issue| frame(name, &lines, issue));
    bounded(
        frames,
        u64::from(found.issues_total).saturating_sub(of_less),
        bounds,
    )
}

/// As many findings as have room, and how many more there are.
fn bounded(frames: impl Iterator<Item = StyledText>, total: u64, bounds: Bounds) -> StyledText {
    let mut painting = StyledText::default();
    let mut shown = 0;
    for frame in frames {
        if painting.bytes() + frame.bytes() > bounds.bytes {
            break;
        }
        painting.append(frame);
        shown += 1;
    }
    if shown < total {
        painting.line(Style::Guide, &format!("and {} more findings", total - shown));
    }
    painting
}

fn ink(severity: Severity) -> Style {
    match severity {
        Severity::Error => Style::Error,
        Severity::Warning => Style::Warning,
        Severity::Info => Style::Info,
    }
}

fn frame(name: &str, lines: &[&str], issue: &Issue) -> StyledText {
    let ink = ink(issue.severity);
    let mut painting = StyledText::default();
    head(
        &mut painting,
        ink,
        &format!("{}[{}]", issue.severity.as_str(), issue.rule),
        &issue.message,
    );
    let number = issue.line.to_string();
    let margin = " ".repeat(number.len());
    let mut place = format!("{}:{}:{}", neutral::line(name), issue.line, issue.column);
    if issue.end_line > issue.line {
        place += &format!(" to {}:{}", issue.end_line, issue.end_column);
    }
    painting.put(Style::Guide, format!("{margin}--> "));
    painting.line(Style::Plain, &place);
    let at = usize::try_from(issue.line)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    if let Some(text) = lines.get(at) {
        let shown = line::shown(text.strip_suffix('\r').unwrap_or(text), &line::range_of(issue));
        painting.line(Style::Guide, &format!("{margin} |"));
        painting.put(Style::Guide, format!("{number} | "));
        painting.line(Style::Plain, shown.text.trim_end());
        painting.put(Style::Guide, format!("{margin} | {}", " ".repeat(shown.before)));
        painting.line(ink, &"^".repeat(shown.marked));
    }
    note(&mut painting, &margin, "help", &issue.hint);
    painting
}

fn head(painting: &mut StyledText, ink: Style, title: &str, message: &str) {
    painting.put(ink, neutral::line(title));
    let message = beginning(&neutral::line(message), MESSAGE_CHARS_MAX);
    painting.line(Style::Plain, &format!(": {message}"));
}

fn note(painting: &mut StyledText, margin: &str, word: &str, text: &str) {
    if !text.is_empty() {
        let text = beginning(&neutral::line(text), MESSAGE_CHARS_MAX);
        painting.put(Style::Guide, format!("{margin} = "));
        painting.put(Style::Info, format!("{word}: "));
        painting.line(Style::Plain, &text);
    }
}

pub(crate) fn beginning(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Of JSON: each error with its JSON Pointer.
pub(crate) fn of_json(name: &str, report: &JsonReport, bounds: Bounds) -> StyledText {
    let frames = report.errors.iter().take(bounds.findings).map(|error| {
        let pointer = match error.path.as_str() {
            "" => "the whole document".to_owned(),
            path => short(path),
        };
        let mut painting = data_frame(name, &format!("json.{}", error.keyword), &error.message, &pointer);
        for (word, value) in [("expected", &error.expected), ("actual", &error.actual)] {
            if !value.is_null() {
                note(&mut painting, " ", word, &short(&value.to_string()));
            }
        }
        painting
    });
    bounded(frames, report.errors_total, bounds)
}

fn data_frame(name: &str, rule: &str, message: &str, place: &str) -> StyledText {
    let mut painting = StyledText::default();
    head(&mut painting, Style::Error, &format!("error[{rule}]"), message);
    painting.put(Style::Guide, " --> ");
    painting.line(Style::Plain, &format!("{}: {place}", neutral::line(name)));
    painting
}

/// A stranger's word in a line.
fn short(text: &str) -> String {
    beginning(&neutral::line(text), VALUE_CHARS_MAX)
}

/// Of a table: each error with its row and its column.
pub(crate) fn of_csv(name: &str, report: &CsvReport, bounds: Bounds) -> StyledText {
    let errors = report.errors.iter().take(bounds.findings).map(|error| {
        let (rule, mut place) = match error.row {
            0 => ("csv.header", "the header".to_owned()),
            row => ("csv.value", format!("row {row}")),
        };
        if let Some(column) = &error.column {
            place += &format!(", column `{}`", short(column));
        }
        let mut painting = data_frame(name, rule, &error.message, &place);
        note(&mut painting, " ", "expected", &error.expected);
        note(&mut painting, " ", "value", &short(&error.value));
        painting
    });
    bounded(errors, report.errors_total, bounds)
}

/// In one line: what became of code, and how much was found.
pub(crate) fn summary(name: &str, found: &Validation) -> StyledText {
    let (ink, word) = match found.verdict {
        Verdict::Pass => (Style::Good, "passed"),
        Verdict::Fixed => (Style::Good, "fixed"),
        Verdict::Reject => (Style::Error, "rejected"),
    };
    let of = |severity| {
        found
            .issues
            .iter()
            .filter(|issue| issue.severity == severity)
            .count()
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
        true => verdict(name, ink, word, "nothing was found"),
        false => verdict(name, ink, word, &counts.join(", ")),
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

fn verdict(name: &str, ink: Style, word: &str, what: &str) -> StyledText {
    let mut painting = StyledText::default();
    painting.put(Style::Plain, format!("{}: ", neutral::line(name)));
    painting.put(ink, word);
    painting.line(Style::Plain, &format!(": {what}"));
    painting
}

#[cfg(test)]
pub(crate) mod tests;
