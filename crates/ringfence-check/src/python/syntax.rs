//! Syntax errors as findings. Usual mistakes are reported by name, each once and at its place: Markdown around the
//! code, notebook commands, `print` of Python 2, curly quotes, a bracket that is never closed.

use crate::{registry::python::SYNTAX, rule::Finding};
use ruff_python_ast::{ModModule, token::TokenKind};
use ruff_python_parser::{LexicalErrorType, ParseError, ParseErrorType, Parsed, UnsupportedSyntaxError};
use ruff_text_size::{Ranged, TextLen, TextRange, TextSize};
use std::collections::BTreeSet;

pub(super) const ERRORS_MAX: usize = 20;
const BROKEN_MAX: usize = 200;
const FENCE: &str = "```";
const QUOTES: &[char] = &['“', '”', '„', '‘', '’', '‚'];

/// Returns findings for syntax that is newer than the interpreter.
pub(super) fn newer(unsupported: &[UnsupportedSyntaxError]) -> Vec<Finding> {
    let newer = unsupported.iter().map(|error| {
        let hint = format!("Write it as Python {} reads it.", error.target_version);
        finding(error.range, error.to_string()).with_hint(hint)
    });
    newer.collect()
}

pub(super) fn finding(range: TextRange, what: impl Into<String>) -> Finding {
    Finding::new(&SYNTAX, range.to_std_range(), what)
}

pub(super) fn explain(text: &str, parsed: Parsed<ModModule>) -> Vec<Finding> {
    let errors = parsed.errors().iter().take(BROKEN_MAX);
    let mut broken = errors.map(|error| line_at(text, error.location.start()));
    let found = match broken.find(|line| text[*line].starts_with(FENCE)) {
        Some(fence) => {
            let hint = "Send the code without the fences (```).";
            vec![finding(fence, "a line of Markdown").with_hint(hint)]
        }
        None => of_lines(text, &parsed),
    };
    // A tree from error recovery may be deeper than its brackets show, and dropping it recurses.
    std::mem::forget(parsed);
    found
}

/// Returns the first error of each line, and none after a bracket that is never closed.
fn of_lines(text: &str, parsed: &Parsed<ModModule>) -> Vec<Finding> {
    let open = never_closed(parsed);
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for error in parsed.errors().iter().take(BROKEN_MAX) {
        let start = error.location.start();
        let line = line_at(text, start);
        let follows = open.is_some_and(|open| start >= open.start());
        // An unexpected end of the code is reported only without other errors.
        if follows || is_end(error) && parsed.errors().len() > 1 || !known.insert(line.start()) {
            continue;
        }
        let mistake = mistake(text, line, start);
        found.push(mistake.unwrap_or_else(|| finding(error.location, error.error.to_string())));
    }
    if let Some(open) = open {
        let what = format!("`{}` was never closed", &text[open]);
        found.push(finding(open, what).with_hint("Close the bracket."));
    }
    found.sort_by_key(|finding| finding.range.start);
    found
}

fn is_end(error: &ParseError) -> bool {
    matches!(error.error, ParseErrorType::Lexical(LexicalErrorType::Eof))
}

/// Returns the innermost bracket open at the end, unless a lexical error, as an open string, may hide the closing one.
fn never_closed(parsed: &Parsed<ModModule>) -> Option<TextRange> {
    let hides = |error: &ParseError| matches!(error.error, ParseErrorType::Lexical(_)) && !is_end(error);
    if parsed.errors().iter().any(hides) {
        return None;
    }
    let mut open = Vec::new();
    for token in parsed.tokens().iter() {
        let closes = match token.kind() {
            TokenKind::Lpar => TokenKind::Rpar,
            TokenKind::Lsqb => TokenKind::Rsqb,
            TokenKind::Lbrace => TokenKind::Rbrace,
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => {
                open.pop().filter(|(closes, _)| *closes == token.kind())?;
                continue;
            }
            _ => continue,
        };
        open.push((closes, token.range()));
    }
    open.pop().map(|(_, range)| range)
}

/// Returns the line at an offset, without surrounding whitespace.
fn line_at(text: &str, at: TextSize) -> TextRange {
    let (before, after) = text.split_at(at.to_usize());
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let end = after.find('\n').map_or(text.len(), |end| at.to_usize() + end);
    let line = &text[start..end];
    let start = start + line.len() - line.trim_start().len();
    let size = |bytes: usize| TextSize::try_from(bytes).unwrap_or_default();
    TextRange::at(size(start), line.trim().text_len())
}

/// Returns a finding for a line with an error at this offset, if it is one of the usual mistakes.
fn mistake(text: &str, line: TextRange, at: TextSize) -> Option<Finding> {
    let written = &text[line];
    if is_command(written) {
        let hint = "Leave the command out; packages are named in `packages`.";
        return Some(finding(line, "a command of a notebook, which is no Python").with_hint(hint));
    }
    if written.strip_prefix("print").is_some_and(is_printed) {
        let hint = "In Python 3 print is a function: print(...).";
        return Some(finding(line, "`print` is used as a statement").with_hint(hint));
    }
    let letter = text.get(at.to_usize()..)?.chars().next();
    let quote = letter.filter(|letter| QUOTES.contains(letter))?;
    let what = format!("`{quote}` is no quote of Python");
    let place = TextRange::at(at, quote.text_len());
    Some(finding(place, what).with_hint("Use straight quotes."))
}

/// True for `!pip install x`, `%matplotlib inline` and `%%time`.
fn is_command(line: &str) -> bool {
    let rest = line.trim_start_matches(['!', '%']);
    let is_word = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '.' | '/' | '{' | '$');
    rest.len() < line.len() && rest.trim_start().starts_with(is_word)
}

/// True if the text after `print` is a value.
fn is_printed(rest: &str) -> bool {
    let value = rest.trim_start();
    let mut words = value.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let operators = ["if", "else", "in", "is", "and", "or", "not", ""];
    value.starts_with(['"', '\'', '`'])
        || value.len() < rest.len() && words.next().is_some_and(|first| !operators.contains(&first))
}
