//! Valid and invalid tables.

use super::*;
use crate::{Answer, processor_time::processor_time};
use ringfence_types::ISSUES_MAX;
use serde_json::{Value, json};
use std::fmt::Write;

fn check(question: &CsvQuestion, body: &[u8]) -> Answer {
    super::check(question, body).map_or_else(Answer::from, Answer::Csv)
}

fn question_of(required: &[&str], constraints: Value) -> CsvQuestion {
    CsvQuestion {
        required_headers: required.iter().map(|name| (*name).to_owned()).collect(),
        type_constraints: constraints.as_object().cloned().expect("an object"),
        delimiter: None,
    }
}

fn report_of(question: &CsvQuestion, body: &[u8]) -> CsvReport {
    match check(question, body) {
        Answer::Csv(report) => {
            let is_counted = report.errors.len() as u64 == report.errors_total.min(ISSUES_MAX as u64);
            assert!(is_counted, "{report:?}");
            assert_eq!(report.valid, report.errors_total == 0);
            assert!(report.errors.is_sorted_by_key(|error| error.row));
            assert!(report.errors.iter().all(|error| error.row <= report.row_count));
            report
        }
        other => panic!("{other:?}"),
    }
}

fn report(constraints: Value, body: &str) -> CsvReport {
    report_of(&question_of(&[], constraints), body.as_bytes())
}

/// The row, column and value of each error.
fn places(report: &CsvReport) -> Vec<(u64, &str, &str)> {
    report
        .errors
        .iter()
        .map(|error| (error.row, error.column.as_deref().unwrap_or("-"), &*error.value))
        .collect()
}

#[test]
fn rows_and_columns_of_a_valid_table_are_counted() {
    let check = |body: &str, rows: u64, headers: &[&str]| {
        let report = report(json!({}), body);
        assert!(report.valid, "{body:?}: {report:?}");
        assert_eq!(
            (report.row_count, report.column_count),
            (rows, headers.len() as u64),
            "{body:?}"
        );
        assert_eq!(report.headers, headers, "{body:?}");
    };
    check("a,b\n1,2\n3,4\n", 2, &["a", "b"]);
    check("a,b\r\n1,2\r\n", 1, &["a", "b"]);
    check("a,b\r1,2\r3,4", 2, &["a", "b"]);
    check("a,b", 0, &["a", "b"]);
    check("a,b\n", 0, &["a", "b"]);
    check("a\n1\n\n2\n\n", 2, &["a"]);
    check("\n\na,b\n\r\n1,2\n", 1, &["a", "b"]);
    check("\"a\",\"b \"\"x\"\"\"\n\"1,\n2\",\"\"\n", 1, &["a", "b \"x\""]);
    check("size\n5\" disk\n", 1, &["size"]);
    check("a;b\n1,5;2\n", 1, &["a", "b"]);
    check("\u{feff}a,b\n1,2\n", 1, &["a", "b"]);
    check("größe,名前\n1,2\n", 1, &["größe", "名前"]);
    check("a,b\n,\n", 1, &["a", "b"]);
}

#[test]
fn utf_16_with_a_byte_order_mark_is_read() {
    let text = "id,name\n1,Zoë\nx,🦀\n";
    let little: Vec<u8> = [0xfeff]
        .into_iter()
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let big: Vec<u8> = [0xfeff]
        .into_iter()
        .chain(text.encode_utf16())
        .flat_map(u16::to_be_bytes)
        .collect();
    for body in [little, big] {
        let report = report_of(&question_of(&["name"], json!({"id": "integer"})), &body);
        assert_eq!(report.headers, ["id", "name"]);
        assert_eq!(places(&report), [(2, "id", "x")]);
    }
    let unmarked: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let report = report_of(&question_of(&[], json!({})), &unmarked);
    assert!(report.errors[0].message.contains("UTF-16 without"), "{report:?}");
}

#[test]
fn row_that_is_not_utf_8_is_reported_with_its_byte() {
    let question = question_of(&[], json!({}));
    let report = report_of(&question, b"a,b\n1,2\n3,caf\xe9\n4,5\n\xff,6\n");
    assert_eq!(report.row_count, 4);
    let rows: Vec<(u64, bool)> = report
        .errors
        .iter()
        .map(|error| (error.row, error.message.contains("byte 14")))
        .collect();
    assert_eq!(rows, [(2, true), (4, false)], "{report:?}");
}

#[test]
fn table_without_a_header_is_reported_as_empty() {
    for body in ["", "\n", "\r\n\r\n", "\u{feff}"] {
        let report = report_of(&question_of(&["a"], json!({"b": "integer"})), body.as_bytes());
        let expect = [(0, "-", ""), (0, "a", ""), (0, "b", "")];
        assert_eq!(places(&report), expect, "{body:?}");
        assert_eq!(report.missing_headers, ["a", "b"]);
    }
}

#[test]
fn missing_and_repeated_headers_are_reported() {
    let report = report_of(
        &question_of(&["a", "c", "c"], json!({"d": "integer", "b": "string"})),
        b"a,b,a, b\n1,2,3,4\n",
    );
    assert_eq!(report.missing_headers, ["c", "d"]);
    assert_eq!(
        places(&report),
        [(0, "c", ""), (0, "d", ""), (0, "a", "a"), (0, "b", "b")]
    );
    assert_eq!((report.row_count, report.errors_total), (1, 4));
}

#[test]
fn missing_column_is_reported_once() {
    let report = report_of(&question_of(&["c"], json!({})), b"a,b\n1,2\n");
    assert_eq!(places(&report), [(0, "c", "")]);
    assert_eq!(report.errors[0].message, "The column `c` is missing.");
    assert_eq!(
        (report.missing_headers, report.errors_total),
        (vec!["c".to_owned()], 1)
    );
    // Also if more rows have errors than are listed.
    let body = "a\nx\n".to_owned() + &"1,2\n".repeat(ISSUES_MAX);
    let report = report_of(&question_of(&["c"], json!({"a": "integer"})), body.as_bytes());
    assert_eq!(places(&report)[..2], [(0, "c", ""), (1, "a", "x")]);
    assert_eq!(report.errors_total, ISSUES_MAX as u64 + 2);
}

#[test]
fn separator_line_is_neither_header_nor_row() {
    for body in [
        "sep=;\na;b\n1,5;2\nx;3\n",
        "sep=;\r\na;b\r\n1,5;2\r\nx;3\r\n",
        "\u{feff}sep=;\r\na;b\r\n1,5;2\r\nx;3\r\n",
        "sep=^\na^b\n1,5^2\nx^3\n",
    ] {
        let report = report_of(
            &question_of(&["b"], json!({"b": {"type": "integer", "max": 2}})),
            body.as_bytes(),
        );
        assert_eq!(
            (report.headers.len(), report.row_count),
            (2, 2),
            "{body:?}: {report:?}"
        );
        assert_eq!(places(&report), [(2, "b", "3")], "{body:?}");
    }
    let question = CsvQuestion {
        delimiter: Some(','),
        ..CsvQuestion::default()
    };
    assert_eq!(report_of(&question, b"sep=;\na,b;c\n1,2\n").headers, ["a", "b;c"]);
    let question = CsvQuestion {
        delimiter: Some('='),
        ..CsvQuestion::default()
    };
    assert_eq!(report_of(&question, b"sep=;\n1=2\n").headers, ["sep", ";"]);
    assert_eq!(report(json!({}), "sep=x\n1\n").headers, ["sep=x"]);
    let broken = report_of(&question_of(&[], json!({})), b"sep=;\na;b\n\xff;2\n");
    assert!(
        broken.errors[0]
            .message
            .contains("Data row 1 is not UTF-8 at byte 11"),
        "{broken:?}"
    );
}

/// The caller passes the bytes of the file, in any encoding.
#[test]
fn bytes_of_any_encoding_get_a_report() {
    let question = crate::Question::Csv(question_of(&["name"], json!({})));
    let answer = |body: &[u8]| match crate::answer(&question, body) {
        Answer::Csv(report) => report,
        other => panic!("{other:?}"),
    };
    let latin_1 = answer(b"name;stra\xdfe\nZo\xeb;1\nAnn;2\n");
    assert_eq!(places(&latin_1)[0], (0, "-", "\u{fffd}e\n"));
    assert_eq!((latin_1.row_count, latin_1.errors_total), (2, 2), "{latin_1:?}");
    let utf_16: Vec<u8> = "\u{feff}sep=;\r\nname;b\r\nZoë;1\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let report = answer(&utf_16);
    assert!(report.valid && report.headers == ["name", "b"], "{report:?}");
}

#[test]
fn fields_are_checked_against_the_constraints_of_their_column() {
    let constraints = json!({
        "id": {"type": "integer", "required": true, "unique": true},
        "mail": "email",
        "born": {"type": "date", "max": "2024-12-31"}
    });
    let body = "id,mail,born\n1,a@b.co,2024-02-29\n,a,2023-02-29\n1,,\n 2 , x@y.zz ,2025-01-01\n";
    let report = report(constraints, body);
    assert_eq!(report.row_count, 4);
    assert_eq!(
        places(&report),
        [
            (2, "id", ""),
            (2, "mail", "a"),
            (2, "born", "2023-02-29"),
            (3, "id", "1"),
            (4, "born", "2025-01-01")
        ]
    );
    let repeated = &report.errors[3];
    assert_eq!(repeated.expected, "a value that no row before it has");
    assert!(
        repeated.message.starts_with("Data row 3, column `id`:"),
        "{}",
        repeated.message
    );
}

#[test]
fn ragged_rows_are_reported_once_each() {
    let report = report(json!({"a": "integer"}), "a,b\n1\n1,2,3\nx,2\n1,2\n");
    assert_eq!(report.row_count, 4);
    assert_eq!(places(&report), [(1, "-", "1"), (2, "-", "1,2,3"), (3, "a", "x")]);
    assert_eq!(
        report.errors[0].message,
        "Data row 1 has 1 field; the header has 2."
    );
    assert_eq!(
        report.errors[1].message,
        "Data row 2 has 3 fields; the header has 2."
    );
    // A repetition counts in a ragged row, too.
    let report = self::report(json!({"a": {"unique": true}}), "a,b\n1,2,3\n1,2\n1\n");
    assert_eq!(
        places(&report),
        [(1, "-", "1,2,3"), (2, "a", "1"), (3, "-", "1"), (3, "a", "1")]
    );
}

#[test]
fn misused_quotes_are_reported_with_their_row() {
    let found = report(json!({}), "a,b\n\"1\",2\n\"3\"x,4\n5,\"6\n7,8\n9,10\n");
    assert_eq!(found.row_count, 3);
    let errors: Vec<(u64, bool)> = found
        .errors
        .iter()
        .map(|error| (error.row, error.message.contains("never closed")))
        .collect();
    assert_eq!(errors, [(2, false), (3, true)], "{found:?}");
    let header = report(json!({}), "a,\"b\n1,2\n");
    assert_eq!((header.row_count, header.errors[0].row), (0, 0), "{header:?}");
}

#[test]
fn given_delimiter_is_used() {
    let question = CsvQuestion {
        delimiter: Some('|'),
        ..question_of(&["b"], json!({}))
    };
    let report = report_of(&question, b"a|b\n1,2|3\n");
    assert!(report.valid, "{report:?}");
    let question = CsvQuestion {
        delimiter: Some('"'),
        ..CsvQuestion::default()
    };
    assert!(matches!(check(&question, b"a"), Answer::Refused { .. }));
}

#[test]
fn errors_are_capped_and_counted() {
    let body = format!("a,b\n{}", "x,1\n".repeat(5000));
    let report = report(json!({"a": "integer", "b": "integer"}), &body);
    assert_eq!(
        (report.errors.len(), report.errors_total, report.row_count),
        (ISSUES_MAX, 5000, 5000)
    );
    assert_eq!(report.errors[999].row, 1000);
}

#[test]
fn long_fields_are_truncated_in_reports() {
    let body = format!("a\n{}\n", "ä".repeat(100_000));
    let report = report(json!({"a": "integer"}), &body);
    assert_eq!(report.errors[0].value, format!("{}…", "ä".repeat(200)));
    assert!(report.errors[0].message.len() < 700);
}

#[test]
fn invalid_question_is_refused() {
    let check_refused = |question: &CsvQuestion, body: &[u8], named: &str| match check(question, body) {
        Answer::Refused { message, hint } => {
            assert!(message.contains(named) && !hint.is_empty(), "{message} {hint}");
        }
        other => panic!("{other:?}"),
    };
    check_refused(&question_of(&[], json!({"a": "nothing"})), b"a\n", "`nothing`");
    let wide = ",".repeat(20_000);
    check_refused(&question_of(&[], json!({})), wide.as_bytes(), "20001 columns");
    let long = format!("{}\n1\n", "a".repeat(2 << 20));
    check_refused(&question_of(&[], json!({})), long.as_bytes(), "header is longer");
}

#[test]
fn row_over_the_size_limit_ends_the_check() {
    let mut body = b"a,b\n1,2\n3,\"".to_vec();
    body.resize(20 << 20, b'x');
    let report = report_of(&question_of(&[], json!({})), &body);
    assert_eq!(report.row_count, 2);
    let expected: Vec<&str> = report
        .errors
        .iter()
        .map(|error| error.expected.as_str())
        .collect();
    assert_eq!(expected, ["a closing quote", "a shorter row"], "{report:?}");
}

#[test]
fn hostile_tables_end_in_time() {
    let question = question_of(
        &["a"],
        json!({
            "a": {"type": "string", "pattern": "^(a+)+$", "unique": true},
            "b": "email", "c": "url", "d": "datetime", "e": "float"
        }),
    );
    let header = "a,b,c,d,e\n";
    for piece in [
        "\"", "\"\"", ",", "\n", "\r", "a", "@", "http://", "1e9", "\0", "\"a\"b,", "\u{feff}", "é", "|;\t",
    ] {
        for start in ["", header] {
            let body = format!("{start}{}", piece.repeat(1 << 20));
            let begun = processor_time();
            let answer = check(&question, body.as_bytes());
            assert!(matches!(answer, Answer::Csv(_) | Answer::Refused { .. }));
            let took = processor_time() - begun;
            assert!(took.as_secs() < 60, "{piece:?} {took:?}");
        }
    }
}

fn typed_table(bytes: usize) -> (CsvQuestion, String) {
    let mut body = "id,name,score,active,born,seen,mail,site\n".to_owned();
    for at in 0.. {
        if body.len() >= bytes {
            break;
        }
        writeln!(
            body,
            "{at},person number {at},{}.{:03},{},19{:02}-0{}-1{},2024-02-29T12:{:02}:0{}.5Z,person{at}@example.com,https://example.com/people/{at}?tab=1",
            at % 100, at % 1000, if at % 2 == 0 { "true" } else { "no" }, at % 100, at % 9 + 1, at % 10, at % 60, at % 10,
        )
        .expect("memory");
    }
    let constraints = json!({
        "id": {"type": "integer", "required": true, "min": 0},
        "name": {"type": "string", "min": 1, "max": 100},
        "score": {"type": "float", "min": 0, "max": 100},
        "active": "boolean",
        "born": "date",
        "seen": "datetime",
        "mail": "email",
        "site": "url"
    });
    (question_of(&["id", "name"], constraints), body)
}

#[test]
fn typed_table_is_valid_to_its_last_row() {
    let (question, body) = typed_table(1 << 20);
    let report = report_of(&question, body.as_bytes());
    assert!(report.valid, "{:?}", report.errors.first());
    assert_eq!(report.row_count as usize, body.lines().count() - 1);
}
