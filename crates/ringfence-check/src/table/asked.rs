//! From the words and objects by which columns are asked for to constraints; what cannot be meant is refused.

use super::{
    constraint::{Constraint, ConstraintText, Options, Quantity, Range, cut, moment},
    dates,
    kinds::ColumnType,
};
use crate::question::Unusable;
use regex::bytes::{Regex, RegexBuilder};
use ringfence_types::nearest;
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Columns with constraints.
const COLUMNS_MAX: usize = 1000;
/// Compiled patterns, together and each.
const PATTERNS_BYTES_MAX: usize = 64 << 20;
const PATTERN_BYTES_MAX: usize = 4 << 20;
const OPTIONS_MAX: usize = 10_000;
/// Of what an answer repeats.
const SHOWN_CHARS_MAX: usize = 200;

const KEYS: [&str; 7] = ["type", "required", "min", "max", "pattern", "enum", "unique"];

/// Columns with what is asked of them.
pub(super) fn read(asked: &Map<String, Value>) -> Result<Vec<(String, Constraint)>, Unusable> {
    if asked.len() > COLUMNS_MAX {
        let message = format!(
            "there are constraints for {} columns; {COLUMNS_MAX} are allowed.",
            asked.len()
        );
        return Err(Unusable::new(message, "Check the columns in parts."));
    }
    let patterns = asked
        .values()
        .filter(|asked| asked.get("pattern").is_some())
        .count();
    let pattern_bytes = (PATTERNS_BYTES_MAX / patterns.max(1)).min(PATTERN_BYTES_MAX);
    let read = |(column, asked): (&String, &Value)| {
        let reading = Reading {
            column: cut(column, SHOWN_CHARS_MAX),
            pattern_bytes,
        };
        Ok((column.clone(), reading.constraint(asked)?))
    };
    asked.iter().map(read).collect()
}

struct Reading {
    column: String,
    pattern_bytes: usize,
}

impl Reading {
    fn refuse<T>(&self, what: &str, hint: impl Into<String>) -> Result<T, Unusable> {
        Err(Unusable::new(format!("column `{}`: {what}.", self.column), hint))
    }

    fn constraint(&self, asked: &Value) -> Result<Constraint, Unusable> {
        let empty = Map::new();
        let (word, members) = match asked {
            Value::String(word) => (word.as_str(), &empty),
            Value::Object(members) => (self.word(members)?, members),
            _ => return self.refuse("a constraint is a word or an object", constraint_hint()),
        };
        if let Some(unknown) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let what = format!("`{}` is not known", cut(unknown, SHOWN_CHARS_MAX));
            let hint = nearest::suggestion(unknown, KEYS);
            return self.refuse(&what, format!("{}{hint}", constraint_hint()));
        }
        let Some(kind) = ColumnType::of(word) else {
            let what = format!("the type `{}` is not known", cut(word, SHOWN_CHARS_MAX));
            let near = nearest::suggestion(word, ColumnType::WORDS);
            return self.refuse(
                &what,
                format!("Types are {}.{near}", ColumnType::WORDS.join(", ")),
            );
        };
        let given = |key: &str| members.get(key).filter(|value| !value.is_null());
        let (range, mut told) = self.range(kind, given("min"), given("max"))?;
        let options = match given("enum") {
            Some(asked) => Some(self.options(kind, asked, &mut told)?),
            None => None,
        };
        Ok(Constraint {
            kind,
            is_required: self.truth("required", given("required"))?,
            is_unique: self.truth("unique", given("unique"))?,
            range,
            pattern: match given("pattern") {
                Some(asked) => Some(self.pattern(asked)?),
                None => None,
            },
            options,
            told,
        })
    }

    fn word<'m>(&self, members: &'m Map<String, Value>) -> Result<&'m str, Unusable> {
        match members.get("type") {
            None | Some(Value::Null) => Ok("string"),
            Some(Value::String(word)) => Ok(word),
            Some(_) => self.refuse(
                "`type` is not a word",
                format!("Types are {}.", ColumnType::WORDS.join(", ")),
            ),
        }
    }

    fn truth(&self, key: &str, asked: Option<&Value>) -> Result<bool, Unusable> {
        match asked {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(_) => self.refuse(
                &format!("`{key}` is neither true nor false"),
                "Send true or false.",
            ),
        }
    }

    fn pattern(&self, asked: &Value) -> Result<Regex, Unusable> {
        let Value::String(pattern) = asked else {
            return self.refuse("`pattern` is not a text", "Send a regular expression.");
        };
        let built = RegexBuilder::new(pattern)
            .size_limit(self.pattern_bytes)
            .dfa_size_limit(self.pattern_bytes)
            .build();
        match built {
            Ok(regex) => Ok(regex),
            Err(error) => {
                let what = format!(
                    "the pattern `{}` cannot be used: {}",
                    cut(pattern, SHOWN_CHARS_MAX),
                    cut(
                        error.to_string().lines().last().unwrap_or_default(),
                        SHOWN_CHARS_MAX
                    )
                );
                self.refuse(&what, "Look-around and backreferences are not supported.")
            }
        }
    }

    fn range(
        &self,
        kind: ColumnType,
        min: Option<&Value>,
        max: Option<&Value>,
    ) -> Result<(Range, ConstraintText), Unusable> {
        let told = ConstraintText {
            min: min.map_or_else(String::new, word_of),
            max: max.map_or_else(String::new, word_of),
            options: String::new(),
        };
        if min.is_none() && max.is_none() {
            return Ok((Range::Any, told));
        }
        let range = match kind {
            ColumnType::Integer | ColumnType::Float => {
                let (min, max) = self.ends([min, max], Quantity::of_json, "a number", Quantity::compare)?;
                Range::Numbers(min, max)
            }
            ColumnType::String | ColumnType::Email | ColumnType::Url => {
                let length = |value: &Value| value.as_u64().and_then(|length| usize::try_from(length).ok());
                let (min, max) = self.ends([min, max], length, "a length in characters", |one, other| {
                    one.cmp(&other)
                })?;
                Range::Lengths(min.unwrap_or(0), max.unwrap_or(usize::MAX))
            }
            ColumnType::Date | ColumnType::Datetime => {
                // A day may bound times, too.
                let moment = |value: &Value| {
                    let text = value.as_str()?.as_bytes();
                    moment(kind, text).or_else(|| dates::date(text))
                };
                let (min, max) =
                    self.ends([min, max], moment, kind.expected(), |one, other| one.cmp(&other))?;
                Range::Moments(min, max)
            }
            ColumnType::Boolean | ColumnType::Uuid => {
                return self.refuse(
                    "its type has no `min` and `max`",
                    "Leave them out, or use `enum`.",
                );
            }
        };
        Ok((range, told))
    }

    fn ends<T: Copy>(
        &self,
        [min, max]: [Option<&Value>; 2],
        read: impl Fn(&Value) -> Option<T>,
        wanted: &str,
        compare: impl Fn(T, T) -> Ordering,
    ) -> Result<(Option<T>, Option<T>), Unusable> {
        let end = |key: &str, asked: Option<&Value>| match asked.map(&read) {
            None => Ok(None),
            Some(Some(end)) => Ok(Some(end)),
            Some(None) => self.refuse(&format!("`{key}` is not {wanted}"), format!("Send {wanted}.")),
        };
        let (min, max) = (end("min", min)?, end("max", max)?);
        if let (Some(min), Some(max)) = (min, max)
            && compare(min, max).is_gt()
        {
            return self.refuse("`min` is above `max`", "No value is between them.");
        }
        Ok((min, max))
    }

    fn options(
        &self,
        kind: ColumnType,
        asked: &Value,
        told: &mut ConstraintText,
    ) -> Result<Options, Unusable> {
        let Value::Array(values) = asked else {
            return self.refuse("`enum` is not a list", "Send a list of values.");
        };
        if values.is_empty() || values.len() > OPTIONS_MAX {
            let what = format!("`enum` has {} values", values.len());
            return self.refuse(&what, format!("Send from 1 to {OPTIONS_MAX} values."));
        }
        let is_plain = |value: &Value| matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
        if !values.iter().all(is_plain) {
            return self.refuse(
                "`enum` has a value that no field can be",
                "Send texts, numbers, true or false.",
            );
        }
        let words = values.iter().map(word_of).collect::<Vec<String>>();
        told.options = cut(&words.join(", "), SHOWN_CHARS_MAX);
        if !matches!(kind, ColumnType::Integer | ColumnType::Float) {
            return Ok(Options::Texts(
                words.into_iter().map(String::into_bytes).collect(),
            ));
        }
        match words.iter().find(|word| !ColumnType::Float.fits(word.as_bytes())) {
            Some(word) => {
                let what = format!("`enum` has `{}`, which is no number", cut(word, SHOWN_CHARS_MAX));
                self.refuse(&what, "Send numbers, or leave out the type.")
            }
            None => Ok(Options::Numbers(
                words.iter().map(|word| Quantity::of(word.as_bytes())).collect(),
            )),
        }
    }
}

fn constraint_hint() -> String {
    format!(
        "Send a type ({}), or an object with {}.",
        ColumnType::WORDS.join(", "),
        KEYS.join(", ")
    )
}

fn word_of(value: &Value) -> String {
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
    fn a_constraint_that_is_none_is_refused_and_says_why() {
        let check = |asked: Value, named: &[&str]| {
            let asked = json!({ "age": asked });
            let unusable = read(asked.as_object().expect("an object")).expect_err("unusable");
            let told = format!("{} {}", unusable.message, unusable.hint);
            for named in ["column `age`"].iter().chain(named) {
                assert!(told.contains(named), "{asked}: {told}");
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
    fn constraints_are_bounded() {
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
