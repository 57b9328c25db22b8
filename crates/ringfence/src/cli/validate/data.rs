//! JSON and tables on the command line: what is held against what.

use super::{ValidateArguments, request};
use crate::mcp::delimiter;
use ringfence_engine::{Caller, CsvQuestion, DATA_BYTES_MAX, Engine, SchemaWish};
use ringfence_types::{CsvReport, JsonReport, Namespace, RequestError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// The longest schema, or list of constraints, in bytes.
const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// What any JSON is held against.
const ANY: &str = "any";

pub(super) struct JsonJob {
    text: String,
    /// Of the schema, as it was typed.
    name: String,
    schema: SchemaWish,
}

impl JsonJob {
    pub(super) fn read(arguments: &ValidateArguments, file: &Path) -> Result<Self, RequestError> {
        let (name, schema) = match arguments.schema.as_deref() {
            None => (ANY.to_owned(), SchemaWish::Inline(Value::Bool(true))),
            // A path means a file.
            Some(name) if is_path(name) => {
                let schema = read_json(Path::new(name), "the schema")?;
                (name.to_owned(), SchemaWish::Inline(schema))
            }
            Some(name) => (name.to_owned(), SchemaWish::Named(name.to_owned())),
        };
        Ok(Self {
            text: read_text(file)?,
            name,
            schema,
        })
    }

    pub(super) async fn look(self, engine: &Engine, caller: &Caller) -> Result<JsonReport, RequestError> {
        let namespace = Namespace::default_name();
        let report = engine
            .validate_json(caller, &namespace, self.schema, &self.text)
            .await?;
        Ok(JsonReport {
            schema: self.name,
            ..report
        })
    }
}

fn is_path(name: &str) -> bool {
    let path = Path::new(name);
    name.contains('/') || path.extension().is_some() || path.is_file()
}

/// A table and what its columns should be.
pub(super) struct CsvJob {
    text: Vec<u8>,
    question: CsvQuestion,
}

impl CsvJob {
    pub(super) fn read(arguments: &ValidateArguments, file: &Path) -> Result<Self, RequestError> {
        let type_constraints = match &arguments.constraints {
            Some(path) => read_json(path, "the constraints")?,
            None => serde_json::Map::new(),
        };
        let question = CsvQuestion {
            required_headers: arguments.require.clone(),
            type_constraints,
            delimiter: arguments.delimiter.as_deref().map(delimiter).transpose()?,
        };
        Ok(Self {
            text: request::read_input(file, DATA_BYTES_MAX, "the file")?,
            question,
        })
    }

    pub(super) async fn look(self, engine: &Engine, caller: &Caller) -> Result<CsvReport, RequestError> {
        let namespace = Namespace::default_name();
        engine
            .validate_csv(caller, &namespace, self.question, &self.text)
            .await
    }
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
