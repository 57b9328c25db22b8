//! Reading rule files. Each form has examples of commands that it allows and of commands that must be refused. Loading
//! judges every example; one with the wrong result is an error that names its line.

use crate::{
    directories::{Access, Directories, Directory},
    matching::Refused,
    rule::{Effect, Form, Program, RuleFile, Rules},
    words::Words,
};
use ringfence_types::yaml::{self, Fault, Lined};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt, path::Path};

pub const DEFAULT_RULES: &str = include_str!("default_rules.yaml");
const DEADLINE_SECONDS_MAX: u64 = 600;
const WHY_CHARS_MAX: usize = 300;

#[derive(Debug, PartialEq, Eq)]
pub struct LoadError {
    pub file: String,
    /// Line from 1. `None`: the file as a whole.
    pub line: Option<u64>,
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

/// Loads the rules of an operator's file, and [`DEFAULT_RULES`] unless the file excludes them. A program that the file
/// names is judged by the file's rules alone.
pub fn load(file: Option<(&Path, &str)>) -> Result<Rules, LoadError> {
    let in_file = |name: String| {
        |fault: Fault| LoadError {
            file: name,
            line: fault.line,
            message: fault.to_string(),
        }
    };
    let mut rules = Rules::default();
    let mut with_defaults = true;
    if let Some((path, text)) = file {
        rules.guard([path.to_owned()], Access::Read);
        with_defaults = read(&mut rules, text).map_err(in_file(path.display().to_string()))?;
    }
    let default = match with_defaults {
        true => read(&mut rules, DEFAULT_RULES).map(drop),
        // The list of commands that are never run always holds.
        false => parse(DEFAULT_RULES).map(|file| rules.never.extend(file.never)),
    };
    default.map_err(in_file("default rules".to_owned()))?;
    Ok(rules)
}

fn parse(text: &str) -> Result<RuleFile, Fault> {
    RuleFile::deserialize(&yaml::read(text)?)
}

/// Adds a file's rules. Returns true if the file wants the default rules too.
fn read(rules: &mut Rules, text: &str) -> Result<bool, Fault> {
    let file = parse(text)?;
    rules.never.extend(file.never);
    for directory in file.directories {
        rules
            .directories
            .push(Directory::open(directory).map_err(Fault::new)?);
    }
    let mut read = Vec::new();
    for Lined { line, value: program } in file.programs {
        // A program of an earlier file is judged by that file alone.
        if rules.program(&program.name).is_none() {
            check(&program).map_err(|fault| fault.at(line))?;
            read.push(program);
        }
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for program in &read {
        let mut forms = program.forms.iter().map(|form| &form.value.rule);
        if let Some(duplicate) = forms.find(|rule| !names.insert((*rule).clone())) {
            return Err(Fault::new(format!("the rule `{duplicate}` is here twice")));
        }
        let only = Rules {
            programs: vec![program.clone()],
            never: rules.never.clone(),
            directories: Directories::default(),
        };
        for Lined { value: form, .. } in &program.forms {
            for (examples, by) in [(&form.matches, Some(form.rule.as_str())), (&form.refuse, None)] {
                for Lined { line, value: command } in examples {
                    let tried = try_example(&only, command, by);
                    tried.map_err(|what| Fault::new(what).at(*line))?;
                }
            }
        }
    }
    rules.programs.extend(read);
    Ok(file.default_rules)
}

/// Checks an example: the command must be allowed by the rule `expected`, or refused if that is `None`.
fn try_example(rules: &Rules, command: &str, expected: Option<&str>) -> Result<(), String> {
    let words = match Words::read(command) {
        Ok(words) => words,
        Err(_) if expected.is_none() => return Ok(()),
        Err(refused) => return Err(refused.message.trim_end_matches('.').to_owned()),
    };
    match (rules.judge(&words), expected) {
        (Ok(allowed), Some(_)) if allowed.rule.as_deref() == expected => Ok(()),
        (Ok(allowed), Some(rule)) => {
            let other = allowed.rule.unwrap_or_default();
            Err(format!(
                "`{command}` is let through by the rule `{other}`, not by `{rule}`"
            ))
        }
        (Ok(allowed), None) => {
            let other = allowed.rule.unwrap_or_default();
            Err(format!(
                "`{command}` must be refused, and the rule `{other}` lets it through"
            ))
        }
        (Err(Refused { what, .. }), Some(_)) => Err(format!("`{command}` must be let through, and {what}")),
        (Err(_), None) => Ok(()),
    }
}

fn check(program: &Program) -> Result<(), Fault> {
    let refused = |what: String| Err(Fault::new(what));
    let name = &program.name;
    if name.is_empty() || (name.contains('/') && !name.starts_with('/')) {
        return refused(format!("`{name}` is neither a name nor an absolute path"));
    }
    if !(1..=DEADLINE_SECONDS_MAX).contains(&program.deadline_seconds) {
        return refused(format!("a deadline is 1 to {DEADLINE_SECONDS_MAX} s"));
    }
    if program.why.is_empty() || program.why.chars().count() > WHY_CHARS_MAX {
        return refused(format!("`why` has 1 to {WHY_CHARS_MAX} characters"));
    }
    for effect in [&program.effect].into_iter().chain(&program.approved_effect) {
        check_effect(effect).map_err(Fault::new)?;
    }
    for Lined { line, value: form } in &program.forms {
        check_form(form).map_err(|what| Fault::new(what).at(*line))?;
    }
    Ok(())
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

fn check_form(form: &Form) -> Result<(), String> {
    if form.matches.is_empty() || form.refuse.is_empty() {
        return Err(format!(
            "the rule `{}` needs examples to match and to refuse",
            form.rule
        ));
    }
    let is_option = |option: &String| option.starts_with('-') && option.len() > 1 && option != "--";
    let mut all = form.flags.iter().chain(form.options.keys()).chain(&form.required);
    if let Some(option) = all.find(|option| !is_option(option)) {
        return Err(format!("`{option}` is not the spelling of an option"));
    }
    if let Some(kind) = form.options.values().find(|kind| kind.is_path()) {
        return Err(format!(
            "the value of an option is not {kind}: paths are operands"
        ));
    }
    let known = |option: &&String| !form.flags.contains(option) && !form.options.contains_key(*option);
    if let Some(option) = form.required.iter().find(known) {
        return Err(format!("`{option}` is required and not listed"));
    }
    Ok(())
}
