//! Operations that check code and data without running anything.

use super::{
    Object, operations,
    read::{Many, OneOf, present},
};
use ringfence_types::{CsvReport, JsonReport, Language, ModuleName, Profile, Validation};
use serde_json::{Value, json};
use std::collections::BTreeSet;

operations! {
    /// Check a program without running it: syntax, risky calls, what a profile forbids. fixed_code adds missing
    /// imports.
    "validate_code" "Check code without running it" Execute Reads
    ValidateCode {
        code: String,
        language: Option<OneOf<Language>>,
        auto_fix: Option<bool>,
        profile: Option<OneOf<Profile>>,
        #[schemars(extend("x-unlisted" = true))]
        allowed_imports: Option<Many<BTreeSet<ModuleName>>>,
    } -> Validation

    // Both arguments are also accepted as JSON values; a single type in the schema suits every converter.
    /// Check JSON against a JSON Schema; every error has its JSON Pointer.
    "validate_json_data" "Check JSON against a schema" Data Reads
    ValidateJson {
        /// JSON as text.
        #[serde(deserialize_with = "present")]
        #[schemars(extend("type" = "string"))]
        data: Option<Value>,
        /// A registered name (config, user, dataset) or a JSON Schema as text.
        #[schemars(extend("type" = "string"))]
        schema_name_or_dict: Value,
    } -> JsonReport
}

/// The schema of any value: converters refuse a property without a type, a list of types, and a list without items.
pub(super) fn any() -> Value {
    let plain = || {
        ["string", "number", "boolean", "object"]
            .map(|kind| json!({"type": kind}))
            .into_iter()
    };
    let list = json!({"type": "array", "items": {"anyOf": plain().collect::<Value>()}});
    plain().chain([list]).collect()
}

operations! {
    /// Check CSV for columns, types, ragged rows and encoding; every error has its row, counted after the header, and
    /// column.
    "validate_csv_data" "Check a table" Data Reads
    ValidateCsv {
        csv_content: String,
        required_headers: Option<Many<Vec<String>>>,
        /// By column: string, integer, float, boolean, date, datetime, email, url or uuid; or {type, required, min,
        /// max, pattern, enum, unique}.
        type_constraints: Option<Object>,
        delimiter: Option<String>,
    } -> CsvReport
}
