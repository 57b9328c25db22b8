//! Valid and invalid JSON and schemas.

use super::*;
use crate::{Answer, processor_time::processor_time};
use ringfence_types::ISSUES_MAX;
use serde_json::json;
use std::time::Duration;

fn check(question: &JsonQuestion, body: &[u8]) -> Answer {
    super::check(question, body).map_or_else(Answer::from, Answer::Json)
}

fn answer(schema: Value, body: &str) -> Answer {
    let question = JsonQuestion {
        name: "inline".to_owned(),
        schema,
    };
    check(&question, body.as_bytes())
}

fn report(schema: Value, body: &str) -> JsonReport {
    match answer(schema, body) {
        Answer::Json(report) => report,
        other => panic!("{other:?}"),
    }
}

fn refusal(schema: Value, body: &str) -> String {
    match answer(schema, body) {
        Answer::Refused { message, hint } => {
            assert!(!hint.is_empty());
            message
        }
        other => panic!("{other:?}"),
    }
}

/// Runs work on a stack as large as that of a worker's main thread.
fn on_a_workers_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(work);
    thread
        .expect("a thread")
        .join()
        .expect("neither a panic nor an overflow");
}

/// Schema, text, path, keyword, expected and actual value.
#[rustfmt::skip]
const BROKEN: &[[&str; 6]] = &[
    [r#"{"type": "string"}"#, "1", "", "type", r#""string""#, "1"],
    [r#"{"type": ["string", "null"]}"#, "1", "", "type", r#"["string", "null"]"#, "1"],
    [r#"{"properties": {"age": {"minimum": 0}}}"#, r#"{"age": -1}"#, "/age", "minimum", "0", "-1"],
    [r#"{"required": ["a"]}"#, r#"{"b": 1}"#, "", "required", r#""a""#, r#"{"b": 1}"#],
    [r#"{"enum": [1, 2]}"#, "3", "", "enum", "[1, 2]", "3"],
    [r#"{"const": {"a": 1}}"#, "{}", "", "const", r#"{"a": 1}"#, "{}"],
    [r#"{"items": {"pattern": "^a"}}"#, r#"["a", "b"]"#, "/1", "pattern", r#""^a""#, r#""b""#],
    [r#"{"minLength": 3}"#, r#""äö""#, "", "minLength", "3", r#""äö""#],
    [r#"{"maxItems": 1}"#, "[1, 2]", "", "maxItems", "1", "[1, 2]"],
    [r#"{"multipleOf": 0.5}"#, "0.7", "", "multipleOf", "0.5", "0.7"],
    [r#"{"uniqueItems": true}"#, "[1, 1.0]", "", "uniqueItems", "true", "[1, 1.0]"],
    [r#"{"properties": {"a": true}, "additionalProperties": false}"#, r#"{"a": 1, "b/c": 2}"#,
        "", "additionalProperties", "false", r#"{"a": 1, "b/c": 2}"#],
    [r#"{"properties": {"a/b~c": false}}"#, r#"{"a/b~c": 1}"#, "/a~1b~0c", "falseSchema", "false", "1"],
    [r#"{"format": "email"}"#, r#""a""#, "", "format", r#""email""#, r#""a""#],
    [r#"{"format": "date-time"}"#, r#""2023-02-29T00:00:00Z""#, "", "format", r#""date-time""#, r#""2023-02-29T00:00:00Z""#],
    [r#"{"propertyNames": {"maxLength": 1}}"#, r#"{"ab": 1}"#, "", "propertyNames", "1", r#""ab""#],
    [r#"{"not": {"type": "null"}}"#, "null", "", "not", r#"{"type": "null"}"#, "null"],
    [r#"{"anyOf": [{"type": "string"}, {"minimum": 5}]}"#, "4", "", "anyOf", r#"[{"type": "string"}, {"minimum": 5}]"#, "4"],
    [r#"{"oneOf": [{"type": "integer"}, {"minimum": 2}]}"#, "4", "", "oneOf", r#"[{"type": "integer"}, {"minimum": 2}]"#, "4"],
    [r#"{"if": {"type": "integer"}, "then": {"minimum": 5}}"#, "4", "", "minimum", "5", "4"],
    [r#"{"contains": {"const": 1}}"#, "[2]", "", "contains", r#"{"const": 1}"#, "[2]"],
    [r#"{"dependentRequired": {"a": ["b"]}}"#, r#"{"a": 1}"#, "", "required", r#""b""#, r#"{"a": 1}"#],
    [r#"{"properties": {"a": true}, "unevaluatedProperties": false}"#, r#"{"b": 1}"#,
        "", "unevaluatedProperties", "false", r#"{"b": 1}"#],
    [r#"{"prefixItems": [true], "unevaluatedItems": false}"#, "[1, 2]", "", "unevaluatedItems", "false", "[1, 2]"],
    [r#"{"$schema": "http://json-schema.org/draft-07/schema#", "items": [true], "additionalItems": false}"#, "[1, 2, 3]",
        "", "additionalItems", "1", "[1, 2, 3]"],
    [r##"{"$defs": {"a": {"type": "null"}}, "properties": {"b": {"$ref": "#/$defs/a"}}}"##, r#"{"b": 1}"#, "/b", "type", r#""null""#, "1"],
];

#[test]
fn each_keyword_reports_path_expected_and_actual() {
    for [schema, body, path, keyword, expected, actual] in BROKEN {
        let value = |text: &str| -> Value { serde_json::from_str(text).expect(text) };
        let report = report(value(schema), body);
        assert!(!report.valid, "{schema} {body}");
        assert_eq!(
            (report.errors_total, report.errors.len()),
            (1, 1),
            "{schema} {body}: {report:?}"
        );
        let error = &report.errors[0];
        let reported = (&*error.path, &*error.keyword, &error.expected, &error.actual);
        assert_eq!(
            reported,
            (*path, *keyword, &value(expected), &value(actual)),
            "{schema} {body}"
        );
        assert!(!error.message.is_empty());
    }
}

#[test]
fn valid_documents_are_accepted() {
    let check = |schema: Value, body: &str| {
        let report = report(schema.clone(), body);
        assert!(
            report.valid && report.errors.is_empty() && report.errors_total == 0,
            "{schema}: {report:?}"
        );
    };
    check(json!(true), "[1, {}]");
    check(json!({"type": "integer"}), "1.0");
    check(json!({"const": 1}), "1.0");
    check(json!({"format": "no-such-format"}), r#""x""#);
    check(json!({"type": "object"}), "\u{feff}{}");
    check(json!({"pattern": "b"}), r#""abc""#);
    // In draft 4 the notation of a number matters.
    let four = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"});
    check(four.clone(), "1");
    assert!(!report(four, "1.0").valid);
    let recursive = json!({"$ref": "#/$defs/n", "$defs": {"n": {
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}}, "required": ["v"]}}});
    check(
        recursive.clone(),
        r#"{"v": 1, "next": {"v": 2, "next": {"v": 3}}}"#,
    );
    let wrong = report(recursive, r#"{"v": 1, "next": {"v": 2, "next": {"v": "3"}}}"#);
    assert_eq!(wrong.errors[0].path, "/next/next/v");
}

#[test]
fn errors_are_ordered_by_path() {
    let schema = json!({
        "required": ["z"],
        "properties": {"b": {"type": "string"}, "a": {"items": {"type": "string", "minimum": 5}}}
    });
    let report = report(schema, r#"{"b": 1, "a": [1,1,1,1,1,1,1,1,1,1,1], "b": 2}"#);
    let paths: Vec<&str> = report.errors.iter().map(|error| error.path.as_str()).collect();
    let mut expected = vec!["".to_owned()];
    expected.extend((0..11).flat_map(|at| [format!("/a/{at}"), format!("/a/{at}")]));
    expected.extend(["/b".to_owned(), "/b".to_owned()]);
    assert_eq!(paths, expected);
    assert_eq!(report.errors_total, 25);
    assert_eq!(report.errors[23].keyword, "duplicateKey");
}

#[test]
fn error_list_is_capped_and_count_is_exact() {
    let body = format!("[{}]", vec!["1"; 50_000].join(","));
    let report = report(json!({"items": {"type": "string"}}), &body);
    assert_eq!((report.errors.len(), report.errors_total), (ISSUES_MAX, 50_000));
    assert_eq!(report.errors[999].path, "/999");
}

#[test]
fn long_values_are_truncated_in_reports() {
    let long = "x".repeat(5000);
    let found = report(json!({"type": "integer"}), &format!("{long:?}"));
    assert_eq!(found.errors[0].actual, json!(format!("{}…", "x".repeat(1024))));
    assert!(found.errors[0].message.len() < 700, "{}", found.errors[0].message);
    let found = report(
        json!({"maxItems": 1}),
        &format!("[{}]", vec!["1"; 2000].join(",")),
    );
    assert!(
        found.errors[0]
            .actual
            .as_str()
            .is_some_and(|text| text.starts_with("[1,1,") && text.ends_with('…'))
    );
    let found = report(json!({"enum": vec!["y"; 5000]}), "1");
    assert!(
        found.errors[0]
            .expected
            .as_str()
            .is_some_and(|text| text.len() < 1100)
    );
    assert!(found.errors[0].message.len() < 700);
}

#[test]
fn failed_alternatives_give_their_reasons() {
    let schema =
        json!({"anyOf": [{"type": "string"}, {"properties": {"a": {"minimum": 5}}, "required": ["a"]}]});
    let message = &report(schema, r#"{"a": 1}"#).errors[0].message;
    assert!(
        message.contains("/a: 1 is less than the minimum of 5"),
        "{message}"
    );
    assert!(message.contains("is not of type \"string\""), "{message}");
}

#[test]
fn invalid_json_is_one_error_with_its_position() {
    let check = |body: &str, keyword: &str, place: &str| {
        let report = report(json!(true), body);
        assert!(!report.valid);
        assert_eq!(report.errors_total, 1, "{body}");
        let error = &report.errors[0];
        assert_eq!((&*error.path, &*error.keyword), ("", keyword), "{body}");
        assert!(error.message.contains(place), "{body}: {}", error.message);
    };
    check("", "syntax", "line 1 column 0");
    check("{", "syntax", "line 1 column 1");
    check("{\n  \"a\": 1,\n}", "syntax", "line 3 column 1");
    check("[1] 2", "syntax", "line 1 column 5");
    check("{'a': 1}", "syntax", "line 1 column 2");
    check("NaN", "syntax", "line 1 column 1");
    check("[01]", "syntax", "line 1 column 3");
    check("\"a\nb\"", "syntax", "line 2 column 0");
    check("[1,\n 1e400]", "number", "line 2 column 6");
    check(&"[".repeat(200), "syntax", "line 1 column 128");
    check(&"{\"a\":".repeat(1_000_000), "syntax", "deeper than 127 levels");
    let report = check_bytes(b"\"\xff\"");
    assert!(
        report.errors[0].message.contains("byte 2 at line 1 column 2"),
        "{report:?}"
    );
    assert!(!check_bytes(b"\xff\xfe1\0").valid);
}

fn check_bytes(body: &[u8]) -> JsonReport {
    let question = JsonQuestion {
        name: "inline".to_owned(),
        schema: json!(true),
    };
    match check(&question, body) {
        Answer::Json(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn inexact_number_is_an_error() {
    let schema = json!({"type": "integer"});
    assert!(
        report(schema.clone(), "1180591620717411303424").valid,
        "2^70 is a double"
    );
    let report = report(schema, "1180591620717411303425");
    let error = &report.errors[0];
    assert_eq!(
        (&*error.keyword, &error.actual),
        ("number", &json!("1180591620717411303425"))
    );
}

#[test]
fn deepest_accepted_text_fits_a_workers_stack() {
    on_a_workers_stack(|| {
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"allOf": [{"oneOf": [{"$ref": "#/$defs/n"}, {"type": "boolean"}]}]}}
        ]}}});
        let body = format!("{}\"x\"{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(report(schema, &body).valid);
    });
}

/// Checks a body on a worker's stack, and asserts that the check ends in time.
fn checked_in_time(schema: Value, body: String) -> Answer {
    let (sender, receiver) = std::sync::mpsc::channel();
    on_a_workers_stack(move || {
        let begun = processor_time();
        let answer = answer(schema, &body);
        let took = processor_time() - begun;
        assert!(took < Duration::from_secs(60), "{took:?}");
        sender.send(answer).expect("a receiver");
    });
    receiver.recv().expect("an answer")
}

#[test]
fn exponential_alternatives_are_refused() {
    // Each level doubles the work of the one below, on the same value, and again on each of its values.
    let levels = 60;
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let below = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(
            format!("d{level}"),
            json!({"allOf": [{"allOf": [below]}, {"anyOf": [below, below]}]}),
        );
    }
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    let answer = checked_in_time(json!({"$ref": "#/$defs/d0", "$defs": defs}), "1".to_owned());
    assert!(
        matches!(&answer, Answer::Refused { message, .. } if message.contains("too many steps") || message.contains("errors")),
        "{answer:?}"
    );
}

#[test]
fn errors_multiplying_with_depth_are_refused() {
    let schema = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "minProperties": 1},
        {"items": {"$ref": "#"}, "type": "array"}
    ]});
    let body = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
    let answer = checked_in_time(schema, body);
    assert!(matches!(&answer, Answer::Refused { .. }), "{answer:?}");
}

/// Definitions of which each refers to the next, wrapped in `allOf` this many times; the last is a string.
fn chain(links: usize, wrapped: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for link in 0..links {
        let next = json!({"$ref": format!("#/$defs/d{}", link + 1)});
        let wrap = |inner: Value, _| json!({"allOf": [inner]});
        defs.insert(format!("d{link}"), (0..wrapped).fold(next, wrap));
    }
    defs.insert(format!("d{links}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn long_reference_chains_are_followed_on_a_grown_stack() {
    for (links, wrapped) in [(500, 0), (8, 57), (5000, 0), (1000, 3), (80, 58)] {
        let answer = checked_in_time(chain(links, wrapped), "1".to_owned());
        let Answer::Json(report) = answer else {
            panic!("{links} {wrapped}: {answer:?}")
        };
        assert_eq!(
            (report.errors_total, &*report.errors[0].keyword),
            (1, "type"),
            "{links} {wrapped}"
        );
    }
    let answer = checked_in_time(chain(20_000, 0), "1".to_owned());
    assert!(
        matches!(&answer, Answer::Refused { message, .. } if message.contains("references")),
        "{answer:?}"
    );
}

#[test]
fn operator_schema_compiles_on_a_small_thread_stack() {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let handle = thread
        .spawn(|| (check_schema(&chain(8, 57)), check_schema(&chain(1000, 3))))
        .expect("a thread");
    assert_eq!(handle.join().expect("no overflow"), (Ok(()), Ok(())));
}

#[test]
fn reference_cycles_terminate() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"not": {"$ref": "#"}}]}}, "$ref": "#/$defs/a"}),
        json!({"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "allOf": [{"$recursiveRef": "#"}]}),
        json!({"unevaluatedProperties": {"$ref": "#"}, "propertyNames": {"$ref": "#"}}),
    ] {
        let answer = checked_in_time(schema.clone(), r#"{"a": [1, "x", {"b": null}]}"#.to_owned());
        assert!(
            matches!(answer, Answer::Json(_) | Answer::Refused { .. }),
            "{schema}"
        );
    }
}

#[test]
fn backtracking_pattern_is_matched_in_linear_time() {
    let body = format!("\"{}b\"", "a".repeat(1_000_000));
    let answer = checked_in_time(json!({"pattern": "^(a+)+$"}), body);
    assert!(matches!(answer, Answer::Json(JsonReport { valid: false, .. })));
}

#[test]
fn unmatched_closing_bracket_is_a_literal_in_every_draft() {
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        // As in the official schema of SARIF 2.1.0.
        let language = |pattern: &str| json!({ "$schema": draft, "items": { "pattern": pattern } });
        let schema = language("^[a-z]{2}-[A-Z]{2}]?$");
        assert!(report(schema.clone(), r#"["en-GB", "en-GB]"]"#).valid, "{draft}");
        assert!(!report(schema, r#"["en-GB]]"]"#).valid, "{draft}");
        assert!(report(language("^}$"), r#"["}"]"#).valid, "{draft}");
        let named = json!({ "$schema": draft, "patternProperties": { "^x]$": { "type": "null" } } });
        assert!(!report(named.clone(), r#"{"x]": 1}"#).valid, "{draft}");
        assert!(report(named, r#"{"x": 1}"#).valid, "{draft}");
        // An unsupported pattern is still refused.
        let message = refusal(language("](?=a)"), "[]");
        assert!(message.contains("linear time"), "{draft}: {message}");
    }
}

#[test]
fn hostile_format_values_are_checked_in_time() {
    let formats = [
        "regex",
        "email",
        "uri",
        "uri-reference",
        "uri-template",
        "iri",
        "hostname",
        "ipv4",
        "ipv6",
        "date",
        "time",
        "date-time",
        "duration",
        "json-pointer",
        "relative-json-pointer",
        "uuid",
    ];
    for format in formats {
        for piece in ["(", "[", "a.", "1", "%", "{", "/", "::", "\\\\", "\u{1f980}"] {
            let body = format!("\"{}\"", piece.repeat(50_000));
            checked_in_time(json!({ "format": format }), body);
        }
    }
}

#[test]
fn unique_items_of_a_large_array_are_checked_in_time() {
    let body: Vec<String> = (0..500_000)
        .map(|at| (at + 18_446_744_073_709_000_000_u64).to_string())
        .collect();
    let answer = checked_in_time(json!({"uniqueItems": true}), format!("[{}]", body.join(",")));
    assert!(
        matches!(answer, Answer::Json(JsonReport { valid: true, .. })),
        "{answer:?}"
    );
}

#[test]
fn oversized_text_is_refused() {
    let body = " ".repeat(BODY_BYTES_MAX + 1);
    assert!(refusal(json!(true), &body).contains("16 MiB"));
}

#[test]
fn builtin_schemas_are_described_and_accept_their_examples() {
    let names: Vec<&str> = schemas().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["config", "dataset", "user"]);
    for (name, text) in schemas() {
        let schema: Value = serde_json::from_str(text).expect(name);
        check_schema(&schema).expect(name);
        assert!(
            schema["title"].is_string() && schema["description"].is_string(),
            "{name}"
        );
        let examples = schema["examples"].as_array().expect(name);
        assert!(examples.len() >= 2, "{name}");
        for example in examples {
            let report = report(schema.clone(), &example.to_string());
            assert!(report.valid, "{name}: {report:?}");
        }
    }
}

#[test]
fn builtin_schemas_report_violations() {
    let check = |name: &str, body: Value, expect: &[(&str, &str)]| {
        let (_, text) = schemas().iter().find(|(known, _)| *known == name).expect(name);
        let report = report(serde_json::from_str(text).expect(name), &body.to_string());
        let errors: Vec<(&str, &str)> = report
            .errors
            .iter()
            .map(|error| (&*error.path, &*error.keyword))
            .collect();
        assert_eq!(errors, expect, "{body}");
    };
    check("user", json!({}), &[("", "required"), ("", "anyOf")]);
    check("user", json!({"id": 1, "email": "no"}), &[("/email", "format")]);
    check(
        "user",
        json!({"id": true, "email": "a@b.example"}),
        &[("/id", "type")],
    );
    check(
        "user",
        json!({"username": "a b", "email": "a@b.example"}),
        &[("/username", "pattern")],
    );
    check(
        "config",
        json!({"name": "x", "version": "1"}),
        &[("/version", "pattern")],
    );
    check("config", json!({"name": "x"}), &[("", "required")]);
    check(
        "dataset",
        json!({"name": "x", "columns": []}),
        &[("/columns", "minItems")],
    );
    check(
        "dataset",
        json!({"name": "x", "columns": [{"name": "a", "type": "text"}]}),
        &[("/columns/0/type", "enum")],
    );
    check(
        "dataset",
        json!({"name": "x", "columns": [{"name": "a", "type": "string"}], "rows": [1]}),
        &[("/rows/0", "oneOf")],
    );
}

#[test]
fn check_schema_explains_a_refusal() {
    assert_eq!(check_schema(&json!({"type": "object"})), Ok(()));
    let message = check_schema(&json!({"$ref": "https://example.com/x"})).expect_err("remote");
    assert!(
        message.contains("https://example.com/x") && message.contains("$defs"),
        "{message}"
    );
}

#[test]
fn schema_text_is_read_exactly_or_refused() {
    let error = |text: &str| read_exactly(text).expect_err(text);
    assert_eq!(
        read_exactly("{\"const\": 9007199254740993}"),
        Ok(json!({"const": 9_007_199_254_740_993_u64}))
    );
    assert!(error("{\"a\": [1, 1e-400]}").ends_with("rounded: `/a/1`"));
    assert!(error("{\"maximum\": 18446744073709551617}").contains("rounded"));
    assert!(error("{\"a\": {\"b\": 1, \"b\": 1}}").ends_with("same name: `/a/b`"));
    assert!(error("{\"a\": 1e400}").starts_with("is not JSON") && error("{").starts_with("is not JSON"));
    assert!(
        refusal(
            json!({"multipleOf": 9_007_199_254_740_993_u64}),
            "9007199254740992"
        )
        .contains("multipleOf")
    );
}
