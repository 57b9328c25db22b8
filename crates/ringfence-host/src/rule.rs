//! Rules as they are written, and what they mean. A file says for each program which forms of its command line may be
//! asked for, and what such a command can do; [`crate::load`] reads it and tries its examples.

use crate::{
    directories::{Access, Directories, DirectoryText},
    kinds::Kind,
    never::Never,
    program::DIRECTORIES,
};
use ringfence_types::yaml::Lined;
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFile {
    /// Whether the rules that Ringfence brings along hold beside these.
    #[serde(default = "yes")]
    pub(crate) default_rules: bool,
    #[serde(default)]
    pub(crate) directories: Vec<DirectoryText>,
    #[serde(default)]
    pub(crate) programs: Vec<Lined<Program>>,
    #[serde(default)]
    pub(crate) never: Vec<Never>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// A name, which is looked for in the system's directories, or an absolute path.
    #[serde(rename = "program")]
    pub(crate) name: String,
    /// What runs it, where it is a script: a name or an absolute path.
    pub(crate) interpreter: Option<String>,
    /// Words between the interpreter and the script.
    #[serde(default)]
    pub(crate) interpreter_words: Vec<String>,
    /// Why these forms are harmless.
    pub(crate) why: String,
    /// Words of ours behind the program's name.
    #[serde(default)]
    pub(crate) before: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) effect: Effect,
    #[serde(default = "ten_seconds")]
    pub(crate) deadline_seconds: u64,
    /// What a person may approve of this program beside its forms.
    #[serde(default)]
    pub(crate) approvals: Approvals,
    /// What a command can do that a person approved; as the forms where it is not said.
    pub(crate) approved_effect: Option<Effect>,
    pub(crate) forms: Vec<Lined<Form>>,
}

fn ten_seconds() -> u64 {
    10
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    /// One run.
    #[default]
    Once,
    /// One run, or a time.
    Lasting,
}

/// One form of a command line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Form {
    /// How verdicts call it.
    pub(crate) rule: String,
    /// The sub-command, word by word; options stand behind it.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Exact spellings.
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    /// Options with a value: `-n` takes the next word, `--tail=` has it in the same one.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, Kind>,
    /// Of which one must be there.
    #[serde(default)]
    pub(crate) required: Vec<String>,
    pub(crate) operands: Option<Operands>,
    /// What may stand behind a `--` of the caller's.
    pub(crate) paths: Option<Operands>,
    /// Words of ours behind the sub-command.
    #[serde(default)]
    pub(crate) after: Vec<String>,
    /// Whether `--` is put before what is not an option.
    #[serde(default = "yes")]
    pub(crate) separator: bool,
    #[serde(rename = "match")]
    pub(crate) matches: Vec<Lined<String>>,
    pub(crate) refuse: Vec<Lined<String>>,
}

/// Words that are not options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operands {
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) min: usize,
    pub(crate) max: usize,
}

/// What a command can do; its walls are made from this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Paths that it may read, beside the system's libraries: `directory` is the call's own, `operands` are those that
    /// the directory rules have admitted.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Paths that it may write, under the same words.
    #[serde(default)]
    pub writes: Vec<String>,
    #[serde(default)]
    pub network: Network,
    /// The one socket that it may speak to.
    pub socket: Option<PathBuf>,
    /// Programs, or directories of them, that it may start.
    #[serde(default)]
    pub runs: Vec<PathBuf>,
    #[serde(default)]
    pub user: User,
    #[serde(default)]
    pub view: View,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// An empty network of its own.
    #[default]
    None,
    Host,
}

/// Whose process it is, where the server is root; else it is the server's user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// An id that owns nothing.
    #[default]
    Own,
    /// The owner of the first operand, or else of the directory.
    Owner,
    /// Root, without any capability.
    Root,
}

/// Which files exist for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Those that it may read, in a root of its own.
    #[default]
    Own,
    /// The host's mounts, all read-only: for programs that report about them.
    Host,
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) programs: Vec<Program>,
    pub(crate) never: Vec<Never>,
    /// Directories of the host that files are read, listed or written in.
    pub directories: Directories,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSummary {
    pub rule: String,
    pub form: String,
    pub why: String,
}

impl Rules {
    /// Closes these files, and everything below these directories, to this access of every caller: `Write`, or `Read`
    /// and with it every other.
    pub fn guard(&mut self, paths: impl IntoIterator<Item = PathBuf>, from: Access) {
        let mut guard = |path: PathBuf| self.directories.guard(&path, from);
        paths.into_iter().for_each(&mut guard);
    }

    /// Every rule, in the order in which they are tried.
    pub fn summaries(&self) -> Vec<RuleSummary> {
        let of = |program: &Program| {
            let name = program.name.clone();
            let why = program.why.clone();
            let one = move |form: &Lined<Form>| RuleSummary {
                rule: form.value.rule.clone(),
                form: form.value.line(&name),
                why: why.clone(),
            };
            program.forms.iter().map(one).collect::<Vec<_>>()
        };
        self.programs.iter().flat_map(of).collect()
    }

    /// The entry of a program, by the name that callers use.
    pub(crate) fn program(&self, called: &str) -> Option<&Program> {
        // A path into the system's directories means what its name means.
        let called = match called.rsplit_once('/') {
            Some((directory, name)) if DIRECTORIES.contains(&directory) => name,
            _ => called,
        };
        let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
        self.programs.iter().find(|program| {
            program.name == called || (!called.contains('/') && base(&program.name) == called)
        })
    }
}

impl Form {
    fn line(&self, program: &str) -> String {
        let mut parts = vec![program.rsplit('/').next().unwrap_or_default().to_owned()];
        parts.extend(self.words.iter().cloned());
        parts.extend(self.flags.iter().map(|flag| format!("[{flag}]")));
        parts.extend(self.options.keys().map(|option| match option.ends_with('=') {
            true => format!("[{option}VALUE]"),
            false => format!("[{option} VALUE]"),
        }));
        let operands = self.operands.iter().chain(&self.paths);
        parts.extend(operands.map(|operands| format!("({} times at most: {})", operands.max, operands.kind)));
        parts.join(" ")
    }
}
