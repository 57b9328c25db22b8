//! A script with everything that is known of it, and the place for what is found.

use super::{
    call::{Call, Means, Started},
    syntax::{Command, Script, ShellWord},
};
use crate::{
    lists::LISTS,
    rule::{Checked, Finding, Rule},
    unknown::{is_known, shown},
};
use ringfence_types::Severity;
use std::{collections::HashSet, ops::Range};

/// How far back a `cd` is looked for.
const COMMANDS_BACK_MAX: usize = 50;

/// Where the bytes of a text are in the code.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    At(usize),
    Within(Range<usize>),
}

impl Origin {
    pub(super) fn place(&self, range: &Range<usize>) -> Range<usize> {
        match self {
            Self::At(from) => range.start + from..range.end + from,
            Self::Within(range) => range.clone(),
        }
    }
}

/// What is found of a whole request.
#[derive(Default)]
pub(super) struct Report {
    pub(super) checked: Checked,
    told: HashSet<(usize, usize, &'static str)>,
}

/// One text: the script, or one that it starts.
pub(super) struct Scene<'s> {
    pub(super) text: &'s str,
    pub(super) origin: &'s Origin,
    pub(super) script: &'s Script<'s>,
    pub(super) started: &'s [Started],
    /// See [`super::emptied::guard`].
    pub(super) guard: Option<usize>,
}

/// Takes what is found at one place.
pub(super) struct Reporter<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) range: &'a Range<usize>,
    report: &'a mut Report,
}

impl Reporter<'_> {
    pub(super) fn tell(&mut self, rule: &'static Rule, what: impl Into<String>) {
        self.tell_as(rule, rule.severity, what);
    }

    pub(super) fn tell_as(&mut self, rule: &'static Rule, severity: Severity, what: impl Into<String>) {
        self.add(self.finding(rule, what).with_severity(severity));
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    pub(super) fn finding(&self, rule: &'static Rule, what: impl Into<String>) -> Finding {
        Finding::new(rule, self.scene.origin.place(self.range), what)
    }

    pub(super) fn tell_call(&mut self, rule: &'static Rule, call: &Call, does: &str) {
        self.tell(rule, self.what(call, does));
    }

    /// A call, and what it does.
    pub(super) fn what(&self, call: &Call, does: &str) -> String {
        format!("`{}` {does}", self.shown(call))
    }

    /// A call with its arguments; as the script says it, where they are not known.
    fn shown(&self, call: &Call) -> String {
        match call.means == Means::Words && !call.texts().all(is_known) {
            true => self.scene.said(self.range),
            false => call.shown(),
        }
    }
}

impl Report {
    pub(super) fn at<'a>(&'a mut self, scene: &'a Scene<'_>, range: &'a Range<usize>) -> Reporter<'a> {
        Reporter {
            scene,
            range,
            report: self,
        }
    }

    /// Once for each place and rule.
    fn add(&mut self, finding: Finding) {
        let Range { start, end } = finding.range;
        if self.told.insert((start, end, finding.rule.id)) {
            self.checked.findings.push(finding);
        }
    }

    /// Whether one of the rules is reported for this place already.
    pub(super) fn has(&self, scene: &Scene<'_>, range: &Range<usize>, of: &[&Rule]) -> bool {
        let Range { start, end } = scene.origin.place(range);
        of.iter().any(|rule| self.told.contains(&(start, end, rule.id)))
    }
}

impl<'s> Scene<'s> {
    pub(super) fn raw(&self, range: &Range<usize>) -> &'s str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The same, as a finding shows it.
    pub(super) fn said(&self, range: &Range<usize>) -> String {
        let words: Vec<&str> = self.raw(range).split_whitespace().collect();
        shown(&words.join(" "))
    }

    /// Where a text that is run is: where it is written as it is, or else somewhere in the place.
    pub(super) fn origin_of(&self, text: &str, within: &Range<usize>) -> Origin {
        match (self.origin, self.raw(within).rfind(text)) {
            (Origin::At(from), Some(at)) => Origin::At(from + within.start + at),
            _ => Origin::Within(self.origin.place(within)),
        }
    }

    pub(super) fn command(&self, index: usize) -> Option<&'s Command<'s>> {
        self.script.commands.get(index)
    }

    /// Whether one of the commands starts a program of such a name.
    pub(super) fn starts(&self, commands: &Range<usize>, is: impl Fn(&Call) -> bool) -> bool {
        let started = self.started.get(commands.clone()).unwrap_or_default();
        started.iter().flat_map(|started| &started.calls).any(is)
    }

    /// Whether a command in the word's substitutions starts a program of such a name.
    pub(super) fn comes_from(&self, word: &ShellWord<'_>, is: impl Fn(&Call) -> bool) -> bool {
        word.outputs.iter().any(|commands| self.starts(commands, &is))
    }

    /// The directory that a `cd` before it has gone to, in the same shell.
    pub(super) fn directory(&self, command: usize) -> Option<&'s str> {
        let shell = self.command(command)?.shell;
        let first = command.saturating_sub(COMMANDS_BACK_MAX);
        let is_in_shell = |index: &usize| self.script.commands[*index].shell == shell;
        let before = (first..command).rev().filter(is_in_shell);
        for call in before.flat_map(|index| &self.started[index].calls) {
            match call.name.as_str() {
                "cd" | "pushd" => return Some(call.operands().first().copied().unwrap_or("~")),
                "popd" => return None,
                _ => {}
            }
        }
        None
    }
}

pub(super) fn downloads(call: &Call) -> bool {
    LISTS.downloaders.contains(&call.name.as_str())
}

pub(super) fn connects(call: &Call) -> bool {
    LISTS.connectors.contains(&call.name.as_str())
}
