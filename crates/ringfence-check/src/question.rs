//! Questions to a worker and its answers. A question is a JSON head and a body of text that is not wrapped in JSON.

use ringfence_types::{CsvReport, JsonReport, Language, Rules, Validation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A question about the body.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Check the body as code.
    Code(CodeQuestion),
    /// Check the body as JSON against a schema.
    Json(JsonQuestion),
    /// Check the body as a CSV table.
    Csv(CsvQuestion),
}

/// A question about code.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeQuestion {
    /// Language of the code.
    pub language: Language,
    /// Rules for the code.
    pub rules: Rules,
    /// Add missing imports.
    pub auto_fix: bool,
    /// The code continues earlier pieces of code and may use their names.
    pub is_fragment: bool,
    /// The code runs beside files that the request does not list, and may import them: modules of neither the standard
    /// library nor a profile are left to the hook in the sandbox, which tells those files from installed packages.
    pub has_workspace: bool,
    /// Well-known names of the operator, each with its import: `np`, `import numpy as np`.
    pub known_imports: BTreeMap<String, String>,
    /// Modules that come with the code.
    pub local_modules: BTreeSet<String>,
    /// Version of the Python that will run the code, as (3, 11); `None` for the newest known, and for other languages.
    #[serde(default)]
    pub python: Option<(u8, u8)>,
}

impl CodeQuestion {
    /// Returns a question about a program without other files, names or fixes.
    pub fn of(language: Language, rules: Rules) -> Self {
        Self {
            language,
            rules,
            auto_fix: false,
            is_fragment: false,
            has_workspace: false,
            known_imports: BTreeMap::new(),
            local_modules: BTreeSet::new(),
            python: None,
        }
    }
}

/// A question about JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonQuestion {
    /// Name of the schema in the answer.
    pub name: String,
    /// A JSON Schema.
    pub schema: serde_json::Value,
}

/// A question about a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvQuestion {
    /// Required columns.
    pub required_headers: Vec<String>,
    /// Constraints by column: a word or an object; see the contract of `validate_csv_data`.
    pub type_constraints: serde_json::Map<String, serde_json::Value>,
    /// The delimiter; `None` to detect it.
    pub delimiter: Option<char>,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Answer about code.
    Code(Box<CodeAnswer>),
    /// Answer about JSON.
    Json(JsonReport),
    /// Answer about a table.
    Csv(CsvReport),
    /// The question is invalid.
    Refused {
        /// Description of the error.
        message: String,
        /// Suggested remedy.
        hint: String,
    },
}

/// Answer about code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodeAnswer {
    /// Result for the caller.
    pub validation: Validation,
    /// Fixes for the sandbox, so that no line of the caller's code moves when it runs.
    pub patches: Vec<Patch>,
}

/// A missing import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Name that the import binds.
    pub name: String,
    /// `import numpy as np`.
    pub statement: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Unusable {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl From<Unusable> for Answer {
    fn from(Unusable { message, hint }: Unusable) -> Self {
        Self::Refused { message, hint }
    }
}
