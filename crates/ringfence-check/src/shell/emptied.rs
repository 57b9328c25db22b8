//! Paths that lead to `/` where a variable is empty: `rm -rf "$directory/"`, with a `directory` that is not set.

use super::{
    call::Call,
    guards::From,
    place::{self, Location},
    scene::Scene,
    syntax::{Operation, Part, ShellWord},
};

/// The variable that has to be empty for it, of the first such path; none: there is no such path.
pub(super) fn variable<'s>(scene: &Scene<'s>, command: usize, call: &Call) -> Option<&'s str> {
    let words = &scene.command(command)?.words;
    let mut indexes = call.arguments.iter().map(|field| field.word);
    indexes.find_map(|index| of_word(scene, words.get(index)?))
}

/// All that is left of it without its variables is `/` or `/*`.
fn of_word<'s>(scene: &Scene<'s>, word: &'s ShellWord<'s>) -> Option<&'s str> {
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
    let root = rest.starts_with('/') && place::of(&rest, None) == Location::Root;
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
