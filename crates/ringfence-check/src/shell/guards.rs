//! What a script does against variables that are empty.

use super::{
    call::Started,
    syntax::{Part, Role, Script, ShellWord},
};
use std::collections::HashMap;

/// Each from the first place on where the script does it.
#[derive(Default)]
pub(super) struct Guards<'s> {
    /// `set -u`: the script ends where a variable is not set.
    pub(super) unset: Option<usize>,
    /// `set -e`: it ends where a command fails.
    pub(super) failure: Option<usize>,
    /// Variables that are tested, or have to be there: `[ -n "$x" ] || exit`, `: "${x:?}"`.
    pub(super) tested: HashMap<&'s str, usize>,
    /// Places where a variable is set, in the order of the text.
    pub(super) assigned: HashMap<&'s str, Vec<(usize, From)>>,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// A command that may fail.
    Output,
    /// `mktemp`, which prints a path.
    Path,
    Elsewhere,
}

impl<'s> Guards<'s> {
    pub(super) fn of(text: &'s str, script: &'s Script<'s>, started: &[Started]) -> Self {
        let mut guards = Self::default();
        if let Some(line) = text.lines().next().filter(|line| line.starts_with("#!")) {
            guards.set(&line.split_whitespace().skip(1).collect::<Vec<&str>>(), 0);
        }
        for (command, starts) in script.commands.iter().zip(started) {
            let at = command.range.start;
            for assignment in &command.assignments {
                let places = guards.assigned.entry(assignment.name).or_default();
                places.push((assignment.range.start, origin(&assignment.values, started)));
            }
            let named = |name: &str| starts.calls.iter().find(|call| call.name == name);
            if let Some(call) = named("set") {
                guards.set(&call.texts().collect::<Vec<&str>>(), at);
            }
            if command.role == Role::Test || named("[").is_some() || named("test").is_some() {
                for part in command.words.iter().flat_map(|word| &word.parts) {
                    if let Part::Variable { name, .. } = part {
                        guards.tested.entry(name).or_insert(at);
                    }
                }
            }
        }
        for (at, _) in text.match_indices("${") {
            let rest = &text[at + 2..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (name, sign) = rest.split_at(end.unwrap_or(rest.len()));
            if [":?", "?", ":=", "="].iter().any(|known| sign.starts_with(known)) {
                let place = guards.tested.entry(name).or_insert(at);
                *place = at.min(*place);
            }
        }
        guards
    }

    /// `-u`, `-euo pipefail`, `-o nounset`
    fn set(&mut self, options: &[&str], at: usize) {
        let has = |letter: char, word: &str| {
            options.iter().any(|text| {
                *text == word || text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
            })
        };
        if has('u', "nounset") {
            self.unset.get_or_insert(at);
        }
        if has('e', "errexit") {
            self.failure.get_or_insert(at);
        }
    }
}

fn origin(values: &[ShellWord<'_>], started: &[Started]) -> From {
    let prints_path = |starts: &Started| starts.calls.iter().any(|call| call.name == "mktemp");
    let mut parts = values.iter().flat_map(|word| &word.parts);
    let output = parts.find_map(|part| match part {
        Part::Output(commands) => started.get(commands.clone()),
        _ => None,
    });
    match output {
        Some(starts) if starts.iter().any(prints_path) => From::Path,
        Some(_) => From::Output,
        None => From::Elsewhere,
    }
}
