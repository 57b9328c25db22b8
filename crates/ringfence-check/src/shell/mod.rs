//! Shell scripts. They are read into commands, each command into the words that bash would make of it, as far as that can be known
//! without running it, and rules are asked about the programs that are started so. Texts that are run (`sh -c`, `eval`,
//! here-documents of a shell) are read in the same way.

mod bombs;
mod call;
mod compound;
mod emptied;
mod files;
mod habits;
mod network;
mod place;
mod quoted;
mod reader;
mod remote;
mod rules;
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
pub(crate) use rules::RULES;

use crate::{
    domains,
    rule::{Checked, Finding},
    tree,
    unknown::{UNKNOWN, shown},
};
use call::{Run, Runner, Started};
use network::Fetched;
use ringfence_types::Severity::Warning;
use scene::{Origin, Report, Scene};
use std::{ops::Range, time::Duration};
use syntax::{Command, Fault, FaultKind, Part, Redirection, Role, Script};
use value::{Values, is_known};

/// Texts within texts.
const DEPTH_MAX: u32 = 8;
/// Where the grammar's reading takes longer, one reader has to do.
const GRAMMAR_MAX: Duration = Duration::from_millis(500);
/// And of a longer text: what it remembers of broken pipelines grows with the square of their length, to 2 GiB for 64 KiB.
const GRAMMAR_BYTES_MAX: usize = 16 << 10;
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
    look.faults(code, &script);
    habits::look(code, &script, &mut look.report);
    checked.analysis.functions = u32::try_from(script.functions.len()).unwrap_or(u32::MAX);
    checked.analysis.cyclomatic_complexity = script.decisions + 1;
    look.script(code, &script, &Origin::At(0), None, DEPTH_MAX);
    checked.findings = look.report.findings;
    checked.analysis.imports = look.report.imports.into_iter().collect();
    checked.analysis.domains = look.report.hosts.into_iter().collect();
    checked
}

struct Look {
    report: Report,
    /// Of texts that were run.
    bytes: usize,
}

impl Look {
    /// A script is broken when both readers say so, or when it has a word that closes what nothing opened, which the grammar takes
    /// for a program's name.
    fn faults(&mut self, code: &str, script: &Script<'_>) {
        if script.faults.is_empty() {
            return;
        }
        let language = tree_sitter_bash::LANGUAGE.into();
        let broken = code.len() > GRAMMAR_BYTES_MAX
            || tree::parse(&language, code, GRAMMAR_MAX).is_none_or(|tree| tree.root_node().has_error());
        for fault in &script.faults {
            let word = code.get(fault.range.clone()).unwrap_or_default();
            let closes = matches!(
                word,
                "fi" | "done" | "esac" | "}" | "then" | "do" | "else" | "elif"
            );
            if fault.kind != FaultKind::Nested && (broken || closes) {
                self.report.findings.push(syntax_error(fault));
            } else {
                self.report.unread(fault.range.clone(), fault.what.clone());
            }
        }
    }

    fn script(
        &mut self,
        text: &str,
        script: &Script<'_>,
        origin: &Origin,
        outer: Option<&Values>,
        depth: u32,
    ) {
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
            started: &started,
            guards: &emptied::Guards::of(text, script, &started),
        };
        let fetched = Fetched::of(&scene);
        for (index, command) in script.commands.iter().enumerate() {
            self.command(&scene, index, command, &fetched, depth);
        }
        for pipeline in &script.pipelines {
            network::piped(&scene, pipeline, &mut self.report);
            self.printed_to_shell(&scene, pipeline, depth);
        }
        bombs::look(&scene, &mut self.report);
        for (hidden, range) in &script.hidden {
            self.text(&scene, hidden, Origin::Within(origin.place(range)), depth);
        }
    }

    fn command(
        &mut self,
        scene: &Scene<'_>,
        index: usize,
        command: &Command<'_>,
        fetched: &Fetched,
        depth: u32,
    ) {
        let expander = scene.expander();
        for assignment in &command.assignments {
            let value = assignment
                .value()
                .map(|word| expander.text(word))
                .unwrap_or_default();
            domains::of(&value, &mut self.report.hosts);
            system::assigned(
                scene,
                assignment.name,
                &value,
                &assignment.range,
                &mut self.report,
            );
            if command
                .words
                .first()
                .is_some_and(|word| scene.text.get(word.range.clone()) == Some("alias"))
            {
                let place = scene.origin.place(&assignment.range);
                self.text(scene, &value, Origin::Within(place), depth);
            }
        }
        for redirection in &command.redirections {
            let target = expander.text(&redirection.target);
            domains::of(&target, &mut self.report.hosts);
            files::redirected(scene, redirection, &target, &command.range, &mut self.report);
            network::redirected(scene, index, &target, &command.range, &mut self.report);
        }
        habits::bracket(scene, command, &mut self.report);
        let started = &scene.started[index];
        for (name, value) in &started.assignments {
            system::assigned(scene, name, value, &command.range, &mut self.report);
        }
        for call in &started.calls {
            self.call(scene, index, command, call, fetched);
            self.input(scene, command, call, depth);
        }
        for run in &started.texts {
            self.run(scene, command, run, depth);
        }
    }

    fn call(
        &mut self,
        scene: &Scene<'_>,
        index: usize,
        command: &Command<'_>,
        call: &call::Call,
        fetched: &Fetched,
    ) {
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
        files::look(scene, index, call, &command.range, report);
        system::look(scene, call, &command.range, report);
        network::look(scene, command, call, &command.range, fetched, report);
    }

    /// What a shell reads: `sh <<< text`, `sh << END`; and what `at` will run.
    fn input(&mut self, scene: &Scene<'_>, command: &Command<'_>, call: &call::Call, depth: u32) {
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
                self.text(scene, &text, origin, depth);
            } else {
                self.one_liner(scene, &text, &command.range, depth);
            }
        }
    }

    /// Code of another language, and the commands that are written out in it.
    fn one_liner(&mut self, scene: &Scene<'_>, code: &str, range: &Range<usize>, depth: u32) {
        network::one_liner(scene, code, range, &mut self.report);
        for command in quoted::commands_in(code) {
            let place = scene.origin.place(range);
            self.text(scene, &command, Origin::Within(place), depth);
        }
    }

    /// `echo text | sh`
    fn printed_to_shell(&mut self, scene: &Scene<'_>, pipeline: &syntax::Pipeline, depth: u32) {
        let Some((last, before)) = pipeline.stages.split_last() else {
            return;
        };
        let runs = scene.starts(last, |call| call::is_shell(&call.name) && !call.has("c", &[]));
        if runs && let Some(text) = scene.expander().printed_by_stages(before) {
            let place = scene.origin.place(&pipeline.range);
            self.text(scene, &text, Origin::Within(place), depth);
        }
    }

    fn run(&mut self, scene: &Scene<'_>, command: &Command<'_>, run: &Run, depth: u32) {
        let words = command.words.get(run.words.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (words.first(), words.last()) else {
            return;
        };
        let range = first.range.start..last.range.end;
        if run.language == Runner::Interpreter {
            self.one_liner(scene, &run.text, &command.range, depth);
        }
        if self.is_made_at_run_time(scene, command, run) {
            let what = format!("`{}` is made at run time", scene.said(&range));
            self.report
                .tell_as(scene, &range, &rules::DYNAMIC_EXECUTION, Warning, what);
        }
        if run.language == Runner::Interpreter {
            return;
        }
        let origin = match words {
            [word] => exact(scene, word, &run.text).unwrap_or(Origin::Within(scene.origin.place(&range))),
            _ => Origin::Within(scene.origin.place(&range)),
        };
        self.text(scene, &run.text, origin, depth);
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
    fn text(&mut self, scene: &Scene<'_>, text: &str, origin: Origin, depth: u32) {
        self.bytes += text.len();
        let whole = origin.place(&(0..text.len()));
        if depth == 0 || self.bytes > TEXT_BYTES_MAX {
            let range = whole.start..whole.end.max(whole.start);
            return self
                .report
                .unread(range, "texts are run within texts, too many to follow".to_owned());
        }
        let script = reader::read(text);
        self.script(text, &script, &origin, Some(scene.values), depth - 1);
    }
}

fn syntax_error(fault: &Fault) -> Finding {
    Finding {
        range: fault.range.clone(),
        rule: &rules::SYNTAX,
        severity: rules::SYNTAX.severity,
        what: fault.what.clone(),
        hint: None,
    }
}

/// Where the letters of a quoted word stand, if they stand there as they are.
fn exact(scene: &Scene<'_>, word: &syntax::Word<'_>, text: &str) -> Option<Origin> {
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
