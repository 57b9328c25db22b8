//! What was found of code and data, as a person reads it: each finding with its place, the line it is in, and a caret
//! below it. The code is a stranger's: nothing of it reaches a terminal, or a model, that is not harmless and bounded.

mod difference;
mod line;

pub(crate) use difference::{common, difference};

use crate::terminal::neutral;
use ringfence_types::{CsvReport, ISSUES_MAX, Issue, JsonReport, Severity, Validation, Verdict};
use serde_json::Value;
use std::cmp::Reverse;

/// How a piece of text is meant.
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

    /// Without colours.
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

/// How much is shown; the rest is counted.
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
    let mut painting = StyledText::default();
    let mut shown: u64 = 0;
    let counts = |issue: &&Issue| issue.severity >= bounds.least;
    let mut chosen: Vec<&Issue> = found.issues.iter().filter(counts).collect();
    if chosen.len() > bounds.findings {
        // Where not all have room, the gravest do.
        chosen.sort_by_key(|issue| Reverse(issue.severity));
    }
    for issue in chosen.into_iter().take(bounds.findings) {
        let frame = frame(name, &lines, issue);
        if painting.bytes() + frame.bytes() > bounds.bytes {
            break;
        }
        painting.append(frame);
        shown += 1;
    }
    let listed = found.issues.len() as u64;
    let of_less = listed - found.issues.iter().filter(counts).count() as u64;
    more(
        &mut painting,
        shown,
        u64::from(found.issues_total).saturating_sub(of_less),
    );
    painting
}

fn more(painting: &mut StyledText, shown: u64, total: u64) {
    if shown < total {
        painting.line(Style::Guide, &format!("and {} more findings", total - shown));
    }
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
        let shown = line::shown(text.strip_suffix('\r').unwrap_or(text), line::Range::of(issue));
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

/// At most so many characters.
pub(crate) fn beginning(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Of JSON: each error with its JSON Pointer.
pub(crate) fn of_json(name: &str, report: &JsonReport, bounds: Bounds) -> StyledText {
    let mut painting = StyledText::default();
    let mut shown = 0;
    for error in report.errors.iter().take(bounds.findings) {
        if painting.bytes() > bounds.bytes {
            break;
        }
        head(
            &mut painting,
            Style::Error,
            &format!("error[json.{}]", error.keyword),
            &error.message,
        );
        let pointer = match error.path.as_str() {
            "" => "the whole document".to_owned(),
            path => beginning(&neutral::line(path), VALUE_CHARS_MAX),
        };
        painting.put(Style::Guide, " --> ");
        painting.line(Style::Plain, &format!("{}: {pointer}", neutral::line(name)));
        value(&mut painting, "expected", &error.expected);
        value(&mut painting, "actual", &error.actual);
        shown += 1;
    }
    more(&mut painting, shown, report.errors_total);
    painting
}

fn value(painting: &mut StyledText, word: &str, value: &Value) {
    if !value.is_null() {
        note(
            painting,
            " ",
            word,
            &beginning(&value.to_string(), VALUE_CHARS_MAX),
        );
    }
}

/// Of a table: each error with its row and its column.
pub(crate) fn of_csv(name: &str, report: &CsvReport, bounds: Bounds) -> StyledText {
    let mut painting = StyledText::default();
    let mut shown = 0;
    for header in report.missing_headers.iter().take(bounds.findings) {
        if painting.bytes() > bounds.bytes {
            break;
        }
        let what = format!("the column `{}` is missing", beginning(header, VALUE_CHARS_MAX));
        head(&mut painting, Style::Error, "error[csv.header]", &what);
        shown += 1;
    }
    for error in report.errors.iter().take(bounds.findings) {
        if painting.bytes() > bounds.bytes {
            break;
        }
        let (rule, row) = match error.row {
            0 => ("error[csv.header]", "the header".to_owned()),
            row => ("error[csv.value]", format!("row {row}")),
        };
        head(&mut painting, Style::Error, rule, &error.message);
        let column = error.column.as_ref().map(|column| {
            let column = beginning(&neutral::line(column), VALUE_CHARS_MAX);
            format!(", column `{column}`")
        });
        painting.put(Style::Guide, " --> ");
        painting.line(
            Style::Plain,
            &format!("{}: {row}{}", neutral::line(name), column.unwrap_or_default()),
        );
        note(&mut painting, " ", "expected", &error.expected);
        note(
            &mut painting,
            " ",
            "value",
            &beginning(&error.value, VALUE_CHARS_MAX),
        );
        shown += 1;
    }
    more(&mut painting, shown, total(report));
    painting
}

fn total(report: &CsvReport) -> u64 {
    report.errors_total + report.missing_headers.len() as u64
}

/// In one line: what became of code, and how much was found.
pub(crate) fn summary(name: &str, found: &Validation) -> StyledText {
    let (ink, word) = match found.verdict {
        Verdict::Pass => (Style::Good, "passed"),
        Verdict::Fixed => (Style::Good, "fixed"),
        Verdict::Reject => (Style::Error, "rejected"),
    };
    let mut counts: Vec<String> = Vec::new();
    let all = usize::try_from(found.issues_total).unwrap_or(usize::MAX) <= found.issues.len();
    for (severity, one, many) in [
        (Severity::Error, "error", "errors"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Info, "note", "notes"),
    ] {
        let same = |issue: &&Issue| issue.severity == severity;
        match found.issues.iter().filter(same).count() {
            0 => {}
            1 => counts.push(format!("1 {one}")),
            count => counts.push(format!("{count} {many}")),
        }
    }
    if !all {
        counts.push(format!("{} findings in all", found.issues_total));
    }
    match found.fixes_applied.len() {
        0 => {}
        1 => counts.push("1 import added".to_owned()),
        count => counts.push(format!("{count} imports added")),
    }
    if counts.is_empty() {
        counts.push("nothing was found".to_owned());
    }
    verdict(name, ink, word, &counts.join(", "))
}

const VALID: (Style, &str) = (Style::Good, "valid");
const INVALID: (Style, &str) = (Style::Error, "not valid");

pub(crate) fn json_summary(name: &str, report: &JsonReport) -> StyledText {
    let schema = beginning(&neutral::line(&report.schema), VALUE_CHARS_MAX);
    let what = format!("{} against the schema `{schema}`", counted(report.errors_total));
    let (ink, word) = if report.valid { VALID } else { INVALID };
    verdict(name, ink, word, &what)
}

pub(crate) fn csv_summary(name: &str, report: &CsvReport) -> StyledText {
    let what = format!(
        "{}, {}, {}",
        counted(total(report)),
        many(report.row_count, "row"),
        many(report.column_count, "column")
    );
    let (ink, word) = if report.valid { VALID } else { INVALID };
    verdict(name, ink, word, &what)
}

fn counted(errors: u64) -> String {
    match errors {
        0 => "no error".to_owned(),
        count => many(count, "error"),
    }
}

fn many(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// `NAME: WORD: WHAT`.
fn verdict(name: &str, ink: Style, word: &str, what: &str) -> StyledText {
    let mut painting = StyledText::default();
    painting.put(Style::Plain, format!("{}: ", neutral::line(name)));
    painting.put(ink, word);
    painting.line(Style::Plain, &format!(": {what}"));
    painting
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ringfence_types::{Analysis, CsvError, JsonError, Summary};
    use serde_json::json;

    pub(crate) fn issue(at: (u32, u32), end: (u32, u32), severity: Severity) -> Issue {
        Issue {
            line: at.0,
            column: at.1,
            end_line: end.0,
            end_column: end.1,
            rule: "python.example".to_owned(),
            severity,
            message: "it is so".to_owned(),
            hint: "do otherwise".to_owned(),
        }
    }

    pub(crate) fn validation(issues: Vec<Issue>) -> Validation {
        let valid = issues.iter().all(|issue| issue.severity != Severity::Error);
        Validation {
            valid,
            verdict: if valid { Verdict::Pass } else { Verdict::Reject },
            issues_total: u32::try_from(issues.len()).unwrap(),
            issues,
            fixes_applied: Vec::new(),
            fixed_code: None,
            validation: Summary::default(),
            analysis: Analysis::default(),
            recommendations: Vec::new(),
        }
    }

    #[test]
    fn a_frame_shows_the_line_and_marks_the_place() {
        let code = "import os\n\tif x ==  os.system('漢') :\r\n";
        let found = validation(vec![issue((2, 11), (2, 25), Severity::Error)]);
        assert_eq!(
            of_code("main.py", code, &found, Bounds::TERMINAL).plain(),
            "error[python.example]: it is so\n --> main.py:2:11\n  |\n2 |     if x ==  os.system('漢') :\n  \
             |              ^^^^^^^^^^^^^^^\n  = help: do otherwise\n"
        );
    }

    #[test]
    fn a_place_past_the_end_has_one_caret_and_one_past_the_text_none() {
        let found = validation(vec![
            issue((1, 3), (1, 3), Severity::Warning),
            issue((9, 1), (9, 1), Severity::Info),
        ]);
        let text = of_code("a", "ab", &found, Bounds::TERMINAL).plain();
        assert_eq!(
            text,
            "warning[python.example]: it is so\n --> a:1:3\n  |\n1 | ab\n  |   ^\n  = help: do otherwise\n\
             info[python.example]: it is so\n --> a:9:1\n  = help: do otherwise\n"
        );
    }

    #[test]
    fn what_is_hostile_is_shown_harmless_and_the_caret_still_stands_below_it() {
        let code = "\u{202e}\x1b[31m = evil\n";
        let mut hostile = issue((1, 10), (1, 14), Severity::Error);
        hostile.message = "a\x1b]0;owned\x07\nb".to_owned();
        let text = of_code("x\x1b.py", code, &validation(vec![hostile]), Bounds::ANSWER).plain();
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        let under = |mark: &str, line: &str| line.split(mark).next().unwrap().chars().count();
        assert_eq!(under("evil", lines[3]), under("^^^^", lines[4]), "{text}");
    }

    #[test]
    fn a_range_of_several_lines_says_where_it_ends() {
        let found = validation(vec![issue((1, 2), (3, 1), Severity::Error)]);
        let text = of_code("a", "abc\nd\ne", &found, Bounds::TERMINAL).plain();
        assert!(
            text.contains("a:1:2 to 3:1") && text.contains("  |  ^^\n"),
            "{text}"
        );
    }

    #[test]
    fn an_answer_is_bounded_and_says_how_much_is_left_out() {
        let long = format!("{} bad {}", "x ".repeat(100_000), "y ".repeat(100_000));
        let issues = vec![issue((1, 200_002), (1, 200_005), Severity::Error); 100];
        let text = of_code("a", &long, &validation(issues), Bounds::ANSWER).plain();
        assert!(text.len() < 20 << 10, "{}", text.len());
        assert!(
            text.contains(" bad ") && text.ends_with("and 80 more findings\n"),
            "{text}"
        );
    }

    #[test]
    fn json_and_tables_name_their_places() {
        let report = JsonReport {
            valid: false,
            schema: "user".to_owned(),
            errors: vec![JsonError {
                path: "/a/0".to_owned(),
                message: "1 is no string".to_owned(),
                keyword: "type".to_owned(),
                expected: json!("string"),
                actual: json!(1),
            }],
            errors_total: 2,
        };
        assert_eq!(
            of_json("d.json", &report, Bounds::TERMINAL).plain(),
            "error[json.type]: 1 is no string\n --> d.json: /a/0\n  = expected: \"string\"\n  = actual: 1\nand 1 more \
             findings\n"
        );
        let report = CsvReport {
            valid: false,
            row_count: 3,
            column_count: 1,
            headers: vec!["a".to_owned()],
            missing_headers: vec!["b".to_owned()],
            errors: vec![CsvError {
                row: 2,
                column: Some("a".to_owned()),
                value: "x\x1b".to_owned(),
                expected: "integer".to_owned(),
                message: "not an integer".to_owned(),
            }],
            errors_total: 1,
        };
        assert_eq!(
            of_csv("t.csv", &report, Bounds::TERMINAL).plain(),
            "error[csv.header]: the column `b` is missing\nerror[csv.value]: not an integer\n --> t.csv: row 2, column \
             `a`\n  = expected: integer\n  = value: x␛\n"
        );
    }

    #[test]
    fn the_summary_counts_by_severity() {
        let mut found = validation(vec![
            issue((1, 1), (1, 2), Severity::Error),
            issue((1, 1), (1, 2), Severity::Info),
            issue((1, 1), (1, 2), Severity::Info),
        ]);
        assert_eq!(summary("a", &found).plain(), "a: rejected: 1 error, 2 notes\n");
        found.issues_total = 2000;
        assert!(summary("a", &found).plain().contains("2000 findings in all"));
        assert_eq!(
            summary("a", &validation(Vec::new())).plain(),
            "a: passed: nothing was found\n"
        );
    }
}
