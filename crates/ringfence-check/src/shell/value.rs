//! What words become when they are expanded, as far as the script says it: literal texts, and variables that are set to
//! one. Everything else is [`UNKNOWN`]; nothing is computed.

use super::syntax::{Command, Operation, Part, Quoted, Role, Script, ShellWord};
use crate::unknown::UNKNOWN;
use std::{
    borrow::Cow,
    cell::Cell,
    collections::{HashMap, HashSet},
};

/// Longer values are not followed.
const VALUE_BYTES_MAX: usize = 4096;
/// Of all values that are put into words, together; what comes later is unknown.
const EXPANDED_BYTES_MAX: usize = 1024 * 1024;

/// Commands that set the variables they name.
const SETTERS: &str = "read mapfile readarray getopts printf unset let local";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) text: String,
    /// The index of the word that it comes from.
    pub(super) word: usize,
}

impl Field {
    pub(super) fn new(text: impl Into<String>, word: usize) -> Self {
        let text = text.into();
        Self { text, word }
    }
}

/// Values of variables by name, each from a place in the text on.
#[derive(Default)]
pub(super) struct Values<'o> {
    by_name: HashMap<String, Vec<(usize, String)>>,
    /// Variables of loops, which have one value after the other.
    loops: HashSet<String>,
    /// Of the shell that this one is started by.
    outer: Option<&'o Values<'o>>,
    expanded_bytes: Cell<usize>,
}

impl<'o> Values<'o> {
    /// Of a whole script, in the order of the text.
    pub(super) fn of(script: &Script<'_>, outer: Option<&'o Self>) -> Self {
        let mut values = Self {
            outer,
            ..Self::default()
        };
        for command in &script.commands {
            for assignment in &command.assignments {
                let value = match assignment.plain {
                    true => assignment.values.first().map_or_else(String::new, literal),
                    false => UNKNOWN.to_string(),
                };
                values.set(assignment.name, assignment.range.start, value);
            }
            values.set_by(command);
        }
        values
    }

    fn set(&mut self, name: &str, at: usize, value: String) {
        let known = self.by_name.entry(name.to_owned()).or_default();
        let place = known.partition_point(|(from, _)| *from <= at);
        let value = if value.len() > VALUE_BYTES_MAX {
            UNKNOWN.to_string()
        } else {
            value
        };
        known.insert(place, (at, value));
    }

    /// Variables that a command sets: `for x in …`, `read x`.
    fn set_by(&mut self, command: &Command<'_>) {
        let texts: Vec<String> = match (command.role, command.words.first().map(literal)) {
            (Role::Loop, _) => command.words.iter().map(literal).collect(),
            (Role::Simple, Some(name)) if SETTERS.split(' ').any(|setter| setter == name) => {
                command.words.iter().skip(1).map(literal).collect()
            }
            _ => return,
        };
        match (command.role, texts.split_first()) {
            (Role::Loop, Some((name, values))) if !values.is_empty() => {
                self.set(name, command.range.start, values.join(" "));
                self.loops.insert(name.clone());
            }
            (Role::Loop, Some((name, _))) => self.set(name, command.range.start, UNKNOWN.to_string()),
            _ => {
                for name in texts
                    .iter()
                    .filter(|text| !text.is_empty() && !text.starts_with('-'))
                {
                    self.set(name, command.range.start, UNKNOWN.to_string());
                }
            }
        }
    }

    /// The last value before the place, or else the last of all, because a function may be written before what it
    /// needs; none: it is not set.
    pub(super) fn get(&self, name: &str, at: usize) -> Option<&str> {
        if let Some(known) = self.by_name.get(name) {
            let before = known.partition_point(|(from, _)| *from < at).checked_sub(1);
            return known
                .get(before.unwrap_or(known.len() - 1))
                .map(|(_, value)| value.as_str());
        }
        match self.outer {
            Some(outer) => outer.get(name, usize::MAX),
            None => constant(name),
        }
    }

    /// What the words of a command become.
    pub(super) fn fields(&self, words: &[ShellWord<'_>]) -> Vec<Field> {
        let mut fields = Vec::with_capacity(words.len());
        for (word, written) in words.iter().enumerate() {
            fields.extend(self.split(written).into_iter().map(|text| Field::new(text, word)));
        }
        fields
    }

    /// As one text, as in an assignment.
    pub(super) fn text(&self, word: &ShellWord<'_>) -> String {
        let parts = word.parts.iter().map(|part| self.part(part, word.range.start));
        parts.collect()
    }

    /// A word to fields: values that are not quoted are split at blanks.
    fn split(&self, word: &ShellWord<'_>) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        let mut goes_on = false;
        for (index, part) in word.parts.iter().enumerate() {
            let value = self.part(part, word.range.start);
            let splits = match part {
                Part::Variable { name, quoted, .. } => *quoted == Quoted::No || self.loops.contains(*name),
                _ => false,
            };
            let mut pieces: Vec<&str> = vec![&value];
            if splits {
                pieces = value.split(char::is_whitespace).collect();
            }
            for (nth, piece) in pieces.into_iter().enumerate() {
                goes_on &= nth == 0;
                if splits && piece.is_empty() {
                    continue;
                }
                if !goes_on {
                    texts.push(String::new());
                    goes_on = true;
                }
                let Some(text) = texts.last_mut() else { continue };
                // A quoted tilde is a file of this name.
                if index == 0 && piece.starts_with('~') && matches!(part, Part::Text(_, Quoted::Yes)) {
                    text.push_str("./");
                }
                text.push_str(piece);
            }
        }
        texts
    }

    fn part<'p>(&'p self, part: &'p Part<'_>, at: usize) -> Cow<'p, str> {
        let Part::Variable { name, operation, .. } = part else {
            return unexpanded(part);
        };
        let value = self.get(name, at);
        let expanded = self.expanded_bytes.get() + value.map_or(0, str::len);
        self.expanded_bytes.set(expanded);
        match operation {
            _ if expanded > EXPANDED_BYTES_MAX => unknown(),
            Operation::Plain => value.map_or_else(unknown, Cow::Borrowed),
            Operation::Default(word) => match value {
                // A position may be given as an argument.
                None if name.starts_with(|c: char| c.is_ascii_digit()) => unknown(),
                None | Some("") => Cow::Owned(literal(word)),
                Some(value) => Cow::Borrowed(value),
            },
            Operation::Other => unknown(),
        }
    }
}

/// What is the same in every script.
fn constant(name: &str) -> Option<&'static str> {
    Some(match name {
        "HOME" => "~",
        "IFS" => " \t\n",
        "PWD" => ".",
        "SHELL" | "BASH" => "/bin/bash",
        // So that a script that starts itself is known.
        "0" => "$0",
        _ => return None,
    })
}

fn unknown<'t>() -> Cow<'t, str> {
    Cow::Owned(UNKNOWN.to_string())
}

fn unexpanded<'p>(part: &'p Part<'_>) -> Cow<'p, str> {
    match part {
        Part::Text(text, _) => Cow::Borrowed(text),
        Part::Variable {
            name,
            operation: Operation::Plain,
            ..
        } if *name == "HOME" => Cow::Borrowed("~"),
        _ => unknown(),
    }
}

/// A word without looking variables up.
pub(super) fn literal(word: &ShellWord<'_>) -> String {
    word.parts.iter().map(unexpanded).collect()
}

/// Is every part of it known.
pub(super) fn is_known(text: &str) -> bool {
    !text.contains(UNKNOWN)
}
