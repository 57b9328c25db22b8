//! Checks answers against the schemas of their operations.

use super::*;

/// Parts of an operation that the list of tools omits.
pub(crate) struct Reference {
    /// Arguments that are accepted and not listed.
    pub(crate) unlisted: Value,
    /// The full output schema.
    pub(crate) output: Value,
}

pub(crate) fn reference_of<T: Operation>() -> Reference {
    let mut unlisted = schema_of::<T>(SchemaSettings::draft2020_12());
    if let Some(Value::Object(properties)) = unlisted.get_mut("properties") {
        properties.retain(|_, property| property.get(UNLISTED).is_some());
    }
    Reference {
        unlisted,
        output: schema_of::<T::Response>(SchemaSettings::draft2020_12().for_serialize()),
    }
}

/// Checks an answer, as it is sent, against the schema of its operation.
pub(crate) fn conforms<T: Operation>(answer: &Value) {
    let schema = output::<T::Response>();
    let mut answer = answer.clone();
    without_nulls(&mut answer);
    check(&Value::Object(schema), &answer, "$");
}

/// Supports exactly the keywords that output schemas use; any other fails.
fn check(schema: &Value, value: &Value, at: &str) {
    for (word, rule) in schema.as_object().unwrap() {
        match (word.as_str(), rule) {
            ("$schema", _) => {}
            ("type", Value::String(kind)) => assert!(is(kind, value), "{at} is not {kind}: {value}"),
            ("anyOf", Value::Array(kinds)) => {
                let mut kinds = kinds.iter().filter_map(|kind| kind["type"].as_str());
                assert!(kinds.any(|kind| is(kind, value)), "{at}: {value}");
            }
            ("properties", Value::Object(properties)) => {
                for (name, value) in value.as_object().unwrap() {
                    match properties.get(name) {
                        Some(schema) => check(schema, value, &format!("{at}.{name}")),
                        None => panic!("{at}.{name} is not in the schema"),
                    }
                }
            }
            other => panic!("{at}: the keyword {other:?} is not supported by this test"),
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        other => panic!("type {other}"),
    }
}
