//! Shell scripts. They are read into commands, each command into the words that the script writes out, and rules are
//! asked about the programs that are started so. Texts that are run (`sh -c`, `eval`, here-documents of a shell) are
//! read in the same way. What is put together at run time is unknown.

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
mod scene;
mod simple;
mod syntax;
mod system;
mod variables;
mod word;

#[cfg(test)]
mod habit_tests;
#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod tests;

pub(crate) use place::loses_much;

use crate::{
    domains,
    registry::shell as rules,
    rule::{Checked, Finding, Rule},
    unknown::{UNKNOWN, is_known, shown},
};
use call::{Call, Run, Runner, Started, is_interpreter, is_shell};
use network::Fetched;
use ringfence_types::Severity;
use scene::{Origin, Report, Scene, connects, downloads};
use std::ops::Range;
use syntax::{Command, Pipeline, Script, ShellWord};
use variables::Variables;

/// Texts within texts.
const DEPTH_MAX: u32 = 8;
/// Of all texts that are run, together.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// What is found of a script.
pub(crate) fn check(code: &str) -> Checked {
    let mut check = Check::default();
    let script = reader::read(code, &mut check.variables);
    for fault in &script.faults {
        let rule = match fault.too_deep {
            true => &rules::UNPARSED,
            false => &rules::SYNTAX,
        };
        let finding = Finding::new(rule, fault.range.clone(), fault.what.clone());
        check.report.checked.findings.push(finding);
    }
    habits::look(code, &script, &mut check.report);
    check.script(code, &Origin::At(0), &script);
    let analysis = &mut check.report.checked.analysis;
    analysis.functions = u32::try_from(script.functions.len()).unwrap_or(u32::MAX);
    analysis.cyclomatic_complexity = script.decisions + 1;
    check.report.checked
}

/// What is found of a command in a program of another language; that it cannot be read says nothing there.
pub(crate) fn findings_of(command: &str) -> impl Iterator<Item = Finding> {
    let found = check(command).findings.into_iter();
    found.filter(|found| {
        found.severity > Severity::Info && ![rules::SYNTAX.id, rules::UNPARSED.id].contains(&found.rule.id)
    })
}

/// Words as a shell takes them as they are.
pub(crate) fn quoted<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    words.join(" ")
}

#[derive(Default)]
struct Check {
    report: Report,
    /// Texts around the one that is looked at.
    depth: u32,
    /// Of texts that were run.
    bytes: usize,
    /// As far as texts were read. A text that is run has those of the one that runs it.
    variables: Variables,
}

impl Check {
    fn script(&mut self, text: &str, origin: &Origin, script: &Script<'_>) {
        let starts = |command: &Command<'_>| {
            let fields = command.words.iter().flat_map(|word| word.fields.clone());
            call::started(fields.collect(), call::FINDS_MAX)
        };
        let started: Vec<Started> = script.commands.iter().map(starts).collect();
        let scene = Scene {
            text,
            origin,
            script,
            started: &started,
            guard: emptied::guard(text),
        };
        let fetched = Fetched::of(&scene);
        for (index, command) in script.commands.iter().enumerate() {
            self.command(&scene, index, command, &fetched);
        }
        for pipeline in &script.pipelines {
            network::piped(&mut self.report.at(&scene, &pipeline.range), pipeline);
            self.piped_to_shell(&scene, pipeline);
        }
        bombs::look(&scene, &mut self.report);
        for (hidden, range) in &script.unescaped {
            self.text(&scene, hidden, range);
        }
    }

    fn command(&mut self, scene: &Scene<'_>, index: usize, command: &Command<'_>, fetched: &Fetched) {
        let first = command.words.first();
        let is_alias = first.is_some_and(|word| scene.raw(&word.range) == "alias");
        for assignment in &command.assignments {
            let value = assignment.value.text();
            domains::of(&value, &mut self.report.checked.hosts);
            let out = &mut self.report.at(scene, &assignment.range);
            system::assigned(out, assignment.name, &value);
            if is_alias {
                self.text(scene, &value, &assignment.range);
            }
        }
        for redirection in &command.redirections {
            let target = redirection.target.text();
            domains::of(&target, &mut self.report.checked.hosts);
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
        if first.is_some_and(|word| is_computed(scene, word)) {
            let written = scene.said(&command.range);
            let what = format!("which program `{written}` starts is known at run time only");
            self.dynamic(scene, &command.range, what);
        }
    }

    /// What is run is put together at run time.
    fn dynamic(&mut self, scene: &Scene<'_>, range: &Range<usize>, what: String) {
        self.report.at(scene, range).tell(&rules::DYNAMIC_EXECUTION, what);
    }

    fn call(&mut self, scene: &Scene<'_>, index: usize, call: &Call, fetched: &Fetched) {
        let command = &scene.script.commands[index];
        let report = &mut self.report;
        for text in call.texts() {
            domains::of(text, &mut report.checked.hosts);
        }
        if downloads(call) || connects(call) || call.name == "ssh" {
            for text in call.operands().into_iter().filter(|text| text.contains('.')) {
                domains::of_address(text, &mut report.checked.hosts);
            }
        }
        if matches!(call.name.as_str(), "source" | ".") {
            let file = call.operands().first().map(|file| shown(file));
            report
                .checked
                .imports
                .extend(file.filter(|file| !file.contains('…')));
        }
        let mut out = report.at(scene, &command.range);
        files::look(&mut out, index, call);
        system::look(&mut out, call);
        network::look(&mut out, command, call, fetched);
    }

    /// What a shell reads: `sh <<< text`, `sh << END`; and what `at` will run.
    fn input(&mut self, scene: &Scene<'_>, command: &Command<'_>, call: &Call) {
        let runs = is_shell(&call.name) || call.name == "at";
        if !runs && !is_interpreter(&call.name) {
            return;
        }
        for redirection in command.texts() {
            let text = redirection.target.text();
            match runs {
                true => self.text(scene, &text, &redirection.target.range),
                false => self.one_liner(scene, &text, &command.range),
            }
        }
    }

    /// Code of another language, and the commands that are written out in it.
    fn one_liner(&mut self, scene: &Scene<'_>, code: &str, range: &Range<usize>) {
        network::one_liner(&mut self.report.at(scene, range), code);
        for command in quoted::commands_in(code) {
            self.text(scene, &command, range);
        }
    }

    /// `echo text | sh`, `cat << END | sh`
    fn piped_to_shell(&mut self, scene: &Scene<'_>, pipeline: &Pipeline) {
        let Some((last, before)) = pipeline.stages.split_last() else {
            return;
        };
        if !scene.starts(last, |call| is_shell(&call.name) && network::reads_script(call)) {
            return;
        }
        let told: [&Rule; 3] = [
            &rules::DOWNLOAD_AND_RUN,
            &rules::ENCODED_RUN,
            &rules::REVERSE_SHELL,
        ];
        let range = &pipeline.range;
        match before {
            [one] if let Some(text) = printed(scene, one) => self.text(scene, &text, range),
            _ if self.report.has(scene, range, &told) => {}
            _ => {
                let written = scene.said(range);
                let what = format!("what `{written}` gives to a shell is made at run time");
                self.dynamic(scene, range, what);
            }
        }
    }

    fn run(&mut self, scene: &Scene<'_>, command: &Command<'_>, run: &Run) {
        let is_code = run.language == Runner::Interpreter;
        if is_code {
            self.one_liner(scene, &run.text, &command.range);
        }
        if self.is_made_at_run_time(scene, command, run) {
            let what = format!("what `{}` runs is made at run time", scene.said(&command.range));
            self.dynamic(scene, &command.range, what);
        }
        if !is_code {
            self.text(scene, &run.text, &command.range);
        }
    }

    /// For `eval`, a part of it is enough; elsewhere, what runs, and not with which arguments.
    fn is_made_at_run_time(&self, scene: &Scene<'_>, command: &Command<'_>, run: &Run) -> bool {
        let told: [&Rule; 2] = [&rules::DOWNLOAD_AND_RUN, &rules::ENCODED_RUN];
        !is_known(&run.text)
            && !self.report.has(scene, &command.range, &told)
            && match run.language {
                Runner::Eval => true,
                Runner::Later => false,
                Runner::Shell | Runner::Interpreter => run.text.trim_start().starts_with(UNKNOWN),
            }
    }

    /// A text that is run as a script, from a place.
    fn text(&mut self, scene: &Scene<'_>, text: &str, range: &Range<usize>) {
        let origin = scene.origin_of(text, range);
        self.bytes += text.len();
        if self.depth == DEPTH_MAX || self.bytes > TEXT_BYTES_MAX {
            let range = origin.place(&(0..text.len()));
            let what = "texts are run within texts, too many to follow";
            let finding = Finding::new(&rules::UNPARSED, range, what);
            return self.report.checked.findings.push(finding);
        }
        self.depth += 1;
        let script = reader::read(text, &mut self.variables);
        self.script(text, &origin, &script);
        self.depth -= 1;
    }
}

/// The name of a program that a substitution or braces make: `$(echo rm)`, `{rm,-rf,/}`; not `$(command -v python3)`.
fn is_computed(scene: &Scene<'_>, word: &ShellWord<'_>) -> bool {
    let finds = |call: &Call| matches!(call.name.as_str(), "which" | "type");
    match (scene.raw(&word.range), word.outputs.first()) {
        (raw, Some(commands)) if raw.starts_with(['$', '`']) => {
            scene.starts(commands, |_| true) && !scene.starts(commands, finds)
        }
        (raw, _) => raw.starts_with('{') && raw.contains(','),
    }
}

/// What a stage of a pipeline prints, if that is written out: `echo text`, `cat << END`.
fn printed(scene: &Scene<'_>, stage: &Range<usize>) -> Option<String> {
    let started = scene.started.get(stage.clone())?;
    let ([command], [Started { calls, .. }]) = (scene.script.commands.get(stage.clone())?, started) else {
        return None;
    };
    let [call] = calls.as_slice() else {
        return None;
    };
    let text = match call.name.as_str() {
        "echo" => {
            let is_option = |text: &&str| matches!(*text, "-e" | "-n" | "-ne" | "-en" | "-E");
            let texts: Vec<&str> = call.texts().skip_while(is_option).collect();
            texts.join(" ")
        }
        "cat" if call.arguments.is_empty() => command.texts().next()?.target.text(),
        _ => return None,
    };
    (!text.starts_with(UNKNOWN)).then_some(text)
}
