//! Shell scripts, parsed into commands of words ([`UNKNOWN`] where known only at run time). Rules check the programs
//! that are started. Texts that are run (`sh -c`, `eval`, here-documents of a shell) are parsed in the same way.

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
use scene::{Origin, Report, ShellContext, connects, downloads};
use std::ops::Range;
use syntax::{Command, Pipeline, Script, ShellWord};
use variables::Variables;

/// Maximum nesting of scripts run by scripts.
const DEPTH_MAX: u32 = 8;
/// Maximum length of all texts that are run, together.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

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
    habits::check(code, &script, &mut check.report);
    check.script(code, &Origin::At(0), &script);
    let analysis = &mut check.report.checked.analysis;
    analysis.functions = u32::try_from(script.functions.len()).unwrap_or(u32::MAX);
    analysis.cyclomatic_complexity = script.decisions + 1;
    check.report.checked
}

/// Findings above `Info` of a command in a program of another language, about which syntax errors say nothing.
pub(crate) fn findings_of(command: &str) -> impl Iterator<Item = Finding> {
    let found = check(command).findings.into_iter();
    found.filter(|found| {
        found.severity > Severity::Info && ![rules::SYNTAX.id, rules::UNPARSED.id].contains(&found.rule.id)
    })
}

/// Quotes words so that a shell takes them literally.
pub(crate) fn quoted<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    words.join(" ")
}

#[derive(Default)]
struct Check {
    report: Report,
    /// Number of scripts around the one that is checked.
    depth: u32,
    /// Length of all texts run so far.
    bytes: usize,
    /// Variables set so far. A text that is run has those of the script that runs it.
    variables: Variables,
}

impl Check {
    fn script(&mut self, text: &str, origin: &Origin, script: &Script<'_>) {
        let starts = |command: &Command<'_>| {
            let fields = command.words.iter().flat_map(|word| word.fields.clone());
            call::started(fields.collect(), call::FINDS_MAX)
        };
        let started: Vec<Started> = script.commands.iter().map(starts).collect();
        let context = ShellContext {
            text,
            origin,
            script,
            started: &started,
            guard: emptied::guard(text),
        };
        let fetched = Fetched::of(&context);
        for (index, command) in script.commands.iter().enumerate() {
            self.command(&context, index, command, &fetched);
        }
        for pipeline in &script.pipelines {
            network::piped(&mut self.report.at(&context, &pipeline.range), pipeline);
            self.piped_to_shell(&context, pipeline);
        }
        bombs::check(&context, &mut self.report);
        for (hidden, range) in &script.unescaped {
            self.text(&context, hidden, range);
        }
    }

    fn command(
        &mut self,
        context: &ShellContext<'_>,
        index: usize,
        command: &Command<'_>,
        fetched: &Fetched,
    ) {
        let first = command.words.first();
        let is_alias = first.is_some_and(|word| context.raw(&word.range) == "alias");
        for assignment in &command.assignments {
            let value = assignment.value.text();
            domains::of(&value, &mut self.report.checked.hosts);
            let out = &mut self.report.at(context, &assignment.range);
            system::assigned(out, assignment.name, &value);
            if is_alias {
                self.text(context, &value, &assignment.range);
            }
        }
        for redirection in &command.redirections {
            let target = redirection.target.text();
            domains::of(&target, &mut self.report.checked.hosts);
            let mut out = self.report.at(context, &command.range);
            files::redirected(&mut out, redirection, &target);
            network::redirected(&mut out, index, &target);
        }
        habits::bracket(context, command, &mut self.report);
        let started = &context.started[index];
        for (name, value) in &started.assignments {
            system::assigned(&mut self.report.at(context, &command.range), name, value);
        }
        for call in &started.calls {
            self.call(context, index, call, fetched);
            self.input(context, command, call);
        }
        for run in &started.texts {
            self.run(context, command, run);
        }
        if first.is_some_and(|word| is_computed(context, word)) {
            let written = context.snippet(&command.range);
            let what = format!("which program `{written}` starts is known at run time only");
            self.dynamic(context, &command.range, what);
        }
    }

    /// Reports code that is only known at run time.
    fn dynamic(&mut self, context: &ShellContext<'_>, range: &Range<usize>, what: String) {
        let mut out = self.report.at(context, range);
        out.report(&rules::DYNAMIC_EXECUTION, what);
    }

    fn call(&mut self, context: &ShellContext<'_>, index: usize, call: &Call, fetched: &Fetched) {
        let command = &context.script.commands[index];
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
        let mut out = report.at(context, &command.range);
        files::check(&mut out, index, call);
        system::check(&mut out, call);
        network::check(&mut out, command, call, fetched);
    }

    /// Checks the input of a shell or of `at` (`sh <<< text`, `sh << END`) as a script, and an interpreter's as code.
    fn input(&mut self, context: &ShellContext<'_>, command: &Command<'_>, call: &Call) {
        let runs = is_shell(&call.name) || call.name == "at";
        if !runs && !is_interpreter(&call.name) {
            return;
        }
        for redirection in command.texts() {
            let text = redirection.target.text();
            match runs {
                true => self.text(context, &text, &redirection.target.range),
                false => self.one_liner(context, &text, &command.range),
            }
        }
    }

    /// Checks code of another language, and the shell commands written out in it.
    fn one_liner(&mut self, context: &ShellContext<'_>, code: &str, range: &Range<usize>) {
        network::one_liner(&mut self.report.at(context, range), code);
        for command in quoted::commands_in(code) {
            self.text(context, &command, range);
        }
    }

    /// Checks a text piped to a shell: `echo text | sh`, `cat << END | sh`.
    fn piped_to_shell(&mut self, context: &ShellContext<'_>, pipeline: &Pipeline) {
        let Some((last, before)) = pipeline.stages.split_last() else {
            return;
        };
        if !context.starts(last, |call| is_shell(&call.name) && network::reads_script(call)) {
            return;
        }
        let reported: [&Rule; 3] = [
            &rules::DOWNLOAD_AND_RUN,
            &rules::ENCODED_RUN,
            &rules::REVERSE_SHELL,
        ];
        let range = &pipeline.range;
        match before {
            [one] if let Some(text) = printed(context, one) => self.text(context, &text, range),
            _ if self.report.has(context, range, &reported) => {}
            _ => {
                let written = context.snippet(range);
                let what = format!("what `{written}` gives to a shell is made at run time");
                self.dynamic(context, range, what);
            }
        }
    }

    fn run(&mut self, context: &ShellContext<'_>, command: &Command<'_>, run: &Run) {
        let is_code = run.language == Runner::Interpreter;
        if is_code {
            self.one_liner(context, &run.text, &command.range);
        }
        if self.is_made_at_run_time(context, command, run) {
            let written = context.snippet(&command.range);
            let what = format!("what `{written}` runs is made at run time");
            self.dynamic(context, &command.range, what);
        }
        if !is_code {
            self.text(context, &run.text, &command.range);
        }
    }

    /// True if the text is only known at run time and no download or decoding is reported here already: for `eval`, any
    /// part of the text; elsewhere its beginning, the program that runs, and not its arguments.
    fn is_made_at_run_time(&self, context: &ShellContext<'_>, command: &Command<'_>, run: &Run) -> bool {
        let reported: [&Rule; 2] = [&rules::DOWNLOAD_AND_RUN, &rules::ENCODED_RUN];
        !is_known(&run.text)
            && !self.report.has(context, &command.range, &reported)
            && match run.language {
                Runner::Eval => true,
                Runner::Trap => false,
                Runner::Shell | Runner::Interpreter => run.text.trim_start().starts_with(UNKNOWN),
            }
    }

    /// Checks a text that is run as a script by the code in the range.
    fn text(&mut self, context: &ShellContext<'_>, text: &str, range: &Range<usize>) {
        let origin = context.origin_of(text, range);
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

/// True for a program name made by a substitution or braces: `$(echo rm)`, `{rm,-rf,/}`; not `$(which python3)`.
fn is_computed(context: &ShellContext<'_>, word: &ShellWord<'_>) -> bool {
    let finds = |call: &Call| matches!(call.name.as_str(), "which" | "type");
    match (context.raw(&word.range), word.outputs.first()) {
        (raw, Some(commands)) if raw.starts_with(['$', '`']) => {
            context.starts(commands, |_| true) && !context.starts(commands, finds)
        }
        (raw, _) => raw.starts_with('{') && raw.contains(','),
    }
}

/// The output of a pipeline stage, if the script writes it out: `echo text`, `cat << END`.
fn printed(context: &ShellContext<'_>, stage: &Range<usize>) -> Option<String> {
    let started = context.started.get(stage.clone())?;
    let ([command], [Started { calls, .. }]) = (context.script.commands.get(stage.clone())?, started) else {
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
