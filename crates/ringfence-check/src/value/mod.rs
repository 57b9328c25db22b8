//! Validates JSON against a JSON Schema, and holds the built-in schemas.
//!
//! The validator's input is bounded ([`BODY_BYTES_MAX`], [`schema`]), its work metered ([`meter`]). With any schema,
//! duplicate names in objects and numbers that 64 bits do not hold as written ([`numbers`]) are errors, as readers
//! differ on them. `format` is asserted for the formats that the drafts name, and ignored for others.

mod excerpt;
mod letters;
mod meter;
mod node;
mod numbers;
mod report;
mod schema;
mod tree;

use crate::{JsonQuestion, question::Unusable, verdict::Lines};
use meter::{Exceeded, Extent};
use node::Item;
use ringfence_types::{JsonError, JsonReport};
use serde_json::Value;

/// Maximum length of a text that is checked.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Maximum nesting of arrays and objects; serde_json refuses deeper ones.
const DEPTH_MAX: usize = 127;

/// The built-in schemas: names and JSON texts, in alphabetical order.
pub fn schemas() -> &'static [(&'static str, &'static str)] {
    &[
        ("config", include_str!("schemas/config.json")),
        ("dataset", include_str!("schemas/dataset.json")),
        ("user", include_str!("schemas/user.json")),
    ]
}

/// Reads the JSON text of a schema or of constraints without changing it.
///
/// # Errors
///
/// A predicate of the text that names the place: it is not JSON, or has a number that would be rounded or members of
/// the same name.
pub fn read_exactly(text: &str) -> Result<Value, String> {
    let not_json = |error: serde_json::Error| format!("is not JSON: {error}");
    let document = tree::read(text).map_err(not_json)?;
    let Some(flaw) = document.flaws.first() else {
        return serde_json::from_str(text).map_err(not_json);
    };
    let what = flaw.rounded.map_or(
        "two members of the same name",
        |_| "a number that would be rounded",
    );
    Err(format!(
        "has {what}: `{}`",
        excerpt::cut(flaw.path.as_str(), excerpt::NAME_BYTES_MAX)
    ))
}

/// Checks if a schema can be used. An untrusted schema must only be checked in a worker.
///
/// # Errors
///
/// A sentence that names the problem, and one that says what to do.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let compiled = schema::survey(schema)
        .and_then(|survey| survey.on_stack(|| schema::compile(schema, survey).map(drop)));
    compiled.map_err(|unusable| format!("{} {}", unusable.message, unusable.hint))
}

/// Validates a body against a schema. A body that is not JSON gives a report of one error.
pub(crate) fn check(question: &JsonQuestion, body: &[u8]) -> Result<JsonReport, Unusable> {
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the JSON is larger than {} MiB.", BODY_BYTES_MAX >> 20);
        return Err(Unusable::new(message, "Check it in parts."));
    }
    let survey = schema::survey(&question.schema)?;
    survey.on_stack(|| {
        let validator = schema::compile(&question.schema, survey)?;
        let text = match read_utf8(body) {
            Ok(text) => text,
            Err(what) => return Ok(unreadable(question, "syntax", what)),
        };
        let document = match tree::read(text) {
            Ok(document) => document,
            Err(error) => return Ok(unparsed(question, &error)),
        };
        let extent = Extent {
            bytes: text.len(),
            path_bytes: document.longest_path,
            link_bytes: survey.longest_path,
        };
        let context = report::Context {
            document: &document,
            schema: &question.schema,
        };
        let validate = || {
            let errors: Vec<_> = validator.iter_errors(Item(&document.tree)).collect();
            report::report(&question.name, &context, &errors)
        };
        meter::run(extent, validate).map_err(refusal)
    })
}

fn refusal(exceeded: Exceeded) -> Unusable {
    match exceeded {
        Exceeded::Steps => Unusable::new(
            "the schema and the JSON together need too many steps.",
            "Check the JSON in parts, or use a schema whose alternatives do not multiply.",
        ),
        Exceeded::Errors => Unusable::new(
            "there are more errors than can be kept, with those of alternatives.",
            "Check the JSON in parts; the schema may be another one's.",
        ),
        Exceeded::Stack => Unusable::new(
            "the schema's references and the JSON together are nested too deeply.",
            "Use a schema whose references do not form long chains.",
        ),
    }
}

fn read_utf8(body: &[u8]) -> Result<&str, String> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let at = error.valid_up_to();
            let before = String::from_utf8_lossy(&body[..at]);
            let (line, column) = Lines::of(&before).position(at);
            let byte = at + 1;
            Err(format!(
                "The text is not UTF-8: byte {byte} at line {line} column {column} is not part of any character."
            ))
        }
    }
}

/// The report of a text that is not JSON, is nested too deeply, or has a number larger than any double.
fn unparsed(question: &JsonQuestion, error: &serde_json::Error) -> JsonReport {
    let reason = error.to_string();
    let (keyword, what) = match reason.split(' ').next() {
        Some("number") => ("number", "A number is larger than any double".to_owned()),
        Some("recursion") => (
            "syntax",
            format!("The text is nested deeper than {DEPTH_MAX} levels"),
        ),
        _ => ("syntax", "The text is not JSON".to_owned()),
    };
    unreadable(question, keyword, format!("{what}: {reason}."))
}

/// A report of one error at the root, for a text without a value.
fn unreadable(question: &JsonQuestion, keyword: &str, message: String) -> JsonReport {
    JsonReport {
        valid: false,
        schema: question.name.clone(),
        errors: vec![JsonError {
            path: String::new(),
            message,
            keyword: keyword.to_owned(),
            expected: "JSON".into(),
            actual: Value::Null,
        }],
        errors_total: 1,
    }
}

#[cfg(test)]
mod tests;
