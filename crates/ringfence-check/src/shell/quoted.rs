//! Commands in the code of other languages: `perl -e 'system("…")'`. Only those that are written out are found, and
//! what stands around them is left to the shell's rules, which look for programs that they know.

use crate::lists::LISTS;
use regex::Regex;
use std::sync::LazyLock;

/// Of one piece of code.
const COMMANDS_MAX: usize = 32;

/// What takes a command, or a backtick; and what follows, to the end of the statement.
static STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let starters: Vec<String> = LISTS.starters.iter().map(|name| regex::escape(name)).collect();
    let starters = starters.join("|");
    Regex::new(&format!(
        r"(?:(?:\b|%)(?:{starters})\b[\s(\[]*(?:qq?\b|%q)?\s*[({{\[<'\x22]|`)([^;\n`]{{1,4096}})"
    ))
    .ok()
});

/// The commands, as a shell would be given them: without the signs of the language.
pub(super) fn commands_in(code: &str) -> impl Iterator<Item = String> {
    // In JavaScript what stands in backticks are texts.
    let mut words = ["console.", "require(", "const ", "=>"].iter();
    let is_javascript = words.any(|word| code.contains(word));
    let found = STARTS.iter().flat_map(move |starts| starts.captures_iter(code));
    let found = found.filter(move |found| !(is_javascript && found[0].starts_with('`')));
    let signs = |letter: char| "()[]{}'\",".contains(letter);
    found
        .take(COMMANDS_MAX)
        .map(move |found| found[1].replace(signs, " "))
}
