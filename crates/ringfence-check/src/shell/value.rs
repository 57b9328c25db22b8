//! What words become when they are expanded, as far as that can be known without running anything. What is not known
//! stands as [`UNKNOWN`] in the text.

use super::{
    syntax::{
        Assignment, AssignmentKind, Command, Every, Inside, Operation, Part, Quoted, Role, Script, ShellWord,
    },
    word::unescape,
};
use crate::{encoding, unknown::UNKNOWN};
use std::{borrow::Cow, collections::HashMap};

/// Longer values are not followed.
const VALUE_BYTES_MAX: usize = 4096;
/// A word of more alternatives is left as it stands.
const ALTERNATIVES_MAX: usize = 64;
/// Defaults of defaults.
const DEPTH_MAX: u32 = 8;

/// Commands that set variables.
const SETTERS: [&str; 10] = [
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "printf",
    "set",
    "unset",
    "let",
    "local",
    "declare",
];

/// One word after expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) text: String,
    /// The index of the word that it comes from.
    pub(super) word: usize,
}

/// A variable's value; an array has several.
#[derive(Clone, Debug)]
enum Value {
    Known(Vec<String>),
    Unknown,
}

/// Values by name, each from a place in the text on.
#[derive(Default)]
pub(super) struct Values {
    by_name: HashMap<String, Vec<(usize, Value)>>,
}

/// Values, and the script whose substitutions they are made with.
pub(super) struct Expander<'a> {
    pub(super) script: &'a Script<'a>,
    pub(super) values: &'a Values,
    /// Of the shell that this one is started by.
    pub(super) outer: Option<&'a Values>,
}

impl Values {
    /// Of a whole script, in the order of the text.
    pub(super) fn of(script: &Script<'_>, outer: Option<&Self>) -> Self {
        let mut values = Self::default();
        for command in &script.commands {
            for assignment in &command.assignments {
                let expander = Expander {
                    script,
                    values: &values,
                    outer,
                };
                let value = expander.assigned(assignment);
                values.set(assignment.name, assignment.range.start, value);
            }
            let told = Expander {
                script,
                values: &values,
                outer,
            }
            .set_by(command);
            for (name, value) in told {
                values.set(&name, command.range.start, value);
            }
        }
        values
    }

    fn set(&mut self, name: &str, at: usize, value: Value) {
        match self.by_name.get_mut(name) {
            Some(known) => {
                let place = known.partition_point(|(from, _)| *from <= at);
                known.insert(place, (at, value));
            }
            None => drop(self.by_name.insert(name.to_owned(), vec![(at, value)])),
        }
    }

    /// The last one before the place, or else the last of all, because a function may stand before what it needs.
    fn get(&self, name: &str, at: usize) -> Option<&Value> {
        let known = self.by_name.get(name)?;
        let before = known.partition_point(|(from, _)| *from < at).checked_sub(1);
        let last = known.len().checked_sub(1);
        known.get(before.or(last)?).map(|(_, value)| value)
    }
}

impl Expander<'_> {
    /// What the words of a command become.
    pub(super) fn fields(&self, words: &[ShellWord<'_>]) -> Vec<Field> {
        let mut fields = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            match simple(word) {
                Some(text) => fields.push(Field { text, word: index }),
                None => {
                    let texts = self.expand(word, DEPTH_MAX);
                    fields.extend(texts.into_iter().map(|text| Field { text, word: index }));
                }
            }
        }
        fields
    }

    /// As one text, as in an assignment.
    pub(super) fn text(&self, word: &ShellWord<'_>) -> String {
        simple(word).unwrap_or_else(|| self.joined(word, DEPTH_MAX))
    }

    fn joined(&self, word: &ShellWord<'_>, depth: u32) -> String {
        let mut text = String::new();
        for part in &word.parts {
            match self.part(part, word.range.start, depth) {
                Value::Known(values) => text.push_str(&values.join(" ")),
                Value::Unknown => text.push(UNKNOWN),
            }
            if text.len() > VALUE_BYTES_MAX && word.parts.len() > 1 {
                return UNKNOWN.to_string();
            }
        }
        text
    }

    fn expand(&self, word: &ShellWord<'_>, depth: u32) -> Vec<String> {
        let mut texts = Vec::new();
        let has_braces = word.parts.iter().any(|part| matches!(part, Part::Brace(b'{')));
        if has_braces && let Some(alternatives) = braces(&word.parts) {
            for parts in alternatives {
                self.split(&parts, word.range.start, depth, &mut texts);
            }
        } else {
            let parts: Vec<&Part<'_>> = word.parts.iter().collect();
            self.split(&parts, word.range.start, depth, &mut texts);
        }
        texts
    }

    /// Parts to words: values that are not quoted are split at blanks.
    fn split(&self, parts: &[&Part<'_>], at: usize, depth: u32, texts: &mut Vec<String>) {
        let mut current: Option<String> = None;
        for (index, part) in parts.iter().enumerate() {
            let value = self.part(part, at, depth);
            let quoted = is_quoted(part);
            match value {
                Value::Unknown => current.get_or_insert_default().push(UNKNOWN),
                Value::Known(values) if quoted => {
                    let tilde = index == 0
                        && values.first().is_some_and(|text| text.starts_with('~'))
                        && is_text(part);
                    let mut first = true;
                    for value in values {
                        if !first {
                            texts.extend(current.take());
                        }
                        first = false;
                        let text = current.get_or_insert_default();
                        // A quoted tilde is a file of this name.
                        text.push_str(if tilde { "./" } else { "" });
                        text.push_str(&value);
                    }
                }
                Value::Known(values) if is_text(part) => {
                    let text = current.get_or_insert_default();
                    values.iter().for_each(|value| text.push_str(value));
                }
                Value::Known(values) => {
                    for (place, value) in values.iter().enumerate() {
                        if place > 0 || value.starts_with(char::is_whitespace) {
                            texts.extend(current.take());
                        }
                        for (nth, word) in value.split_whitespace().enumerate() {
                            if nth > 0 {
                                texts.extend(current.take());
                            }
                            current.get_or_insert_default().push_str(word);
                        }
                        if value.ends_with(char::is_whitespace) {
                            texts.extend(current.take());
                        }
                    }
                }
            }
            if current.as_ref().is_some_and(|text| text.len() > VALUE_BYTES_MAX) && parts.len() > 1 {
                current = Some(UNKNOWN.to_string());
            }
        }
        texts.extend(current);
    }

    fn part(&self, part: &Part<'_>, at: usize, depth: u32) -> Value {
        let one = |text: &str| Value::Known(vec![text.to_owned()]);
        match part {
            Part::Text(text, _) => one(text),
            Part::Brace(b'{') => one("{"),
            Part::Brace(b'}') => one("}"),
            Part::Brace(_) => one(","),
            Part::Variable { name, operation, .. } => match depth {
                0 => Value::Unknown,
                _ => self.variable(name, operation, at, depth - 1),
            },
            Part::Output(inside, _) => match depth {
                0 => Value::Unknown,
                _ => self
                    .output(inside, depth - 1)
                    .map_or(Value::Unknown, |text| one(text.trim_end_matches('\n'))),
            },
            Part::Process(_) | Part::Unknown => Value::Unknown,
        }
    }

    /// To something of which a part is known.
    pub(super) fn is_set(&self, name: &str, at: usize) -> bool {
        match self.lookup(name, at) {
            Some(Value::Known(texts)) => texts
                .iter()
                .any(|text| text.chars().any(|letter| letter != UNKNOWN)),
            _ => false,
        }
    }

    /// To nothing.
    pub(super) fn is_emptied(&self, name: &str, at: usize) -> bool {
        matches!(self.lookup(name, at), Some(Value::Known(texts)) if texts.iter().all(String::is_empty))
    }

    fn lookup(&self, name: &str, at: usize) -> Option<Value> {
        if let Some(value) = self.values.get(name, at) {
            return Some(value.clone());
        }
        if let Some(value) = self.outer.and_then(|outer| outer.get(name, usize::MAX)) {
            return Some(value.clone());
        }
        let known = match name {
            "HOME" => "~",
            "IFS" => " \t\n",
            "PWD" => ".",
            "SHELL" | "BASH" => "/bin/bash",
            // So that a script that starts itself is known.
            "0" => "$0",
            _ => return None,
        };
        Some(Value::Known(vec![known.to_owned()]))
    }

    fn variable(&self, name: &str, operation: &Operation<'_>, at: usize, depth: u32) -> Value {
        let value = self.lookup(name, at);
        let one = |text: String| Value::Known(vec![text]);
        match operation {
            Operation::Plain | Operation::Required => value.unwrap_or(Value::Unknown),
            Operation::Default(word) => match value {
                None if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                    one(self.joined(word, depth))
                }
                // An argument may be given.
                None => Value::Unknown,
                Some(Value::Known(texts)) if texts.iter().all(String::is_empty) => {
                    one(self.joined(word, depth))
                }
                Some(value) => value,
            },
            Operation::Alternate(word) => match value {
                None => Value::Unknown,
                Some(_) => one(self.joined(word, depth)),
            },
            Operation::Indirect => match value {
                Some(Value::Known(texts)) if texts.len() == 1 => {
                    self.lookup(&texts[0], at).unwrap_or(Value::Unknown)
                }
                _ => Value::Unknown,
            },
            Operation::Other => Value::Unknown,
            Operation::Element(index) => match value {
                Some(Value::Known(texts)) => texts.get(*index).cloned().map_or(Value::Unknown, one),
                _ => Value::Unknown,
            },
            changed => match value {
                Some(Value::Known(texts)) => {
                    Value::Known(texts.iter().map(|text| change(text, changed)).collect())
                }
                _ => Value::Unknown,
            },
        }
    }

    fn assigned(&self, assignment: &Assignment<'_>) -> Value {
        if assignment.kind == AssignmentKind::Element {
            return Value::Unknown;
        }
        let before = match assignment.kind {
            AssignmentKind::Append => self.lookup(assignment.name, assignment.range.start),
            _ => None,
        };
        let mut texts = match (assignment.kind, before) {
            (AssignmentKind::Append, Some(Value::Known(texts))) => texts,
            (AssignmentKind::Append, _) => return Value::Unknown,
            _ => Vec::new(),
        };
        let array =
            assignment.values.len() != 1 || assignment.values.iter().any(|word| word.range.start == 0);
        let mut added: Vec<String> = match array {
            true => self
                .fields(&assignment.values)
                .into_iter()
                .map(|field| field.text)
                .collect(),
            false => assignment
                .value()
                .map(|word| self.text(word))
                .into_iter()
                .collect(),
        };
        match (texts.last_mut(), array) {
            (Some(last), false) => last.push_str(&added.concat()),
            _ => texts.append(&mut added),
        }
        if texts.is_empty() {
            texts.push(String::new());
        }
        match texts.iter().map(String::len).sum::<usize>() > VALUE_BYTES_MAX {
            true => Value::Unknown,
            false => Value::Known(texts),
        }
    }

    /// Variables that a command sets: `for x in …`, `read x`, `printf -v x …`, `set -- …`.
    fn set_by(&self, command: &Command<'_>) -> Vec<(String, Value)> {
        if command.role == Role::Loop {
            let fields = self.fields(&command.words);
            let name = fields.first().map(|field| field.text.clone()).unwrap_or_default();
            let texts: Vec<String> = fields.into_iter().skip(1).map(|field| field.text).collect();
            let value = match texts.is_empty() {
                true => Value::Unknown,
                false => Value::Known(texts),
            };
            return vec![(name, value)];
        }
        let name = command.words.first().and_then(simple).unwrap_or_default();
        let sets = SETTERS.contains(&name.as_str());
        if !sets {
            return Vec::new();
        }
        let texts: Vec<String> = self
            .fields(&command.words)
            .into_iter()
            .map(|field| field.text)
            .collect();
        match texts[0].as_str() {
            "printf" if texts.get(1).is_some_and(|text| text == "-v") => {
                let value = printed(texts.get(3..).unwrap_or_default())
                    .map_or(Value::Unknown, |text| Value::Known(vec![text]));
                texts
                    .get(2)
                    .map(|name| (name.clone(), value))
                    .into_iter()
                    .collect()
            }
            "printf" => Vec::new(),
            "set" => match texts.iter().position(|text| text == "--") {
                Some(place) => {
                    let arguments = texts[place + 1..].to_vec();
                    let mut set: Vec<(String, Value)> = Vec::new();
                    for (index, text) in arguments.iter().take(9).enumerate() {
                        set.push(((index + 1).to_string(), Value::Known(vec![text.clone()])));
                    }
                    set.push(("@".to_owned(), Value::Known(arguments.clone())));
                    set.push(("*".to_owned(), Value::Known(arguments)));
                    set
                }
                None => Vec::new(),
            },
            _ => {
                let named = texts
                    .iter()
                    .skip(1)
                    .filter(|text| !text.starts_with('-') && !text.is_empty());
                named.map(|name| (name.clone(), Value::Unknown)).collect()
            }
        }
    }

    /// What commands read, where that is known: of what is printed into them, or stands behind `<<<`.
    pub(super) fn inputs(&self) -> HashMap<usize, String> {
        let mut inputs = HashMap::new();
        let takes = |command: &Command<'_>| {
            command
                .words
                .iter()
                .any(|word| matches!(simple(word).as_deref(), Some("xargs" | "/usr/bin/xargs")))
        };
        for pipeline in &self.script.pipelines {
            for (nth, stage) in pipeline
                .stages
                .iter()
                .enumerate()
                .skip(1)
                .take(DEPTH_MAX as usize)
            {
                let [command] = self.script.commands.get(stage.clone()).unwrap_or_default() else {
                    continue;
                };
                if takes(command)
                    && let Some(text) = self.printed_by_stages(&pipeline.stages[..nth])
                {
                    inputs.insert(stage.start, text);
                }
            }
        }
        for (index, command) in self.script.commands.iter().enumerate() {
            let text = command
                .redirections
                .iter()
                .find(|redirection| redirection.is_text());
            if let Some(redirection) = text.filter(|_| takes(command)) {
                inputs.insert(index, self.text(&redirection.target));
            }
        }
        inputs
    }

    /// What commands within `$(…)` print, if that stands there.
    pub(super) fn output(&self, inside: &Inside, depth: u32) -> Option<String> {
        let commands = inside.commands.clone();
        if let [one] = self.script.commands.get(commands.clone())? {
            return self.printed_by(one, None);
        }
        let pipeline = self.script.pipelines.get(inside.pipelines.clone())?.last()?;
        let whole =
            pipeline.stages.first()?.start == commands.start && pipeline.stages.last()?.end == commands.end;
        match whole && depth > 0 {
            true => self.printed_by_stages(&pipeline.stages),
            false => None,
        }
    }

    /// What a pipeline of `echo` and filters prints.
    pub(super) fn printed_by_stages(&self, stages: &[std::ops::Range<usize>]) -> Option<String> {
        let mut text: Option<String> = None;
        for stage in stages {
            let [command] = self.script.commands.get(stage.clone())? else {
                return None;
            };
            text = Some(self.printed_by(command, text.as_deref())?);
        }
        text
    }

    fn printed_by(&self, command: &Command<'_>, input: Option<&str>) -> Option<String> {
        if command.role != Role::Simple {
            return None;
        }
        let texts: Vec<String> = self
            .fields(&command.words)
            .into_iter()
            .map(|field| field.text)
            .collect();
        let given = command
            .redirections
            .iter()
            .find(|redirection| redirection.is_text());
        let given = given.map(|redirection| self.text(&redirection.target));
        let input = given.as_deref().or(input);
        let (name, arguments) = texts.split_first()?;
        let told = match name.rsplit('/').next()? {
            "echo" => echoed(arguments),
            "printf" => printed(&arguments[usize::from(arguments.first()? == "--")..])?,
            "cat" if arguments.is_empty() => input?.to_owned(),
            "rev" => input?
                .lines()
                .map(|line| line.chars().rev().collect::<String>())
                .collect(),
            "base64" => match arguments
                .iter()
                .any(|text| matches!(text.as_str(), "-d" | "-D" | "--decode" | "-di"))
            {
                true => encoding::base64(input?)?,
                false => return None,
            },
            "openssl" if arguments.iter().any(|text| text == "-d") => encoding::base64(input?)?,
            "xxd" if arguments.iter().any(|text| text.contains('r')) => encoding::hexadecimal(input?)?,
            "which" | "type" => arguments.last()?.clone(),
            "command" if arguments.first()? == "-v" => arguments.last()?.clone(),
            "pwd" => ".".to_owned(),
            "mktemp" => format!("/tmp/{UNKNOWN}"),
            _ => return None,
        };
        (!told.is_empty() && told.len() <= VALUE_BYTES_MAX * 4).then_some(told)
    }
}

/// A word that is one text, as most are.
fn simple(word: &ShellWord<'_>) -> Option<String> {
    match word.parts.as_slice() {
        [Part::Text(text, Quoted::No)] => Some(text.to_string()),
        [Part::Text(text, Quoted::Yes)] if !text.starts_with('~') => Some(text.to_string()),
        _ => None,
    }
}

fn is_text(part: &Part<'_>) -> bool {
    matches!(part, Part::Text(..) | Part::Brace(_))
}

fn is_quoted(part: &Part<'_>) -> bool {
    match part {
        Part::Text(_, quoted) | Part::Output(_, quoted) | Part::Variable { quoted, .. } => {
            *quoted == Quoted::Yes
        }
        _ => false,
    }
}

fn change(text: &str, operation: &Operation<'_>) -> String {
    match operation {
        Operation::Slice(from, length) => {
            let rest = text.chars().skip(*from);
            rest.take(length.unwrap_or(usize::MAX)).collect()
        }
        Operation::Lower => text.to_lowercase(),
        Operation::Upper => text.to_uppercase(),
        Operation::Replace("", ..) => text.to_owned(),
        Operation::Replace(this, that, Every::All) => text.replace(this, that),
        Operation::Replace(this, that, Every::First) => text.replacen(this, that, 1),
        _ => text.to_owned(),
    }
}

fn echoed(arguments: &[String]) -> String {
    let is_option = |text: &&String| matches!(text.as_str(), "-e" | "-n" | "-ne" | "-en" | "-E");
    let options = arguments.iter().take_while(is_option).count();
    let text = arguments[options..].join(" ");
    match arguments[..options].iter().any(|option| option.contains('e')) {
        true => unescape(&text),
        false => text,
    }
}

/// `printf format arguments…`, for `%s` and `%b`; none: something else is in it.
fn printed(arguments: &[String]) -> Option<String> {
    let (format, rest) = arguments.split_first()?;
    let mut rest = rest.iter();
    let mut told = String::new();
    let mut pieces = format.split('%');
    told.push_str(&unescape(pieces.next()?));
    for piece in pieces {
        match piece.chars().next() {
            Some('s') => told.push_str(rest.next().map_or("", String::as_str)),
            Some('b') => told.push_str(&unescape(rest.next().map_or("", String::as_str))),
            _ => return None,
        }
        told.push_str(&unescape(&piece[1..]));
    }
    match rest.next() {
        // The format is used again.
        Some(_) if format.contains('%') => None,
        _ => Some(told),
    }
}

/// `a{b,c}d` as `abd` and `acd`; none: there is nothing to expand, or too much.
fn braces<'p, 'a>(parts: &'p [Part<'a>]) -> Option<Vec<Vec<&'p Part<'a>>>> {
    let mut done: Vec<Vec<&Part<'a>>> = Vec::new();
    let mut waiting: Vec<Vec<&Part<'a>>> = vec![parts.iter().collect()];
    let mut expanded = false;
    let mut steps = 0_usize;
    while let Some(parts) = waiting.pop() {
        steps += 1;
        if steps + waiting.len() + done.len() > 2 * ALTERNATIVES_MAX {
            return None;
        }
        let Some((open, close, commas)) = group(&parts) else {
            done.push(parts);
            continue;
        };
        expanded = true;
        let mut from = open + 1;
        let mut made = Vec::new();
        for to in commas.into_iter().chain([close]) {
            let mut one = parts[..open].to_vec();
            one.extend_from_slice(&parts[from..to]);
            one.extend_from_slice(&parts[close + 1..]);
            made.push(one);
            from = to + 1;
        }
        // The first alternative is worked on first.
        waiting.extend(made.into_iter().rev());
    }
    expanded.then_some(done)
}

/// The first group with a comma: its braces and commas.
fn group(parts: &[&Part<'_>]) -> Option<(usize, usize, Vec<usize>)> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut found: Option<(usize, usize, Vec<usize>)> = None;
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Brace(b'{') => open.push((at, Vec::new())),
            Part::Brace(b'}') => {
                let Some((start, commas)) = open.pop() else {
                    continue;
                };
                // One that is around it comes first.
                if !commas.is_empty() && found.as_ref().is_none_or(|(before, ..)| start < *before) {
                    found = Some((start, at, commas));
                }
                if open.is_empty() && found.is_some() {
                    break;
                }
            }
            Part::Brace(_) => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            _ => {}
        }
    }
    found
}

/// Is every part of it known.
pub(super) fn is_known(text: &str) -> bool {
    !text.contains(UNKNOWN)
}

/// The same without a copy where there is nothing to change.
pub(super) fn without_unknown(text: &str) -> Cow<'_, str> {
    match is_known(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace(UNKNOWN, "")),
    }
}
