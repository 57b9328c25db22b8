//! What is asked of a column, from the word or the object that asks for it to a look at one field.
//!
//! - An empty field is right unless the column is `required`; it does not count for `unique`.
//! - Spaces around a field are no part of it, unless the type is `string`.
//! - `min` and `max` belong to the number, to the length in characters of a `string`, `email` or `url`, and to the
//!   moment of a `date` or `datetime` (one without a zone is UTC). Both are allowed values.
//! - `pattern` has to match somewhere, as in JSON Schema: `^` and `$` hold it to the ends. No look-around, no
//!   backreferences.
//! - `enum` compares texts, or numbers if the type is one.
//! - `unique` compares texts.

use super::{
    dates::{self, Moment},
    kinds::{self, ColumnType},
};
use regex::bytes::Regex;
use serde_json::Value;
use std::{cmp::Ordering, collections::HashSet};

/// Of what an answer repeats.
const EXPECTED_CHARS_MAX: usize = 200;

/// Of one column.
#[derive(Debug)]
pub(super) struct Constraint {
    pub(super) kind: ColumnType,
    pub(super) is_required: bool,
    pub(super) is_unique: bool,
    pub(super) range: Range,
    pub(super) pattern: Option<Regex>,
    pub(super) options: Option<Options>,
    /// As they are asked for, for answers.
    pub(super) told: ConstraintText,
}

#[derive(Debug, Default)]
pub(super) struct ConstraintText {
    pub(super) min: String,
    pub(super) max: String,
    pub(super) options: String,
}

#[derive(Debug)]
pub(super) enum Range {
    Any,
    Numbers(Option<Quantity>, Option<Quantity>),
    Lengths(usize, usize),
    Moments(Option<Moment>, Option<Moment>),
}

#[derive(Debug)]
pub(super) enum Options {
    Texts(HashSet<Vec<u8>>),
    Numbers(Vec<Quantity>),
}

/// A number as exact as it can be had.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    Whole(i128),
    Double(f64),
}

impl Quantity {
    /// Of a field that is a number. More digits than any bound has are as good as the largest.
    pub(super) fn of(field: &[u8]) -> Self {
        let text = std::str::from_utf8(field).unwrap_or_default();
        match text.parse() {
            Ok(whole) => Self::Whole(whole),
            Err(_) => Self::Double(
                kinds::double(field)
                    .unwrap_or_else(|| if text.starts_with('-') { f64::MIN } else { f64::MAX }),
            ),
        }
    }

    pub(super) fn of_json(value: &Value) -> Option<Self> {
        let number = value.as_number()?;
        let whole = number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from));
        whole
            .map(Self::Whole)
            .or_else(|| number.as_f64().map(Self::Double))
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (one, other) => one.double().total_cmp(&other.double()),
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            // Minus zero is zero.
            Self::Double(double) => double + 0.0,
        }
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldFault {
    Missing,
    ColumnType,
    TooSmall,
    TooLarge,
    Pattern,
    Option,
    Repeated,
}

impl Constraint {
    /// The field as it counts: without the spaces around it.
    pub(super) fn value<'f>(&self, field: &'f [u8]) -> &'f [u8] {
        if self.kind.is_trimmed() {
            field.trim_ascii()
        } else {
            field
        }
    }

    /// Of a value, see [`Self::value`]; all but `unique`.
    pub(super) fn fault(&self, value: &[u8]) -> Option<FieldFault> {
        if value.is_empty() {
            return self.is_required.then_some(FieldFault::Missing);
        }
        if !self.kind.fits(value) {
            return Some(FieldFault::ColumnType);
        }
        if let Some(fault) = self.range.fault(self.kind, value) {
            return Some(fault);
        }
        if self
            .pattern
            .as_ref()
            .is_some_and(|pattern| !pattern.is_match(value))
        {
            return Some(FieldFault::Pattern);
        }
        let is_option = self.options.as_ref().is_none_or(|options| options.have(value));
        (!is_option).then_some(FieldFault::Option)
    }

    /// What the field should be.
    pub(super) fn expected(&self, fault: FieldFault) -> String {
        match fault {
            FieldFault::Missing => "a value: the column is required".to_owned(),
            FieldFault::ColumnType => self.kind.expected().to_owned(),
            FieldFault::TooSmall => self.bound("at least", &self.told.min, "later"),
            FieldFault::TooLarge => self.bound("at most", &self.told.max, "earlier"),
            FieldFault::Pattern => {
                let pattern = self.pattern.as_ref().map_or("", Regex::as_str);
                format!("a text that matches `{}`", cut(pattern, EXPECTED_CHARS_MAX))
            }
            FieldFault::Option => format!("one of {}", self.told.options),
            FieldFault::Repeated => "a value that no row before it has".to_owned(),
        }
    }

    fn bound(&self, limit: &str, end: &str, further: &str) -> String {
        match self.range {
            Range::Lengths(..) => format!("a text of {limit} {end} characters"),
            Range::Moments(..) => format!("{end} or {further}"),
            _ => format!("a number of {limit} {end}"),
        }
    }
}

impl Range {
    fn fault(&self, kind: ColumnType, value: &[u8]) -> Option<FieldFault> {
        match self {
            Range::Any => None,
            Range::Numbers(min, max) => outside(Quantity::of(value), *min, *max, Quantity::compare),
            Range::Lengths(min, max) => {
                let length = characters(value);
                outside(length, Some(*min), Some(*max), |one, other| one.cmp(&other))
            }
            Range::Moments(min, max) => {
                let moment = moment(kind, value)?;
                outside(moment, *min, *max, |one, other| one.cmp(&other))
            }
        }
    }
}

fn outside<T>(
    value: T,
    min: Option<T>,
    max: Option<T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Option<FieldFault>
where
    T: Copy,
{
    if min.is_some_and(|min| compare(value, min).is_lt()) {
        Some(FieldFault::TooSmall)
    } else if max.is_some_and(|max| compare(value, max).is_gt()) {
        Some(FieldFault::TooLarge)
    } else {
        None
    }
}

/// Of UTF-8: bytes that begin one.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

pub(super) fn moment(kind: ColumnType, value: &[u8]) -> Option<Moment> {
    match kind {
        ColumnType::Datetime => dates::datetime(value),
        _ => dates::date(value),
    }
}

impl Options {
    fn have(&self, value: &[u8]) -> bool {
        match self {
            Options::Texts(texts) => texts.contains(value),
            Options::Numbers(numbers) => {
                let quantity = Quantity::of(value);
                numbers.iter().any(|number| number.compare(quantity).is_eq())
            }
        }
    }
}

/// The first characters of a text, with an ellipsis if there are more.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::asked::read, *};
    use serde_json::json;

    fn constraint(asked: Value) -> Constraint {
        let asked = json!({ "c": asked });
        let read = read(asked.as_object().expect("an object")).expect("usable");
        read.into_iter().next().expect("one").1
    }

    fn fault(asked: &Value, field: &str) -> Option<FieldFault> {
        let constraint = constraint(asked.clone());
        constraint.fault(constraint.value(field.as_bytes()))
    }

    #[test]
    #[rustfmt::skip]
    fn a_field_is_held_against_its_constraint() {
        let check = |asked: Value, right: &[&str], wrong: &[(&str, FieldFault)]| {
            for field in right {
                assert_eq!(fault(&asked, field), None, "{asked} {field}");
            }
            for (field, expect) in wrong {
                assert_eq!(fault(&asked, field), Some(*expect), "{asked} {field}");
            }
        };
        check(json!("integer"), &["1", " 1 ", "", "  "], &[("x", FieldFault::ColumnType)]);
        check(json!("string"), &["", " ", "x"], &[]);
        check(json!({ "required": true }), &["x", " "], &[("", FieldFault::Missing)]);
        check(json!({ "type": "float", "required": true }), &["1"], &[("", FieldFault::Missing), (" ", FieldFault::Missing)]);
        let ages = json!({ "type": "integer", "min": 0, "max": 150 });
        check(ages, &["0", "150", "-0"], &[("-1", FieldFault::TooSmall), ("151", FieldFault::TooLarge), ("1.0", FieldFault::ColumnType)]);
        let large = json!({ "type": "integer", "max": u64::MAX });
        check(large, &["18446744073709551615"], &[("18446744073709551616", FieldFault::TooLarge)]);
        let huge = "9".repeat(400);
        check(json!({ "type": "integer", "max": 5 }), &[&format!("-{huge}")], &[(&huge, FieldFault::TooLarge)]);
        let halves = json!({ "type": "float", "min": 0.5, "max": 1 });
        check(halves, &["0.5", "1", "1.0", "5e-1"], &[("0.49", FieldFault::TooSmall), ("1.0001", FieldFault::TooLarge)]);
        check(json!({ "type": "float", "min": 0 }), &["-0", "-0.0"], &[("-0.1", FieldFault::TooSmall)]);
        check(json!({ "min": 2, "max": 3 }), &["äö", "abc", ""], &[("ä", FieldFault::TooSmall), ("abcd", FieldFault::TooLarge)]);
        let days = json!({ "type": "date", "min": "2024-01-01", "max": "2024-12-31" });
        check(days, &["2024-02-29"], &[("2023-12-31", FieldFault::TooSmall), ("2025-01-01", FieldFault::TooLarge)]);
        let times = json!({ "type": "datetime", "min": "2024-01-01", "max": "2024-01-01T12:00:00+01:00" });
        check(times, &["2024-01-01 11:00:00"], &[("2024-01-01T11:00:01Z", FieldFault::TooLarge)]);
        check(json!({ "pattern": "b+" }), &["abc"], &[("ac", FieldFault::Pattern)]);
        check(json!({ "pattern": "^b+$" }), &["bb"], &[("abc", FieldFault::Pattern)]);
        check(json!({ "enum": ["a", "b"] }), &["a", ""], &[("A", FieldFault::Option), ("ab", FieldFault::Option)]);
        check(json!({ "type": "integer", "enum": [1, "2"] }), &["01", "2"], &[("3", FieldFault::Option)]);
        check(json!({ "type": "float", "enum": [0.5] }), &["5e-1"], &[("0.51", FieldFault::Option)]);
        check(json!({ "enum": [1, true] }), &["1", "true"], &[("1.0", FieldFault::Option)]);
        let mail = json!({ "type": "email", "max": 8, "pattern": "@a" });
        check(mail, &["b@a.io"], &[("b@b.io", FieldFault::Pattern), ("bbbb@a.io", FieldFault::TooLarge)]);
        check(json!({ "min": null, "pattern": null }), &["x"], &[]);
    }

    #[test]
    fn what_is_expected_is_told_in_words() {
        let check = |asked: Value, fault: FieldFault, expect: &str| {
            assert_eq!(constraint(asked).expected(fault), expect);
        };
        check(
            json!({ "type": "integer", "min": 5 }),
            FieldFault::TooSmall,
            "a number of at least 5",
        );
        check(
            json!({ "max": 5 }),
            FieldFault::TooLarge,
            "a text of at most 5 characters",
        );
        let day = json!({ "type": "date", "min": "2024-01-01" });
        check(day, FieldFault::TooSmall, "2024-01-01 or later");
        check(json!({ "enum": ["a", 1] }), FieldFault::Option, "one of a, 1");
        check(
            json!({ "pattern": "^x" }),
            FieldFault::Pattern,
            "a text that matches `^x`",
        );
        check(json!("uuid"), FieldFault::ColumnType, ColumnType::Uuid.expected());
    }
}
