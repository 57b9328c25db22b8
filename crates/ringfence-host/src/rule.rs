//! Rules: their written form and their meaning. For each program a file lists the forms of its command line that may be
//! requested, and the effect of such a command; [`crate::load`] reads the file and tries its examples.

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
    /// False: Ringfence's own rules do not hold beside these.
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
    /// A name, which is looked up in the system's directories, or an absolute path.
    #[serde(rename = "program")]
    pub(crate) name: String,
    /// Interpreter of a script: a name or an absolute path.
    pub(crate) interpreter: Option<String>,
    /// Words between the interpreter and the script.
    #[serde(default)]
    pub(crate) interpreter_words: Vec<String>,
    /// The reason why these forms are harmless.
    pub(crate) why: String,
    /// Words that the rule adds after the program's name.
    #[serde(default)]
    pub(crate) before: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) effect: Effect,
    #[serde(default = "ten_seconds")]
    pub(crate) deadline_seconds: u64,
    /// Kinds of approvals that a person may give for commands outside the forms.
    #[serde(default)]
    pub(crate) approvals: Approvals,
    /// Effect of a command that a person approved. `None`: the effect of the forms.
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
    /// One run, or a period.
    Lasting,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Form {
    /// Name of the rule in verdicts.
    pub(crate) rule: String,
    /// The sub-command, word by word; options follow it.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Options without a value, in their exact spelling.
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    /// Options with a value: `-n` takes the next word, `--tail=` has it in the same one.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, Kind>,
    /// Options, one of which must be there.
    #[serde(default)]
    pub(crate) required: Vec<String>,
    pub(crate) operands: Option<Operands>,
    /// Operands that may follow a `--` of the caller's.
    pub(crate) paths: Option<Operands>,
    /// Words that the rule adds after the sub-command.
    #[serde(default)]
    pub(crate) after: Vec<String>,
    /// True: `--` is added before the operands.
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

/// The effect of a command, from which its walls are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Paths that it may read, beside the system's libraries: `directory` (the call's), `operands` (those admitted).
    #[serde(default)]
    pub reads: Vec<String>,
    /// Paths that it may write; `directory` has the same meaning.
    #[serde(default)]
    pub writes: Vec<String>,
    #[serde(default)]
    pub network: Network,
    /// The only socket that it may connect to.
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
    /// A network namespace of its own, without any network.
    #[default]
    None,
    Host,
}

/// User that the command runs as if the server is root; otherwise it runs as the server's user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// A user id that owns nothing.
    #[default]
    Own,
    /// The owner of the first operand, or without one of the directory.
    Owner,
    /// Root, without any capability.
    Root,
}

/// Files that exist for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// The files that it may use, in its own root.
    #[default]
    Own,
    /// All mounts of the host, read-only: for programs that report on them.
    Host,
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) programs: Vec<Program>,
    pub(crate) never: Vec<Never>,
    pub directories: Directories,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSummary {
    pub rule: String,
    pub form: String,
    pub why: String,
}

impl Rules {
    /// Closes these files, and all below these directories, to every caller: to writing (`Write`) or every access.
    pub fn guard(&mut self, paths: impl IntoIterator<Item = PathBuf>, from: Access) {
        paths
            .into_iter()
            .for_each(|path| self.directories.guard(path, from));
    }

    /// Returns every rule, in the order of matching.
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

    /// Returns the entry of a program by the name that callers use.
    pub(crate) fn program(&self, called: &str) -> Option<&Program> {
        // A path in a directory of the system is equivalent to the name of the program.
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
