//! What a shell script consists of, as far as rules ask for it: commands in the order of the text, each a list of
//! words, and what joins them. Commands within commands (`$(…)`, bodies of loops) are in the same list.

use std::{borrow::Cow, ops::Range};

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

/// A simple command, or the head or the redirections of a compound one.
#[derive(Debug)]
pub(super) struct Command<'a> {
    pub(super) range: Range<usize>,
    pub(super) role: Role,
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
        self.redirections
            .iter()
            .filter(|redirection| redirection.is_text())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A command's name and arguments.
    Simple,
    /// The variable of a `for` and its values.
    Loop,
    /// What is tested or computed: not a command.
    Test,
    /// Redirections of a compound command; no words.
    Compound,
}

/// `name=value`
#[derive(Debug)]
pub(super) struct Assignment<'a> {
    pub(super) range: Range<usize>,
    pub(super) name: &'a str,
    /// Not `+=`, `name[…]=` or `name=(…)`.
    pub(super) plain: bool,
    pub(super) values: Vec<ShellWord<'a>>,
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
#[derive(Clone, Debug, Default)]
pub(super) struct ShellWord<'a> {
    pub(super) range: Range<usize>,
    pub(super) parts: Vec<Part<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quoted {
    No,
    Yes,
}

#[derive(Clone, Debug)]
pub(super) enum Part<'a> {
    Text(Cow<'a, str>, Quoted),
    Variable {
        name: &'a str,
        operation: Operation<'a>,
        quoted: Quoted,
    },
    /// `$(…)`, `<(…)` or `>(…)`, as a range of commands.
    Output(Range<usize>),
    Unknown,
}

/// What `${name…}` does with the value.
#[derive(Clone, Debug)]
pub(super) enum Operation<'a> {
    Plain,
    /// `${name:-word}`, `${name:=word}`
    Default(ShellWord<'a>),
    /// Something that is not followed.
    Other,
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
