//! Reading rule files. Each form has examples of commands that it lets through and of others that must be refused; they
//! are tried when the file is read, and one that comes out otherwise stops the load with its line.

use crate::{
    directories::{Access, Directories, Directory},
    matching::Refused,
    rule::{Effect, Form, FormText, Program, ProgramText, RuleFile, Rules},
    words::Words,
};
use ringfence_types::yaml::{self, Fault, Lined};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

/// The rules that hold where the operator says nothing else.
pub const DEFAULT_RULES: &str = include_str!("default_rules.yaml");
const DEADLINE_SECONDS_MAX: u64 = 600;
const WHY_CHARS_MAX: usize = 300;

/// Why a rule file is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Which file.
    pub file: String,
    /// From 1; none: the file as a whole.
    pub line: Option<u64>,
    /// What is wrong, without a full stop.
    pub message: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for LoadError {}

/// The rules of an operator's file, and those of [`DEFAULT_RULES`] unless it says otherwise. Rules of the file come
/// first: a program that it names is judged by them alone.
pub fn load(file: Option<(&Path, &str)>) -> Result<Rules, LoadError> {
    let in_file = |name: String| {
        |fault: Fault| LoadError {
            file: name,
            line: fault.line,
            message: fault.to_string(),
        }
    };
    let mut rules = Rules::default();
    let mut takes_default = true;
    if let Some((path, text)) = file {
        rules.guard([path.to_owned()], Access::Read);
        takes_default = read(&mut rules, text).map_err(in_file(path.display().to_string()))?;
    }
    let default = match takes_default {
        true => read(&mut rules, DEFAULT_RULES).map(drop),
        // What is never done holds whatever is let through.
        false => parse(DEFAULT_RULES).map(|file| rules.never.extend(file.never)),
    };
    default.map_err(in_file("default rules".to_owned()))?;
    Ok(rules)
}

fn parse(text: &str) -> Result<RuleFile, Fault> {
    RuleFile::deserialize(&yaml::read(text)?)
}

/// Adds a file's rules; whether the default ones are wanted, too.
fn read(rules: &mut Rules, text: &str) -> Result<bool, Fault> {
    let file = parse(text)?;
    rules.never.extend(file.never);
    for directory in file.directories {
        rules
            .directories
            .push(Directory::open(directory).map_err(Fault::says)?);
    }
    let mut read = Vec::new();
    for program in file.programs {
        // One that an earlier file has is that file's alone.
        if rules.program(&program.value.program).is_none() {
            read.push(one(program.value).map_err(|fault| fault.at(program.line))?);
        }
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (program, examples) in &read {
        if let Some(twice) = program.forms.iter().find(|form| !names.insert(form.rule.clone())) {
            return Err(Fault::says(format!("the rule `{}` is here twice", twice.rule)));
        }
        let only = Rules {
            programs: vec![program.clone()],
            never: rules.never.clone(),
            directories: Directories::default(),
        };
        for example in examples {
            let checked = example.check(&only);
            checked.map_err(|what| Fault::says(what).at(example.command.line))?;
        }
    }
    rules
        .programs
        .extend(read.into_iter().map(|(program, _)| program));
    Ok(file.default_rules)
}

/// A command that must come out in this way.
struct Example {
    command: Lined<String>,
    rule: String,
    passes: bool,
}

impl Example {
    fn check(&self, rules: &Rules) -> Result<(), String> {
        let (command, rule) = (&self.command.value, &self.rule);
        let words = match Words::read(command) {
            Ok(words) => words,
            Err(_) if !self.passes => return Ok(()),
            Err(refused) => return Err(refused.message.trim_end_matches('.').to_owned()),
        };
        match (rules.judge(&words), self.passes) {
            (Ok(allowed), true) if allowed.rule.as_ref() == Some(rule) => Ok(()),
            (Ok(allowed), true) => {
                let other = allowed.rule.unwrap_or_default();
                Err(format!(
                    "`{command}` is let through by the rule `{other}`, not by `{rule}`"
                ))
            }
            (Ok(allowed), false) => {
                let other = allowed.rule.unwrap_or_default();
                Err(format!(
                    "`{command}` must be refused, and the rule `{other}` lets it through"
                ))
            }
            (Err(Refused { what, .. }), true) => Err(format!("`{command}` must be let through, and {what}")),
            (Err(_), false) => Ok(()),
        }
    }
}

fn one(text: ProgramText) -> Result<(Program, Vec<Example>), Fault> {
    let refused = |what: String| Err(Fault::says(what));
    if text.program.is_empty() || (text.program.contains('/') && !text.program.starts_with('/')) {
        return refused(format!(
            "`{}` is neither a name nor an absolute path",
            text.program
        ));
    }
    if !(1..=DEADLINE_SECONDS_MAX).contains(&text.deadline_seconds) {
        return refused(format!("a deadline is 1 to {DEADLINE_SECONDS_MAX} s"));
    }
    if text.why.is_empty() || text.why.chars().count() > WHY_CHARS_MAX {
        return refused(format!("`why` has 1 to {WHY_CHARS_MAX} characters"));
    }
    for effect in [&text.effect].into_iter().chain(&text.approved_effect) {
        check_effect(effect).map_err(Fault::says)?;
    }
    let (mut forms, mut examples) = (Vec::new(), Vec::new());
    for Lined { line, value: form } in text.forms {
        if form.matches.is_empty() || form.refuse.is_empty() {
            let what = format!("the rule `{}` needs examples to match and to refuse", form.rule);
            return Err(Fault::says(what).at(line));
        }
        let example = |passes: bool| {
            let rule = form.rule.clone();
            move |command: &Lined<String>| Example {
                command: command.clone(),
                rule: rule.clone(),
                passes,
            }
        };
        examples.extend(form.matches.iter().map(example(true)));
        examples.extend(form.refuse.iter().map(example(false)));
        forms.push(form_of(form).map_err(|what| Fault::says(what).at(line))?);
    }
    let program = Program {
        name: text.program,
        interpreter: text.interpreter,
        interpreter_words: text.interpreter_words,
        why: text.why,
        before: text.before,
        environment: text.environment,
        approved_effect: text.approved_effect.unwrap_or_else(|| text.effect.clone()),
        effect: text.effect,
        deadline: Duration::from_secs(text.deadline_seconds),
        approvals: text.approvals,
        forms,
    };
    Ok((program, examples))
}

fn check_effect(effect: &Effect) -> Result<(), String> {
    let known = ["directory", "operands"];
    let mut words = effect.reads.iter().chain(&effect.writes);
    if let Some(word) = words.find(|word| !word.starts_with('/') && !known.contains(&word.as_str())) {
        return Err(format!(
            "`{word}` is neither an absolute path nor one of {}",
            known.join(", ")
        ));
    }
    if effect.writes.iter().any(|word| word == "/" || word == "operands") {
        return Err("a command does not write `/`, nor its operands".to_owned());
    }
    let mut paths = effect.runs.iter().chain(&effect.socket);
    match paths.find(|path| !path.is_absolute()) {
        Some(path) => Err(format!("the path {} is relative", path.display())),
        None => Ok(()),
    }
}

fn form_of(text: FormText) -> Result<Form, String> {
    let is_option = |option: &String| option.starts_with('-') && option.len() > 1 && option != "--";
    let mut all = text.flags.iter().chain(text.options.keys()).chain(&text.required);
    if let Some(option) = all.find(|option| !is_option(option)) {
        return Err(format!("`{option}` is not the spelling of an option"));
    }
    if let Some(kind) = text.options.values().find(|kind| kind.is_path()) {
        return Err(format!(
            "the value of an option is not {kind}: paths are operands"
        ));
    }
    let known = |option: &&String| !text.flags.contains(option) && !text.options.contains_key(*option);
    if let Some(option) = text.required.iter().find(known) {
        return Err(format!("`{option}` is required and not listed"));
    }
    Ok(Form {
        rule: text.rule,
        words: text.words,
        flags: text.flags,
        options: text.options,
        required: text.required,
        operands: text.operands,
        paths: text.paths,
        after: text.after,
        separator: text.separator,
    })
}
