//! Which programs a command really starts: `sudo env X=1 timeout 5 sh -c '…'` starts a shell with a text.

use super::value::{Field, is_known};
use crate::unknown::{self, UNKNOWN};
use std::ops::Range;

/// Programs that start programs that start programs.
const STEPS_MAX: usize = 32;
/// Lines of a known input that are followed.
const INPUTS_MAX: usize = 64;
/// Arguments that a finding tells.
const SHOWN_MAX: usize = 6;

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Without its directory.
    pub(super) name: String,
    /// As it is written.
    pub(super) path: String,
    pub(super) arguments: Vec<Field>,
    pub(super) means: Means,
    /// The command in the script, where it says more than what is known of it.
    written: Option<String>,
}

/// How its arguments come to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    Words,
    /// Lines of its input are added.
    Xargs,
    /// Names of files are put in.
    Find,
}

/// A text that is run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) language: Runner,
    pub(super) text: String,
    /// The words that it is made of.
    pub(super) words: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    Shell,
    /// The same, by the shell itself.
    Eval,
    /// `alias`, `trap`: later, perhaps.
    Later,
    /// Python, Perl, Ruby, PHP, Node.js, awk.
    Interpreter,
}

/// What a command starts.
#[derive(Debug, Default)]
pub(super) struct Started {
    pub(super) calls: Vec<Call>,
    pub(super) texts: Vec<Run>,
    /// `env NAME=value`
    pub(super) assignments: Vec<(String, String)>,
}

impl Call {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|field| field.text.as_str())
    }

    /// One of the options, written alone or, of one letter, together with others.
    pub(super) fn has(&self, letters: &str, words: &[&str]) -> bool {
        self.texts()
            .take_while(|text| *text != "--")
            .any(|text| is_option(text, letters, words))
    }

    /// Arguments that are no options.
    pub(super) fn operands(&self) -> Vec<&str> {
        let mut options = true;
        let mut operands = Vec::new();
        for text in self.texts() {
            match text {
                "--" if options => options = false,
                text if options && text.starts_with('-') && text.len() > 1 => {}
                text => operands.push(text),
            }
        }
        operands
    }

    /// What follows an option: `-o file`, `-ofile`, `--output=file`.
    pub(super) fn value_of(&self, short: &str, long: &str) -> Option<&str> {
        let mut texts = self.texts();
        while let Some(text) = texts.next() {
            if text == short || text == long {
                return texts.next();
            }
            if let Some(value) = text.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
            if !text.starts_with("--")
                && let Some(value) = text.strip_prefix(short)
            {
                return Some(value);
            }
        }
        None
    }

    /// As a finding shows it.
    pub(super) fn shown(&self) -> String {
        if let Some(written) = &self.written {
            return written.clone();
        }
        let mut text = self.name.clone();
        for argument in self.texts().take(SHOWN_MAX) {
            text.push(' ');
            text.push_str(argument);
        }
        unknown::shown(&text)
    }
}

fn is_option(text: &str, letters: &str, words: &[&str]) -> bool {
    if let Some(word) = text.strip_prefix("--") {
        let word = word.split('=').next().unwrap_or(word);
        return !word.is_empty() && words.contains(&word);
    }
    let cluster = text.strip_prefix('-').unwrap_or_default();
    cluster.chars().any(|letter| letters.contains(letter))
        && cluster.chars().all(|c| c.is_ascii_alphanumeric())
}

impl Started {
    /// What is not known is shown as the script says it.
    pub(super) fn written_as(&mut self, text: &str) {
        let unknown = |call: &&mut Call| !call.texts().all(is_known) && call.means == Means::Words;
        for call in self.calls.iter_mut().filter(unknown) {
            call.written = Some(said(text));
        }
    }
}

/// A program that runs the command in its arguments.
struct Wrapper {
    names: &'static [&'static str],
    /// Options of one letter that have a value.
    valued: &'static str,
    /// The same, in words.
    valued_words: &'static [&'static str],
    /// Arguments before the command.
    operands: usize,
}

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    wrapper(&["sudo"], "ughpCrtURTD", &["user", "group", "host", "prompt", "chdir", "chroot", "role", "type"], 0),
    wrapper(&["doas"], "uC", &[], 0),
    wrapper(&["env"], "uC", &["unset", "chdir"], 0),
    wrapper(
        &["nohup", "setsid", "builtin", "busybox", "toybox", "unbuffer", "caffeinate", "proxychains", "torsocks"],
        "", &[], 0,
    ),
    wrapper(&["exec"], "a", &[], 0),
    wrapper(&["nice", "watch"], "n", &["adjustment", "interval"], 0),
    wrapper(&["ionice"], "cn", &["class", "classdata"], 0),
    wrapper(&["timeout"], "ks", &["signal", "kill-after"], 1),
    wrapper(&["stdbuf"], "ioe", &["input", "output", "error"], 0),
    wrapper(&["strace", "ltrace"], "eopsuEaOSPIbX", &[], 0),
    wrapper(&["chroot", "taskset", "chrt"], "", &["userspec", "groups"], 1),
    wrapper(&["unshare", "firejail", "setarch"], "", &[], 0),
    wrapper(&["nsenter"], "tSG", &["target", "setuid", "setgid"], 0),
    wrapper(&["flock"], "wE", &["timeout", "conflict-exit-code"], 1),
    wrapper(&["time", "coproc"], "fo", &["format", "output"], 0),
    wrapper(&["parallel"], "jIaS", &["jobs"], 0),
    wrapper(
        &["xargs"],
        "InPLdsaE", &["replace", "max-args", "max-procs", "max-lines", "delimiter", "arg-file", "eof"], 0,
    ),
    wrapper(&["command"], "", &[], 0),
];

const fn wrapper(
    names: &'static [&'static str],
    valued: &'static str,
    valued_words: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper {
        names,
        valued,
        valued_words,
        operands,
    }
}

/// `find -exec find -exec …`
const FINDS_MAX: u32 = 4;

/// From the words of a command.
pub(super) fn started(fields: Vec<Field>, input: Option<&str>) -> Started {
    started_within(fields, input, FINDS_MAX)
}

fn started_within(fields: Vec<Field>, input: Option<&str>, depth: u32) -> Started {
    let mut told = Started::default();
    let mut means = Means::Words;
    let mut fields = fields;
    for _ in 0..STEPS_MAX {
        let Some(first) = fields.first() else {
            return told;
        };
        let path = first.text.clone();
        let name = base(&path).to_owned();
        let mut call = Call {
            name: name.clone(),
            path,
            arguments: fields.split_off(1),
            means,
            written: None,
        };
        let wraps = WRAPPERS
            .iter()
            .find(|wrapper| wrapper.names.contains(&name.as_str()));
        let Some(wrapper) = wraps else {
            started_by(call, &mut told, depth);
            return told;
        };
        if name == "command" && call.has("vV", &[]) {
            return told;
        }
        if name == "env"
            && let Some(split) = split_string(&call)
        {
            fields = split;
            continue;
        }
        let replaced = replaced(&call);
        fields = inner(&mut call, wrapper, &mut told.assignments);
        match name.as_str() {
            "xargs" | "parallel" => {
                means = Means::Xargs;
                if fields.is_empty() {
                    return told;
                }
                fields = with_input(fields, input, replaced.as_deref());
            }
            "flock" | "watch" if fields.first().is_some_and(|field| field.text == "-c") => {
                fields.remove(0);
                told.texts.extend(joined(&fields, Runner::Shell));
            }
            "sudo" | "doas" | "chroot" | "unshare" | "nsenter" => told.calls.push(call),
            // By itself it tells the environment.
            "env" if fields.is_empty() => told.calls.push(call),
            _ => {}
        }
    }
    told
}

/// `/bin/rm` is `rm`.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Takes what is started out of the arguments.
fn inner(call: &mut Call, wrapper: &Wrapper, assignments: &mut Vec<(String, String)>) -> Vec<Field> {
    let mut at = 0;
    while let Some(field) = call.arguments.get(at) {
        let text = field.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(word) = text.strip_prefix("--") {
            at += if wrapper.valued_words.contains(&word) {
                2
            } else {
                1
            };
        } else if text.starts_with('-') {
            let last = text.chars().last().unwrap_or('-');
            at += if wrapper.valued.contains(last) { 2 } else { 1 };
        } else if matches!(call.name.as_str(), "env" | "sudo" | "doas")
            && let Some((name, value)) = text.split_once('=')
        {
            assignments.push((name.to_owned(), value.to_owned()));
            at += 1;
        } else {
            break;
        }
    }
    let from = (at + wrapper.operands).min(call.arguments.len());
    let inner = call.arguments.split_off(from);
    // So that a reader of the finding sees what was started.
    call.arguments.extend(inner.iter().take(SHOWN_MAX).cloned());
    inner
}

/// What `xargs -I{}` puts its lines in the place of.
fn replaced(call: &Call) -> Option<String> {
    let mut texts = call.texts().take_while(|text| text.starts_with('-')).peekable();
    let whole = call.value_of("-I", "--replace");
    texts.find_map(|text| match text {
        "-i" | "--replace" => Some("{}".to_owned()),
        text if text.starts_with("-I") || text.starts_with("--replace=") => whole.map(str::to_owned),
        _ => None,
    })
}

/// The arguments that `xargs` adds; where its input is not known, one that is not.
fn with_input(fields: Vec<Field>, input: Option<&str>, replaced: Option<&str>) -> Vec<Field> {
    let unknown = UNKNOWN.to_string();
    let texts: Vec<&str> = match (input, replaced) {
        (None, _) => vec![unknown.as_str()],
        (Some(input), None) => input
            .split(|c: char| c.is_whitespace() || c == '\0')
            .filter(|text| !text.is_empty())
            .collect(),
        (Some(input), Some(_)) => input.lines().map(str::trim).collect(),
    };
    let texts: Vec<&str> = texts.into_iter().take(INPUTS_MAX).collect();
    let mut made = Vec::with_capacity(fields.len() + texts.len());
    let last = fields.last().map_or(0, |field| field.word);
    for field in fields {
        match replaced {
            Some(sign) if !sign.is_empty() && field.text.contains(sign) => {
                made.extend(texts.iter().map(|text| Field {
                    text: field.text.replace(sign, text),
                    word: field.word,
                }))
            }
            _ => made.push(field),
        }
    }
    if replaced.is_none() {
        made.extend(texts.iter().map(|text| Field {
            text: (*text).to_owned(),
            word: last,
        }));
    }
    made
}

/// `env -S 'command words'`
fn split_string(call: &Call) -> Option<Vec<Field>> {
    let text = call.value_of("-S", "--split-string")?;
    let at = call
        .arguments
        .iter()
        .position(|field| field.text.contains(text))?;
    let word = call.arguments[at].word;
    let mut fields: Vec<Field> = text
        .split_whitespace()
        .map(|text| Field {
            text: text.to_owned(),
            word,
        })
        .collect();
    fields.extend_from_slice(&call.arguments[at + 1..]);
    Some(fields)
}

fn joined(fields: &[Field], language: Runner) -> Option<Run> {
    let (first, last) = (fields.first()?, fields.last()?);
    let texts: Vec<&str> = fields.iter().map(|field| field.text.as_str()).collect();
    Some(Run {
        language,
        text: texts.join(" "),
        words: first.word..last.word + 1,
    })
}

/// Programs that read a script from their input, if nothing else is said.
pub(super) fn is_shell(name: &str) -> bool {
    matches!(
        name,
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash" | "fish" | "csh" | "tcsh" | "hush"
    )
}

/// The same of other languages.
pub(super) fn is_interpreter(name: &str) -> bool {
    let version = |c: char| c.is_ascii_digit() || c == '.';
    let family = name.trim_end_matches(version);
    matches!(
        family,
        "python" | "pypy" | "perl" | "ruby" | "php" | "node" | "nodejs" | "deno" | "bun" | "lua" | "tclsh"
    )
}

fn started_by(call: Call, told: &mut Started, depth: u32) {
    let name = call.name.as_str();
    if is_shell(name) {
        told.texts.extend(shell_text(&call));
    } else if is_interpreter(name) {
        told.texts.extend(code_of(&call));
    }
    match name {
        "eval" => told.texts.extend(joined(&call.arguments, Runner::Eval)),
        "trap" => {
            let handler = call.arguments.iter().find(|field| !field.text.starts_with('-'));
            told.texts
                .extend(handler.and_then(|field| joined(std::slice::from_ref(field), Runner::Later)));
        }
        "su" | "runuser" | "script" => {
            let text = call.value_of("-c", "--command").map(str::to_owned);
            let field = call
                .arguments
                .iter()
                .find(|field| Some(&field.text) == text.as_ref());
            told.texts
                .extend(field.and_then(|field| joined(std::slice::from_ref(field), Runner::Shell)));
        }
        "awk" | "gawk" | "mawk" => {
            let program = call
                .arguments
                .iter()
                .find(|field| field.text.contains(['{', '(']));
            told.texts
                .extend(program.and_then(|field| joined(std::slice::from_ref(field), Runner::Interpreter)));
        }
        "find" | "fd" | "fdfind" if depth > 0 => executed_by_find(&call, told, depth - 1),
        _ => {}
    }
    told.calls.push(call);
}

/// `sh -c text`
fn shell_text(call: &Call) -> Option<Run> {
    let mut wanted = false;
    for field in &call.arguments {
        let text = field.text.as_str();
        if text.starts_with('-') && !text.starts_with("--") && text.len() > 1 {
            wanted |= text.contains('c');
        } else if text.starts_with("--") || text.starts_with('+') {
            continue;
        } else {
            return wanted
                .then(|| joined(std::slice::from_ref(field), Runner::Shell))
                .flatten();
        }
    }
    None
}

/// `python -c code`, `perl -e code`, `php -r code`
fn code_of(call: &Call) -> Option<Run> {
    let mut fields = call.arguments.iter();
    while let Some(field) = fields.next() {
        let text = field.text.as_str();
        if !text.starts_with('-') {
            return None;
        }
        let cluster = !text.starts_with("--") && text.len() <= 5;
        if cluster && text.ends_with(['c', 'e', 'E', 'r', 'p']) || matches!(text, "--eval" | "--print") {
            return fields
                .next()
                .and_then(|field| joined(std::slice::from_ref(field), Runner::Interpreter));
        }
    }
    None
}

fn executed_by_find(call: &Call, told: &mut Started, depth: u32) {
    let begins = |field: &Field| {
        matches!(
            field.text.as_str(),
            "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec"
        )
    };
    let mut rest = call.arguments.as_slice();
    while let Some(at) = rest.iter().position(begins) {
        rest = &rest[at + 1..];
        let length = rest
            .iter()
            .position(|field| matches!(field.text.as_str(), ";" | "+"))
            .unwrap_or(rest.len());
        let inner = started_within(rest[..length].to_vec(), None, depth);
        told.calls.extend(inner.calls.into_iter().map(|call| Call {
            means: Means::Find,
            ..call
        }));
        told.texts.extend(inner.texts);
        rest = &rest[length..];
    }
}

/// A piece of a script, as a finding shows it.
pub(super) fn said(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    unknown::shown(&words.join(" "))
}
