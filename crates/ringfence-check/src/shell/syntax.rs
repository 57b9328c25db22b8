//! What a shell script consists of, as far as rules ask for it: commands in the order of the text, each a list of
//! words, and what joins them. Commands within commands (`$(…)`, bodies of loops) stand in the same list.

use std::{borrow::Cow, ops::Range};

/// A script that was read.
#[derive(Debug, Default)]
pub(super) struct Script<'a> {
    pub(super) commands: Vec<Command<'a>>,
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) faults: Vec<Fault>,
    /// Texts that are commands, but written so that they must be changed before they are read: backticks within
    /// backticks.
    pub(super) hidden: Vec<(String, Range<usize>)>,
    /// Places where it goes one way or the other.
    pub(super) decisions: u32,
    /// Commands that are done again and again.
    pub(super) loops: Vec<Range<usize>>,
    /// The first carriage return at the end of a line that is no text.
    pub(super) carriage_return: Option<usize>,
    /// Here-documents that go on to the end, by the words that should end them.
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
    /// Which subshell it is in; `cd` reaches as far.
    pub(super) shell: u32,
    /// `&` follows it, or what it is in.
    pub(super) background: bool,
}

/// What the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A command's name and arguments.
    Simple,
    /// The variable of a `for` and its values.
    Loop,
    /// What is tested or computed: no command.
    Test,
    /// Redirections of what is in a compound command; no words.
    Compound,
}

/// `name=value`
#[derive(Debug)]
pub(super) struct Assignment<'a> {
    pub(super) range: Range<usize>,
    pub(super) name: &'a str,
    pub(super) kind: AssignmentKind,
    pub(super) values: Vec<ShellWord<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignmentKind {
    Set,
    Append,
    /// `name[…]=value`
    Element,
}

/// `2>&1`, `<< END`
#[derive(Debug)]
pub(super) struct Redirection<'a> {
    pub(super) operator: &'a str,
    /// The file, or the text of `<<<`, or of a here-document.
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
    /// `{`, `,` or `}` of a brace expansion, perhaps.
    Brace(u8),
    Variable {
        name: &'a str,
        operation: Operation<'a>,
        quoted: Quoted,
    },
    /// `$(…)`, by the places of its commands and pipelines.
    Output(Inside, Quoted),
    /// `<(…)` or `>(…)`.
    Process(Inside),
    /// Something that is computed.
    Unknown,
}

/// Commands and pipelines within a word.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    pub(super) commands: Range<usize>,
    pub(super) pipelines: Range<usize>,
}

/// What `${name…}` does with the value.
#[derive(Clone, Debug)]
pub(super) enum Operation<'a> {
    Plain,
    /// `${name:?}`
    Required,
    /// `${name:-word}` and its like.
    Default(ShellWord<'a>),
    /// `${name:+word}`
    Alternate(ShellWord<'a>),
    /// `${name:from:length}`
    Slice(usize, Option<usize>),
    /// `${name[index]}`
    Element(usize),
    Lower,
    Upper,
    /// `${name/this/that}`; all of them or the first.
    Replace(&'a str, &'a str, Every),
    /// `${!name}`
    Indirect,
    /// Something that is not followed.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Every {
    First,
    All,
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

/// Where reading went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) range: Range<usize>,
    pub(super) kind: FaultKind,
    pub(super) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// Something is opened and never closed.
    Open,
    /// A word or sign stands where none can.
    Stray,
    /// Deeper than is read here.
    Nested,
}
