//! Converts a caller's JSON to bridge JSON. Drivers interpret tags, so an object that only looks like a tag is marked
//! as an object; and an integer that a language of floating-point numbers would round is sent as an exact one.

use super::{DEPTH_MAX, Unsendable};
use serde_json::{Map, Value, json};

/// Integers up to this size are the same in every language.
const SAFE: u64 = 1 << 53;

/// Tags whose value is a text.
const KINDS: [&str; 5] = ["int", "float", "datetime", "date", "bytes"];

/// Encodes a value as bridge JSON. The caller may have put tags into it.
pub(crate) fn encode_given(value: &Value) -> Result<String, Unsendable> {
    Ok(typed(value, DEPTH_MAX)?.to_string())
}

fn typed(value: &Value, left: usize) -> Result<Value, Unsendable> {
    match value {
        Value::Number(number) => {
            let size = number
                .as_u64()
                .or_else(|| number.as_i64().map(i64::unsigned_abs))
                .unwrap_or(0);
            Ok(if size > SAFE {
                json!({"$type": "int", "value": number.to_string()})
            } else {
                value.clone()
            })
        }
        Value::Array(parts) => {
            let left = left.checked_sub(1).ok_or(Unsendable::Deep)?;
            parts.iter().map(|part| typed(part, left)).collect()
        }
        Value::Object(parts) => object(parts, left.checked_sub(1).ok_or(Unsendable::Deep)?),
        _ => Ok(value.clone()),
    }
}

fn object(parts: &Map<String, Value>, left: usize) -> Result<Value, Unsendable> {
    let tag = match (parts.len(), parts.get("$type"), parts.get("value")) {
        (2, Some(Value::String(kind)), Some(value)) => Some((kind.as_str(), value)),
        _ => None,
    };
    let inner = match tag {
        Some((kind, Value::String(_))) if KINDS.contains(&kind) => return Ok(Value::Object(parts.clone())),
        Some(("object", Value::Object(inner))) => inner,
        _ => parts,
    };
    let typed = inner
        .iter()
        .map(|(key, part)| Ok((key.clone(), typed(part, left)?)))
        .collect::<Result<Map<String, Value>, Unsendable>>()?;
    Ok(if typed.contains_key("$type") {
        json!({"$type": "object", "value": typed})
    } else {
        Value::Object(typed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_json_is_tagged_unambiguously() {
        let check = |given: Value, expect: Value| {
            let text = encode_given(&given).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expect, "{given}");
        };
        let same = |value: Value| check(value.clone(), value);
        same(json!(null));
        same(json!([1, -1.5, "x", true, {"a": 9_007_199_254_740_992_u64}]));
        check(
            json!([
                9_007_199_254_740_993_u64,
                -9_007_199_254_740_993_i64,
                u64::MAX,
                i64::MIN
            ]),
            json!([
                {"$type": "int", "value": "9007199254740993"}, {"$type": "int", "value": "-9007199254740993"},
                {"$type": "int", "value": "18446744073709551615"}, {"$type": "int", "value": "-9223372036854775808"},
            ]),
        );
        same(json!({"at": {"$type": "datetime", "value": "2024-05-06T07:08:09Z"}}));
        same(json!({"$type": "object", "value": {"$type": "x", "value": 1}}));
        // Anything that is not exactly a tag of the table is an object.
        for other in [
            json!({"$type": "Foo.Bar", "x": 1}),
            json!({"$type": "object", "value": null}),
            json!({"$type": "int", "value": 5}),
            json!({"$type": "int", "value": "5", "unit": "m"}),
            json!({"$type": ["int"], "value": "5"}),
        ] {
            check(other.clone(), json!({"$type": "object", "value": other}));
        }
        check(
            json!({"$type": "object", "value": {"a": {"$type": "int"}}}),
            json!({"a": {"$type": "object", "value": {"$type": "int"}}}),
        );
    }

    #[test]
    fn too_deep_value_is_refused() {
        let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        assert!(encode_given(&deep(DEPTH_MAX)).is_ok());
        assert_eq!(encode_given(&deep(DEPTH_MAX + 1)), Err(Unsendable::Deep));
    }
}
