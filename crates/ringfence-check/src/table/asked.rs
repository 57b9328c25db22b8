//! Compiles the constraints of a question, a type name or an object per column; invalid ones are refused.

use super::{
    constraint::{Bound, Constraint, Measure, Options},
    decimal::Decimal,
    kinds::{self, ColumnType, KINDS, Measured},
};
use crate::{question::Unusable, unknown::cut};
use regex::bytes::{Regex, RegexBuilder};
use ringfence_types::nearest;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const COLUMNS_MAX: usize = 1000;
/// Maximum size of all compiled patterns, and of each.
const PATTERNS_BYTES_MAX: usize = 64 << 20;
const PATTERN_BYTES_MAX: usize = 4 << 20;
const OPTIONS_MAX: usize = 10_000;
/// Maximum length of a text of the question that an answer repeats.
const SHOWN_CHARS_MAX: usize = 200;

const KEYS: [&str; 7] = ["type", "required", "min", "max", "pattern", "enum", "unique"];

pub(super) fn read(columns: &Map<String, Value>) -> Result<Vec<(String, Constraint)>, Unusable> {
    if columns.len() > COLUMNS_MAX {
        let many = columns.len();
        let message = format!("there are constraints for {many} columns; {COLUMNS_MAX} are allowed.");
        return Err(Unusable::new(message, "Check the columns in parts."));
    }
    let has_pattern = |value: &&Value| value.get("pattern").is_some();
    let patterns = columns.values().filter(has_pattern).count();
    let reading = |(column, value): (&String, &Value)| {
        let reading = Reading {
            column: cut(column, SHOWN_CHARS_MAX),
            pattern_bytes: (PATTERNS_BYTES_MAX / patterns.max(1)).min(PATTERN_BYTES_MAX),
        };
        Ok((column.clone(), reading.constraint(value)?))
    };
    columns.iter().map(reading).collect()
}

struct Reading {
    column: String,
    pattern_bytes: usize,
}

impl Reading {
    fn refuse<T>(&self, what: &str, hint: impl Into<String>) -> Result<T, Unusable> {
        Err(Unusable::new(format!("column `{}`: {what}.", self.column), hint))
    }

    fn constraint(&self, value: &Value) -> Result<Constraint, Unusable> {
        let empty = Map::new();
        let keys = KEYS.join(", ");
        let hint = format!("Send a type ({}), or an object with {keys}.", types());
        let (name, members) = match value {
            Value::String(name) => (name.as_str(), &empty),
            Value::Object(members) => match members.get("type") {
                None | Some(Value::Null) => ("string", members),
                Some(Value::String(name)) => (name.as_str(), members),
                Some(_) => return self.refuse("`type` is not a word", format!("Types are {}.", types())),
            },
            _ => return self.refuse("a constraint is a word or an object", hint),
        };
        if let Some(unknown) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let what = format!("`{}` is not known", cut(unknown, SHOWN_CHARS_MAX));
            return self.refuse(&what, hint + &nearest::suggestion(unknown, KEYS));
        }
        let Some(kind) = kinds::named(name) else {
            let what = format!("the type `{}` is not known", cut(name, SHOWN_CHARS_MAX));
            let near = nearest::suggestion(name, KINDS.iter().map(|kind| kind.name));
            return self.refuse(&what, format!("Types are {}.{near}", types()));
        };
        let given = |key: &str| members.get(key).filter(|value| !value.is_null());
        let bound = |key: &str| given(key).map(|value| self.bound(kind, key, value)).transpose();
        let (min, max) = (bound("min")?, bound("max")?);
        if let (Some(min), Some(max)) = (&min, &max)
            && min.at > max.at
        {
            return self.refuse("`min` is above `max`", "No value is between them.");
        }
        Ok(Constraint {
            kind,
            options: given("enum").map(|value| self.options(kind, value)).transpose()?,
            is_required: self.boolean("required", given("required"))?,
            is_unique: self.boolean("unique", given("unique"))?,
            min,
            max,
            pattern: given("pattern").map(|value| self.pattern(value)).transpose()?,
        })
    }

    fn boolean(&self, key: &str, value: Option<&Value>) -> Result<bool, Unusable> {
        match value {
            None => Ok(false),
            Some(Value::Bool(boolean)) => Ok(*boolean),
            Some(_) => {
                let what = format!("`{key}` is neither true nor false");
                self.refuse(&what, "Send true or false.")
            }
        }
    }

    fn pattern(&self, value: &Value) -> Result<Regex, Unusable> {
        let Value::String(pattern) = value else {
            return self.refuse("`pattern` is not a text", "Send a regular expression.");
        };
        let built = RegexBuilder::new(pattern)
            .size_limit(self.pattern_bytes)
            .dfa_size_limit(self.pattern_bytes)
            .build();
        built.or_else(|error| {
            let pattern = cut(pattern, SHOWN_CHARS_MAX);
            let why = error.to_string();
            let why = cut(why.lines().last().unwrap_or_default(), SHOWN_CHARS_MAX);
            let what = format!("the pattern `{pattern}` cannot be used: {why}");
            self.refuse(&what, "Look-around and backreferences are not supported.")
        })
    }

    fn bound(&self, kind: &ColumnType, key: &str, value: &Value) -> Result<Bound, Unusable> {
        let wanted = match kind.measured {
            Measured::Number => "a number",
            Measured::Length => "a length in characters",
            Measured::Moment => kind.expected,
            Measured::Nothing => {
                let hint = "Leave them out, or use `enum`.";
                return self.refuse("its type has no `min` and `max`", hint);
            }
        };
        let shown = text_of(value);
        match Measure::of_bound(kind, value) {
            Some(at) => Ok(Bound { at, shown }),
            None => self.refuse(&format!("`{key}` is not {wanted}"), format!("Send {wanted}.")),
        }
    }

    fn options(&self, kind: &ColumnType, value: &Value) -> Result<Options, Unusable> {
        let Value::Array(values) = value else {
            return self.refuse("`enum` is not a list", "Send a list of values.");
        };
        if values.is_empty() || values.len() > OPTIONS_MAX {
            let what = format!("`enum` has {} values", values.len());
            return self.refuse(&what, format!("Send from 1 to {OPTIONS_MAX} values."));
        }
        let is_plain = |value: &Value| matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
        if !values.iter().all(is_plain) {
            let hint = "Send texts, numbers, true or false.";
            return self.refuse("`enum` has a value that no field can be", hint);
        }
        let texts = values.iter().map(text_of).collect::<Vec<String>>();
        let shown = cut(&texts.join(", "), SHOWN_CHARS_MAX);
        let mut numbers = BTreeSet::new();
        if kind.measured == Measured::Number {
            if let Some(text) = texts.iter().find(|text| !kinds::is_float(text.as_bytes())) {
                let what = format!("`enum` has `{}`, which is no number", cut(text, SHOWN_CHARS_MAX));
                return self.refuse(&what, "Send numbers, or leave out the type.");
            }
            numbers.extend(texts.iter().map(|text| Decimal::of(text.as_bytes())));
        }
        let texts = texts.into_iter().map(String::into_bytes).collect();
        Ok(Options {
            texts,
            numbers,
            shown,
        })
    }
}

fn types() -> String {
    KINDS.each_ref().map(|kind| kind.name).join(", ")
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_constraint_is_refused_with_a_reason() {
        let check = |value: Value, named: &[&str]| {
            let question = json!({ "age": value });
            let unusable = read(question.as_object().expect("an object")).expect_err("unusable");
            let text = format!("{} {}", unusable.message, unusable.hint);
            for named in ["column `age`"].iter().chain(named) {
                assert!(text.contains(named), "{question}: {text}");
            }
        };
        check(json!("integr"), &["`integr`", "Did you mean `integer`?"]);
        check(json!("zzz"), &["Types are string, integer"]);
        check(
            json!({ "typ": "integer" }),
            &["`typ` is not known", "Did you mean `type`?"],
        );
        check(json!({ "maximum": 5 }), &["`maximum` is not known", "min, max"]);
        check(json!({ "type": 1 }), &["`type`"]);
        check(json!(1), &["a word or an object"]);
        check(json!({ "required": "yes" }), &["`required`"]);
        check(json!({ "unique": 1 }), &["`unique`"]);
        check(json!({ "pattern": 1 }), &["`pattern`"]);
        check(json!({ "pattern": "(?=a)" }), &["look-around", "Look-around"]);
        check(json!({ "pattern": "(" }), &["unclosed"]);
        check(json!({ "pattern": "(\\w{100}){100}" }), &["cannot be used"]);
        check(
            json!({ "type": "integer", "min": "1" }),
            &["`min` is not a number"],
        );
        check(json!({ "min": -1 }), &["`min` is not a length"]);
        check(
            json!({ "type": "date", "max": "2023-02-29" }),
            &["`max` is not a date"],
        );
        check(
            json!({ "type": "integer", "min": 2, "max": 1 }),
            &["`min` is above `max`"],
        );
        check(json!({ "type": "uuid", "min": 1 }), &["no `min`"]);
        check(json!({ "enum": [] }), &["0 values"]);
        check(json!({ "enum": "a" }), &["not a list"]);
        check(json!({ "enum": [null] }), &["no field can be"]);
        check(
            json!({ "type": "integer", "enum": ["a"] }),
            &["`a`, which is no number"],
        );
    }

    #[test]
    fn constraint_count_is_limited() {
        let many: Map<String, Value> = (0..=COLUMNS_MAX)
            .map(|at| (at.to_string(), json!("string")))
            .collect();
        assert!(
            read(&many)
                .expect_err("too many")
                .message
                .contains("1001 columns")
        );
    }
}
