//! Checks of code and data, which are not run.

use super::Sandbox;
use ringfence_engine::{CodeRequest, CsvQuestion, SchemaChoice};
use ringfence_types::{CsvReport, JsonReport, Namespace, RequestError, Validation};
use serde_json::Value;

impl Sandbox {
    /// Checks code: syntax, risky calls, what a profile forbids, missing imports. The code is parsed behind the same
    /// walls as a program, and not run. A pass is advice: the walls do not depend on it. To check code before a run,
    /// see [`ExecuteRequest::validate`](crate::ExecuteRequest::validate).
    pub async fn validate_code(&self, request: CodeRequest) -> Result<Validation, RequestError> {
        self.engine().validate_code(self.caller(), request).await
    }

    /// Checks that a text is JSON and matches a JSON Schema. At most 16 MiB.
    pub async fn validate_json(
        &self,
        namespace: &Namespace,
        schema: SchemaChoice,
        text: &str,
    ) -> Result<JsonReport, RequestError> {
        self.namespace(namespace).validate_json(schema, text).await
    }

    /// Checks that a text is a table of comma-separated values with the expected columns and types. At most 16 MiB.
    pub async fn validate_csv(
        &self,
        namespace: &Namespace,
        question: CsvQuestion,
        text: &str,
    ) -> Result<CsvReport, RequestError> {
        let access = self.namespace(namespace);
        access.validate_csv(question, text.as_bytes()).await
    }

    /// Returns the JSON Schemas that have names: `config`, `user`, `dataset`, and those of the settings.
    pub fn schemas(&self) -> Vec<(String, Value)> {
        self.engine().schemas()
    }
}
