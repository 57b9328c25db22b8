//! The schemas that clients see, generated from the request and response types and simplified: the converters of common
//! frameworks refuse or warn of much that JSON Schema allows (references, unions with null, formats, values without a
//! type), and each conversation pays for every word.

use super::Operation;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

const UNLISTED: &str = "x-unlisted";

fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    schema
}

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

/// Returns the output schema: names and types. Clients validate each answer against it, and one the schema itself, so
/// it is shallow and, if long, of the draft that validates fastest. It is open, so that older clients keep working.
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

/// Removes fields that are null: the schema has no type for them.
pub(crate) fn without_nulls(answer: &mut Value) {
    if let Value::Object(fields) = answer {
        fields.retain(|_, value| !value.is_null());
    }
}

pub(super) fn description_of<T: JsonSchema>(path: &str) -> Option<String> {
    let schema = schema_of::<T>(SchemaSettings::draft2020_12());
    let name = path.split(['.', '[']).next()?;
    let description = schema["properties"][name]["description"].as_str()?;
    Some(format!("`{name}`: {description}"))
}

/// Removes keywords without effect, and writes the rest in the form that every converter understands.
fn simplify(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for word in ["$schema", "format", "title"] {
        fields.remove(word);
    }
    for (word, implied) in [
        ("minimum", json!(0)),
        ("default", Value::Null),
        ("additionalProperties", json!(true)),
    ] {
        if fields.get(word) == Some(&implied) {
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
    // An optional object, or the words of an enum: the first choice replaces the union. An `anyOf` of more than two is
    // any value.
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
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(simplify),
            ("items" | "additionalProperties", below) => simplify(below),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
