//! Shell commands in the code of other languages: `perl -e 'system("…")'`. Only commands that are written out are
//! found; remains of the code around them do no harm, because the shell rules look for programs that they know.

use crate::lists::LISTS;
use regex::Regex;
use std::sync::LazyLock;

/// Maximum number of commands in one piece of code.
const COMMANDS_MAX: usize = 32;

/// A function that takes a command, or a backtick; and the text after it, to the end of the statement.
static STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let starters: Vec<String> = LISTS.starters.iter().map(|name| regex::escape(name)).collect();
    let starters = starters.join("|");
    Regex::new(&format!(
        r"(?:(?:\b|%)(?:{starters})\b[\s(\[]*(?:qq?\b|%q)?\s*[({{\[<'\x22]|`)([^;\n`]{{1,4096}})"
    ))
    .ok()
});

/// Returns the commands, with the language's punctuation replaced by spaces.
pub(super) fn commands_in(code: &str) -> impl Iterator<Item = String> {
    // In JavaScript backticks quote strings.
    let mut words = ["console.", "require(", "const ", "=>"].iter();
    let is_javascript = words.any(|word| code.contains(word));
    let found = STARTS.iter().flat_map(move |starts| starts.captures_iter(code));
    let found = found.filter(move |found| !(is_javascript && found[0].starts_with('`')));
    let signs = |letter: char| "()[]{}'\",".contains(letter);
    found
        .take(COMMANDS_MAX)
        .map(move |found| found[1].replace(signs, " "))
}
