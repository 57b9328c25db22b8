//! Checks of JSON and tables: the schema and the constraints that a file is checked against.

use super::{CALLER, Report, ValidateArguments, request};
use crate::mcp::delimiter;
use ringfence_engine::{Caller, CsvQuestion, DATA_BYTES_MAX, Engine, SchemaChoice};
use ringfence_types::{JsonReport, Namespace, RequestError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// Name of the schema in a report if none is given: any JSON is valid.
const ANY: &str = "any";

pub(super) async fn json(
    engine: &Engine,
    arguments: &ValidateArguments,
    file: &Path,
) -> Result<Report, RequestError> {
    let name = arguments.schema.as_deref();
    let schema = match name {
        None => SchemaChoice::Inline(Value::Bool(true)),
        // A path names a file.
        Some(name) if is_path(name) => {
            let hint = "Give a file with a JSON Schema, or the name of a registered one, such as `config`.";
            SchemaChoice::Inline(read_json(Path::new(name), "the schema", hint)?)
        }
        Some(name) => SchemaChoice::Named(name.to_owned()),
    };
    let (caller, namespace) = (&Caller::new(CALLER), &Namespace::default_name());
    let text = request::text(file, request::read_input(file, DATA_BYTES_MAX, "the file")?)?;
    let access = engine.namespace(caller, namespace);
    let report = access.validate_json(schema, &text).await?;
    Ok(Report::Json(JsonReport {
        schema: name.unwrap_or(ANY).to_owned(),
        ..report
    }))
}

fn is_path(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some() || path.is_file()
}

pub(super) async fn csv(
    engine: &Engine,
    arguments: &ValidateArguments,
    file: &Path,
) -> Result<Report, RequestError> {
    let type_constraints = match &arguments.constraints {
        Some(path) => read_json(path, "the constraints", "Give a file with one JSON object.")?,
        None => serde_json::Map::new(),
    };
    let question = CsvQuestion {
        required_headers: arguments.require.clone(),
        type_constraints,
        delimiter: arguments.delimiter.as_deref().map(delimiter).transpose()?,
    };
    let text = request::read_input(file, DATA_BYTES_MAX, "the file")?;
    let (caller, namespace) = (&Caller::new(CALLER), &Namespace::default_name());
    let access = engine.namespace(caller, namespace);
    let report = access.validate_csv(question, &text).await?;
    Ok(Report::Csv(report))
}

fn read_json<T: DeserializeOwned>(file: &Path, what: &str, hint: &str) -> Result<T, RequestError> {
    let bytes = request::read_input(file, SCHEMA_BYTES_MAX, what).map_err(|mut error| {
        if error.hint == request::NAME_A_FILE {
            hint.clone_into(&mut error.hint);
        }
        error
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| format!("is not UTF-8: {error}"));
    let value = text.and_then(ringfence_engine::read_exactly);
    let read = value.and_then(|value| serde_json::from_value(value).map_err(|error| format!("has {error}")));
    read.map_err(|error| RequestError::invalid(format!("{what} in {} {error}.", file.display()), hint))
}
