//! What a script does against variables that are empty.

use super::{
    call::Started,
    syntax::{Assignment, Part, Role, Script},
};
use std::collections::HashMap;

/// What a script does against variables that are empty, each from the first place on where it does.
#[derive(Default)]
pub(super) struct Guards<'s> {
    /// `set -u`: the script ends where one is not set.
    pub(super) unset: Option<usize>,
    /// `set -e`: it ends where a command fails.
    pub(super) failure: Option<usize>,
    /// Variables that are tested, or have to be there: `[ -n "$x" ] || exit`, `: "${x:?}"`.
    pub(super) looked_at: HashMap<&'s str, usize>,
    /// Places where a variable is set, in the order of the text.
    pub(super) assigned: HashMap<&'s str, Vec<(usize, From)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Output,
    Elsewhere,
}

impl<'s> Guards<'s> {
    pub(super) fn of(text: &'s str, script: &'s Script<'s>, started: &[Started]) -> Self {
        let mut guards = Self::default();
        let first = text.lines().next().filter(|line| line.starts_with("#!"));
        let options: Vec<&str> =
            first.map_or_else(Vec::new, |line| line.split_whitespace().skip(1).collect());
        guards.set(&options, 0);
        for (command, started) in script.commands.iter().zip(started) {
            let at = command.range.start;
            for assignment in &command.assignments {
                let places = guards.assigned.entry(assignment.name).or_default();
                places.push((assignment.range.start, origin(assignment)));
            }
            let named = |name: &str| started.calls.iter().find(|call| call.name == name);
            if let Some(call) = named("set") {
                guards.set(&call.texts().collect::<Vec<&str>>(), at);
            }
            if command.role == Role::Test || named("[").is_some() || named("test").is_some() {
                for part in command.words.iter().flat_map(|word| &word.parts) {
                    if let Part::Variable { name, .. } = part {
                        guards.looked_at.entry(name).or_insert(at);
                    }
                }
            }
        }
        for (at, _) in text.match_indices("${") {
            let rest = &text[at + 2..];
            let length = rest
                .bytes()
                .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
                .count();
            let sign = &rest[length..];
            if [":?", "?", ":=", "="].iter().any(|known| sign.starts_with(known)) {
                let place = guards.looked_at.entry(&rest[..length]).or_insert(at);
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

fn origin(assignment: &Assignment<'_>) -> From {
    let mut parts = assignment.values.iter().flat_map(|word| &word.parts);
    match parts.any(|part| matches!(part, Part::Output(..))) {
        true => From::Output,
        false => From::Elsewhere,
    }
}
