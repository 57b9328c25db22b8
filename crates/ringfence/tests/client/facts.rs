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

/// What a document is expected to say.
pub trait Facts {
    /// Each of these fields, named by its path, holds exactly this; what is not there is null.
    fn shows(&self, expect: Value);

    /// The text at this path holds each of these parts.
    fn says<const N: usize>(&self, path: &str, parts: [&str; N]);

    /// What a tool's result says for people.
    fn text(&self) -> &str;

    /// What a tool's result says for programs: of a refusal its code, message and hint.
    fn facts(&self) -> Value;
}

impl Facts for Value {
    #[track_caller]
    fn shows(&self, expect: Value) {
        assert_facts_of("", self, expect);
    }

    #[track_caller]
    fn says<const N: usize>(&self, path: &str, parts: [&str; N]) {
        let said = at(self, path).as_str().unwrap_or_default();
        for part in parts {
            assert!(said.contains(part), "{part:?} is not in {path} of {self}");
        }
    }

    #[track_caller]
    fn text(&self) -> &str {
        text_of(&self["content"][0]["text"])
    }

    fn facts(&self) -> Value {
        let refusal = &self["_meta"]["io.ringfence/error"];
        let facts = if refusal.is_null() {
            &self["structuredContent"]
        } else {
            refusal
        };
        facts.clone()
    }
}

/// [`Facts::shows`], and which of several it was.
#[track_caller]
pub fn assert_facts_of(which: impl Display, facts: &Value, expect: Value) {
    for (path, value) in expect.as_object().unwrap() {
        assert_eq!(at(facts, path), value, "{which}: {path} of {facts}");
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

/// The text holds none of these parts.
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
