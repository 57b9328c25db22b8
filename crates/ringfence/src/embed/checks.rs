//! Code and data that are looked at and not run.

use super::Sandbox;
use ringfence_engine::{CodeRequest, CsvQuestion, SchemaChoice};
use ringfence_types::{CsvReport, JsonReport, Namespace, RequestError, Validation};
use serde_json::Value;

impl Sandbox {
    /// What is found of code: syntax, what it reaches for, what a profile forbids, imports that are missing. It is
    /// parsed behind the same walls as a program runs, and not run. A pass is advice: the walls do not depend on it. To
    /// have code looked at on its way to a run, see [`ExecuteRequest::validate`](crate::ExecuteRequest::validate).
    pub async fn validate_code(&self, wish: CodeRequest) -> Result<Validation, RequestError> {
        self.engine().validate_code(self.caller(), wish).await
    }

    /// Is this text JSON, and what a JSON Schema wants. At most 16 MiB.
    pub async fn validate_json(
        &self,
        namespace: &Namespace,
        schema: SchemaChoice,
        text: &str,
    ) -> Result<JsonReport, RequestError> {
        self.namespace(namespace).validate_json(schema, text).await
    }

    /// Is this text a table of comma-separated values with the columns and types that are wanted. At most 16 MiB.
    pub async fn validate_csv(
        &self,
        namespace: &Namespace,
        wanted: CsvQuestion,
        text: &str,
    ) -> Result<CsvReport, RequestError> {
        let access = self.namespace(namespace);
        access.validate_csv(wanted, text.as_bytes()).await
    }

    /// The JSON Schemas that have names: `config`, `user`, `dataset`, and those of the settings.
    pub fn schemas(&self) -> Vec<(String, Value)> {
        self.engine().schemas()
    }
}
