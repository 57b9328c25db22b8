//! Paths that lead to `/` where a variable is empty: `rm -rf "$directory/"`, with a `directory` that is not set.

use super::{
    call::Call,
    place::{self, Location},
    scene::Scene,
    syntax::{Operation, Part, ShellWord},
    value::is_known,
};
use crate::unknown::UNKNOWN;

/// How far back a test of the variable is looked for.
const TEXT_BACK_MAX: usize = 16 * 1024;

/// The first place from which on an empty variable is unlikely: the script ends where a command fails (`set -eu`,
/// `#!/bin/sh -e`), or it removes what it made itself.
pub(super) fn guard(text: &str) -> Option<usize> {
    let signs = ["set -", "sh -", "mktemp"];
    signs.iter().filter_map(|sign| text.find(sign)).min()
}

/// The variable that has to be empty for it, of the first path that leads to `/` then.
pub(super) fn variable<'s>(scene: &Scene<'s>, command: usize, call: &Call) -> Option<&'s str> {
    let words = &scene.command(command)?.words;
    let mut fields = call.arguments.iter();
    fields.find_map(|field| of_word(scene, words.get(field.word)?))
}

/// All that is left of it without its variables is `/` or `/*`.
fn of_word<'s>(scene: &Scene<'s>, word: &'s ShellWord<'s>) -> Option<&'s str> {
    let mut rest = String::new();
    let mut named = None;
    for part in &word.parts {
        match part {
            Part::Text(text, _) => rest.push_str(text),
            Part::Variable { name, operation, .. } => {
                let plain = match operation {
                    Operation::Plain => true,
                    Operation::Default(word) => word.range.is_empty(),
                    Operation::Other => false,
                };
                if !plain || !may_be_empty(scene, name, word.range.start) {
                    return None;
                }
                named = named.or(Some(*name));
            }
            _ => return None,
        }
    }
    let root = rest.starts_with('/') && place::of(&rest, None) == Some(Location::Root);
    named.filter(|_| root)
}

/// It has no value that is known in part, and nothing before the place uses or tests it.
fn may_be_empty(scene: &Scene<'_>, name: &str, at: usize) -> bool {
    let value = scene.values.get(name, at);
    let known = value.is_some_and(|value| is_known(value) || !value.trim_matches(UNKNOWN).is_empty());
    if known || scene.guard.is_some_and(|guard| guard < at) {
        return false;
    }
    let from = scene.text.floor_char_boundary(at.saturating_sub(TEXT_BACK_MAX));
    let before = scene.text.get(from..at).unwrap_or_default();
    !before.contains(&format!("${name}")) && !before.contains(&format!("${{{name}"))
}
