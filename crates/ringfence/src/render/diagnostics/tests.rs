//! Tests of findings as text.

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
fn frame_shows_the_line_and_marks_the_range() {
    let code = "import os\n\tif x ==  os.system('漢') :\r\n";
    let found = validation(vec![issue((2, 11), (2, 25), Severity::Error)]);
    assert_eq!(
        of_code("main.py", code, &found, Bounds::TERMINAL).plain(),
        "error[python.example]: it is so\n --> main.py:2:11\n  |\n2 |     if x ==  os.system('漢') :\n  \
         |              ^^^^^^^^^^^^^^^\n  = help: do otherwise\n"
    );
}

#[test]
fn position_past_line_end_has_one_caret_and_past_the_text_none() {
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
fn hostile_text_is_neutralised_and_caret_stays_aligned() {
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
fn multi_line_range_shows_its_end() {
    let found = validation(vec![issue((1, 2), (3, 1), Severity::Error)]);
    let text = of_code("a", "abc\nd\ne", &found, Bounds::TERMINAL).plain();
    assert!(
        text.contains("a:1:2 to 3:1") && text.contains("  |  ^^\n"),
        "{text}"
    );
}

#[test]
fn answer_is_bounded_and_counts_omitted_findings() {
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
fn json_and_csv_findings_name_their_location() {
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
        errors: vec![
            CsvError {
                row: 0,
                column: Some("b".to_owned()),
                value: String::new(),
                expected: "it".to_owned(),
                message: "no `b`".to_owned(),
            },
            CsvError {
                row: 2,
                column: Some("a".to_owned()),
                value: "x\x1b".to_owned(),
                expected: "integer".to_owned(),
                message: "not an integer".to_owned(),
            },
        ],
        errors_total: 2,
    };
    assert_eq!(
        of_csv("t.csv", &report, Bounds::TERMINAL).plain(),
        "error[csv.header]: no `b`\n --> t.csv: the header, column `b`\n  = expected: it\nerror[csv.value]: not an integer\n --> t.csv: row 2, column \
         `a`\n  = expected: integer\n  = value: x␛\n"
    );
}

#[test]
fn summary_counts_by_severity() {
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
