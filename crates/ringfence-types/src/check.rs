//! Checks of code and data before anything runs: what is asked, and what is found.

use crate::{closed_words, words::text_word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most findings that one answer lists; the rest are counted.
pub const ISSUES_MAX: usize = 1000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is refused for it.
    Info,
    /// It reaches for more than ordinary programs need; refused by `validate: strict`.
    Warning,
    /// It cannot run, the profile forbids it, or it can have no honest purpose.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// From 1.
    pub end_line: u32,
    /// From 1, in characters; the first after the finding.
    pub end_column: u32,
    /// Which rule; see the reference.
    pub rule: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, and why that matters.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// What became of code that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No finding is an error.
    Pass,
    /// None is an error after imports were added.
    Fixed,
    /// One is.
    Reject,
}

/// What was found of code. Read without running it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// The verdict is not `reject`.
    pub valid: bool,
    /// In one word.
    pub verdict: Verdict,
    /// By position; at most [`ISSUES_MAX`], the graver before the others.
    pub issues: Vec<Issue>,
    /// All of them.
    pub issues_total: u32,
    /// What was added to the code: `import json`.
    pub fixes_applied: Vec<String>,
    /// The code with the fixes; none: there is nothing to fix.
    pub fixed_code: Option<String>,
    /// The same in fewer words.
    pub validation: Summary,
    /// What the code consists of.
    pub analysis: Analysis,
    /// What to do, by what was found.
    pub recommendations: Vec<String>,
}

impl Validation {
    /// The same, where a warning is enough to reject.
    #[must_use]
    pub fn rejected(mut self) -> Self {
        self.valid = false;
        self.verdict = Verdict::Reject;
        self.validation.valid = false;
        if self.validation.errors.is_empty() {
            let warnings = self
                .issues
                .iter()
                .filter(|issue| issue.severity == Severity::Warning);
            let lines = warnings.map(|issue| format!("line {}: {}", issue.line, issue.message));
            self.validation.errors = lines.take(ERRORS_MAX).collect();
        }
        self
    }
}

/// The most lines of a [`Summary`].
pub const ERRORS_MAX: usize = 100;

/// What rejects it, one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Nothing rejects it.
    pub valid: bool,
    /// `line 3: ...`
    pub errors: Vec<String>,
    /// All in one sentence.
    pub message: String,
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// Lines.
    pub line_count: u32,
    /// Unicode characters.
    pub character_count: u32,
    /// Functions and methods, with a name or without.
    pub functions: u32,
    /// Classes.
    pub classes: u32,
    /// What is imported, as it is named there, in alphabetical order.
    pub imports: Vec<String>,
    /// Hosts that the code names, in alphabetical order. Naming one opens nothing.
    pub domains: Vec<String>,
    /// Decisions plus one (McCabe), of everything together.
    pub cyclomatic_complexity: u32,
    /// The same in a word.
    pub estimated_complexity: Complexity,
}

/// By cyclomatic complexity: up to 10, up to 50, more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// At most 10.
    #[default]
    Low,
    /// At most 50.
    Medium,
    /// More.
    High,
}

/// Whether code is looked at before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validate {
    /// Not.
    #[default]
    Off,
    /// Findings are told with the result. What the profile forbids is refused.
    Warn,
    /// The same, and missing imports are added.
    Fix,
    /// Warnings are refused, too.
    Strict,
}

/// A set of Python modules that programs may import, and the rules that come with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Everything: the kernel is the wall.
    #[default]
    Unrestricted,
    /// Modules that compute.
    Basic,
    /// And those for data.
    DataScience,
    /// And those that speak to others.
    Network,
    /// And those that work on files.
    Filesystem,
    /// `basic`, and nothing by which Python code gets around itself.
    Strict,
}

closed_words!(Severity: Info = "info", Warning = "warning", Error = "error");
closed_words!(Verdict: Pass = "pass", Fixed = "fixed", Reject = "reject");
closed_words!(Validate: Off = "off", Warn = "warn", Fix = "fix", Strict = "strict");
closed_words!(Profile: Unrestricted = "unrestricted", Basic = "basic", DataScience = "data_science", Network = "network",
    Filesystem = "filesystem", Strict = "strict");

/// Of one request.
pub const IMPORTS_MAX: usize = 1000;
const MODULE_CHARS_MAX: usize = 256;

/// The dotted name of a Python module: `os.path`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleName(String);

impl TryFrom<String> for ModuleName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_word = |word: &str| {
            word.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
                && word.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        if text.chars().count() > MODULE_CHARS_MAX || !text.split('.').all(is_word) {
            return Err(
                "a module's name is words with dots between them, as os.path, of at most 256 characters"
                    .to_owned(),
            );
        }
        Ok(Self(text))
    }
}

text_word!(ModuleName);

/// What a Python program may import, and by which rules it is read. Made by the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Whose rules.
    pub profile: Profile,
    /// Modules, each with what lies below it; none: all.
    pub imports: Option<BTreeSet<ModuleName>>,
}

impl Rules {
    /// Everything may be imported.
    pub fn unrestricted() -> Self {
        Self {
            profile: Profile::Unrestricted,
            imports: None,
        }
    }

    /// Whether there is anything that they forbid.
    pub fn restrict(&self) -> bool {
        self.imports.is_some()
    }
}

/// What was found of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonReport {
    /// It is what the schema says.
    pub valid: bool,
    /// Its registered name, or `inline`.
    pub schema: String,
    /// All of them, at most [`ISSUES_MAX`].
    pub errors: Vec<JsonError>,
    /// How many there are.
    pub errors_total: u64,
}

/// One place where JSON is not what its schema says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonError {
    /// JSON Pointer (RFC 6901) to the value; empty: the whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// The schema's keyword that it breaks.
    pub keyword: String,
    /// What that keyword says.
    pub expected: serde_json::Value,
    /// The value, or its beginning.
    pub actual: serde_json::Value,
}

/// What was found of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvReport {
    /// Nothing is wrong.
    pub valid: bool,
    /// Without the header.
    pub row_count: u64,
    /// Of the header.
    pub column_count: u64,
    /// As they stand there.
    pub headers: Vec<String>,
    /// Those that are required and not there; each is an error of row 0, too.
    pub missing_headers: Vec<String>,
    /// At most [`ISSUES_MAX`], in the order of the rows.
    pub errors: Vec<CsvError>,
    /// How many there are.
    pub errors_total: u64,
}

/// One field that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvError {
    /// Row from 1, without the header; 0 is the header.
    pub row: u64,
    /// Its header; none: the whole row.
    pub column: Option<String>,
    /// The field, or its beginning.
    pub value: String,
    /// What it should be.
    pub expected: String,
    /// In one sentence.
    pub message: String,
}
