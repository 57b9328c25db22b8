//! The names that hosts are known to run or obey (`table.json`). A help for reviewers, not a wall: no list of this kind
//! is complete, and a file that has no known name can be what one of these includes.

use serde::Deserialize;
use std::sync::LazyLock;

/// Where a rule looks. All in small letters; a path is compared as a file system without case would.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PathPattern {
    Name(Vec<String>),
    /// How the last name ends.
    Ending(Vec<String>),
    /// How the last name begins.
    Beginning(Vec<String>),
    /// A directory of this name is anywhere in the path, or is the path's last name.
    Within(Vec<String>),
    /// The last names, parts divided by `/`.
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
    /// Whether a directory of these names is such a place. What is run is a file: a directory `build` is no `BUILD`.
    pub(super) fn holds_directory(&self, names: &[String]) -> bool {
        matches!(self, Self::Within(_)) && self.holds(names)
    }

    pub(super) fn holds(&self, names: &[String]) -> bool {
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
