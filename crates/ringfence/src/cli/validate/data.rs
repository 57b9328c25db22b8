//! JSON and tables on the command line: what is held against what.

use super::{Content, ValidateArguments, request};
use crate::mcp::delimiter;
use ringfence_engine::{CsvQuestion, DATA_BYTES_MAX, SchemaChoice};
use ringfence_types::RequestError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// The longest schema, or list of constraints, in bytes.
const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// What any JSON is held against.
const ANY: &str = "any";

pub(super) fn json(arguments: &ValidateArguments, file: &Path) -> Result<Content, RequestError> {
    let (name, schema) = match arguments.schema.as_deref() {
        None => (ANY.to_owned(), SchemaChoice::Inline(Value::Bool(true))),
        // A path means a file.
        Some(name) if is_path(name) => {
            let schema = read_json(Path::new(name), "the schema")?;
            (name.to_owned(), SchemaChoice::Inline(schema))
        }
        Some(name) => (name.to_owned(), SchemaChoice::Named(name.to_owned())),
    };
    let text = read_text(file)?;
    Ok(Content::Json { text, name, schema })
}

fn is_path(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some() || path.is_file()
}

pub(super) fn csv(arguments: &ValidateArguments, file: &Path) -> Result<Content, RequestError> {
    let type_constraints = match &arguments.constraints {
        Some(path) => read_json(path, "the constraints")?,
        None => serde_json::Map::new(),
    };
    let question = CsvQuestion {
        required_headers: arguments.require.clone(),
        type_constraints,
        delimiter: arguments.delimiter.as_deref().map(delimiter).transpose()?,
    };
    let text = request::read_input(file, DATA_BYTES_MAX, "the file")?;
    Ok(Content::Csv { text, question })
}

fn read_text(file: &Path) -> Result<String, RequestError> {
    let bytes = request::read_input(file, DATA_BYTES_MAX, "the file")?;
    String::from_utf8(bytes).map_err(|error| {
        RequestError::invalid(
            format!(
                "{} is not UTF-8, from byte {} on.",
                file.display(),
                error.utf8_error().valid_up_to()
            ),
            "Save it as UTF-8.",
        )
    })
}

fn read_json<T: DeserializeOwned>(file: &Path, what: &str) -> Result<T, RequestError> {
    let bytes = request::read_input(file, SCHEMA_BYTES_MAX, what)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        RequestError::invalid(
            format!("{what} in {}: {error}.", file.display()),
            "Give a file with one JSON object.",
        )
    })
}
