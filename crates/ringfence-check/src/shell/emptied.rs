//! Paths that lead to `/` where a variable is empty: `rm -rf "$directory/"`, with a `directory` that is not set.

use super::{
    place::{self, Location},
    scene::Scene,
    syntax::ShellWord,
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
pub(super) fn variable<'s>(scene: &Scene<'s>, command: usize) -> Option<&'s str> {
    let mut words = scene.command(command)?.words.iter();
    words.find_map(|word| of_word(scene, word))
}

/// All that is left of it without its variables is `/` or `/*`.
fn of_word<'s>(scene: &Scene<'s>, word: &ShellWord<'s>) -> Option<&'s str> {
    let named = word.variables.first().copied()?;
    let rest = word.text().replace(UNKNOWN, "");
    let is_root = rest.starts_with('/') && place::of(&rest, None) == Some(Location::Root);
    let is_open = |name: &&str| is_unguarded(scene, name, word.range.start);
    (is_root && !word.is_mixed && word.variables.iter().all(is_open)).then_some(named)
}

/// Nothing before the place uses or tests it.
fn is_unguarded(scene: &Scene<'_>, name: &str, at: usize) -> bool {
    if scene.guard.is_some_and(|guard| guard < at) {
        return false;
    }
    let from = scene.text.floor_char_boundary(at.saturating_sub(TEXT_BACK_MAX));
    let before = scene.raw(&(from..at));
    !before.contains(&format!("${name}")) && !before.contains(&format!("${{{name}"))
}
