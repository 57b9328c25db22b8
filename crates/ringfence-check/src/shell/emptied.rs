//! Paths that lead to `/` where a variable is empty: `rm -rf "$directory/"`, with a `directory` that is not set.

use super::{
    call::Call,
    guards::From,
    place::{self, Location},
    scene::Scene,
    syntax::{Operation, Part, ShellWord},
    value::is_known,
};
use crate::unknown::UNKNOWN;

/// The variable that has to be empty for it, of the first path that leads to `/` then.
pub(super) fn variable<'s>(scene: &Scene<'s>, command: usize, call: &Call) -> Option<&'s str> {
    let words = &scene.command(command)?.words;
    let mut fields = call.arguments.iter();
    fields.find_map(|field| of_word(scene, words.get(field.word)?))
}

/// All that is left of it without its variables is `/` or `/*`.
fn of_word<'s>(scene: &Scene<'s>, word: &'s ShellWord<'s>) -> Option<&'s str> {
    let mut rest = String::new();
    let mut named = None;
    for part in &word.parts {
        match part {
            Part::Text(text, _) => rest.push_str(text),
            Part::Variable { name, operation, .. }
                if may_be_empty(scene, name, operation, word.range.start) =>
            {
                named = named.or(Some(*name));
            }
            _ => return None,
        }
    }
    let root = rest.starts_with('/') && place::of(&rest, None) == Location::Root;
    named.filter(|_| root)
}

fn may_be_empty(scene: &Scene<'_>, name: &str, operation: &Operation<'_>, at: usize) -> bool {
    let has_default = match operation {
        Operation::Plain => false,
        Operation::Default(word) if word.range.is_empty() => true,
        _ => return false,
    };
    let before = |place: Option<&usize>| place.is_some_and(|place| *place < at);
    let guards = scene.guards;
    // What is known in part is not empty; what is known to be empty is told as what it is.
    let known = scene
        .values
        .get(name, at)
        .is_some_and(|value| is_known(value) || !value.trim_matches(UNKNOWN).is_empty());
    if known || before(guards.tested.get(name)) {
        return false;
    }
    let places = guards.assigned.get(name).map_or(&[][..], Vec::as_slice);
    let last = places.partition_point(|(place, _)| *place < at).checked_sub(1);
    match last.and_then(|last| places.get(last)) {
        Some((_, From::Path)) => false,
        Some((_, From::Output)) => !before(guards.failure.as_ref()),
        _ => has_default || !before(guards.unset.as_ref()),
    }
}
