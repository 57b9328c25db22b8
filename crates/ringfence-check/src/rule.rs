//! Rules, and the findings of a check.

use ringfence_types::{Analysis, Severity};
use serde::{Deserialize, Deserializer};
use std::{collections::BTreeSet, ops::Range};

/// A thing that code should not do without a reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `python.dynamic_execution`.
    pub id: &'static str,
    /// Severity of its findings; a profile may make them errors.
    pub severity: Severity,
    /// True if some of its findings are errors under the profile `strict`.
    #[serde(default)]
    pub(crate) is_strict: bool,
    /// Title of a few words.
    #[serde(deserialize_with = "leaked")]
    pub title: &'static str,
    /// Reason, in one sentence.
    #[serde(deserialize_with = "leaked")]
    pub why: &'static str,
    /// Suggested alternative.
    #[serde(deserialize_with = "leaked")]
    pub hint: &'static str,
}

/// Reads a text that may have escapes in the file. It is leaked, because the file is read once.
fn leaked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    String::deserialize(deserializer).map(|text| &*text.leak())
}

/// A place in the code where a rule applies.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// Range in the code, in bytes.
    pub(crate) range: Range<usize>,
    pub(crate) rule: &'static Rule,
    /// Severity of the rule, or the one that the profile gives it.
    pub(crate) severity: Severity,
    /// The finding: "`os.system` starts a process". The reason of the rule is added to it.
    pub(crate) what: String,
    /// Hint that replaces the rule's.
    pub(crate) hint: Option<String>,
}

impl Finding {
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

#[derive(Clone, Debug)]
pub(crate) struct Fix {
    pub(crate) patches: Vec<crate::Patch>,
    pub(crate) code: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) findings: Vec<Finding>,
    /// Without the counts of lines and characters and without the estimated complexity.
    pub(crate) analysis: Analysis,
    pub(crate) imports: BTreeSet<String>,
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) fix: Option<Fix>,
}
