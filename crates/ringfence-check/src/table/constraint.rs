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
    kinds::{self, ColumnType, Measured},
};
use crate::unknown::cut;
use regex::bytes::Regex;
use serde_json::Value;
use std::{cmp::Ordering, collections::HashSet};

/// Of what an answer repeats.
const EXPECTED_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub(super) struct Constraint {
    pub(super) kind: &'static ColumnType,
    pub(super) is_required: bool,
    pub(super) is_unique: bool,
    pub(super) min: Option<Bound>,
    pub(super) max: Option<Bound>,
    pub(super) pattern: Option<Regex>,
    pub(super) options: Option<Options>,
}

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) at: Measure,
    /// As it is asked for, for answers.
    pub(super) shown: String,
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) texts: HashSet<Vec<u8>>,
    /// The same, where the type is a number.
    pub(super) numbers: Vec<Measure>,
    pub(super) shown: String,
}

/// What `min` and `max` are held against; numbers as exact as they can be had.
#[derive(Clone, Copy, Debug)]
pub(super) enum Measure {
    Whole(i128),
    Double(f64),
    Moment(Moment),
}

impl Measure {
    /// Of a field that fits its type.
    fn of(kind: &ColumnType, field: &[u8]) -> Option<Self> {
        match kind.measured {
            Measured::Number => Some(Self::number(field)),
            // Bytes that begin a character.
            Measured::Length => {
                let length = field.iter().filter(|byte| (**byte & 0xc0) != 0x80).count();
                Some(Self::Whole(length as i128))
            }
            Measured::Moment => Self::moment(field),
            Measured::Nothing => None,
        }
    }

    /// More digits than any bound has are as good as the largest.
    pub(super) fn number(field: &[u8]) -> Self {
        let text = std::str::from_utf8(field).unwrap_or_default();
        let largest = if text.starts_with('-') { f64::MIN } else { f64::MAX };
        match text.parse() {
            Ok(whole) => Self::Whole(whole),
            Err(_) => Self::Double(kinds::double(field).unwrap_or(largest)),
        }
    }

    pub(super) fn moment(field: &[u8]) -> Option<Self> {
        let moment = dates::datetime(field).or_else(|| dates::date(field));
        moment.map(Self::Moment)
    }

    /// A bound, as it is asked for.
    pub(super) fn asked(kind: &ColumnType, value: &Value) -> Option<Self> {
        match kind.measured {
            Measured::Number => match value.as_number()?.as_i128() {
                Some(whole) => Some(Self::Whole(whole)),
                None => value.as_f64().map(Self::Double),
            },
            Measured::Length => value.as_u64().map(|length| Self::Whole(length.into())),
            Measured::Moment => {
                let text = value.as_str()?.as_bytes();
                // A day may bound times, too.
                let is_right = (kind.fits)(text) || dates::date(text).is_some();
                is_right.then(|| Self::moment(text))?
            }
            Measured::Nothing => None,
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (Self::Moment(one), Self::Moment(other)) => one.cmp(&other),
            (one, other) => one.double().total_cmp(&other.double()),
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            // Minus zero is zero.
            Self::Double(double) => double + 0.0,
            Self::Moment(_) => 0.0,
        }
    }
}

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
        match self.kind.word {
            "string" => field,
            _ => field.trim_ascii(),
        }
    }

    /// Of a value, see [`Self::value`]; all but `unique`.
    pub(super) fn fault(&self, value: &[u8]) -> Option<FieldFault> {
        if value.is_empty() {
            return self.is_required.then_some(FieldFault::Missing);
        }
        if !(self.kind.fits)(value) {
            return Some(FieldFault::ColumnType);
        }
        let is_bounded = self.min.is_some() || self.max.is_some();
        let measure = is_bounded.then(|| Measure::of(self.kind, value)).flatten();
        let compared = |bound: &Option<Bound>| Some(measure?.compare(bound.as_ref()?.at));
        if compared(&self.min) == Some(Ordering::Less) {
            return Some(FieldFault::TooSmall);
        }
        if compared(&self.max) == Some(Ordering::Greater) {
            return Some(FieldFault::TooLarge);
        }
        let pattern = self.pattern.as_ref();
        if pattern.is_some_and(|pattern| !pattern.is_match(value)) {
            return Some(FieldFault::Pattern);
        }
        let is_option = self.options.as_ref().is_none_or(|options| options.have(value));
        (!is_option).then_some(FieldFault::Option)
    }

    /// What the field should be.
    pub(super) fn expected(&self, fault: FieldFault) -> String {
        match fault {
            FieldFault::Missing => "a value: the column is required".to_owned(),
            FieldFault::ColumnType => self.kind.expected.to_owned(),
            FieldFault::TooSmall => self.within(self.min.as_ref(), "at least", "later"),
            FieldFault::TooLarge => self.within(self.max.as_ref(), "at most", "earlier"),
            FieldFault::Pattern => {
                let pattern = self.pattern.as_ref().map_or("", Regex::as_str);
                format!("a text that matches `{}`", cut(pattern, EXPECTED_CHARS_MAX))
            }
            FieldFault::Option => {
                let shown = self.options.as_ref().map_or("", |options| &options.shown);
                format!("one of {shown}")
            }
            FieldFault::Repeated => "a value that no row before it has".to_owned(),
        }
    }

    fn within(&self, bound: Option<&Bound>, limit: &str, further: &str) -> String {
        let end = bound.map_or("", |bound| &bound.shown);
        match self.kind.measured {
            Measured::Length => format!("a text of {limit} {end} characters"),
            Measured::Moment => format!("{end} or {further}"),
            _ => format!("a number of {limit} {end}"),
        }
    }
}

impl Options {
    fn have(&self, value: &[u8]) -> bool {
        let is_same = |number: &Measure| number.compare(Measure::number(value)).is_eq();
        self.texts.contains(value) || self.numbers.iter().any(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{asked::read, kinds},
        *,
    };
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
        check(
            json!("uuid"),
            FieldFault::ColumnType,
            kinds::named("uuid").expect("known").expected,
        );
    }
}
