//! The languages that a sandbox runs, and their names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A guest language. TypeScript is Node with its types stripped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// CPython.
    Python,
    /// Node.js, CommonJS or ES modules.
    Node,
    /// Node.js after type stripping.
    Typescript,
    /// bash.
    Shell,
}

impl Language {
    /// Every name accepted on input, with its meaning; canonical names first.
    pub const NAMES: [(&'static str, Language); 10] = [
        ("python", Language::Python),
        ("node", Language::Node),
        ("shell", Language::Shell),
        ("javascript", Language::Node),
        ("js", Language::Node),
        ("typescript", Language::Typescript),
        ("ts", Language::Typescript),
        ("bash", Language::Shell),
        ("sh", Language::Shell),
        ("py", Language::Python),
    ];

    /// Returns the name in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Typescript => "typescript",
            Self::Shell => "shell",
        }
    }

    /// Returns the language whose interpreter runs it.
    #[must_use]
    pub fn runs_as(self) -> Self {
        match self {
            Self::Typescript => Self::Node,
            other => other,
        }
    }

    /// Returns the language whose packages its programs have: a shell script has those of the Python that it calls.
    #[must_use]
    pub fn packaged_as(self) -> Self {
        match self {
            Self::Shell => Self::Python,
            other => other.runs_as(),
        }
    }

    /// Returns the language of a file extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "py" => Some(Self::Python),
            "js" | "mjs" | "cjs" => Some(Self::Node),
            "ts" | "mts" | "cts" => Some(Self::Typescript),
            "sh" | "bash" => Some(Self::Shell),
            _ => None,
        }
    }

    /// Returns the language of a script by its first line (`#!/usr/bin/env python3`).
    pub fn from_shebang(code: &str) -> Option<Self> {
        let line = code.lines().next()?.strip_prefix("#!")?;
        let mut words = line.split_whitespace();
        let mut program = words.next()?.rsplit('/').next()?;
        if program == "env" {
            program = words.find(|word| !word.starts_with('-'))?.rsplit('/').next()?;
        }
        let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        match stem {
            "python" | "pypy" => Some(Self::Python),
            "node" | "nodejs" => Some(Self::Node),
            "ts-node" | "tsx" => Some(Self::Typescript),
            "bash" | "sh" | "dash" => Some(Self::Shell),
            _ => None,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Language {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // `Python` and `python3.12` are unambiguous.
        let lower = text.to_ascii_lowercase();
        let stem = lower.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let stem = if stem == "nodejs" { "node" } else { stem };
        Self::NAMES
            .iter()
            .find(|(name, _)| *name == stem)
            .map(|(_, language)| *language)
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a language; known: {}",
                    Self::NAMES.map(|(n, _)| n).join(", ")
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_name_is_read_in_any_case_and_with_a_version() {
        let check = |text: &str, expect: Option<Language>| {
            assert_eq!(text.parse().ok(), expect, "{text}");
        };
        check("Python", Some(Language::Python));
        check("python3", Some(Language::Python));
        check("python3.12", Some(Language::Python));
        check("nodejs", Some(Language::Node));
        check("JavaScript", Some(Language::Node));
        check("", None);
        check("3", None);
        check("pythonic", None);
        check(" python", None);
    }

    #[test]
    fn language_is_read_from_a_shebang() {
        let check =
            |line: &str, expect: Option<Language>| assert_eq!(Language::from_shebang(line), expect, "{line}");
        check("#!/usr/bin/env python3\nprint(1)", Some(Language::Python));
        check("#!/usr/bin/python3.11", Some(Language::Python));
        check("#!/usr/bin/env -S node --no-warnings", Some(Language::Node));
        check("#!/bin/sh", Some(Language::Shell));
        check("#!/usr/bin/perl", None);
        check("print(1)", None);
        check("#!", None);
    }
}
