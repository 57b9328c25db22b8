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
mod report;
mod room;
mod schema;
mod text;
mod tree;

use crate::{
    JsonQuestion,
    question::{Answer, Unusable},
};
use jsonschema::Validator;
use meter::{Extent, Spent};
use node::{Item, Metered};
use ringfence_types::{JsonError, JsonReport};
use serde_json::Value;
use text::Oddities;
use tree::Document;

/// Of a text that is checked.
const BODY_BYTES_MAX: usize = 16 << 20;
/// The schemas that are always there, by name.
const SCHEMAS: &[(&str, &str)] = &[
    ("config", include_str!("schemas/config.json")),
    ("dataset", include_str!("schemas/dataset.json")),
    ("user", include_str!("schemas/user.json")),
];

/// The schemas that are always there: name and JSON text, in alphabetical order.
pub fn schemas() -> &'static [(&'static str, &'static str)] {
    SCHEMAS
}

/// Can this schema be used; if not, why not.
///
/// Not for a stranger's schema outside a worker.
///
/// # Errors
///
/// A sentence that names what is wrong, and one that says what to do.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let compiled = schema::survey(schema)
        .and_then(|survey| room::with(survey.links, || schema::compile(schema, survey).map(drop)));
    match compiled {
        Ok(()) => Ok(()),
        Err(unusable) => Err(format!("{} {}", unusable.message, unusable.hint)),
    }
}

/// What a body is, held against a schema. A body that is no JSON is a body with one error.
pub(crate) fn check(asked: &JsonQuestion, body: &[u8]) -> Answer {
    match judge(asked, body) {
        Ok(report) => Answer::Json(report),
        Err(unusable) => unusable.into(),
    }
}

fn judge(asked: &JsonQuestion, body: &[u8]) -> Result<JsonReport, Unusable> {
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the JSON is larger than {} MiB.", BODY_BYTES_MAX >> 20);
        return Err(Unusable::new(message, "Check it in parts."));
    }
    let survey = schema::survey(&asked.schema)?;
    room::with(survey.links, || {
        let validator = schema::compile(&asked.schema, survey)?;
        read_and_judge(asked, &validator, body)
    })
}

fn read_and_judge(
    asked: &JsonQuestion,
    validator: &Validator<Metered>,
    body: &[u8],
) -> Result<JsonReport, Unusable> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let at = error.valid_up_to();
            let readable = body.get(..at).map(String::from_utf8_lossy).unwrap_or_default();
            let what = format!(
                "The text is not UTF-8: byte {} at {} is not part of any character.",
                at + 1,
                place(&readable, at)
            );
            return Ok(unreadable(asked, "syntax", what));
        }
    };
    let document = match read(text) {
        Ok(document) => document,
        Err((keyword, what)) => return Ok(unreadable(asked, keyword, what)),
    };
    let extent = Extent {
        bytes: text.len(),
        path_bytes: document.tree.longest_path(),
        link_bytes: longest_path(&asked.schema),
    };
    let item = Item(&document.tree);
    let context = report::Context {
        text,
        document: &document,
        schema: &asked.schema,
    };
    let validate = || {
        let errors = validator.iter_errors(item).collect();
        report::report(&asked.name, &context, errors)
    };
    meter::run(extent, validate).map_err(out_of)
}

/// The value of a text, or the keyword and the sentence of what keeps it from having one.
fn read(text: &str) -> Result<Document<'_>, (&'static str, String)> {
    let oddities = Oddities::of(text);
    if let Some(at) = oddities.too_deep {
        let levels = text::DEPTH_MAX;
        let what = format!(
            "The text is nested deeper than {levels} levels at {}.",
            place(text, at)
        );
        return Err(("syntax", what));
    }
    tree::read(text, &oddities).map_err(|error| match oddities.too_large {
        // Nothing else can be wrong with a number that is written as one.
        Some(at) if error.to_string().starts_with(OUT_OF_RANGE) => {
            let what = format!("The number at {} is larger than any double.", place(text, at));
            ("number", what)
        }
        _ => ("syntax", format!("The text is no JSON: {error}.")),
    })
}

/// How serde_json begins to say it.
const OUT_OF_RANGE: &str = "number out of range";

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

/// Line and column from 1; the column counts characters.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(start..).unwrap_or_default().chars().count() + 1;
    format!("line {line} column {column}")
}

fn out_of(spent: Spent) -> Unusable {
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

/// Of the longest JSON Pointer into a schema.
fn longest_path(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => {
            let longest = items.iter().map(longest_path).max();
            longest.map_or(0, |bytes| bytes + 1 + items.len().to_string().len())
        }
        Value::Object(members) => {
            let longest = |(name, value): (&String, &Value)| name.len() + 1 + longest_path(value);
            members.iter().map(longest).max().unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
