//! Effects of calling functions of the language and of Node.js, by their paths.

use crate::rule::Rule;
use ringfence_types::Severity;
use serde::Deserialize;
use std::{collections::HashMap, sync::LazyLock};

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// Reported by this rule, with the function's name and this sentence.
    Tell(&'static Rule, Severity, &'static str),
    Execute,
    Start,
    Load,
    /// Runs a function later, or a text as code.
    Later,
    Connect,
    Kill,
    Thread,
    Read,
    /// Removes a file, or a directory with the option `recursive`.
    Remove,
    /// Removes a directory with everything in it.
    Empty,
    Change,
    Parse,
    Nothing,
}

/// Effects of the members of each module or object; `-` is the object itself, `<loaded>` its loading, `*` all others.
static EFFECTS: LazyLock<HashMap<&str, Vec<(&str, Effect)>>> = LazyLock::new(|| {
    let rows: Vec<(&str, &str, Effect)> = crate::lists::embedded(include_str!("effects.json"));
    let mut by_owner: HashMap<&str, Vec<(&str, Effect)>> = HashMap::new();
    for (owners, names, effect) in rows {
        let names = names.split_ascii_whitespace().map(|name| (name, effect));
        for owner in owners.split_ascii_whitespace() {
            by_owner.entry(owner).or_default().extend(names.clone());
        }
    }
    by_owner
});

pub(super) fn effect(path: &str) -> Effect {
    if path.ends_with("._compile") {
        return Effect::Execute;
    }
    let (owner, name) = path.split_once('.').unwrap_or((path, "-"));
    let mut of_owner = EFFECTS.get(owner).into_iter().flatten();
    let found = of_owner.find(|(known, _)| *known == name || *known == "*");
    found.map_or(Effect::Nothing, |(_, effect)| *effect)
}

#[cfg(test)]
mod tests {
    #[test]
    fn effect_table_parses() {
        assert!(super::EFFECTS.len() > 20);
    }
}
