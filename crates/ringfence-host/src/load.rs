//! Reading rule files. Each form has examples of commands that it lets through and of others that must be refused; they
//! are tried when the file is read, and one that comes out otherwise stops the load with its line.

use crate::{
    directories::{Access, Directories, Directory},
    matching::Refused,
    rule::{Effect, Form, FormText, Program, ProgramText, RuleFile, Rules},
    words::Words,
};
use serde_saphyr::Spanned;
use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

/// The longest rule file, in bytes.
pub const RULES_BYTES_MAX: usize = 1 << 20;
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

/// A text and what it is called.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

/// The rules of an operator's file, and those of [`DEFAULT_RULES`] unless it says otherwise. Rules of the file come
/// first: a program that it names is judged by them alone.
pub fn load(file: Option<(&Path, &str)>) -> Result<Rules, LoadError> {
    let mut rules = Rules::default();
    let mut takes_default = true;
    if let Some((path, text)) = file {
        let name = path.display().to_string();
        rules.guard([path.to_owned()], Access::Read);
        takes_default = read(&mut rules, &Source { name: &name, text })?;
    }
    let source = Source {
        name: "default rules",
        text: DEFAULT_RULES,
    };
    if takes_default {
        read(&mut rules, &source)?;
    } else {
        // What is never done holds whatever is let through.
        let file = parse(&source)?;
        rules.never.extend(file.never);
    }
    Ok(rules)
}

fn parse(source: &Source<'_>) -> Result<RuleFile, LoadError> {
    let error = |line, message: String| LoadError {
        file: source.name.to_owned(),
        line,
        message,
    };
    if source.text.len() > RULES_BYTES_MAX {
        return Err(error(None, "the file is longer than 1 MiB".to_owned()));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_aliases: 100,
            max_anchors: 100,
            max_depth: 32,
            max_documents: 1,
        },
        emit_comments: false,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(source.text, options).map_err(|failed| {
        let failed = failed.without_snippet();
        let line = failed.location().map(|location| location.line());
        error(line, failed.to_string())
    })
}

/// Adds a file's rules; whether the default ones are wanted, too.
fn read(rules: &mut Rules, source: &Source<'_>) -> Result<bool, LoadError> {
    let file = parse(source)?;
    rules.never.extend(file.never);
    let whole = |message: String| LoadError {
        file: source.name.to_owned(),
        line: None,
        message,
    };
    for directory in file.directories {
        rules.directories.push(Directory::open(directory).map_err(whole)?);
    }
    let mut read = Vec::new();
    for program in file.programs {
        // One that an earlier file has is that file's alone.
        if rules.program(&program.value.program).is_none() {
            read.push(one(program, source)?);
        }
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (program, examples) in &read {
        if let Some(twice) = program.forms.iter().find(|form| !names.insert(form.rule.clone())) {
            return Err(whole(format!("the rule `{}` is here twice", twice.rule)));
        }
        let only = Rules {
            programs: vec![program.clone()],
            never: rules.never.clone(),
            directories: Directories::default(),
        };
        for example in examples {
            example.check(&only, source)?;
        }
    }
    rules
        .programs
        .extend(read.into_iter().map(|(program, _)| program));
    Ok(file.default_rules)
}

/// A command that must come out in this way.
struct Example {
    command: String,
    line: u64,
    rule: String,
    passes: bool,
}

impl Example {
    fn check(&self, rules: &Rules, source: &Source<'_>) -> Result<(), LoadError> {
        let error = |message: String| LoadError {
            file: source.name.to_owned(),
            line: Some(self.line),
            message,
        };
        let words = match Words::read(&self.command) {
            Ok(words) => words,
            Err(_) if !self.passes => return Ok(()),
            Err(refused) => return Err(error(refused.message.trim_end_matches('.').to_owned())),
        };
        match (rules.judge(&words), self.passes) {
            (Ok(allowed), true) if allowed.rule.as_ref() == Some(&self.rule) => Ok(()),
            (Ok(allowed), true) => Err(error(format!(
                "`{}` is let through by the rule `{}`, not by `{}`",
                self.command,
                allowed.rule.unwrap_or_default(),
                self.rule
            ))),
            (Ok(allowed), false) => Err(error(format!(
                "`{}` must be refused, and the rule `{}` lets it through",
                self.command,
                allowed.rule.unwrap_or_default()
            ))),
            (Err(Refused { what, .. }), true) => Err(error(format!(
                "`{}` must be let through, and {what}",
                self.command
            ))),
            (Err(_), false) => Ok(()),
        }
    }
}

fn one(text: Spanned<ProgramText>, source: &Source<'_>) -> Result<(Program, Vec<Example>), LoadError> {
    let line = text.referenced.line();
    let text = text.value;
    let error = |line, message: String| LoadError {
        file: source.name.to_owned(),
        line: Some(line),
        message,
    };
    if text.program.is_empty() || (text.program.contains('/') && !text.program.starts_with('/')) {
        return Err(error(
            line,
            format!("`{}` is neither a name nor an absolute path", text.program),
        ));
    }
    if !(1..=DEADLINE_SECONDS_MAX).contains(&text.deadline_seconds) {
        return Err(error(
            line,
            format!("a deadline is 1 to {DEADLINE_SECONDS_MAX} s"),
        ));
    }
    if text.why.is_empty() || text.why.chars().count() > WHY_CHARS_MAX {
        return Err(error(line, format!("`why` has 1 to {WHY_CHARS_MAX} characters")));
    }
    for effect in [Some(&text.effect), text.approved_effect.as_ref()]
        .into_iter()
        .flatten()
    {
        check_effect(effect).map_err(|what| error(line, what))?;
    }
    let (mut forms, mut examples) = (Vec::new(), Vec::new());
    for form in text.forms {
        let line = form.referenced.line();
        let FormText { matches, refuse, .. } = &form.value;
        if matches.is_empty() || refuse.is_empty() {
            return Err(error(
                line,
                format!(
                    "the rule `{}` needs examples to match and to refuse",
                    form.value.rule
                ),
            ));
        }
        let example = |passes: bool| {
            let rule = form.value.rule.clone();
            move |command: &Spanned<String>| Example {
                command: command.value.clone(),
                line: command.referenced.line(),
                rule: rule.clone(),
                passes,
            }
        };
        examples.extend(matches.iter().map(example(true)));
        examples.extend(refuse.iter().map(example(false)));
        forms.push(form_of(form.value).map_err(|what| error(line, what))?);
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
