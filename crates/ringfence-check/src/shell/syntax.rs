//! What a shell script consists of, as far as rules ask for it: commands in the order of the text, each a list of
//! words, and what joins them. Commands within commands (`$(…)`, bodies of loops) are in the same list.

use crate::unknown::UNKNOWN;
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Script<'a> {
    pub(super) commands: Vec<Command<'a>>,
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) faults: Vec<Fault>,
    /// Commands in backticks that are written with backslashes, without these.
    pub(super) unescaped: Vec<(String, Range<usize>)>,
    /// Places where execution goes one way or the other.
    pub(super) decisions: u32,
    /// Bodies of loops, as ranges of commands.
    pub(super) loops: Vec<Range<usize>>,
    /// The first carriage return at the end of a line outside of texts.
    pub(super) carriage_return: Option<usize>,
    /// Here-documents without an end, by the places of their operators.
    pub(super) endless: Vec<Range<usize>>,
}

/// A simple command, or the redirections of a compound one, without words.
#[derive(Debug, Default)]
pub(super) struct Command<'a> {
    pub(super) range: Range<usize>,
    pub(super) assignments: Vec<Assignment<'a>>,
    pub(super) words: Vec<ShellWord<'a>>,
    pub(super) redirections: Vec<Redirection<'a>>,
    /// The subshell it is in; `cd` reaches as far.
    pub(super) shell: u32,
    /// `&` follows it, or what it is in.
    pub(super) background: bool,
}

impl<'a> Command<'a> {
    /// Here-documents and texts behind `<<<`.
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
    /// Of a list, all its words.
    pub(super) value: ShellWord<'a>,
}

/// `2>&1`, `<< END`
#[derive(Debug)]
pub(super) struct Redirection<'a> {
    pub(super) operator: &'a str,
    /// The file, or the text of `<<<` or of a here-document.
    pub(super) target: ShellWord<'a>,
}

impl Redirection<'_> {
    pub(super) fn writes(&self) -> bool {
        self.operator.contains('>')
    }

    /// `<<`, `<<-`, `<<<`: the target is the input itself.
    pub(super) fn is_text(&self) -> bool {
        self.operator.starts_with("<<")
    }
}

/// Pieces without blanks between them.
#[derive(Debug, Default)]
pub(super) struct ShellWord<'a> {
    pub(super) range: Range<usize>,
    /// What it becomes: no field, one, or several where a value is split at its blanks.
    pub(super) fields: Vec<String>,
    /// `$(…)`, `<(…)` and `>(…)` in it, as ranges of commands.
    pub(super) outputs: Vec<Range<usize>>,
    pub(super) variables: Vec<&'a str>,
    /// It has more than texts and variables that may be empty.
    pub(super) is_mixed: bool,
    /// What comes next belongs to the last field.
    pub(super) goes_on: bool,
}

impl ShellWord<'_> {
    /// A text as it is written.
    pub(super) fn quoted(range: Range<usize>, text: &str) -> Self {
        Self {
            range,
            fields: vec![text.to_owned()],
            ..Self::default()
        }
    }

    /// As one text, as in an assignment.
    pub(super) fn text(&self) -> String {
        self.fields.join(" ")
    }

    pub(super) fn add(&mut self, text: &str) {
        match self.fields.last_mut().filter(|_| self.goes_on) {
            Some(field) => field.push_str(text),
            None => self.fields.push(text.to_owned()),
        }
        self.goes_on = true;
    }

    /// A value that is not quoted: each of its blanks ends a field.
    pub(super) fn add_split(&mut self, text: &str) {
        for (nth, piece) in text.split(char::is_whitespace).enumerate() {
            self.goes_on &= nth == 0;
            if !piece.is_empty() {
                self.add(piece);
            }
        }
    }

    /// Something that is known at run time only.
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
    /// Nested deeper than is read here; bash may accept it.
    pub(super) too_deep: bool,
}
