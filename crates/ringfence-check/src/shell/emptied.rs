//! Paths that lead to `/` where a variable is empty: `rm -rf "$directory/"`, with a `directory` that nobody has set.

use super::{
    call::{Call, Started},
    place::{self, Place},
    scene::Scene,
    syntax::{Assignment, Operation, Part, Role, Script, Word},
};
use std::collections::HashMap;

/// What a script does against variables that are empty, each from the first place on where it does.
#[derive(Default)]
pub(super) struct Guards<'s> {
    /// `set -u`: the script ends where one is not set.
    unset: Option<usize>,
    /// `set -e`: it ends where a command fails.
    failure: Option<usize>,
    /// Variables that are tested, or have to be there: `[ -n "$x" ] || exit`, `: "${x:?}"`.
    looked_at: HashMap<&'s str, usize>,
    /// Places where a variable is set, in the order of the text.
    assigned: HashMap<&'s str, Vec<(usize, From)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
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

/// The variable that has to be empty for it, of the first such path; none: there is no such path.
pub(super) fn variable<'s>(scene: &Scene<'s>, command: usize, call: &Call) -> Option<&'s str> {
    let words = &scene.command(command)?.words;
    let mut indexes = call.arguments.iter().map(|field| field.word);
    indexes.find_map(|index| of_word(scene, words.get(index)?))
}

/// All that is left of it without its variables is `/` or `/*`.
fn of_word<'s>(scene: &Scene<'s>, word: &'s Word<'s>) -> Option<&'s str> {
    let mut rest = String::new();
    let mut named = None;
    for part in &word.parts {
        match part {
            Part::Text(text, _) => rest.push_str(text),
            Part::Variable { name, operation, .. } => {
                if !may_be_empty(scene, name, operation, word.range.start) {
                    return None;
                }
                named = named.or(Some(*name));
            }
            _ => return None,
        }
    }
    let root = rest.starts_with('/') && place::of(&rest, None) == Place::Root;
    named.filter(|_| root)
}

fn may_be_empty(scene: &Scene<'_>, name: &str, operation: &Operation<'_>, at: usize) -> bool {
    let expander = scene.expander();
    match operation {
        Operation::Plain | Operation::Slice(..) | Operation::Lower | Operation::Upper => {}
        Operation::Default(word) if expander.text(word).is_empty() => {}
        _ => return false,
    }
    let before = |place: Option<&usize>| place.is_some_and(|place| *place < at);
    let guards = scene.guards;
    // What is certain is told as what it is.
    if expander.is_set(name, at) || expander.is_emptied(name, at) || before(guards.looked_at.get(name)) {
        return false;
    }
    let places = guards.assigned.get(name).map_or(&[][..], Vec::as_slice);
    let last = places.partition_point(|(place, _)| *place < at).checked_sub(1);
    match last.and_then(|last| places.get(last)) {
        Some((_, From::Output)) => !before(guards.failure.as_ref()),
        _ => !(matches!(operation, Operation::Plain) && before(guards.unset.as_ref())),
    }
}
