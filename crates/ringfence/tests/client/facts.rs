//! What is said, as data, and what is expected of it.

use serde_json::Value;
use std::fmt::Display;

/// What a field holds: its path is `records.0.details.why`.
fn at<'a>(facts: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(facts, |facts, step| match step.parse::<usize>() {
            Ok(index) => &facts[index],
            Err(_) => &facts[step],
        })
}

/// Each of these fields, named by its path, holds exactly this; what is not there is null.
#[track_caller]
pub fn assert_facts(facts: &Value, expect: Value) {
    assert_facts_of("", facts, expect);
}

/// The same, and which of several it was.
#[track_caller]
pub fn assert_facts_of(which: impl Display, facts: &Value, expect: Value) {
    for (path, value) in expect.as_object().unwrap() {
        assert_eq!(at(facts, path), value, "{which}: {path} of {facts}");
    }
}

/// The text at this path holds each of these parts.
#[track_caller]
pub fn assert_says<const N: usize>(facts: &Value, path: &str, parts: [&str; N]) {
    let said = at(facts, path).as_str().unwrap_or_default();
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {path} of {facts}");
    }
}

/// The text holds each of these parts.
#[track_caller]
pub fn assert_contains<const N: usize>(text: impl AsRef<str>, parts: [&str; N]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[track_caller]
pub fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

#[track_caller]
pub fn list_of(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// This field of each item of a list.
#[track_caller]
pub fn texts_of<'a>(items: &'a Value, field: &str) -> Vec<&'a str> {
    list_of(items).iter().map(|item| text_of(&item[field])).collect()
}

/// Puts the facts of a refusal where those of an answer are, for stories that read either. In truth they are in `_meta`
/// alone: clients hold structured content against the tool's output schema, and drop a refusal that has any.
pub fn show_refusal(message: &mut Value) {
    if let Some(result) = message.get_mut("result")
        && result["isError"] == true
    {
        assert_eq!(result.get("structuredContent"), None, "{result}");
        let facts = result["_meta"]["io.ringfence/error"].clone();
        let is_whole = facts["code"].is_string() && facts["message"].is_string();
        assert!(is_whole, "{result}");
        result["structuredContent"] = facts;
    }
}

/// What an answer says for programs: of a refusal its code, message and hint.
pub fn facts_of(result: &Value) -> Value {
    let refusal = &result["_meta"]["io.ringfence/error"];
    let facts = if refusal.is_null() {
        &result["structuredContent"]
    } else {
        refusal
    };
    facts.clone()
}
