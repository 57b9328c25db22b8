//! Documents and comments: lines that a screen shows whole, and words that a stranger need not decode.

use super::{
    Finding,
    budgets::{COLUMNS_MAX, OPENINGS, PHRASES},
    structure,
};
use crate::workspace::TextFile;

/// Lines of documents and comments that are too long.
pub const COLUMNS: &str = "columns";
/// Phrases that are not used.
pub const WORDS: &str = "words";

/// Documents, and the sources of the crates without their tests.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let is_document = file.path.ends_with(".md");
        let is_source = file.path.starts_with("crates/") && file.path.ends_with(".rs");
        if !is_document && (!is_source || structure::is_test(&file.path)) {
            continue;
        }
        let counted = if is_document {
            usize::MAX
        } else {
            structure::code_lines(&file.text)
        };
        for (number, line) in file.text.lines().enumerate().take(counted) {
            let mut add = |rule, what| findings.push(Finding::new(&file.path, number + 1, rule, what));
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && wraps(&file.path, line) {
                add(COLUMNS, format!("{columns} columns; {COLUMNS_MAX} are the most"));
            }
            for phrase in PHRASES.iter().filter(|phrase| says(line, phrase)) {
                add(WORDS, format!("`{phrase}`: say it in plain English"));
            }
            if let Some(opening) = opening(line) {
                add(WORDS, format!("`{opening} ...`: begin with the noun or the verb"));
            }
        }
    }
    findings
}

/// Returns the word of [`OPENINGS`] that a line of a doc comment begins with. Questions are left alone.
fn opening(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
    let first = text.split_whitespace().next()?;
    OPENINGS
        .into_iter()
        .find(|word| *word == first && !line.ends_with('?'))
}

/// Whether a long line could have been two: a row of a table cannot, nor can what has no space; code is rustfmt's.
fn wraps(path: &str, line: &str) -> bool {
    let line = line.trim_start();
    if path.ends_with(".md") {
        !line.starts_with('|') && line.contains(' ')
    } else {
        line.starts_with("//")
    }
}

/// As whole words, whatever their case. A user of that name, as in `nobody:x:65534`, is not a word.
fn says(line: &str, phrase: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        let is_user = before.ends_with(':') || after.starts_with(":x:");
        !is_user && !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    fn broken(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let found = check(&[file(path, text)]);
        found
            .into_iter()
            .map(|finding| (finding.rule, finding.line))
            .collect()
    }

    #[test]
    fn a_long_line_of_a_document_or_a_comment_is_found() {
        let long = "word ".repeat(25);
        assert_eq!(broken("docs/a.md", &format!("short\n{long}\n")), [(COLUMNS, 2)]);
        assert_eq!(
            broken("crates/x/src/a.rs", &format!("    /// {long}\n")),
            [(COLUMNS, 1)]
        );
        assert_eq!(broken("docs/a.md", &format!("| {long} |\n")), []);
        assert_eq!(broken("docs/a.md", &"x".repeat(130)), []);
        assert_eq!(broken("docs/a.md", &"ä".repeat(119)), []);
        assert_eq!(broken("crates/x/src/a.rs", &format!("let a = \"{long}\";\n")), []);
        assert_eq!(broken("crates/x/tests/a.rs", &format!("// {long}\n")), []);
    }

    #[test]
    fn a_phrase_is_found_as_whole_words() {
        assert_eq!(broken("docs/a.md", "Nobody asks.\n"), [(WORDS, 1)]);
        assert_eq!(
            broken("crates/x/src/a.rs", "// a late answer is none\n"),
            [(WORDS, 1)]
        );
        assert_eq!(
            broken("crates/x/src/a.rs", "a.is_none() && nobody_asks && b // bodies\n"),
            []
        );
        assert_eq!(
            broken("crates/x/src/a.rs", "\"nobody:x:65534:65534:nobody:/\"\n"),
            []
        );
        let tested = "x();\n#[cfg(test)]\nmod tests {\n// nobody\n}\n";
        assert_eq!(broken("crates/x/src/a.rs", tested), []);
    }

    #[test]
    fn doc_comment_that_begins_with_a_relative_clause_is_found() {
        for text in ["//! What a place is.\n", "    /// Whose turn it is.\n"] {
            assert_eq!(broken("crates/x/src/a.rs", text), [(WORDS, 1)]);
        }
        for text in [
            "/// Whatsapp.\n",
            "/// What is it?\n",
            "// What else\n",
            "let what = 1; // What\n",
        ] {
            assert_eq!(broken("crates/x/src/a.rs", text), []);
        }
        assert_eq!(broken("docs/a.md", "What you need.\n"), []);
    }
}
