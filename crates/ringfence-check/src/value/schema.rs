//! Compiles an untrusted schema into a validator, or a sentence that refuses it: no fetching, no backtracking patterns.

use super::{DEPTH_MAX, excerpt, letters, node::Metered};
use crate::question::Unusable;
use jsonschema::{
    PatternOptions, ReferencingError, Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind,
};
use serde_json::Value;
use std::error::Error;

/// Maximum length of the texts and names of a schema, with [`VALUE_BYTES`] for each value.
const SCHEMA_BYTES_MAX: usize = 1 << 20;
const VALUE_BYTES: usize = 2;
/// Up to here a double, as which the validator has `multipleOf`, holds every integer.
const EXACT_MAX: u64 = 1 << 53;
/// Maximum size of all compiled patterns of one schema, and of each.
const PATTERNS_BYTES_MAX: usize = 64 << 20;
const PATTERN_BYTES_MAX: usize = 4 << 20;
const PATTERNS_MAX: usize = 2000;
/// Maximum number of links: keywords that apply another schema to the same value. The validator recurses along them.
const LINKS_MAX: usize = 12_000;

/// Number of links that fit onto any thread's stack.
const LINKS_FEW: usize = 200;
/// Stack for each link, if there are more, and for the metered work and the rest.
const LINK_BYTES: usize = 16 << 10;
const BASE_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    patterns: usize,
    /// Number of links, which bounds the length of a chain.
    links: usize,
    /// Length in bytes of the longest path into the schema.
    pub(super) longest_path: usize,
}

/// Compiles a schema, by draft 2020-12 or the one that its `$schema` names.
pub(super) fn compile(schema: &Value, survey: Survey) -> Result<Validator<Metered>, Unusable> {
    let each = (PATTERNS_BYTES_MAX / survey.patterns.max(1)).min(PATTERN_BYTES_MAX);
    let engine = PatternOptions::regex().size_limit(each).dfa_size_limit(each);
    let options = jsonschema::options_for::<Metered>()
        .with_retriever(NoRetrieval)
        .with_pattern_options(engine)
        .should_validate_formats(true);
    let error = match options.clone().build(schema) {
        Ok(validator) => return Ok(validator),
        Err(error) => error,
    };
    // For an error of any kind: below `items` the metaschema reports a pattern as a failed alternative.
    match letters::escaped(schema) {
        Some(schema) => options.build(&schema).map_err(|error| refusal(&error)),
        None => Err(refusal(&error)),
    }
}

/// Measures a schema and checks its limits, without recursion, because an untrusted schema may be nested deeply.
pub(super) fn survey(schema: &Value) -> Result<Survey, Unusable> {
    let mut open = vec![(schema, 0_usize, 0_usize)];
    let mut bytes = 0_usize;
    let mut survey = Survey::default();
    while let Some((value, depth, path)) = open.pop() {
        if depth > DEPTH_MAX {
            let message = format!("the schema is nested deeper than {DEPTH_MAX} levels.");
            let hint = "Name parts of it in `$defs`, and refer to them.";
            return Err(Unusable::new(message, hint));
        }
        survey.longest_path = survey.longest_path.max(path);
        bytes += VALUE_BYTES;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => {
                let path = path + 1 + items.len().to_string().len();
                open.extend(items.iter().map(|item| (item, depth + 1, path)));
            }
            Value::Object(members) => {
                for (name, member) in members {
                    bytes += name.len();
                    if name == "multipleOf" && member.as_u64().is_some_and(|number| number > EXACT_MAX) {
                        let message =
                            format!("the schema has a `multipleOf` above {EXACT_MAX}, which is rounded.");
                        return Err(Unusable::new(message, "Use a smaller number."));
                    }
                    survey.count(name, member);
                    open.push((member, depth + 1, path + 1 + name.len()));
                }
            }
            _ => {}
        }
        if bytes > SCHEMA_BYTES_MAX {
            let message = format!("the schema is larger than {SCHEMA_BYTES_MAX} bytes.");
            return Err(Unusable::new(message, "Use a smaller schema."));
        }
    }
    survey.within_limits()
}

impl Survey {
    fn count(&mut self, keyword: &str, value: &Value) {
        match (keyword, value) {
            ("pattern", Value::String(_)) => self.patterns += 1,
            ("patternProperties", Value::Object(patterns)) => self.patterns += patterns.len(),
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(_)) => self.links += 1,
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => self.links += schemas.len(),
            ("not" | "if" | "then" | "else", _) => self.links += 1,
            ("extends" | "dependencies" | "dependentSchemas", Value::Object(schemas)) => {
                self.links += schemas.len();
            }
            _ => {}
        }
    }

    fn within_limits(self) -> Result<Self, Unusable> {
        let Self { patterns, links, .. } = self;
        if patterns > PATTERNS_MAX {
            let message = format!("the schema has {patterns} patterns; {PATTERNS_MAX} are allowed.");
            return Err(Unusable::new(message, "Use fewer patterns, or `enum`."));
        }
        if links > LINKS_MAX {
            let message =
                format!("the schema has {links} references and alternatives; {LINKS_MAX} are allowed.");
            let hint = "Leave out the definitions that are not needed.";
            return Err(Unusable::new(message, hint));
        }
        Ok(self)
    }

    /// Runs work that recurses along the longest chain of links, on a stack that is large enough: the validator follows
    /// links without an access to the value that could be metered.
    pub(super) fn on_stack<T>(self, work: impl FnOnce() -> T) -> T {
        match self.links {
            ..=LINKS_FEW => work(),
            // Not a thread: a worker may not start any.
            links => stacker::grow(BASE_BYTES + links * LINK_BYTES, work),
        }
    }
}

/// Refuses every reference outside the schema. The validator knows the published drafts without it.
struct NoRetrieval;

impl Retrieve for NoRetrieval {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        Err("nothing is fetched".into())
    }
}

fn refusal(error: &ValidationError<'_>) -> Unusable {
    let name = |text: &str| excerpt::cut(text, excerpt::NAME_BYTES_MAX);
    let defs = "Put what it refers to into `$defs`, and refer to it as `#/$defs/...`.";
    let (message, hint) = match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            let uri = name(uri);
            let message =
                format!("the schema refers to `{uri}`, which is not within it; nothing is fetched.");
            (message, defs)
        }
        ValidationErrorKind::Referencing(ReferencingError::UnknownSpecification { specification }) => {
            let named = name(specification);
            let message = format!("the schema's `$schema` names `{named}`, which is not known.");
            (message, "Use draft 2020-12, 2019-09, 7, 6 or 4.")
        }
        ValidationErrorKind::Referencing(error) => {
            let why = name(&error.to_string());
            (format!("a reference of the schema leads nowhere: {why}."), defs)
        }
        ValidationErrorKind::Format { format } if format == "regex" => {
            let pattern = excerpt::beginning(error.instance().as_ref(), excerpt::NAME_BYTES_MAX);
            let message = format!(
                "the schema's pattern {pattern} is no regular expression that can be matched in linear time."
            );
            (
                message,
                "Look-around and backreferences are not supported, nor are patterns that become very large; write it without them.",
            )
        }
        _ => {
            let what = excerpt::cut(&error.to_string(), excerpt::MESSAGE_BYTES_MAX);
            let at = match error.instance_path().as_str() {
                "" => "its root".to_owned(),
                at => format!("`{}`", name(at)),
            };
            let message = format!("the schema itself is not valid: at {at}: {what}.");
            let hint = "Correct the schema; without `$schema`, draft 2020-12 is assumed.";
            (message, hint)
        }
    };
    Unusable::new(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(schema: &Value) -> String {
        let compiled = survey(schema).and_then(|survey| compile(schema, survey));
        compiled
            .err()
            .map(|unusable| unusable.message)
            .unwrap_or_default()
    }

    #[test]
    fn external_references_are_refused_and_named() {
        let check = |reference: &str, named: &str| {
            for schema in [
                json!({ "$ref": reference }),
                json!({ "properties": { "a": { "items": { "$ref": reference } } } }),
                json!({ "$schema": "http://json-schema.org/draft-07/schema#", "allOf": [{ "$ref": reference }] }),
                json!({ "$dynamicRef": reference }),
            ] {
                let message = refused(&schema);
                assert!(message.contains(named), "{schema}: {message}");
            }
        };
        check("http://example.com/a.json", "http://example.com/a.json");
        check("https://example.com/a.json#/x", "https://example.com/a.json");
        check("file:///etc/passwd", "file:///etc/passwd");
        check("ftp://example.com/x", "ftp://example.com/x");
        check("other.json", "other.json");
        check("//example.com/x", "//example.com/x");
        check("urn:example:x", "urn:example:x");
    }

    #[test]
    fn relative_reference_under_an_id_is_not_fetched() {
        let schema = json!({
            "$id": "file:///etc/schema.json",
            "properties": { "a": { "$ref": "passwd" } }
        });
        assert!(
            refused(&schema).contains("file:///etc/passwd"),
            "{}",
            refused(&schema)
        );
        let base = json!({ "$id": "https://example.com/a", "$ref": "b" });
        assert!(refused(&base).contains("https://example.com/b"));
    }

    #[test]
    fn internal_references_are_followed() {
        for schema in [
            json!({ "$defs": { "a": { "type": "string" } }, "$ref": "#/$defs/a" }),
            json!({ "$defs": { "a": { "$anchor": "x", "type": "string" } }, "$ref": "#x" }),
            json!({ "$id": "https://example.com/root", "$defs": { "a": { "$id": "a", "type": "string" } }, "$ref": "a" }),
            json!({ "$dynamicAnchor": "node", "properties": { "a": { "$dynamicRef": "#node" } } }),
            json!({ "properties": { "a": { "$ref": "#" } } }),
            json!({ "$ref": "#" }),
            json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
            json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }),
            json!({ "enum": [{ "$ref": "https://example.com/not-a-reference" }] }),
            json!(true),
        ] {
            assert_eq!(refused(&schema), "", "{schema}");
        }
    }

    #[test]
    fn invalid_schema_is_refused_with_its_path() {
        let check = |schema: Value, named: &str| {
            let message = refused(&schema);
            assert!(message.contains(named), "{schema}: {message}");
        };
        check(json!({ "type": "strin" }), "`/type`");
        check(
            json!({ "properties": { "a": { "minimum": "1" } } }),
            "`/properties/a/minimum`",
        );
        check(json!({ "properties": [] }), "`/properties`");
        check(json!("string"), "its root");
        check(json!(null), "its root");
        check(json!({ "$ref": "#/$defs/none" }), "leads nowhere");
        check(json!({ "$ref": "#none" }), "leads nowhere");
        check(json!({ "$ref": 1 }), "`/$ref`");
        check(
            json!({ "$schema": "https://example.com/my-own" }),
            "https://example.com/my-own",
        );
    }

    #[test]
    fn patterns_that_need_backtracking_are_refused_and_named() {
        for pattern in [
            "(?=a)b",
            "(?!a)",
            "(?<=a)b",
            r"(a)\1",
            "(",
            "[",
            &format!("(?:{}){{9999}}", r"\p{L}{100}"),
        ] {
            for schema in [
                json!({ "pattern": pattern }),
                json!({ "patternProperties": { pattern: true } }),
            ] {
                let message = refused(&schema);
                assert!(message.contains("linear time"), "{schema}: {message}");
            }
        }
        for pattern in ["^(a+)+$", r"^\w{1,64}$", r"^\d{3}-\d{4}$", r"\p{Letter}", "a/b"] {
            assert_eq!(refused(&json!({ "pattern": pattern })), "", "{pattern}");
        }
    }

    #[test]
    fn schema_size_is_limited() {
        let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert_eq!(refused(&nested(100)), "");
        assert!(refused(&nested(DEPTH_MAX + 1)).contains("deeper"));
        assert!(refused(&json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) })).contains("larger"));
        assert!(refused(&json!({ "enum": vec![0; SCHEMA_BYTES_MAX] })).contains("larger"));
        let patterns: Vec<Value> = (0..=PATTERNS_MAX)
            .map(|at| json!({ "pattern": format!("{at}") }))
            .collect();
        assert!(refused(&json!({ "anyOf": patterns })).contains("patterns"));
    }

    #[test]
    fn each_draft_is_compiled_by_its_own_rules() {
        let exclusive =
            |uri: &str, value: Value| json!({ "$schema": uri, "minimum": 1, "exclusiveMinimum": value });
        for (uri, value) in [
            ("http://json-schema.org/draft-04/schema#", json!(true)),
            ("http://json-schema.org/draft-06/schema#", json!(1)),
            ("http://json-schema.org/draft-07/schema#", json!(1)),
            ("https://json-schema.org/draft/2019-09/schema", json!(1)),
            ("https://json-schema.org/draft/2020-12/schema", json!(1)),
        ] {
            assert_eq!(refused(&exclusive(uri, value.clone())), "", "{uri}");
            let other = if value.is_boolean() { json!(1) } else { json!(true) };
            assert!(
                refused(&exclusive(uri, other)).contains("exclusiveMinimum"),
                "{uri}"
            );
        }
    }
}
