//! What a rule is, and what a check finds by rules.

use ringfence_types::{Analysis, Severity};
use serde::{Deserialize, Deserializer};
use std::{collections::BTreeSet, ops::Range};

/// Something that code should not do without a reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `python.dynamic_execution`.
    pub id: &'static str,
    /// How bad it is by itself; a profile may make it an error.
    pub severity: Severity,
    /// Under the profile `strict` some of its findings are errors.
    #[serde(default)]
    pub(crate) is_strict: bool,
    /// What is looked for, in a few words.
    #[serde(deserialize_with = "kept")]
    pub title: &'static str,
    /// Why it matters, in one sentence.
    #[serde(deserialize_with = "kept")]
    pub why: &'static str,
    /// What to do instead.
    #[serde(deserialize_with = "kept")]
    pub hint: &'static str,
}

/// A text that may have escapes in the file, which is read once.
fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    String::deserialize(deserializer).map(|text| &*text.leak())
}

/// One place where a rule holds.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// Bytes of the code.
    pub(crate) range: Range<usize>,
    pub(crate) rule: &'static Rule,
    /// The rule's, or what the profile makes of it.
    pub(crate) severity: Severity,
    /// What is there: "`os.system` starts a process". The rule's reason is added to it.
    pub(crate) what: String,
    /// In place of the rule's.
    pub(crate) hint: Option<String>,
}

impl Finding {
    /// With the severity and the hint of its rule.
    pub(crate) fn new(rule: &'static Rule, range: Range<usize>, what: impl Into<String>) -> Self {
        Self {
            range,
            rule,
            severity: rule.severity,
            what: what.into(),
            hint: None,
        }
    }

    pub(crate) fn with_severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { hint, ..self }
    }
}

/// Imports that are missing, and the code with them.
#[derive(Clone, Debug)]
pub(crate) struct Fix {
    pub(crate) patches: Vec<crate::Patch>,
    pub(crate) code: String,
}

/// What is found of a piece of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) findings: Vec<Finding>,
    /// But for counts of lines and characters, and for the word for the complexity.
    pub(crate) analysis: Analysis,
    pub(crate) imports: BTreeSet<String>,
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) fix: Option<Fix>,
}
