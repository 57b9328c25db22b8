//! Shell scripts. They are read into commands, each command into the words that bash would make of it, as far as that
//! can be known without running it, and rules are asked about the programs that are started so. Texts that are run (`sh
//! -c`, `eval`, here-documents of a shell) are read in the same way.

mod bombs;
mod call;
mod compound;
mod emptied;
mod files;
mod guards;
mod habits;
mod network;
mod place;
mod quoted;
mod reader;
mod remote;
mod scene;
mod simple;
mod syntax;
mod system;
mod value;
mod word;

#[cfg(test)]
mod habit_tests;
#[cfg(test)]
mod tests;

pub(crate) use place::loses_much;

use crate::{
    domains,
    registry::shell as rules,
    rule::{Checked, Finding},
    unknown::{UNKNOWN, shown},
};
use call::{Run, Runner, Started};
use network::Fetched;
use ringfence_types::Severity::Warning;
use scene::{Origin, Report, Scene};
use std::ops::Range;
use syntax::{Command, FaultKind, Part, Redirection, Role, Script};
use value::{Values, is_known};

/// Texts within texts.
const DEPTH_MAX: u32 = 8;
/// Of all texts that are run, together.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// What is found of a script.
pub(crate) fn check(code: &str) -> Checked {
    let script = reader::read(code);
    let mut checked = Checked::default();
    let mut look = Look {
        report: Report::default(),
        bytes: 0,
    };
    look.faults(&script);
    habits::look(code, &script, &mut look.report);
    checked.analysis.functions = u32::try_from(script.functions.len()).unwrap_or(u32::MAX);
    checked.analysis.cyclomatic_complexity = script.decisions + 1;
    let around = Around {
        outer: None,
        depth: DEPTH_MAX,
    };
    look.script(code, &script, &Origin::At(0), around);
    checked.findings = look.report.findings;
    checked.analysis.imports = look.report.imports.into_iter().collect();
    checked.analysis.domains = look.report.hosts.into_iter().collect();
    checked
}

/// What a text that is run finds around it.
#[derive(Clone, Copy)]
struct Around<'a> {
    outer: Option<&'a Values>,
    /// Texts within it that are still followed.
    depth: u32,
}

struct Look {
    report: Report,
    /// Of texts that were run.
    bytes: usize,
}

impl Look {
    fn faults(&mut self, script: &Script<'_>) {
        for fault in &script.faults {
            match fault.kind {
                FaultKind::Nested => self.report.unread(fault.range.clone(), fault.what.clone()),
                _ => {
                    let found = Finding::new(&rules::SYNTAX, fault.range.clone(), fault.what.clone());
                    self.report.findings.push(found);
                }
            }
        }
    }

    fn script(&mut self, text: &str, script: &Script<'_>, origin: &Origin, around: Around<'_>) {
        let Around { outer, depth } = around;
        let values = Values::of(script, outer);
        let expander = value::Expander {
            script,
            values: &values,
            outer,
        };
        let inputs = expander.inputs();
        let starts = |(index, command): (usize, &Command<'_>)| match command.role {
            Role::Simple => {
                let fields = expander.fields(&command.words);
                let mut started = call::started(fields, inputs.get(&index).map(String::as_str));
                started.written_as(text.get(command.range.clone()).unwrap_or_default());
                started
            }
            _ => Started::default(),
        };
        let started: Vec<Started> = script.commands.iter().enumerate().map(starts).collect();
        let scene = Scene {
            text,
            origin,
            script,
            values: &values,
            outer,
            depth,
            started: &started,
            guards: &guards::Guards::of(text, script, &started),
        };
        let fetched = Fetched::of(&scene);
        for (index, command) in script.commands.iter().enumerate() {
            self.command(&scene, index, command, &fetched);
        }
        for pipeline in &script.pipelines {
            network::piped(&mut self.report.at(&scene, &pipeline.range), pipeline);
            self.printed_to_shell(&scene, pipeline);
        }
        bombs::look(&scene, &mut self.report);
        for (hidden, range) in &script.hidden {
            self.text(&scene, hidden, Origin::Within(origin.place(range)));
        }
    }

    fn command(&mut self, scene: &Scene<'_>, index: usize, command: &Command<'_>, fetched: &Fetched) {
        let expander = scene.expander();
        for assignment in &command.assignments {
            let value = assignment
                .value()
                .map(|word| expander.text(word))
                .unwrap_or_default();
            domains::of(&value, &mut self.report.hosts);
            system::assigned(
                &mut self.report.at(scene, &assignment.range),
                assignment.name,
                &value,
            );
            if command
                .words
                .first()
                .is_some_and(|word| scene.text.get(word.range.clone()) == Some("alias"))
            {
                let place = scene.origin.place(&assignment.range);
                self.text(scene, &value, Origin::Within(place));
            }
        }
        for redirection in &command.redirections {
            let target = expander.text(&redirection.target);
            domains::of(&target, &mut self.report.hosts);
            let mut out = self.report.at(scene, &command.range);
            files::redirected(&mut out, redirection, &target);
            network::redirected(&mut out, index, &target);
        }
        habits::bracket(scene, command, &mut self.report);
        let started = &scene.started[index];
        for (name, value) in &started.assignments {
            system::assigned(&mut self.report.at(scene, &command.range), name, value);
        }
        for call in &started.calls {
            self.call(scene, index, call, fetched);
            self.input(scene, command, call);
        }
        for run in &started.texts {
            self.run(scene, command, run);
        }
    }

    fn call(&mut self, scene: &Scene<'_>, index: usize, call: &call::Call, fetched: &Fetched) {
        let command = &scene.script.commands[index];
        let report = &mut self.report;
        for text in call.texts() {
            domains::of(text, &mut report.hosts);
        }
        if scene::downloads(call) || scene::connects(call) || call.name == "ssh" {
            for text in call.operands().into_iter().filter(|text| text.contains('.')) {
                domains::of_address(text, &mut report.hosts);
            }
        }
        if matches!(call.name.as_str(), "source" | ".") {
            let file = call.operands().first().map(|file| shown(file));
            report.imports.extend(file.filter(|file| !file.contains('…')));
        }
        let mut out = report.at(scene, &command.range);
        files::look(&mut out, index, call);
        system::look(&mut out, call);
        network::look(&mut out, command, call, fetched);
    }

    /// What a shell reads: `sh <<< text`, `sh << END`; and what `at` will run.
    fn input(&mut self, scene: &Scene<'_>, command: &Command<'_>, call: &call::Call) {
        let is_shell = call::is_shell(&call.name);
        if !is_shell && !call::is_interpreter(&call.name) && call.name != "at" {
            return;
        }
        for redirection in command
            .redirections
            .iter()
            .filter(|redirection| redirection.is_text())
        {
            let text = scene.expander().text(&redirection.target);
            if is_shell || call.name == "at" {
                let origin = origin_of(scene, redirection);
                self.text(scene, &text, origin);
            } else {
                self.one_liner(scene, &text, &command.range);
            }
        }
    }

    /// Code of another language, and the commands that are written out in it.
    fn one_liner(&mut self, scene: &Scene<'_>, code: &str, range: &Range<usize>) {
        network::one_liner(&mut self.report.at(scene, range), code);
        for command in quoted::commands_in(code) {
            let place = scene.origin.place(range);
            self.text(scene, &command, Origin::Within(place));
        }
    }

    /// `echo text | sh`
    fn printed_to_shell(&mut self, scene: &Scene<'_>, pipeline: &syntax::Pipeline) {
        let Some((last, before)) = pipeline.stages.split_last() else {
            return;
        };
        let runs = scene.starts(last, |call| call::is_shell(&call.name) && !call.has("c", &[]));
        if runs && let Some(text) = scene.expander().printed_by_stages(before) {
            let place = scene.origin.place(&pipeline.range);
            self.text(scene, &text, Origin::Within(place));
        }
    }

    fn run(&mut self, scene: &Scene<'_>, command: &Command<'_>, run: &Run) {
        let words = command.words.get(run.words.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (words.first(), words.last()) else {
            return;
        };
        let range = first.range.start..last.range.end;
        if run.language == Runner::Interpreter {
            self.one_liner(scene, &run.text, &command.range);
        }
        if self.is_made_at_run_time(scene, command, run) {
            let what = format!("`{}` is made at run time", scene.said(&range));
            self.report
                .at(scene, &range)
                .tell_as(&rules::DYNAMIC_EXECUTION, Warning, what);
        }
        if run.language == Runner::Interpreter {
            return;
        }
        let origin = match words {
            [word] => exact(scene, word, &run.text).unwrap_or(Origin::Within(scene.origin.place(&range))),
            _ => Origin::Within(scene.origin.place(&range)),
        };
        self.text(scene, &run.text, origin);
    }

    /// For `eval`, a part of it is enough; elsewhere, what runs, and not with which arguments.
    fn is_made_at_run_time(&self, scene: &Scene<'_>, command: &Command<'_>, run: &Run) -> bool {
        let told = [&rules::DOWNLOAD_AND_RUN, &rules::ENCODED_RUN];
        if is_known(&run.text)
            || told
                .iter()
                .any(|rule| self.report.has(scene, &command.range, rule))
        {
            return false;
        }
        match run.language {
            Runner::Eval => true,
            Runner::Later => false,
            Runner::Shell | Runner::Interpreter => {
                let first = run.text.split_whitespace().next().unwrap_or_default();
                first.starts_with(UNKNOWN)
            }
        }
    }

    /// A text that is run as a script.
    fn text(&mut self, scene: &Scene<'_>, text: &str, origin: Origin) {
        self.bytes += text.len();
        let whole = origin.place(&(0..text.len()));
        if scene.depth == 0 || self.bytes > TEXT_BYTES_MAX {
            let range = whole.start..whole.end.max(whole.start);
            return self
                .report
                .unread(range, "texts are run within texts, too many to follow".to_owned());
        }
        let script = reader::read(text);
        let around = Around {
            outer: Some(scene.values),
            depth: scene.depth - 1,
        };
        self.script(text, &script, &origin, around);
    }
}

/// Where the letters of a quoted word stand, if they stand there as they are.
fn exact(scene: &Scene<'_>, word: &syntax::ShellWord<'_>, text: &str) -> Option<Origin> {
    let raw = scene.text.get(word.range.clone())?;
    let at = raw
        .find(text)
        .filter(|at| raw.len() - text.len() <= 2 && *at <= 1)?;
    match scene.origin {
        Origin::At(from) => Some(Origin::At(from + word.range.start + at)),
        Origin::Within(_) => None,
    }
}

fn origin_of(scene: &Scene<'_>, redirection: &Redirection<'_>) -> Origin {
    let literal = matches!(
        redirection.target.parts.as_slice(),
        [Part::Text(..)] | [Part::Text(..), Part::Text(..)]
    );
    let text: Range<usize> = redirection.target.range.clone();
    match (scene.origin, literal && redirection.operator != "<<<") {
        (Origin::At(from), true) => Origin::At(from + text.start),
        _ => Origin::Within(scene.origin.place(&text)),
    }
}
