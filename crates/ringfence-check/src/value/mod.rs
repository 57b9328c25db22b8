//! JSON against a JSON Schema, and the schemas that everybody has.
//!
//! What the validator is given is bounded before ([`BODY_BYTES_MAX`], [`schema`]) and metered while it works
//! ([`meter`]). Beyond what a schema says, two things are told of every text, because readers differ in what they make
//! of them: a name that stands twice in one object, and an integer that 64 bits do not hold as it is written. `format`
//! is asserted for the formats that the drafts name, and says nothing for others.

mod excerpt;
mod letters;
mod meter;
mod node;
mod numbers;
mod report;
mod schema;
mod tree;

use crate::{JsonQuestion, question::Unusable, verdict::Lines};
use meter::{Extent, Spent};
use node::Item;
use ringfence_types::{JsonError, JsonReport};
use serde_json::Value;

/// Of a text that is checked.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Levels of arrays and objects: what serde_json follows before it refuses.
const DEPTH_MAX: usize = 127;

/// The schemas that are always there: name and JSON text, in alphabetical order.
pub fn schemas() -> &'static [(&'static str, &'static str)] {
    &[
        ("config", include_str!("schemas/config.json")),
        ("dataset", include_str!("schemas/dataset.json")),
        ("user", include_str!("schemas/user.json")),
    ]
}

/// Whether this schema can be used; if not, why not.
///
/// Not for a stranger's schema outside a worker.
///
/// # Errors
///
/// A sentence that names what is wrong, and one that says what to do.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let compiled = schema::survey(schema)
        .and_then(|survey| survey.on_stack(|| schema::compile(schema, survey).map(drop)));
    compiled.map_err(|unusable| format!("{} {}", unusable.message, unusable.hint))
}

/// What a body is, held against a schema. A body that is no JSON is a body with one error.
pub(crate) fn check(asked: &JsonQuestion, body: &[u8]) -> Result<JsonReport, Unusable> {
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the JSON is larger than {} MiB.", BODY_BYTES_MAX >> 20);
        return Err(Unusable::new(message, "Check it in parts."));
    }
    let survey = schema::survey(&asked.schema)?;
    survey.on_stack(|| {
        let validator = schema::compile(&asked.schema, survey)?;
        let text = match read_utf8(body) {
            Ok(text) => text,
            Err(what) => return Ok(unreadable(asked, "syntax", what)),
        };
        let document = match tree::read(text) {
            Ok(document) => document,
            Err(error) => return Ok(unvalued(asked, &error)),
        };
        let extent = Extent {
            bytes: text.len(),
            path_bytes: document.longest_path,
            link_bytes: survey.longest_path,
        };
        let context = report::Context {
            document: &document,
            schema: &asked.schema,
        };
        let validate = || {
            let errors: Vec<_> = validator.iter_errors(Item(&document.tree)).collect();
            report::report(&asked.name, &context, &errors)
        };
        meter::run(extent, validate).map_err(too_much)
    })
}

fn too_much(spent: Spent) -> Unusable {
    match spent {
        Spent::Steps => Unusable::new(
            "the schema and the JSON together need too many steps.",
            "Check the JSON in parts, or use a schema whose alternatives do not multiply.",
        ),
        Spent::Errors => Unusable::new(
            "there are more errors than can be kept, with those of alternatives.",
            "Check the JSON in parts; the schema may be another one's.",
        ),
        Spent::Stack => Unusable::new(
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

/// What keeps a text from having a value.
fn unvalued(asked: &JsonQuestion, error: &serde_json::Error) -> JsonReport {
    let told = error.to_string();
    let (keyword, what) = match told.split(' ').next() {
        Some("number") => ("number", "A number is larger than any double".to_owned()),
        Some("recursion") => (
            "syntax",
            format!("The text is nested deeper than {DEPTH_MAX} levels"),
        ),
        _ => ("syntax", "The text is not JSON".to_owned()),
    };
    unreadable(asked, keyword, format!("{what}: {told}."))
}

/// No value came of the text: one error, at its root.
fn unreadable(asked: &JsonQuestion, keyword: &str, message: String) -> JsonReport {
    JsonReport {
        valid: false,
        schema: asked.name.clone(),
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
