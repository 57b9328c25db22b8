//! A script with everything that is known of it, and the place for what is found.

use super::{
    call::{Call, Started, base, said},
    guards::Guards,
    rules,
    syntax::{Command, Inside, Part, Script, ShellWord},
    value::{Expander, Values},
};
use crate::rule::{Finding, Rule};
use ringfence_types::Severity;
use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

/// How far back a `cd` is looked for.
const COMMANDS_BACK_MAX: usize = 50;

/// Where the bytes of a text stand in the code.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// From this byte on.
    At(usize),
    /// Somewhere in there.
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
    pub(super) findings: Vec<Finding>,
    told: HashSet<(usize, usize, &'static str)>,
    pub(super) imports: BTreeSet<String>,
    pub(super) hosts: BTreeSet<String>,
}

/// One text: the script, or one that it starts.
pub(super) struct Scene<'s> {
    pub(super) text: &'s str,
    pub(super) origin: &'s Origin,
    pub(super) script: &'s Script<'s>,
    pub(super) values: &'s Values,
    pub(super) outer: Option<&'s Values>,
    /// Texts within it that are still followed.
    pub(super) depth: u32,
    /// By command.
    pub(super) started: &'s [Started],
    pub(super) guards: &'s Guards<'s>,
}

/// Tells what is found at one place.
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
        self.add(rule, severity, what.into(), None);
    }

    /// With what to do about it.
    pub(super) fn tell_with_hint(
        &mut self,
        rule: &'static Rule,
        severity: Severity,
        what: String,
        hint: String,
    ) {
        self.add(rule, severity, what, Some(hint));
    }

    fn add(&mut self, rule: &'static Rule, severity: Severity, what: String, hint: Option<String>) {
        self.report.add(Finding {
            range: self.scene.origin.place(self.range),
            rule,
            severity,
            what,
            hint,
        });
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
            self.findings.push(finding);
        }
    }

    /// Is it told of this place already.
    pub(super) fn has(&self, scene: &Scene<'_>, range: &Range<usize>, rule: &Rule) -> bool {
        let range = scene.origin.place(range);
        self.told.contains(&(range.start, range.end, rule.id))
    }

    /// It could not be looked at.
    pub(super) fn unread(&mut self, range: Range<usize>, what: String) {
        self.findings.push(Finding::new(&rules::UNPARSED, range, what));
    }
}

impl<'s> Scene<'s> {
    pub(super) fn expander(&self) -> Expander<'s> {
        Expander {
            script: self.script,
            values: self.values,
            outer: self.outer,
        }
    }

    /// What the script says there.
    pub(super) fn said(&self, range: &Range<usize>) -> String {
        said(self.text.get(range.clone()).unwrap_or_default())
    }

    pub(super) fn command(&self, index: usize) -> Option<&'s Command<'s>> {
        self.script.commands.get(index)
    }

    /// What the commands of a range start.
    pub(super) fn calls(&self, commands: &Range<usize>) -> impl Iterator<Item = &'s Call> {
        let started = self.started.get(commands.clone()).unwrap_or_default();
        started.iter().flat_map(|started| &started.calls)
    }

    /// Does one of them start a program of such a name.
    pub(super) fn starts(&self, commands: &Range<usize>, is: impl Fn(&Call) -> bool) -> bool {
        self.calls(commands).any(is)
    }

    /// The directory that a `cd` before it has gone to, in the same shell.
    pub(super) fn directory(&self, command: usize) -> Option<&'s str> {
        let shell = self.command(command)?.shell;
        let first = command.saturating_sub(COMMANDS_BACK_MAX);
        for index in (first..command).rev() {
            if self.command(index)?.shell != shell {
                continue;
            }
            for call in &self.started.get(index)?.calls {
                if matches!(call.name.as_str(), "cd" | "pushd") {
                    return Some(call.operands().first().copied().unwrap_or("~"));
                }
                if call.name == "popd" {
                    return None;
                }
            }
        }
        None
    }

    /// Commands whose output is part of a word, or is given as a file.
    pub(super) fn inside<'w>(&self, word: &'w ShellWord<'s>) -> impl Iterator<Item = &'w Inside> {
        word.parts.iter().filter_map(|part| match part {
            Part::Output(inside, _) | Part::Process(inside) => Some(inside),
            _ => None,
        })
    }
}

/// They fetch from the network.
#[rustfmt::skip]
const DOWNLOADERS: &[&str] = &[
    "curl", "wget", "fetch", "aria2c", "lynx", "http", "https", "axel", "GET", "lwp-request", "ftp", "tftp",
];

/// Names of programs that fetch from the network.
pub(super) fn downloads(call: &Call) -> bool {
    DOWNLOADERS.contains(&call.name.as_str())
}

/// Programs that join their input and output to a connection.
pub(super) fn connects(call: &Call) -> bool {
    matches!(
        base(&call.path),
        "nc" | "ncat" | "netcat" | "nc.openbsd" | "nc.traditional" | "socat" | "telnet" | "pwncat"
    )
}
