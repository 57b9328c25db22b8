//! Values, faults with their lines, and hostile texts.

use super::*;
use serde::Deserialize;
use serde_json::{Value, json};

fn value(text: &str) -> Value {
    let node = read(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
    Value::deserialize(&node).unwrap_or_else(|fault| panic!("{text:?}: {fault}"))
}

#[test]
fn scalars_follow_the_core_schema() {
    let check = |text: &str, expect: Value| assert_eq!(value(text), expect, "{text}");
    check("", Value::Null);
    check("# a comment\n---\n", Value::Null);
    check("[~, null, '', \"null\"]", json!([null, null, "", "null"]));
    check(
        "[true, False, 'true', yes, on]",
        json!([true, false, "true", "yes", "on"]),
    );
    check(
        "[0, +7, -7, 007, 0x1F, 0o17, 1_0]",
        json!([0, 7, -7, 7, 31, 15, "1_0"]),
    );
    check(
        "[1.5, .5, -1e3, 1., inf, .nan, 0x, +-1]",
        json!([1.5, 0.5, -1000.0, 1.0, "inf", ".nan", "0x", "+-1"]),
    );
    check(
        "a: |\n  b\n  c\nd: >-\n  e\n  f\n1: \"\\u00e9\"\n",
        json!({"a": "b\nc\n", "d": "e f", "1": "é"}),
    );
    check("\u{feff}a: 1\r\nb:\r\n- 2\r\n", json!({"a": 1, "b": [2]}));
    check(
        "a: &x [1, {b: 2}]\nc: *x\n",
        json!({"a": [1, {"b": 2}], "c": [1, {"b": 2}]}),
    );
}

#[test]
fn values_are_converted_to_the_expected_type() {
    let node = read("[5, '1_5', -5, 1e999, Yes, x, ~]").unwrap();
    let [five, text, minus, infinite, yes, word, nothing] = node.items().unwrap() else {
        panic!()
    };
    assert_eq!(
        (five.text(), five.whole_number(), five.number()),
        (Ok("5"), Ok(5), Ok(5.0))
    );
    assert_eq!((text.text(), text.whole_number()), (Ok("1_5"), Ok(15)));
    assert_eq!((minus.whole_number().is_ok(), minus.number()), (false, Ok(-5.0)));
    assert!(infinite.number().is_err() && yes.boolean().unwrap());
    assert_eq!(
        word.boolean().unwrap_err().to_string(),
        "expected true or false, not `x`"
    );
    assert_eq!(
        nothing.text().unwrap_err().to_string(),
        "expected text, not nothing"
    );
    assert_eq!(
        (nothing.entries().unwrap().len(), nothing.items().is_ok()),
        (0, false)
    );
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    name: Lined<String>,
    #[serde(default)]
    count: usize,
    kind: Option<Kind>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    With(u8),
}

#[test]
fn structures_are_read_and_their_faults_name_the_line_and_the_key() {
    let rules = |text: &str| Vec::<Rule>::deserialize(&read(text)?);
    let read =
        rules("- name: a\n- {kind: plain, count: 2, name: 7}\n-\n  name: b\n  kind: {with: 3}\n").unwrap();
    let lines: Vec<u64> = read.iter().map(|rule| rule.name.line).collect();
    assert_eq!(
        (lines, read[1].name.value.as_str(), read[1].count),
        (vec![1, 2, 4], "7", 2)
    );
    assert_eq!(
        (&read[1].kind, &read[2].kind),
        (&Some(Kind::Plain), &Some(Kind::With(3)))
    );
    let check = |text: &str, line: u64, expect: &str| {
        let fault = rules(text).unwrap_err();
        assert_eq!(
            (fault.line, fault.to_string()),
            (Some(line), expect.to_owned()),
            "{text}"
        );
    };
    check("a: 1\n", 1, "expected a list, not a mapping");
    check("- name: a\n- count: 1\n", 2, "missing field `name`");
    check(
        "- name: a\n  coumt: 1\n",
        2,
        "`coumt` is not known here. Did you mean `count`? Known: name, count, kind",
    );
    check(
        "- name: a\n  count: -1\n",
        2,
        "`count` is a whole number, not `-1`",
    );
    check("- count: 1\n  name: [a]\n", 2, "`name` is text, not a list");
    check(
        "- name: a\n  kind: plan\n",
        2,
        "`kind`: unknown variant `plan`, expected `plain` or `with`",
    );
    check("- name: a\n  count: 1\n  name: b\n", 3, "`name` is here twice");
}

#[test]
fn hostile_texts_are_refused_with_their_line() {
    let check = |text: &str, line: u64, expect: &str| {
        let fault = read(text).map(drop).unwrap_err();
        assert_eq!(fault.line, Some(line), "{fault}");
        assert!(fault.to_string().contains(expect), "{fault}");
    };
    check(&"[".repeat(100_000), 1, "limit");
    check(&("[".repeat(33) + &"]".repeat(33)), 1, "32 levels");
    check(
        &(0..40)
            .map(|depth| " ".repeat(depth) + "a:\n")
            .collect::<String>(),
        32,
        "32 levels",
    );
    let laughs: String = (1..30)
        .map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(9)))
        .collect();
    check(&format!("a0: &a0 [x]\n{laughs}"), 6, "50000 values");
    let copies = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 18), "*a,".repeat(9));
    check(&copies, 2, "1 MiB");
    let deep: String = (1..9)
        .map(|n| format!("a{n}: &a{n} [[[[[*a{}]]]]]\n", n - 1))
        .collect();
    check(&format!("a0: &a0 [x]\n{deep}"), 7, "32 levels");
    check(&format!("[{}]", "1,".repeat(NODES_MAX)), 1, "50000 values");
    check("a: 1\nb: &x [*x]\n", 2, "its own anchor");
    check("a: *x\n", 1, "anchor");
    check("a:\n- !!binary x\n", 2, "tags");
    check("!x {a: 1}\n", 1, "tags");
    check("a: 1\n---\nb: 2\n", 2, "second document");
    check("a:\n\tb: 1\n", 2, "tab");
    check("a: b: c\n", 1, "mapping values");
    check("a: 1\n[b]: 2\n", 2, "text, not a list");
    check("a: \"\0\"\n", 1, "");
    let fault = read(&" ".repeat(BYTES_MAX + 1)).unwrap_err();
    assert_eq!(
        (fault.line, fault.to_string()),
        (None, "the file is longer than 1 MiB".to_owned())
    );
    // A long, harmless text is read, and shortened in a fault.
    let long = "x".repeat(BYTES_MAX - 10);
    assert_eq!(value(&format!("- {long}")), json!([long]));
    let fault = read(&format!("? {}\n: 1\n", "x".repeat(5000))).unwrap();
    assert!(fault.entries().unwrap()[0].unknown("x").to_string().len() < 500);
}
