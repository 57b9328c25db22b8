//! The names of files that hosts are known to run or to obey (`table.json`). Advice for reviewers, not a wall: no such
//! list is complete, and a file with one of these names may include a file with any name.

use serde::Deserialize;
use std::sync::LazyLock;

/// The paths that a rule applies to. All in lower case; paths are compared as on a file system that ignores case.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PathPattern {
    Name(Vec<String>),
    /// End of the last name.
    Ending(Vec<String>),
    /// Start of the last name.
    Beginning(Vec<String>),
    /// A name anywhere in the path.
    Within(Vec<String>),
    /// The last names of the path, divided by `/`.
    Tail(Vec<String>),
    /// The whole path is a Python module of one of these names.
    Module(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) rule: String,
    pub(super) sentence: String,
    pub(super) place: PathPattern,
}

impl PathPattern {
    /// As [`Self::applies_to`], for a directory. Only files are run: a directory `build` is not a `BUILD`.
    pub(super) fn applies_to_directory(&self, names: &[String]) -> bool {
        matches!(self, Self::Within(_)) && self.applies_to(names)
    }

    pub(super) fn applies_to(&self, names: &[String]) -> bool {
        let Some(last) = names.last() else { return false };
        match self {
            Self::Within(list) => names.iter().any(|name| list.contains(name)),
            Self::Name(list) => list.contains(last),
            Self::Ending(list) => list.iter().any(|end| last.ends_with(end)),
            Self::Beginning(list) => list.iter().any(|start| last.starts_with(start)),
            Self::Tail(list) => list.iter().any(|tail| {
                let tail: Vec<&str> = tail.split('/').collect();
                let last = names.len().checked_sub(tail.len()).map(|from| &names[from..]);
                last.is_some_and(|last| last == tail)
            }),
            Self::Module(list) => match names {
                [file] => list.iter().any(|module| file.strip_suffix(".py") == Some(module)),
                [package, file] => file == "__init__.py" && list.contains(package),
                _ => false,
            },
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "it is a part of this program, which tests read"
)]
pub(super) static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| serde_json::from_str(include_str!("table.json")).expect("a table of rules"));
