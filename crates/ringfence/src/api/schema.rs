//! The schemas that clients see, made from the request and response types and made plain: the converters of the common
//! frameworks refuse or warn of much that JSON Schema allows (references, unions with null, formats, values without a
//! type), and every word is paid for in each conversation.

use super::Operation;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Of properties that are accepted and not listed.
const UNLISTED: &str = "x-unlisted";

fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    plain(&mut schema);
    schema
}

/// The description of an operation, and what it takes.
pub(crate) fn listed_input<T: Operation>() -> (String, Map<String, Value>) {
    listed(schema_of::<T>(SchemaSettings::draft2020_12()))
}

fn listed(schema: Value) -> (String, Map<String, Value>) {
    let Value::Object(mut schema) = schema else {
        return Default::default();
    };
    let about = match schema.remove("description") {
        Some(Value::String(about)) => about,
        _ => String::new(),
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|_, property| property.get(UNLISTED).is_none());
    } else {
        schema.insert("properties".to_owned(), json!({}));
    }
    (about, schema)
}

/// What an operation gives: names and types. Clients check each answer against it, and one checks the schema itself
/// each time, so it is shallow and, where it is long, of the draft that is checked fastest. It is not closed: a client
/// that has an older list goes on.
pub(crate) fn output<T: JsonSchema>() -> Map<String, Value> {
    shallow(&schema_of::<T>(SchemaSettings::draft07().for_serialize()))
}

fn shallow(full: &Value) -> Map<String, Value> {
    if full.get("properties").is_none() {
        return Map::from_iter([("type".to_owned(), json!("object"))]);
    }
    let any = ["string", "number", "boolean", "object", "array"].map(|kind| json!({"type": kind}));
    let mut properties = Map::new();
    for (name, property) in full["properties"].as_object().into_iter().flatten() {
        let shallow = match property.get("type") {
            Some(kind) => json!({"type": kind}),
            None => json!({"anyOf": any}),
        };
        properties.insert(name.clone(), shallow);
    }
    let mut schema = Map::new();
    if properties.len() > 8 {
        let draft = json!("http://json-schema.org/draft-07/schema#");
        schema.insert("$schema".to_owned(), draft);
    }
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema
}

/// Takes out nulls, which the schema has no word for: what has no value is left out.
pub(crate) fn without_nulls(answer: &mut Value) {
    if let Value::Object(fields) = answer {
        fields.retain(|_, value| !value.is_null());
    }
}

/// What is said of an argument; a path below it says the same.
pub(super) fn about<T: JsonSchema>(path: &str) -> Option<String> {
    let schema = schema_of::<T>(SchemaSettings::draft2020_12());
    let name = path.split(['.', '[']).next()?;
    let said = schema["properties"][name]["description"].as_str()?;
    Some(format!("`{name}`: {said}"))
}

/// Leaves out what says nothing, and says the rest in the way that everybody understands.
fn plain(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    for word in ["$schema", "format", "title"] {
        fields.remove(word);
    }
    for (word, idle) in [
        ("minimum", json!(0)),
        ("default", Value::Null),
        ("additionalProperties", json!(true)),
    ] {
        if fields.get(word) == Some(&idle) {
            fields.remove(word);
        }
    }
    if let Some(Value::String(about)) = fields.get_mut("description") {
        *about = about.replace('\n', " ");
    }
    if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            fields.insert("type".to_owned(), kind);
        }
    }
    // An optional object, or the words of an enum: what is left of the union is the one that says more. A longer one
    // is any value.
    for union in ["anyOf", "oneOf"] {
        let is_any = union == "anyOf"
            && fields
                .get(union)
                .and_then(Value::as_array)
                .is_some_and(|all| all.len() > 2);
        if !is_any
            && let Some(Value::Array(choices)) = fields.remove(union)
            && let Some(Value::Object(first)) = choices.into_iter().next()
        {
            for (word, value) in first.into_iter().filter(|(word, _)| word != "const") {
                fields.entry(word).or_insert(value);
            }
        }
    }
    for (word, value) in fields.iter_mut() {
        match (word.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(plain),
            ("items" | "additionalProperties", below) => plain(below),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
