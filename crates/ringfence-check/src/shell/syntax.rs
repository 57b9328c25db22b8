//! Syntax of a shell script, as far as the rules need it: a list of commands, each a list of words, and the pipelines,
//! loops and functions that join them. Nested commands (`$(…)`, bodies of loops) are in the same list.

use crate::unknown::UNKNOWN;
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Script<'a> {
    pub(super) commands: Vec<Command<'a>>,
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) faults: Vec<Fault>,
    /// Scripts in backticks that contained escapes, with the escapes removed.
    pub(super) unescaped: Vec<(String, Range<usize>)>,
    /// Number of branches, loops, `&&` and `||`.
    pub(super) decisions: u32,
    /// Bodies of loops, as ranges of commands.
    pub(super) loops: Vec<Range<usize>>,
    /// The first carriage return at a line end, outside quotes and here-documents.
    pub(super) carriage_return: Option<usize>,
    /// Unterminated here-documents, by the ranges of their operators and delimiters.
    pub(super) unclosed: Vec<Range<usize>>,
}

/// A simple command, or the redirections of a compound one, without words.
#[derive(Debug, Default)]
pub(super) struct Command<'a> {
    pub(super) range: Range<usize>,
    pub(super) assignments: Vec<Assignment<'a>>,
    pub(super) words: Vec<ShellWord<'a>>,
    pub(super) redirections: Vec<Redirection<'a>>,
    /// The subshell it is in, to which the effect of `cd` is limited.
    pub(super) shell: u32,
    /// True if `&` follows it, or a construct that it is in.
    pub(super) background: bool,
}

impl<'a> Command<'a> {
    /// Here-documents, and here-strings (`<<<`).
    pub(super) fn texts(&self) -> impl Iterator<Item = &Redirection<'a>> {
        let redirections = self.redirections.iter();
        redirections.filter(|redirection| redirection.is_text())
    }
}

/// `name=value`
#[derive(Debug)]
pub(super) struct Assignment<'a> {
    pub(super) range: Range<usize>,
    pub(super) name: &'a str,
    /// The value; for an array, all its words.
    pub(super) value: ShellWord<'a>,
}

/// `2>&1`, `<< END`
#[derive(Debug)]
pub(super) struct Redirection<'a> {
    pub(super) operator: &'a str,
    /// The file, or the text of a here-string or here-document.
    pub(super) target: ShellWord<'a>,
}

impl Redirection<'_> {
    pub(super) fn writes(&self) -> bool {
        self.operator.contains('>')
    }

    /// True for `<<`, `<<-`, `<<<`: the target is the input itself.
    pub(super) fn is_text(&self) -> bool {
        self.operator.starts_with("<<")
    }
}

/// Pieces without blanks between them.
#[derive(Debug, Default)]
pub(super) struct ShellWord<'a> {
    pub(super) range: Range<usize>,
    /// Its expansion: no field, one, or several where a value is split at blanks.
    pub(super) fields: Vec<String>,
    /// Substitutions in it (`$(…)`, `` `…` ``, `<(…)`, `>(…)`), as ranges of commands.
    pub(super) outputs: Vec<Range<usize>>,
    pub(super) variables: Vec<&'a str>,
    /// True if it has more than literal text and variables that may be empty.
    pub(super) is_mixed: bool,
    /// True if the next piece is appended to the last field.
    pub(super) continues_field: bool,
}

impl ShellWord<'_> {
    pub(super) fn quoted(range: Range<usize>, text: &str) -> Self {
        Self {
            range,
            fields: vec![text.to_owned()],
            ..Self::default()
        }
    }

    pub(super) fn text(&self) -> String {
        self.fields.join(" ")
    }

    pub(super) fn add(&mut self, text: &str) {
        match self.fields.last_mut().filter(|_| self.continues_field) {
            Some(field) => field.push_str(text),
            None => self.fields.push(text.to_owned()),
        }
        self.continues_field = true;
    }

    /// Adds an unquoted value, which is split into fields at blanks.
    pub(super) fn add_split(&mut self, text: &str) {
        for (nth, piece) in text.split(char::is_whitespace).enumerate() {
            self.continues_field &= nth == 0;
            if !piece.is_empty() {
                self.add(piece);
            }
        }
    }

    pub(super) fn unknown(&mut self) {
        self.is_mixed = true;
        self.add(UNKNOWN.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn output(&mut self, commands: Range<usize>) {
        self.outputs.push(commands);
        self.unknown();
    }
}

/// Two or more commands with `|` between them; each stage is a range of commands.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) range: Range<usize>,
    pub(super) stages: Vec<Range<usize>>,
}

#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) range: Range<usize>,
    pub(super) commands: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) range: Range<usize>,
    pub(super) what: String,
    /// True if the nesting exceeds the limit of this parser; bash may accept it.
    pub(super) too_deep: bool,
}
