//! Rules for processes, the machine, scheduled jobs and the network, as a table from programs to rules.

use super::{call::Call, rules, scene::Reporter};
use crate::{
    lists::LISTS,
    rule::{Finding, Rule},
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{Info, Warning};
use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum When {
    Always,
    /// Without arguments.
    Alone,
    Given,
    /// With one of the options: letters and words.
    With(&'static str, Vec<&'static str>),
    Without(&'static str, Vec<&'static str>),
    /// The operands begin with the words of one of these.
    First(Vec<&'static str>),
    /// One of these is among the operands.
    Any(Vec<&'static str>),
    NotAny(Vec<&'static str>),
    More(usize),
    /// An operand contains `=`.
    Assigns,
    KillsAll,
    KillsAllOfUser,
    NamesHost,
    OpensHost,
}

/// A row of the table; the first that applies to a call is reported.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    names: Vec<&'static str>,
    when: When,
    rule: &'static Rule,
    what: &'static str,
    hint: Option<String>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| crate::lists::embedded(include_str!("programs.json")));

impl When {
    fn holds(&self, call: &Call) -> bool {
        let operands = call.operands();
        let has = |of: &[&str]| operands.iter().any(|text| of.contains(text));
        let begins = |words: &&str| operands.starts_with(&words.split(' ').collect::<Vec<&str>>());
        match self {
            Self::Always => true,
            Self::Alone => call.arguments.is_empty(),
            Self::Given => !call.arguments.is_empty(),
            Self::With(letters, words) => call.has(letters, words),
            Self::Without(letters, words) => !call.has(letters, words),
            Self::First(of) => of.iter().any(begins),
            Self::Any(of) => has(of),
            Self::NotAny(of) => !has(of),
            Self::More(count) => operands.len() > *count,
            Self::Assigns => operands.concat().contains('='),
            Self::KillsAll => kills_all(call),
            // `pkill -u user`
            Self::KillsAllOfUser => call.has("u", &[]) && operands.len() < 2,
            Self::NamesHost => operands.iter().any(|text| names_host(text)),
            Self::OpensHost => has_host_access(call),
        }
    }
}

pub(super) fn check(out: &mut Reporter<'_>, call: &Call) {
    let mut rows = ROWS.iter().filter(|row| row.names.contains(&call.name.as_str()));
    let Some(row) = rows.find(|row| row.when.holds(call)) else {
        return;
    };
    let finding = out.finding(row.rule, out.what(call, row.what));
    out.add(Finding {
        hint: row.hint.clone(),
        ..finding
    });
}

/// True for `kill -9 -1`, `kill -s KILL -- -1`; but `kill -1 123` signals one process.
fn kills_all(call: &Call) -> bool {
    let texts: Vec<&str> = call.texts().collect();
    let targets = match texts.as_slice() {
        ["-s" | "-n" | "--signal", _, rest @ ..] => rest,
        [first, rest @ ..] if first.starts_with('-') => rest,
        rest => rest,
    };
    targets.contains(&"-1")
}

/// True for `host:path`, `rsync://host/path`.
fn names_host(text: &str) -> bool {
    let before = text.split_once(':').map(|(before, _)| before);
    before.is_some_and(|before| !before.is_empty() && !before.contains('/'))
}

/// True for a container with access to the host.
fn has_host_access(call: &Call) -> bool {
    const OPENING: [&str; 4] = ["--privileged", "--pid=host", "/:", "--volume=/:"];
    call.texts()
        .any(|text| text.contains("docker.sock") || OPENING.iter().any(|start| text.starts_with(start)))
}

const HISTORY_SIZES: &[&str] = &["HISTFILE", "HISTSIZE", "HISTFILESIZE"];

/// Reports assignments such as `LD_PRELOAD=…`, and those that disable the shell history.
pub(super) fn assigned(out: &mut Reporter<'_>, name: &str, value: &str) {
    let written = format!("`{name}={}`", shown(value));
    if HISTORY_SIZES.contains(&name) && matches!(value, "" | "/dev/null" | "0") {
        out.report(&rules::HISTORY, format!("{written} stops the history"));
    }
    if value.is_empty() || !LISTS.loaders.contains(&name) {
        return;
    }
    // Build scripts put their own libraries first; the program still chooses which libraries are loaded.
    let severity = match name {
        "LD_LIBRARY_PATH" | "GIT_SSH_COMMAND" => Info,
        "NODE_OPTIONS"
            if !["require", "import"].iter().any(|word| value.contains(word)) && !value.contains(UNKNOWN) =>
        {
            Info
        }
        _ => Warning,
    };
    let what = format!("{written} decides what other programs load");
    out.report_as(&rules::LOADER, severity, what);
}

#[cfg(test)]
mod tests {
    #[test]
    fn program_table_parses() {
        assert!(super::ROWS.len() > 40);
    }
}
