//! Texts that are no Python for a reason that can be named: Markdown around the code, commands of a notebook, `print`
//! of Python 2, curly quotes, a bracket that is never closed. Each is told once, where it is, and what only follows
//! from it is not told.

use super::{nesting, parse, syntax::finding};
use crate::rule::Finding;
use ruff_python_ast::{ModModule, PythonVersion, token::TokenKind};
use ruff_python_parser::{LexicalErrorType, ParseError, ParseErrorType, Parsed};
use ruff_text_size::{Ranged, TextRange, TextSize};
use std::{collections::BTreeSet, ops::Range};

/// A text without its mistakes may show others.
const ROUNDS_MAX: usize = 4;
/// Lines that are looked at in each round.
const LINES_MAX: usize = 100;
const FENCE: &str = "```";
const QUOTES: &[char] = &['“', '”', '„', '‘', '’', '‚'];

/// What is told of a text that the parser refused.
pub(super) fn explain(code: &str, parsed: Parsed<ModModule>, version: PythonVersion) -> Vec<Finding> {
    let mut text = code.to_owned();
    let mut parsed = parsed;
    let mut found: Vec<Finding> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let lines = broken_lines(&text, parsed.errors());
        let quotes = quotes(&text, parsed.errors());
        let mistakes = mistakes(&mut text, &lines, &quotes);
        if mistakes.is_empty() {
            break;
        }
        found.extend(mistakes);
        // A tree that the parser mended may be deeper than its brackets say, and to drop it recurses.
        std::mem::forget(parsed);
        let again = nesting::look(&text).is_ok().then(|| parse(&text, version));
        let Some(again) = again.flatten() else {
            return found;
        };
        parsed = again;
    }
    let lines = Lines::of(code);
    let told: BTreeSet<usize> = found
        .iter()
        .map(|finding| lines.start(finding.range.start))
        .collect();
    let others = first_of_lines(&text, &parsed);
    found.extend(
        others
            .into_iter()
            .filter(|other| !told.contains(&lines.start(other.range.start))),
    );
    std::mem::forget(parsed);
    found.sort_by_key(|finding| finding.range.start);
    found
}

/// The first error of each line; none behind a bracket that is never closed.
fn first_of_lines(text: &str, parsed: &Parsed<ModModule>) -> Vec<Finding> {
    let open = never_closed(parsed);
    let lines = Lines::of(text);
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for error in parsed.errors() {
        let start = error.location.start();
        let follows = open.is_some_and(|open| start >= open.start());
        // That the text ends is said where nothing else is wrong.
        if follows || (is_end(error) && parsed.errors().len() > 1) {
            continue;
        }
        if known.insert(lines.start(start.to_usize())) {
            found.push(finding(error.location, error.error.to_string()));
        }
    }
    if let Some(open) = open {
        let bracket = text.get(open.to_std_range()).unwrap_or_default();
        found.push(Finding {
            hint: Some("Close the bracket.".to_owned()),
            ..finding(open, format!("`{bracket}` was never closed"))
        });
    }
    found
}

fn is_end(error: &ParseError) -> bool {
    matches!(error.error, ParseErrorType::Lexical(LexicalErrorType::Eof))
}

/// The innermost bracket that is open at the end. A text that is open, too, may hide what closes it.
fn never_closed(parsed: &Parsed<ModModule>) -> Option<TextRange> {
    let hides = |error: &ParseError| matches!(error.error, ParseErrorType::Lexical(_)) && !is_end(error);
    if parsed.errors().iter().any(hides) {
        return None;
    }
    let mut open = Vec::new();
    for token in parsed.tokens().iter() {
        match token.kind() {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => open.push((token.kind(), token.range())),
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => {
                let (opened, _) = open.pop()?;
                let closes = matches!(
                    (opened, token.kind()),
                    (TokenKind::Lpar, TokenKind::Rpar)
                        | (TokenKind::Lsqb, TokenKind::Rsqb)
                        | (TokenKind::Lbrace, TokenKind::Rbrace)
                );
                if !closes {
                    return None;
                }
            }
            _ => {}
        }
    }
    open.pop().map(|(_, range)| range)
}

/// The first lines on which errors begin.
fn broken_lines(text: &str, errors: &[ParseError]) -> Vec<Range<usize>> {
    let lines = Lines::of(text);
    let starts: BTreeSet<usize> = errors
        .iter()
        .map(|error| lines.start(error.location.start().to_usize()))
        .collect();
    let starts = starts.into_iter().take(LINES_MAX);
    starts.map(|start| line_from(text, start)).collect()
}

/// Where a quote is refused.
fn quotes(text: &str, errors: &[ParseError]) -> Vec<usize> {
    let starts = errors.iter().map(|error| error.location.start().to_usize());
    let is_quote = |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(QUOTES));
    starts.filter(is_quote).collect()
}

/// Where lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after).collect())
    }

    /// Of the line in which an offset is.
    fn start(&self, at: usize) -> usize {
        let next = self.0.partition_point(|start| *start <= at);
        self.0.get(next.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Without its end.
fn line_from(text: &str, start: usize) -> Range<usize> {
    let rest = text.get(start..).unwrap_or_default();
    start..start + rest.find('\n').unwrap_or(rest.len())
}

/// Mistakes on these lines, each of which is taken out of the text without moving anything.
fn mistakes(text: &mut String, lines: &[Range<usize>], quotes: &[usize]) -> Vec<Finding> {
    let is_fence = |line: &&Range<usize>| {
        text.get((*line).clone())
            .is_some_and(|line| line.trim_start().starts_with(FENCE))
    };
    if let Some(fence) = lines.iter().find(is_fence).cloned() {
        let told = told(
            text,
            &fence,
            "a line of Markdown",
            "Send the code without the fences (```).",
        );
        *text = without_markdown(text);
        return vec![told];
    }
    lines
        .iter()
        .filter_map(|line| {
            let quote = quotes.iter().copied().find(|at| line.contains(at));
            mistake(text, line, quote)
        })
        .collect()
}

fn mistake(text: &mut String, line: &Range<usize>, quote: Option<usize>) -> Option<Finding> {
    let written = text.get(line.clone())?.to_owned();
    let content = written.trim_start();
    let indent = written.len() - content.len();
    if is_command(content) {
        let hint = "Leave the command out; packages are named in `packages`.";
        let told = told(text, line, "a command of a notebook, which is no Python", hint);
        replace(text, line, &format!("{}0", &written[..indent]));
        return Some(told);
    }
    if let Some(printed) = content.strip_prefix("print").filter(|rest| is_printed(rest)) {
        let hint = "In Python 3 print is a function: print(...).";
        let told = told(text, line, "`print` is used as a statement", hint);
        let rest = if printed.trim_start().starts_with(">>") {
            ""
        } else {
            printed
        };
        replace(text, line, &format!("{}0;   {rest}", &written[..indent]));
        return Some(told);
    }
    let quote = quote?;
    let shown = text.get(quote..)?.chars().next()?;
    let range = quote..quote + shown.len_utf8();
    let told = told(
        text,
        &range,
        &format!("`{shown}` is no quote of Python"),
        "Use straight quotes.",
    );
    let straight = |letter: char| match letter {
        '“' | '”' | '„' => "\"  ".to_owned(),
        letter if QUOTES.contains(&letter) => "'  ".to_owned(),
        letter => letter.to_string(),
    };
    replace(text, line, &written.chars().map(straight).collect::<String>());
    Some(told)
}

/// `!pip install x`, `%matplotlib inline`, `%%time`.
fn is_command(line: &str) -> bool {
    let rest = match line.strip_prefix('!') {
        Some(rest) => rest.trim_start_matches('!'),
        None => match line.strip_prefix('%') {
            Some(rest) => rest.trim_start_matches('%'),
            None => return false,
        },
    };
    rest.trim_start()
        .starts_with(|letter: char| letter.is_ascii_alphabetic() || matches!(letter, '.' | '/' | '{' | '$'))
}

/// What follows `print` is a value.
fn is_printed(rest: &str) -> bool {
    let value = rest.trim_start();
    let spaced = value.len() < rest.len();
    let is_word = value.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    let first = value
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next();
    let operators = ["if", "else", "in", "is", "and", "or", "not"];
    value.starts_with(['"', '\'', '`'])
        || (spaced && is_word && first.is_some_and(|first| !operators.contains(&first)))
}

fn told(text: &str, range: &Range<usize>, what: &str, hint: &str) -> Finding {
    let shown = text.get(range.clone()).unwrap_or_default();
    let start = range.start + (shown.len() - shown.trim_start().len());
    let end = range.start + shown.trim_end().len();
    let size = |at: usize| TextSize::try_from(at).unwrap_or_default();
    let range = TextRange::new(size(start), size(end.max(start)));
    Finding {
        hint: Some(hint.to_owned()),
        ..finding(range, what.to_owned())
    }
}

/// The rest of the line becomes spaces, so that what follows stays where it is.
fn replace(text: &mut String, line: &Range<usize>, with: &str) {
    let length = line.len();
    let mut end = with.len().min(length);
    while !with.is_char_boundary(end) {
        end -= 1;
    }
    let padded = format!("{}{}", &with[..end], " ".repeat(length - end));
    text.replace_range(line.clone(), &padded);
}

/// The code between the fences, at its place. Of a fence that stands alone, what is above is the code, unless it names
/// a language.
fn without_markdown(text: &str) -> String {
    let fences = text.lines().filter(|line| line.trim_start().starts_with(FENCE));
    let first = fences.clone().next().map(str::trim).unwrap_or_default();
    let mut within = fences.count() == 1 && first == FENCE;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with(FENCE);
        if within && !is_fence {
            kept.push_str(line);
        } else {
            let end = line.trim_end_matches(['\r', '\n']).len();
            kept.push_str(&" ".repeat(end));
            kept.push_str(&line[end..]);
        }
        within ^= is_fence;
    }
    kept
}
