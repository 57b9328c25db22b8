//! Paths that become `/` if a variable is empty: `rm -rf "$directory/"`, with a `directory` that is not set.

use super::{
    place::{self, Location},
    scene::ShellContext,
    syntax::ShellWord,
};
use crate::unknown::UNKNOWN;

/// Bytes before the path that are searched for a use or test of the variable.
const TEXT_BACK_MAX: usize = 16 * 1024;

/// Returns the first position from which on an empty variable is unlikely: the script ends where a command fails
/// (`set -eu`, `#!/bin/sh -e`), or it removes a directory it made itself (`mktemp`).
pub(super) fn guard(text: &str) -> Option<usize> {
    let signs = ["set -", "sh -", "mktemp"];
    signs.iter().filter_map(|sign| text.find(sign)).min()
}

/// Returns a variable of the first word that becomes `/` if its variables are empty.
pub(super) fn variable<'s>(context: &ShellContext<'s>, command: usize) -> Option<&'s str> {
    let mut words = context.command(command)?.words.iter();
    words.find_map(|word| of_word(context, word))
}

/// Returns the first variable of a word of literal text and unguarded variables that is `/` or `/*` without them.
fn of_word<'s>(context: &ShellContext<'s>, word: &ShellWord<'s>) -> Option<&'s str> {
    let named = word.variables.first().copied()?;
    let rest = word.text().replace(UNKNOWN, "");
    let is_root = rest.starts_with('/') && place::of(&rest, None) == Some(Location::Root);
    let is_open = |name: &&str| is_unguarded(context, name, word.range.start);
    (is_root && !word.is_mixed && word.variables.iter().all(is_open)).then_some(named)
}

/// True if there is no guard before the position, and no use or test of the variable.
fn is_unguarded(context: &ShellContext<'_>, name: &str, at: usize) -> bool {
    if context.guard.is_some_and(|guard| guard < at) {
        return false;
    }
    let from = context.text.floor_char_boundary(at.saturating_sub(TEXT_BACK_MAX));
    let before = context.raw(&(from..at));
    !before.contains(&format!("${name}")) && !before.contains(&format!("${{{name}"))
}
