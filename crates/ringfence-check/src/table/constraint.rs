//! The constraint of a column, and the check of one field against it.
//!
//! - An empty field is valid unless the column is `required`; it does not count for `unique`.
//! - Spaces around a field are ignored, unless the type is `string`.
//! - `min` and `max` bound the value of a number, the length in characters of a `string`, `email` or `url`, and the
//!   time of a `date` or `datetime` (UTC if it has no zone). Both bounds are inclusive.
//! - `pattern` may match anywhere, as in JSON Schema; `^` and `$` anchor it. No look-around, no backreferences.
//! - `enum` compares texts, and for numeric types also numbers; `unique` compares texts.

use super::{
    dates::{self, Moment},
    decimal::Decimal,
    kinds::{ColumnType, Measured},
};
use crate::unknown::cut;
use regex::bytes::Regex;
use serde_json::Value;
use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashSet},
};

/// Maximum length of a pattern that an answer repeats.
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
    /// The bound as the question gives it, for answers.
    pub(super) shown: String,
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) texts: HashSet<Vec<u8>>,
    /// The options as numbers, if the type is a number.
    pub(super) numbers: BTreeSet<Decimal>,
    pub(super) shown: String,
}

/// A quantity that `min` and `max` bound.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    Number(Decimal),
    Length(u64),
    Moment(Moment),
}

impl Measure {
    /// The measure of a field that fits its type.
    fn of(kind: &ColumnType, field: &[u8]) -> Option<Self> {
        match kind.measured {
            Measured::Number => Some(Self::Number(Decimal::of(field))),
            // Counts the bytes that begin a character.
            Measured::Length => {
                let length = field.iter().filter(|byte| (**byte & 0xc0) != 0x80).count();
                Some(Self::Length(length as u64))
            }
            Measured::Moment => Self::moment(field),
            Measured::Nothing => None,
        }
    }

    pub(super) fn moment(field: &[u8]) -> Option<Self> {
        let moment = dates::datetime(field).or_else(|| dates::date(field));
        moment.map(Self::Moment)
    }

    pub(super) fn of_bound(kind: &ColumnType, value: &Value) -> Option<Self> {
        match kind.measured {
            Measured::Number => {
                let number = value.as_number()?.to_string();
                Some(Self::Number(Decimal::of(number.as_bytes())))
            }
            Measured::Length => value.as_u64().map(Self::Length),
            Measured::Moment => {
                let text = value.as_str()?.as_bytes();
                // A date may also bound datetimes.
                let is_right = (kind.fits)(text) || dates::date(text).is_some();
                is_right.then(|| Self::moment(text))?
            }
            Measured::Nothing => None,
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
    /// The value of a field: without the spaces around it, unless the type is `string`.
    pub(super) fn value<'f>(&self, field: &'f [u8]) -> &'f [u8] {
        match self.kind.name {
            "string" => field,
            _ => field.trim_ascii(),
        }
    }

    /// Checks a value (see [`Self::value`]) against everything but `unique`.
    pub(super) fn fault(&self, value: &[u8]) -> Option<FieldFault> {
        if value.is_empty() {
            return self.is_required.then_some(FieldFault::Missing);
        }
        if !(self.kind.fits)(value) {
            return Some(FieldFault::ColumnType);
        }
        let is_bounded = self.min.is_some() || self.max.is_some();
        let measure = is_bounded.then(|| Measure::of(self.kind, value)).flatten();
        let compared = |bound: &Option<Bound>| Some(measure.as_ref()?.cmp(&bound.as_ref()?.at));
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
        let is_option = self.options.as_ref().is_none_or(|all| all.contains(value));
        (!is_option).then_some(FieldFault::Option)
    }

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
    fn contains(&self, value: &[u8]) -> bool {
        self.texts.contains(value) || !self.numbers.is_empty() && self.numbers.contains(&Decimal::of(value))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{asked::read, kinds},
        *,
    };
    use serde_json::json;

    fn constraint(value: Value) -> Constraint {
        let question = json!({ "c": value });
        let read = read(question.as_object().expect("an object")).expect("usable");
        read.into_iter().next().expect("one").1
    }

    fn fault(constraint: &Value, field: &str) -> Option<FieldFault> {
        let constraint = self::constraint(constraint.clone());
        constraint.fault(constraint.value(field.as_bytes()))
    }

    #[test]
    #[rustfmt::skip]
    fn field_is_checked_against_its_constraint() {
        let check = |constraint: Value, right: &[&str], wrong: &[(&str, FieldFault)]| {
            for field in right {
                assert_eq!(fault(&constraint, field), None, "{constraint} {field}");
            }
            for (field, expect) in wrong {
                assert_eq!(fault(&constraint, field), Some(*expect), "{constraint} {field}");
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
        let near = [("0.50000000000000000001", FieldFault::Option), ("9007199254740992.0", FieldFault::Option)];
        check(json!({ "type": "float", "enum": [0.5, 9_007_199_254_740_993_u64] }), &["9007199254740993.0"], &near);
        let above = [("9007199254740992.9", FieldFault::TooSmall), ("9007199254740993.1", FieldFault::TooLarge)];
        let exact = json!({ "type": "float", "min": 9_007_199_254_740_993_u64, "max": 9_007_199_254_740_993_u64 });
        check(exact, &["9007199254740993"], &above);
        check(json!({ "enum": [1, true] }), &["1", "true"], &[("1.0", FieldFault::Option)]);
        let mail = json!({ "type": "email", "max": 8, "pattern": "@a" });
        check(mail, &["b@a.io"], &[("b@b.io", FieldFault::Pattern), ("bbbb@a.io", FieldFault::TooLarge)]);
        check(json!({ "min": null, "pattern": null }), &["x"], &[]);
    }

    #[test]
    fn expected_value_is_described_in_words() {
        let check = |value: Value, fault: FieldFault, expect: &str| {
            assert_eq!(constraint(value).expected(fault), expect);
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
