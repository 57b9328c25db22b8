//! Checks of code and data before anything runs: requests and reports.

use crate::{closed_words, words::text_word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of findings that one report lists; the rest are only counted.
pub const ISSUES_MAX: usize = 1000;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information; nothing is refused for it.
    Info,
    /// The code uses more than ordinary programs need; refused by `validate: strict`.
    Warning,
    /// The code cannot run, the profile forbids it, or it cannot have an honest purpose.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// First line, from 1.
    pub line: u32,
    /// First column, from 1, in characters.
    pub column: u32,
    /// Last line, from 1.
    pub end_line: u32,
    /// Column after the finding, from 1, in characters.
    pub end_column: u32,
    /// Id of the rule; see the reference.
    pub rule: String,
    /// Severity of the finding.
    pub severity: Severity,
    /// The finding, and why it matters.
    pub message: String,
    /// The next step.
    pub hint: String,
}

/// Verdict about checked code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No finding is an error.
    Pass,
    /// No finding is an error after imports were added.
    Fixed,
    /// A finding is an error.
    Reject,
}

/// Findings about code, from reading it without running it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// True if the verdict is not `reject`.
    pub valid: bool,
    /// Verdict in one word.
    pub verdict: Verdict,
    /// Findings by position; at most [`ISSUES_MAX`], the more severe in preference.
    pub issues: Vec<Issue>,
    /// Number of all findings.
    pub issues_total: u32,
    /// Additions to the code, such as `import json`.
    pub fixes_applied: Vec<String>,
    /// Code with the fixes; none: there is nothing to fix.
    pub fixed_code: Option<String>,
    /// Summary of the findings.
    pub validation: Summary,
    /// Contents of the code.
    pub analysis: Analysis,
    /// Next steps, by the findings.
    pub recommendations: Vec<String>,
}

impl Validation {
    /// Returns it with the verdict `reject`; without errors, the warnings are the reasons.
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

/// Maximum number of lines of a [`Summary`].
pub const ERRORS_MAX: usize = 100;

/// Findings that reject the code, one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// True if no finding rejects it.
    pub valid: bool,
    /// Lines such as `line 3: ...`.
    pub errors: Vec<String>,
    /// Summary in one sentence.
    pub message: String,
}

/// Contents of code, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// Number of lines.
    pub line_count: u32,
    /// Number of Unicode characters.
    pub character_count: u32,
    /// Number of functions and methods, with or without a name.
    pub functions: u32,
    /// Number of classes.
    pub classes: u32,
    /// Imported modules, as the code names them, in alphabetical order.
    pub imports: Vec<String>,
    /// Hosts that the code names, in alphabetical order. Naming a host grants no access.
    pub domains: Vec<String>,
    /// Decisions plus one (McCabe), of the whole code.
    pub cyclomatic_complexity: u32,
    /// Cyclomatic complexity in a word.
    pub estimated_complexity: Complexity,
}

/// Level of cyclomatic complexity.
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

/// Check of code before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validate {
    /// No check.
    #[default]
    Off,
    /// Findings are reported with the result. Code that the profile forbids is refused.
    Warn,
    /// As `warn`, and missing imports are added.
    Fix,
    /// As `warn`, and warnings are refused, too.
    Strict,
}

/// A set of Python modules that programs may import, and the rules that come with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// All modules: only the kernel's walls apply.
    #[default]
    Unrestricted,
    /// Modules that compute.
    Basic,
    /// Those of `basic`, and modules for data.
    DataScience,
    /// Those of `basic`, and modules for the network.
    Network,
    /// Those of `basic`, and modules for files.
    Filesystem,
    /// Those of `basic`, without the means to circumvent the check.
    Strict,
}

closed_words!(Severity: Info = "info", Warning = "warning", Error = "error");
closed_words!(Verdict: Pass = "pass", Fixed = "fixed", Reject = "reject");
closed_words!(Validate: Off = "off", Warn = "warn", Fix = "fix", Strict = "strict");
closed_words!(Profile: Unrestricted = "unrestricted", Basic = "basic", DataScience = "data_science", Network = "network",
    Filesystem = "filesystem", Strict = "strict");

/// Maximum number of modules in one request.
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

/// Allowed imports of a Python program and the profile of its rules, as the policy has decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Profile of the rules.
    pub profile: Profile,
    /// Allowed modules, each with its submodules; none: all.
    pub imports: Option<BTreeSet<ModuleName>>,
}

impl Rules {
    /// Allows every import.
    pub fn unrestricted() -> Self {
        Self {
            profile: Profile::Unrestricted,
            imports: None,
        }
    }

    /// True if they forbid any import.
    pub fn restrict(&self) -> bool {
        self.imports.is_some()
    }
}

/// Report of a JSON check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonReport {
    /// True if it conforms to the schema.
    pub valid: bool,
    /// Registered name of the schema, or `inline`.
    pub schema: String,
    /// All errors, at most [`ISSUES_MAX`].
    pub errors: Vec<JsonError>,
    /// Number of all errors.
    pub errors_total: u64,
}

/// A violation of a JSON schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonError {
    /// JSON Pointer (RFC 6901) to the value; empty: the whole document.
    pub path: String,
    /// Description of the error.
    pub message: String,
    /// Keyword of the schema that is violated.
    pub keyword: String,
    /// Value of that keyword.
    pub expected: serde_json::Value,
    /// The value, or its beginning.
    pub actual: serde_json::Value,
}

/// Report of a CSV check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvReport {
    /// True without errors.
    pub valid: bool,
    /// Number of rows without the header.
    pub row_count: u64,
    /// Number of columns in the header.
    pub column_count: u64,
    /// Headers as they are written.
    pub headers: Vec<String>,
    /// Required headers that are missing; each is also an error of row 0.
    pub missing_headers: Vec<String>,
    /// Errors in the order of the rows, at most [`ISSUES_MAX`].
    pub errors: Vec<CsvError>,
    /// Number of all errors.
    pub errors_total: u64,
}

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvError {
    /// Row from 1, without the header; 0 is the header.
    pub row: u64,
    /// Header of the field; none: the whole row.
    pub column: Option<String>,
    /// The field, or its beginning.
    pub value: String,
    /// Expected value.
    pub expected: String,
    /// Description in one sentence.
    pub message: String,
}
