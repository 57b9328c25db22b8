//! What a worker is asked, and what it answers: a head in JSON, and a body of text that no JSON is wrapped around.

use ringfence_types::{CsvReport, JsonReport, Language, Rules, Validation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is asked about the body.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Is this code what it should be.
    Code(CodeQuestion),
    /// Is this JSON what a schema says.
    Json(JsonQuestion),
    /// Is this table what it should be.
    Csv(CsvQuestion),
}

/// About code.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeQuestion {
    /// Of the code.
    pub language: Language,
    /// What it may do.
    pub rules: Rules,
    /// Add imports that are missing.
    pub auto_fix: bool,
    /// It goes on where others have ended, whose names it may use.
    pub is_fragment: bool,
    /// It runs beside files that the request does not list, and may import them: what is neither Python's nor a
    /// profile's is left to the hook inside, which tells them from what is installed.
    pub has_workspace: bool,
    /// The operator's own well-known names, each with its import: `np`, `import numpy as np`.
    pub known_imports: BTreeMap<String, String>,
    /// Modules that come with the code.
    pub local_modules: BTreeSet<String>,
    /// Which Python will run it, as 3 and 11; none: the newest that is known. Other languages have no use for it.
    #[serde(default)]
    pub python: Option<(u8, u8)>,
}

impl CodeQuestion {
    /// About a program that has nothing beside it, which is not changed.
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

/// About JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonQuestion {
    /// How the schema is called in the answer.
    pub name: String,
    /// A JSON Schema.
    pub schema: serde_json::Value,
}

/// About a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvQuestion {
    /// Columns that must be there.
    pub required_headers: Vec<String>,
    /// By column: a word, or an object; see the contract of `validate_csv_data`.
    pub type_constraints: serde_json::Map<String, serde_json::Value>,
    /// One character; none: found out.
    pub delimiter: Option<char>,
}

/// What is found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Of code.
    Code(Box<CodeAnswer>),
    /// Of JSON.
    Json(JsonReport),
    /// Of a table.
    Csv(CsvReport),
    /// The question itself is wrong.
    Refused {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
}

/// Of code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodeAnswer {
    /// For the caller.
    pub validation: Validation,
    /// For the sandbox: what the fixes are, so that no line of the caller's code moves when it runs.
    pub patches: Vec<Patch>,
}

/// An import that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The name that it binds.
    pub name: String,
    /// `import numpy as np`.
    pub statement: String,
}

/// The question itself is wrong.
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
