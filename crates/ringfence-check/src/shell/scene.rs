//! A script with the context in which rules check it, and the collection of findings.

use super::{
    call::{Call, Source, Started},
    syntax::{Command, Script, ShellWord},
};
use crate::{
    lists::LISTS,
    rule::{Checked, Finding, Rule},
    unknown::{is_known, shown},
};
use ringfence_types::Severity;
use std::{collections::HashSet, ops::Range};

/// Number of commands in which an earlier `cd` is searched.
const COMMANDS_BACK_MAX: usize = 50;

/// Position of a script in the checked code: exactly at an offset, or somewhere within a range.
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

#[derive(Default)]
pub(super) struct Report {
    pub(super) checked: Checked,
    reported: HashSet<(usize, usize, &'static str)>,
}

/// One script: the checked code, or a text that it runs.
pub(super) struct ShellContext<'s> {
    pub(super) text: &'s str,
    pub(super) origin: &'s Origin,
    pub(super) script: &'s Script<'s>,
    pub(super) started: &'s [Started],
    /// See [`super::emptied::guard`].
    pub(super) guard: Option<usize>,
}

/// Collects findings for one range of a script.
pub(super) struct Reporter<'a> {
    pub(super) context: &'a ShellContext<'a>,
    pub(super) range: &'a Range<usize>,
    report: &'a mut Report,
}

impl Reporter<'_> {
    pub(super) fn report(&mut self, rule: &'static Rule, what: impl Into<String>) {
        self.report_as(rule, rule.severity, what);
    }

    pub(super) fn report_as(&mut self, rule: &'static Rule, severity: Severity, what: impl Into<String>) {
        self.add(self.finding(rule, what).with_severity(severity));
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    pub(super) fn finding(&self, rule: &'static Rule, what: impl Into<String>) -> Finding {
        Finding::new(rule, self.context.origin.place(self.range), what)
    }

    pub(super) fn report_call(&mut self, rule: &'static Rule, call: &Call, does: &str) {
        self.report(rule, self.what(call, does));
    }

    /// The text of a finding: a call, and its effect.
    pub(super) fn what(&self, call: &Call, does: &str) -> String {
        format!("`{}` {does}", self.shown(call))
    }

    /// A call with its arguments, or the script's own text if an argument is not known.
    fn shown(&self, call: &Call) -> String {
        match call.source == Source::Words && !call.texts().all(is_known) {
            true => self.context.snippet(self.range),
            false => call.shown(),
        }
    }
}

impl Report {
    pub(super) fn at<'a>(
        &'a mut self,
        context: &'a ShellContext<'_>,
        range: &'a Range<usize>,
    ) -> Reporter<'a> {
        Reporter {
            context,
            range,
            report: self,
        }
    }

    /// Adds a finding, once for each range and rule.
    fn add(&mut self, finding: Finding) {
        let Range { start, end } = finding.range;
        if self.reported.insert((start, end, finding.rule.id)) {
            self.checked.findings.push(finding);
        }
    }

    /// True if one of the rules is already reported for this range.
    pub(super) fn has(&self, context: &ShellContext<'_>, range: &Range<usize>, of: &[&Rule]) -> bool {
        let Range { start, end } = context.origin.place(range);
        of.iter().any(|one| self.reported.contains(&(start, end, one.id)))
    }
}

impl<'s> ShellContext<'s> {
    pub(super) fn raw(&self, range: &Range<usize>) -> &'s str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The text of a range, as findings show it.
    pub(super) fn snippet(&self, range: &Range<usize>) -> String {
        let words: Vec<&str> = self.raw(range).split_whitespace().collect();
        shown(&words.join(" "))
    }

    /// Origin of a text that is run: its exact position if it is written out in the range, or else the range.
    pub(super) fn origin_of(&self, text: &str, within: &Range<usize>) -> Origin {
        match (self.origin, self.raw(within).rfind(text)) {
            (Origin::At(from), Some(at)) => Origin::At(from + within.start + at),
            _ => Origin::Within(self.origin.place(within)),
        }
    }

    pub(super) fn command(&self, index: usize) -> Option<&'s Command<'s>> {
        self.script.commands.get(index)
    }

    /// True if one of the commands starts such a program.
    pub(super) fn starts(&self, commands: &Range<usize>, is: impl Fn(&Call) -> bool) -> bool {
        let started = self.started.get(commands.clone()).unwrap_or_default();
        started.iter().flat_map(|started| &started.calls).any(is)
    }

    /// True if a command in the word's substitutions starts such a program.
    pub(super) fn comes_from(&self, word: &ShellWord<'_>, is: impl Fn(&Call) -> bool) -> bool {
        word.outputs.iter().any(|commands| self.starts(commands, &is))
    }

    /// The directory of the last `cd` or `pushd` before the command, in the same subshell.
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
