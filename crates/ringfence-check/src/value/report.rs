//! Turns the validator's errors into a report, in the order of their paths, with bounded expected and actual values.

use super::{
    excerpt,
    tree::{Document, Flaw, Tree},
};
use jsonschema::{ValidationError, error::ValidationErrorKind};
use ringfence_types::{ISSUES_MAX, JsonError, JsonReport};
use serde_json::Value;
use std::cmp::Ordering;

/// Maximum length of all listed errors together: each is bounded, but there may be many long ones.
const ANSWER_BYTES_MAX: usize = 4 << 20;

pub(super) struct Context<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) schema: &'a Value,
}

impl Context<'_> {
    fn tree(&self, error: &ValidationError<'_>) -> &Tree<'_> {
        let path = error.instance_path().as_str();
        self.document.tree.at(path).unwrap_or(&Tree::Null)
    }
}

enum Fault<'a> {
    Text(&'a Flaw<'a>),
    Value(&'a ValidationError<'a>),
}

impl Fault<'_> {
    fn path(&self) -> &str {
        match self {
            Fault::Text(flaw) => flaw.path.as_str(),
            Fault::Value(error) => error.instance_path().as_str(),
        }
    }
}

pub(super) fn report(name: &str, context: &Context<'_>, errors: &[ValidationError<'_>]) -> JsonReport {
    let flaws = context.document.flaws.iter().map(Fault::Text);
    let errors_total = context.document.flaws_total + errors.len() as u64;
    let mut faults: Vec<Fault<'_>> = flaws.chain(errors.iter().map(Fault::Value)).collect();
    faults.sort_by(|one, other| in_order(one.path(), other.path()));
    let mut bytes = 0;
    let listed = faults.iter().take(ISSUES_MAX).map(|fault| match fault {
        Fault::Text(flaw) => of_flaw(context, flaw),
        Fault::Value(error) => of_error(context, error),
    });
    let errors = listed.take_while(|error| {
        bytes += error.path.len() + error.message.len() + 2 * excerpt::VALUE_BYTES_MAX;
        bytes <= ANSWER_BYTES_MAX
    });
    JsonReport {
        valid: errors_total == 0,
        schema: name.to_owned(),
        errors: errors.collect(),
        errors_total,
    }
}

/// Compares two paths segment by segment; numbers by their value.
fn in_order(one: &str, other: &str) -> Ordering {
    let is_number = |segment: &str| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let segments = |one: &str, other: &str| match is_number(one) && is_number(other) {
        true => one.len().cmp(&other.len()).then_with(|| one.cmp(other)),
        false => one.cmp(other),
    };
    let pairs = one.split('/').zip(other.split('/'));
    let mut orderings = pairs.map(|(one, other)| segments(one, other));
    // If one path begins with the other, the shorter comes first.
    let by_length = || one.split('/').count().cmp(&other.split('/').count());
    let first = orderings.find(|ordering| ordering.is_ne());
    first.unwrap_or_else(by_length)
}

fn of_flaw(context: &Context<'_>, flaw: &Flaw<'_>) -> JsonError {
    let path = flaw.path.as_str().to_owned();
    let Some(digits) = flaw.rounded else {
        return JsonError {
            message: "An earlier member of this object has the same name. Readers differ in which of them they take."
                .to_owned(),
            keyword: "duplicateKey".to_owned(),
            expected: "each name once".into(),
            actual: context.document.tree.at(&path).map_or(Value::Null, Tree::excerpt),
            path,
        };
    };
    JsonError {
        path,
        message: format!(
            "The number {} would be rounded: neither a 64-bit integer nor a double holds it. Send it as a string.",
            excerpt::cut(digits, excerpt::WORD_BYTES_MAX)
        ),
        keyword: "number".to_owned(),
        expected: "a number that 64 bits hold".into(),
        actual: excerpt::cut(digits, excerpt::NAME_BYTES_MAX).into(),
    }
}

fn of_error(context: &Context<'_>, error: &ValidationError<'_>) -> JsonError {
    let path = error.instance_path().as_str();
    let actual = match error.kind() {
        // The wrong value is a name, which has no path.
        ValidationErrorKind::PropertyNames { error } => error.instance().clone().into_owned(),
        _ => context.tree(error).excerpt(),
    };
    let expected = expected(context, error);
    JsonError {
        path: path.to_owned(),
        message: excerpt::cut(&message(context, error), excerpt::MESSAGE_BYTES_MAX),
        keyword: error.kind().keyword().to_owned(),
        expected: excerpt::of(&expected, expected.as_str()),
        actual,
    }
}

/// Maximum number of alternatives explained in one message.
const ALTERNATIVES_MAX: usize = 4;

fn message(context: &Context<'_>, error: &ValidationError<'_>) -> String {
    use ValidationErrorKind::{AnyOf, OneOfNotValid};
    let mut message = match error.kind() {
        ValidationErrorKind::AdditionalItems { limit } => format!("There are more than {limit} items"),
        _ => sentence(context, error),
    };
    let (AnyOf { context: reasons } | OneOfNotValid { context: reasons }) = error.kind() else {
        return message;
    };
    let alternatives = reasons.iter().take(ALTERNATIVES_MAX);
    for first in alternatives.filter_map(|errors| errors.first()) {
        let path = first.instance_path().as_str();
        let below = path.strip_prefix(error.instance_path().as_str()).unwrap_or(path);
        let reason = excerpt::cut(&sentence(context, first), excerpt::NAME_BYTES_MAX);
        message += &format!("; {below}{}{reason}", if below.is_empty() { "" } else { ": " });
    }
    message
}

/// The validator's message, with the beginning of the value.
fn sentence(context: &Context<'_>, error: &ValidationError<'_>) -> String {
    let shown = excerpt::beginning(context.tree(error), excerpt::WORD_BYTES_MAX);
    error.masked_with(shown).to_string()
}

fn expected(context: &Context<'_>, error: &ValidationError<'_>) -> Value {
    match error.kind() {
        ValidationErrorKind::Required { property } => property.clone(),
        ValidationErrorKind::AdditionalItems { limit } => (*limit).into(),
        ValidationErrorKind::PropertyNames { error } => expected(context, error),
        _ => {
            let at = context.schema.pointer(error.schema_path().as_str());
            at.cloned().unwrap_or(Value::Null)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_in_natural_order() {
        let mut paths = ["/a/10", "/a/2/b", "", "/b", "/a/2", "/a", "/a/x", "/1", "/a-b"];
        paths.sort_by(|one, other| in_order(one, other));
        assert_eq!(
            paths,
            ["", "/1", "/a", "/a/2", "/a/2/b", "/a/10", "/a/x", "/a-b", "/b"]
        );
    }
}
