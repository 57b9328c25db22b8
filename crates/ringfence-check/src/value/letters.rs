//! Escapes each `]` or `}` of a pattern that closes nothing. ECMA-262 takes it as a literal in patterns without the
//! flag `u` (Annex B), which drafts up to 7 do not know. The validator checks the metaschemas' format "regex" as if it
//! were set, and so refuses published schemas: SARIF's has `^[a-zA-Z]{2}-[a-zA-Z]{2}]?$`.

use jsonschema::Draft;
use regex::{Captures, Regex};
use serde_json::Value;
use std::{borrow::Cow, sync::LazyLock};

/// Returns the schema with these escaped; `None` if there are none, or for a newer draft, whose patterns have the flag.
pub(super) fn escaped(schema: &Value) -> Option<Value> {
    let draft = Draft::default().detect(schema);
    if !matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) {
        return None;
    }
    let escaped = in_schema(schema);
    (escaped != *schema).then_some(escaped)
}

/// Recurses as deep as the schema, whose depth is bounded.
fn in_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let each = |(keyword, value): (&String, &Value)| (keyword.clone(), in_keyword(keyword, value));
            members.iter().map(each).collect()
        }
        Value::Array(schemas) => schemas.iter().map(in_schema).collect(),
        other => other.clone(),
    }
}

fn in_keyword(keyword: &str, value: &Value) -> Value {
    match (keyword, value) {
        ("pattern", Value::String(pattern)) => in_pattern(pattern).into(),
        ("patternProperties", Value::Object(schemas)) => {
            let each = |(name, schema): (&String, &Value)| (in_pattern(name).into_owned(), in_schema(schema));
            schemas.iter().map(each).collect()
        }
        // Their values are data, not schemas.
        ("enum" | "const" | "default" | "examples", value) => value.clone(),
        (_, value) => in_schema(value),
    }
}

fn in_pattern(pattern: &str) -> Cow<'_, str> {
    /// An escape, a class, a quantifier in braces, or a closing bracket of neither.
    static TOKENS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?s)\\.|\[(?:\\.|[^\]\\])*\]|\{[^\\\[\]{}]*\}|[\]}]").ok());
    let escaped = |token: &Captures<'_>| match &token[0] {
        lone @ ("]" | "}") => format!("\\{lone}"),
        whole => whole.to_owned(),
    };
    let tokens = TOKENS.as_ref();
    tokens.map_or(Cow::Borrowed(pattern), |tokens| {
        tokens.replace_all(pattern, escaped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_unmatched_closing_brackets_are_escaped() {
        let check = |pattern: &str, expect: &str| assert_eq!(in_pattern(pattern), expect, "{pattern}");
        check(r"a]", r"a\]");
        check(r"]}", r"\]\}");
        check(r"^[a-z]{2}]?$", r"^[a-z]{2}\]?$");
        check(r"ä}]", r"ä\}\]");
        check(r"[]a]", r"[]a\]");
        check(r"\{2}", r"\{2\}");
        check(r"\[a]", r"\[a\]");
        for whole in [
            "",
            "a",
            "[a]",
            "[}]",
            "[[a]",
            r"[\]]",
            r"\]",
            r"\}",
            "a{2}",
            "a{2,}[b]{3}",
            r"\p{L}",
            r"\u{41}",
            "\\",
        ] {
            check(whole, whole);
        }
    }

    #[test]
    fn only_patterns_of_drafts_4_to_7_are_escaped() {
        let draft = "http://json-schema.org/draft-07/schema#";
        let schema = json!({
            "$schema": draft,
            "properties": { "pattern": { "enum": [{ "pattern": "a]" }] }, "a]": { "pattern": "]" } },
            "patternProperties": { "a]": { "const": { "pattern": "]" } } },
            "allOf": [{ "pattern": "}" }],
            "default": { "pattern": "]" },
        });
        let expect = json!({
            "$schema": draft,
            "properties": { "pattern": { "enum": [{ "pattern": "a]" }] }, "a]": { "pattern": "\\]" } },
            "patternProperties": { "a\\]": { "const": { "pattern": "]" } } },
            "allOf": [{ "pattern": "\\}" }],
            "default": { "pattern": "]" },
        });
        assert_eq!(escaped(&schema), Some(expect));
        assert_eq!(escaped(&json!({ "$schema": draft, "pattern": "[a]" })), None);
        assert_eq!(escaped(&json!({ "pattern": "]" })), None);
    }
}
