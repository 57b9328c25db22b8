//! Assertions on JSON documents, and access to the parts of a tool's result.

use serde_json::Value;
use std::fmt::Display;

/// The value at a path such as `records.0.details.why`; null if absent.
fn at<'a>(facts: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(facts, |facts, step| match step.parse::<usize>() {
            Ok(index) => &facts[index],
            Err(_) => &facts[step],
        })
}

/// Assertions on a JSON document, and the parts of a tool's result.
pub trait Facts {
    /// Asserts that each field, named by its path, equals the expected value; an absent field is null.
    fn assert_fields(&self, expect: Value);

    /// Asserts that the text at this path contains each part.
    fn assert_text<const N: usize>(&self, path: &str, parts: [&str; N]);

    /// The text content of a tool's result.
    fn text(&self) -> &str;

    /// The structured content of a tool's result; for an error its code, message and hint.
    fn facts(&self) -> Value;
}

impl Facts for Value {
    #[track_caller]
    fn assert_fields(&self, expect: Value) {
        assert_fields_of("", self, expect);
    }

    #[track_caller]
    fn assert_text<const N: usize>(&self, path: &str, parts: [&str; N]) {
        let text = at(self, path).as_str().unwrap_or_default();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {path} of {self}");
        }
    }

    #[track_caller]
    fn text(&self) -> &str {
        text_of(&self["content"][0]["text"])
    }

    fn facts(&self) -> Value {
        let error = &self["_meta"]["io.ringfence/error"];
        let facts = if error.is_null() {
            &self["structuredContent"]
        } else {
            error
        };
        facts.clone()
    }
}

/// [`Facts::assert_fields`] with a label for the message of a failure.
#[track_caller]
pub fn assert_fields_of(label: impl Display, facts: &Value, expect: Value) {
    for (path, value) in expect.as_object().unwrap() {
        assert_eq!(at(facts, path), value, "{label}: {path} of {facts}");
    }
}

/// Asserts that the text contains each part.
#[track_caller]
pub fn assert_contains<const N: usize>(text: impl AsRef<str>, parts: [&str; N]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Asserts that the text contains none of the parts.
#[track_caller]
pub fn assert_lacks<const N: usize>(text: impl AsRef<str>, parts: [&str; N]) {
    let text = text.as_ref();
    for part in parts {
        assert!(!text.contains(part), "{part:?} is in {text}");
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

/// The text in this field of each item of a list.
#[track_caller]
pub fn texts_of<'a>(items: &'a Value, field: &str) -> Vec<&'a str> {
    list_of(items).iter().map(|item| text_of(&item[field])).collect()
}

/// Copies the error of a tool's result from `_meta` into `structuredContent`, so that tests read successes and errors
/// in the same way. The server sends it in `_meta` alone: clients validate structured content against the tool's output
/// schema, and drop an error that has any.
pub fn expose_error(message: &mut Value) {
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
