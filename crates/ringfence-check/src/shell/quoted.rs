//! Commands in the code of other languages: `perl -e 'system("…")'`. Only those that are written out are found; that is
//! what they are looked for.
use crate::lists::LISTS;

/// Of one piece of code.
const COMMANDS_MAX: usize = 32;
/// Of one command.
const LETTERS_MAX: usize = 4096;

/// The commands, as a shell would be given them.
pub(super) fn commands_in(code: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (at, _) in code.match_indices(|c: char| c.is_ascii_alphabetic() || c == '%') {
        let begins = !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let starter = LISTS
            .starters
            .iter()
            .filter(|name| begins && code[at..].starts_with(**name))
            .max_by_key(|name| name.len());
        if let Some(name) = starter {
            commands.extend(command_after(&code[at + name.len()..], name));
        }
        if commands.len() >= COMMANDS_MAX {
            return commands;
        }
    }
    // In JavaScript they are texts.
    if ["console.", "require(", "const ", "=>"]
        .iter()
        .any(|sign| code.contains(sign))
    {
        return commands;
    }
    let backticks = code.split('`').skip(1).step_by(2).map(str::to_owned);
    commands.extend(backticks.take(COMMANDS_MAX));
    commands
}

/// `("rm -rf x")`, `(["rm", "-rf", "x"])`, ` 'rm', '-rf', 'x'`, `(qq(rm -rf x))`
fn command_after(rest: &str, name: &str) -> Option<String> {
    if matches!(name, "qx" | "%x") {
        return delimited(rest).map(|(text, _)| text.to_owned());
    }
    let mut rest = rest.trim_start().trim_start_matches(['(', '[']).trim_start();
    let mut words: Vec<&str> = Vec::new();
    while let Some((text, after)) = literal(rest) {
        words.push(text);
        rest = match after.trim_start().strip_prefix(',') {
            Some(next) => next.trim_start().trim_start_matches('[').trim_start(),
            None => break,
        };
    }
    match words.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        many => Some(super::quoted(many.iter().copied())),
    }
}

/// A text and what comes after it: `'…'`, `"…"`, `q(…)`, `qq{…}`.
fn literal(code: &str) -> Option<(&str, &str)> {
    let of_perl = code
        .strip_prefix("qq")
        .or_else(|| code.strip_prefix('q'))
        .or_else(|| code.strip_prefix("%q"));
    match of_perl {
        Some(rest) => delimited(rest.trim_start()),
        None if code.starts_with(['\'', '"']) => delimited(code),
        None => None,
    }
}

/// By its first sign.
fn delimited(code: &str) -> Option<(&str, &str)> {
    let open = code.chars().next().filter(char::is_ascii_punctuation)?;
    let close = match open {
        '(' => ')',
        '{' => '}',
        '[' => ']',
        '<' => '>',
        same => same,
    };
    let inner = &code[1..];
    let mut letters = inner.char_indices().take(LETTERS_MAX);
    let (end, _) = letters.find(|(_, letter)| *letter == close)?;
    Some((&inner[..end], &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, expect: &[&str]) {
        assert_eq!(commands_in(code), expect, "{code}");
    }

    #[test]
    fn commands_that_are_written_out_are_found() {
        check("use Socket; system(qq(rm -rf /))", &["rm -rf /"]);
        check("import os; os.system('a b'); os.popen(\"c\")", &["a b", "c"]);
        check("subprocess.run(['rm', '-rf', '/'])", &["'rm' '-rf' '/'"]);
        check("system 'rm', '-rf', '/'", &["'rm' '-rf' '/'"]);
        check("print `ls -l`; qx{a}; %x(b)", &["a", "b", "ls -l"]);
        check("require('child_process').execSync('a')", &["a"]);
        check("require('child_process').spawnSync('a', ['b'])", &["'a' 'b'"]);
        check("system(x); ecosystem('a'); systematic; system", &[]);
        check("é`ü", &["ü"]);
        check("console.log(`a`); q => `b`", &[]);
    }
}
