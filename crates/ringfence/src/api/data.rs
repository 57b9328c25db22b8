//! What looks at code and data without running anything.

use super::{
    Object, operation,
    read::{LANGUAGES, many, present, words},
};
use ringfence_types::{CsvReport, JsonReport, Language, ModuleName, Profile, Validation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Check a program without running it: syntax, risky calls, what a profile forbids. fixed_code adds missing imports.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateCode {
    pub(crate) code: String,
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = LANGUAGES))]
    pub(crate) language: Option<Language>,
    pub(crate) auto_fix: Option<bool>,
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = Profile::WORDS))]
    pub(crate) profile: Option<Profile>,
    #[serde(default, deserialize_with = "many")]
    #[schemars(with = "Option<Vec<String>>", extend("x-unlisted" = true))]
    pub(crate) allowed_imports: Option<BTreeSet<ModuleName>>,
}
operation!(ValidateCode => Validation, "validate_code", "Check code without running it", Execute, Reads);

// Both are accepted as values, too; a type of its own is what every converter understands.
/// Check JSON against a JSON Schema; every error has its JSON Pointer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateJson {
    /// JSON as text.
    #[serde(deserialize_with = "present")]
    #[schemars(extend("type" = "string"))]
    pub(crate) data: Option<Value>,
    /// A registered name (config, user, dataset) or a JSON Schema as text.
    #[schemars(extend("type" = "string"))]
    pub(crate) schema_name_or_dict: Value,
}
operation!(ValidateJson => JsonReport, "validate_json_data", "Check JSON against a schema", Data, Reads);

/// Any value: converters refuse a property without a type, a list of types, and a list without items.
pub(super) fn any() -> Value {
    let plain = || {
        ["string", "number", "boolean", "object"]
            .map(|kind| json!({"type": kind}))
            .into_iter()
    };
    let list = json!({"type": "array", "items": {"anyOf": plain().collect::<Value>()}});
    plain().chain([list]).collect()
}

/// Check CSV for columns, types, ragged rows and encoding; every error has its row, counted after the header, and
/// column.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateCsv {
    pub(crate) csv_content: String,
    #[serde(default, deserialize_with = "many")]
    pub(crate) required_headers: Option<Vec<String>>,
    /// By column: string, integer, float, boolean, date, datetime, email, url or uuid; or {type, required, min, max,
    /// pattern, enum, unique}.
    pub(crate) type_constraints: Option<Object>,
    pub(crate) delimiter: Option<String>,
}
operation!(ValidateCsv => CsvReport, "validate_csv_data", "Check a table", Data, Reads);
