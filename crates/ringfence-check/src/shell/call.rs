//! Programs that a command starts, through wrappers: `sudo env X=1 timeout 5 sh -c '…'` starts a shell with a script.

use crate::{
    lists::LISTS,
    unknown::{UNKNOWN, shown},
};
use serde::Deserialize;
use std::sync::LazyLock;

/// Maximum number of wrappers that are unwrapped.
const STEPS_MAX: usize = 32;
/// Maximum nesting of `find -exec find -exec …`.
pub(super) const FINDS_MAX: u32 = 4;
const SHOWN_MAX: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) arguments: Vec<String>,
    pub(super) source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Words,
    /// Words of the script, and lines of the input of `xargs`.
    Xargs,
    /// Words of the script, and file names that `find` puts in.
    Find,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) language: Runner,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    Shell,
    /// `eval`: the shell itself.
    Eval,
    /// `trap`: the shell itself, later if at all.
    Trap,
    /// Python, Perl, Ruby, PHP, Node.js, awk.
    Interpreter,
}

#[derive(Debug, Default)]
pub(super) struct Started {
    pub(super) calls: Vec<Call>,
    pub(super) texts: Vec<Run>,
    /// `env NAME=value`
    pub(super) assignments: Vec<(String, String)>,
}

impl Call {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(String::as_str)
    }

    /// True if one of the options is given; those of one letter may be clustered.
    pub(super) fn has(&self, letters: &str, words: &[&str]) -> bool {
        let mut options = self.texts().take_while(|text| *text != "--");
        options.any(|text| match text.strip_prefix("--") {
            Some(word) => words.contains(&word.split('=').next().unwrap_or(word)),
            None => {
                let cluster = text.strip_prefix('-').unwrap_or_default();
                cluster.contains(|letter: char| letters.contains(letter))
                    && cluster.chars().all(|c| c.is_ascii_alphanumeric())
            }
        })
    }

    /// Arguments that are not options.
    pub(super) fn operands(&self) -> Vec<&str> {
        let mut options = true;
        let is_operand = |text: &&str| {
            let ends = options && *text == "--";
            let operand = !(ends || options && text.starts_with('-') && text.len() > 1);
            options &= !ends;
            operand
        };
        self.texts().filter(is_operand).collect()
    }

    /// The value of an option: `-o file`, `-ofile`, `--output=file`.
    pub(super) fn value_of(&self, short: &str, long: &str) -> Option<&str> {
        self.value_at(short, long).map(|(_, value)| value)
    }

    /// Returns the value of an option, and the number of the argument that has it.
    fn value_at(&self, short: &str, long: &str) -> Option<(usize, &str)> {
        let mut texts = self.texts().enumerate();
        while let Some((at, text)) = texts.next() {
            if text == short || text == long {
                return texts.next();
            }
            let after = text.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
            let joined = text.strip_prefix(short).filter(|_| !text.starts_with("--"));
            if let Some(value) = after.or(joined) {
                return Some((at, value));
            }
        }
        None
    }

    pub(super) fn shown(&self) -> String {
        let mut words = vec![self.name.as_str()];
        words.extend(self.texts().take(SHOWN_MAX));
        shown(&words.join(" "))
    }
}

/// A program that runs the command in its arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapper {
    names: &'static str,
    /// Options that take a value: letters and words, separated by spaces.
    valued: &'static str,
    operands: usize,
}

static WRAPPERS: LazyLock<Vec<Wrapper>> =
    LazyLock::new(|| crate::lists::embedded(include_str!("wrappers.json")));

fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

pub(super) fn started(mut fields: Vec<String>, finds: u32) -> Started {
    let mut started = Started::default();
    let mut source = Source::Words;
    for _ in 0..STEPS_MAX {
        if fields.is_empty() {
            return started;
        }
        let arguments = fields.split_off(1);
        let path = fields.remove(0);
        let mut call = Call {
            name: base(&path).to_owned(),
            path,
            arguments,
            source,
        };
        let name = call.name.as_str();
        let Some(wrapper) = WRAPPERS.iter().find(|wrapper| is_among(wrapper.names, name)) else {
            started_by(call, &mut started, finds);
            return started;
        };
        if name == "command" && call.has("vV", &[]) {
            return started;
        }
        // `env -S 'command words'`
        if name == "env"
            && let Some((at, text)) = call.value_at("-S", "--split-string")
        {
            let rest = call.texts().skip(at + 1);
            fields = text.split_whitespace().chain(rest).map(str::to_owned).collect();
            continue;
        }
        fields = inner(&mut call, wrapper, &mut started.assignments);
        match call.name.as_str() {
            "xargs" | "parallel" if !fields.is_empty() => {
                source = Source::Xargs;
                fields.push(UNKNOWN.to_string());
            }
            "flock" | "watch" if fields.first().is_some_and(|field| field == "-c") => {
                let (language, text) = (Runner::Shell, fields.split_off(1).join(" "));
                started.texts.push(Run { language, text });
            }
            "sudo" | "doas" | "chroot" | "unshare" | "nsenter" => started.calls.push(call),
            // Without a command `env` prints the environment.
            "env" if fields.is_empty() => started.calls.push(call),
            _ => {}
        }
    }
    started
}

/// The path without its directory: `/bin/rm` is `rm`.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Removes the wrapped command from the wrapper's arguments and returns it; collects assignments before it.
fn inner(call: &mut Call, wrapper: &Wrapper, assignments: &mut Vec<(String, String)>) -> Vec<String> {
    let assigns = matches!(call.name.as_str(), "env" | "sudo" | "doas");
    let mut at = 0;
    while let Some(text) = call.arguments.get(at) {
        let has_value = match text.strip_prefix("--") {
            Some("") => {
                at += 1;
                break;
            }
            Some(word) => is_among(wrapper.valued, word),
            None if text.starts_with('-') => {
                is_among(wrapper.valued, &text[text.floor_char_boundary(text.len() - 1)..])
            }
            None => match text.split_once('=').filter(|_| assigns) {
                Some((name, value)) => {
                    assignments.push((name.to_owned(), value.to_owned()));
                    false
                }
                None => break,
            },
        };
        at += 1 + usize::from(has_value);
    }
    let from = (at + wrapper.operands).min(call.arguments.len());
    let inner = call.arguments.split_off(from);
    // The finding shows what the wrapper starts.
    call.arguments.extend(inner.iter().take(SHOWN_MAX).cloned());
    inner
}

/// True for shells, which read a script from their input by default.
pub(super) fn is_shell(name: &str) -> bool {
    LISTS.shells.contains(&name)
}

/// True for interpreters of other languages, with or without a version in the name.
pub(super) fn is_interpreter(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    LISTS.interpreters.contains(name)
}

fn started_by(call: Call, started: &mut Started, finds: u32) {
    let first = |is: &dyn Fn(&str) -> bool| call.texts().find(|text| is(text)).map(str::to_owned);
    let (text, language) = match call.name.as_str() {
        name if is_shell(name) => (shell_text(&call), Runner::Shell),
        name if is_interpreter(name) => (code_of(&call), Runner::Interpreter),
        "trap" => (first(&|text| !text.starts_with('-')), Runner::Trap),
        "su" | "runuser" | "script" => {
            let text = call.value_of("-c", "--command");
            (text.map(str::to_owned), Runner::Shell)
        }
        "awk" | "gawk" | "mawk" => (first(&|text| text.contains(['{', '('])), Runner::Interpreter),
        "eval" => (Some(call.arguments.join(" ")), Runner::Eval),
        _ => (None, Runner::Eval),
    };
    if matches!(call.name.as_str(), "find" | "fd" | "fdfind") && finds > 0 {
        executed_by_find(&call, started, finds - 1);
    }
    started.texts.extend(text.map(|text| Run { language, text }));
    started.calls.push(call);
}

/// The script in `sh -c text`.
fn shell_text(call: &Call) -> Option<String> {
    let is_word = |text: &str| text.starts_with("--") || text.starts_with('+');
    let is_option = |text: &str| is_word(text) || text.starts_with('-') && text.len() > 1;
    let at = call.texts().position(|text| !is_option(text))?;
    let mut options = call.texts().take(at);
    let wanted = options.any(|text| !is_word(text) && text.contains('c'));
    call.arguments.get(at).filter(|_| wanted).cloned()
}

/// The code in `python -c code`, `perl -e code`, `php -r code`.
fn code_of(call: &Call) -> Option<String> {
    let takes_code = |text: &str| {
        let cluster = !text.starts_with("--") && text.len() <= 5;
        cluster && text.ends_with(['c', 'e', 'E', 'r', 'p']) || matches!(text, "--eval" | "--print")
    };
    let mut options = call.texts().take_while(|text| text.starts_with('-'));
    call.arguments.get(options.position(takes_code)? + 1).cloned()
}

fn executed_by_find(call: &Call, started: &mut Started, finds: u32) {
    const BEGINNINGS: [&str; 7] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"];
    let mut rest = call.arguments.as_slice();
    let place = |fields: &[String], of: &[&str]| fields.iter().position(|field| of.contains(&field.as_str()));
    while let Some(at) = place(rest, &BEGINNINGS) {
        rest = &rest[at + 1..];
        let end = place(rest, &[";", "+"]);
        let (command, after) = rest.split_at(end.unwrap_or(rest.len()));
        let mut inner = self::started(command.to_vec(), finds);
        inner.calls.iter_mut().for_each(|call| call.source = Source::Find);
        started.calls.append(&mut inner.calls);
        started.texts.append(&mut inner.texts);
        rest = after;
    }
}
