//! From what a validator finds to what a caller is told: in the order of the paths, each with what was expected and
//! what is there, both bounded.

use super::{
    excerpt,
    tree::{Document, Flaw, FlawKind, Tree},
};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use ringfence_types::{ISSUES_MAX, JsonError, JsonReport};
use serde_json::Value;
use std::cmp::Ordering;

/// Of the listed errors, together; paths and values are bounded, but there may be many long ones.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What is known when errors are told.
pub(super) struct Context<'a> {
    pub(super) text: &'a str,
    pub(super) document: &'a Document<'a>,
    pub(super) schema: &'a Value,
}

/// One thing that is wrong.
enum Found<'a> {
    WithText(&'a Flaw),
    WithValue(Box<ValidationError<'a>>),
}

impl Found<'_> {
    fn path(&self) -> &str {
        match self {
            Found::WithText(flaw) => &flaw.path,
            Found::WithValue(error) => error.instance_path().as_str(),
        }
    }
}

pub(super) fn report(name: &str, context: &Context<'_>, errors: Vec<ValidationError<'_>>) -> JsonReport {
    let flaws = context.document.flaws.iter().map(Found::WithText);
    let errors_total = context.document.flaws_total + errors.len() as u64;
    let errors = errors.into_iter().map(|error| Found::WithValue(Box::new(error)));
    let mut found: Vec<Found<'_>> = flaws.chain(errors).collect();
    found.sort_by(|one, other| in_order(one.path(), other.path()));
    let mut bytes = 0;
    let errors = found
        .iter()
        .take(ISSUES_MAX)
        .map(|found| match found {
            Found::WithText(flaw) => of_flaw(context, flaw),
            Found::WithValue(error) => of_error(context, error),
        })
        .take_while(|error| {
            bytes += error.path.len() + error.message.len() + 2 * excerpt::VALUE_BYTES_MAX;
            bytes <= ANSWER_BYTES_MAX
        })
        .collect();
    JsonReport {
        valid: errors_total == 0,
        schema: name.to_owned(),
        errors,
        errors_total,
    }
}

/// The second item comes before the tenth.
fn in_order(one: &str, other: &str) -> Ordering {
    let is_number = |segment: &str| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let mut ones = one.split('/');
    let mut others = other.split('/');
    loop {
        let ordering = match (ones.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => match (one, other) {
                (Some(one), Some(other)) if is_number(one) && is_number(other) => {
                    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
                }
                (one, other) => one.cmp(&other),
            },
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

fn of_flaw(context: &Context<'_>, flaw: &Flaw) -> JsonError {
    match flaw.kind {
        FlawKind::DuplicateName => JsonError {
            path: flaw.path.clone(),
            message: "An earlier member of this object has the same name. Readers differ in which of them they take."
                .to_owned(),
            keyword: "duplicateKey".to_owned(),
            expected: "each name once".into(),
            actual: value_at(context, &flaw.path),
        },
        FlawKind::Rounded(number) => {
            let start = number.start as usize;
            let digits = context.text.get(start..start + number.bytes as usize);
            let digits = excerpt::cut(digits.unwrap_or_default(), excerpt::NAME_BYTES_MAX);
            JsonError {
                path: flaw.path.clone(),
                message: format!(
                    "The number {} would be rounded: neither a 64-bit integer nor a double holds it. Send it as a string.",
                    excerpt::cut(&digits, excerpt::WORD_BYTES_MAX)
                ),
                keyword: "number".to_owned(),
                expected: "a number that 64 bits hold".into(),
                actual: digits.into(),
            }
        }
    }
}

fn value_at(context: &Context<'_>, path: &str) -> Value {
    context
        .document
        .tree
        .at(path)
        .map_or(Value::Null, excerpt::of_tree)
}

fn of_error(context: &Context<'_>, error: &ValidationError<'_>) -> JsonError {
    let path = error.instance_path().as_str();
    let tree = context.document.tree.at(path).unwrap_or(&Tree::Null);
    let actual = match error.kind() {
        // What is wrong is a name, which no path leads to.
        ValidationErrorKind::PropertyNames { error } => error.instance().clone().into_owned(),
        _ => excerpt::of_tree(tree),
    };
    JsonError {
        path: path.to_owned(),
        message: excerpt::cut(&message(context, error, tree), excerpt::MESSAGE_BYTES_MAX),
        keyword: error.kind().keyword().to_owned(),
        expected: excerpt::of_value(&expected(context, error)),
        actual,
    }
}

/// Alternatives that are told in one message.
const ALTERNATIVES_MAX: usize = 4;

fn message(context: &Context<'_>, error: &ValidationError<'_>, tree: &Tree<'_>) -> String {
    let shown = excerpt::beginning(tree, excerpt::WORD_BYTES_MAX);
    let plain = match error.kind() {
        ValidationErrorKind::AdditionalItems { limit } => format!("There are more than {limit} items"),
        _ => error.masked_with(shown.as_str()).to_string(),
    };
    let (ValidationErrorKind::AnyOf {
        context: alternatives,
    }
    | ValidationErrorKind::OneOfNotValid {
        context: alternatives,
    }) = error.kind()
    else {
        return plain;
    };
    let reasons: Vec<String> = alternatives
        .iter()
        .take(ALTERNATIVES_MAX)
        .filter_map(|errors| errors.first())
        .map(|first| {
            let path = first.instance_path().as_str();
            let tree = context.document.tree.at(path).unwrap_or(&Tree::Null);
            let shown = excerpt::beginning(tree, excerpt::WORD_BYTES_MAX);
            let reason = first.masked_with(shown.as_str()).to_string();
            let below = path.strip_prefix(error.instance_path().as_str()).unwrap_or(path);
            let reason = excerpt::cut(&reason, excerpt::NAME_BYTES_MAX);
            if below.is_empty() {
                reason
            } else {
                format!("{below}: {reason}")
            }
        })
        .collect();
    if reasons.is_empty() {
        plain
    } else {
        format!("{plain}; {}", reasons.join("; "))
    }
}

/// What the keyword says.
fn expected(context: &Context<'_>, error: &ValidationError<'_>) -> Value {
    match error.kind() {
        ValidationErrorKind::Type {
            kind: TypeKind::Single(word),
        } => word.as_str().into(),
        ValidationErrorKind::Type {
            kind: TypeKind::Multiple(words),
        } => words.iter().map(|word| Value::from(word.as_str())).collect(),
        ValidationErrorKind::Required { property } => property.clone(),
        ValidationErrorKind::Enum { options } => options.as_ref().clone(),
        ValidationErrorKind::Constant { expected_value } => expected_value.as_ref().clone(),
        ValidationErrorKind::Pattern { pattern } => pattern.as_str().into(),
        ValidationErrorKind::Format { format } => format.as_str().into(),
        ValidationErrorKind::Minimum { limit }
        | ValidationErrorKind::Maximum { limit }
        | ValidationErrorKind::ExclusiveMinimum { limit }
        | ValidationErrorKind::ExclusiveMaximum { limit } => limit.clone(),
        ValidationErrorKind::MinLength { limit }
        | ValidationErrorKind::MaxLength { limit }
        | ValidationErrorKind::MinItems { limit }
        | ValidationErrorKind::MaxItems { limit }
        | ValidationErrorKind::MinProperties { limit }
        | ValidationErrorKind::MaxProperties { limit } => (*limit).into(),
        ValidationErrorKind::MultipleOf { multiple_of } => (*multiple_of).into(),
        ValidationErrorKind::AdditionalProperties { .. }
        | ValidationErrorKind::UnevaluatedItems { .. }
        | ValidationErrorKind::UnevaluatedProperties { .. }
        | ValidationErrorKind::FalseSchema => false.into(),
        ValidationErrorKind::AdditionalItems { limit } => (*limit).into(),
        ValidationErrorKind::UniqueItems => true.into(),
        ValidationErrorKind::PropertyNames { error } => expected(context, error),
        ValidationErrorKind::Not { schema } => schema.clone(),
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
    fn paths_are_in_the_order_of_a_reader() {
        let mut paths = ["/a/10", "/a/2/b", "", "/b", "/a/2", "/a", "/a/x", "/1", "/a-b"];
        paths.sort_by(|one, other| in_order(one, other));
        assert_eq!(
            paths,
            ["", "/1", "/a", "/a/2", "/a/2/b", "/a/10", "/a/x", "/a-b", "/b"]
        );
    }
}
