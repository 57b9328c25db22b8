//! Matching commands against the forms of the rules: every word must be accounted for; the first that is not is named.

use crate::{
    kinds::Kind,
    never::is_single_use,
    program::DIRECTORIES,
    rule::{Approvals, Effect, Form, Operands, Program, Rules},
    words::{Words, escaped},
};
use ringfence_types::{nearest::suggestion, yaml::Lined};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// A command that a rule or a person has allowed, as it will be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Name of the rule. `None`: a person approved the command.
    pub rule: Option<String>,
    /// The rule author's reason why it is harmless.
    pub why: String,
    /// The name or path by which the program is looked up.
    pub program: String,
    pub(crate) interpreter: Option<String>,
    pub(crate) interpreter_words: Vec<String>,
    /// The arguments, including those that the rule adds.
    pub arguments: Vec<String>,
    /// Indexes of the arguments that the directory rules decide on.
    pub(crate) paths: Vec<(usize, PathUse)>,
    pub(crate) environment: BTreeMap<String, String>,
    pub effect: Effect,
    pub deadline: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathUse {
    Read,
    List,
}

/// A command that no rule allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Why,
    /// The fault, without a full stop.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is on the list of commands that are never run; no person is asked.
    Never,
    NoProgram,
    /// The program has rules, but none fits.
    NoForm,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

const APPROVED_SECONDS: u64 = 60;

impl Rules {
    /// Judges a command by the rules. The targets of its paths are not checked here.
    pub fn judge(&self, words: &Words) -> Result<Allowed, Refused> {
        self.refuse_never(words)?;
        let name = words.program();
        let Some(program) = self.program(name) else {
            let known = self.programs.iter().map(|program| program.name.as_str());
            return Err(Refused {
                why: Why::NoProgram,
                what: format!(
                    "no rule is about the program {}.{}",
                    escaped(name),
                    suggestion(name, known)
                ),
            });
        };
        let mut best: Option<(usize, String)> = None;
        for Lined { value: form, .. } in &program.forms {
            match form.read(words.arguments()) {
                Ok(read) => return Ok(program.allowed_by(form, read)),
                Err(Mismatch { words, what }) => {
                    if best.as_ref().is_none_or(|(most, _)| words > *most) {
                        best = Some((words, what));
                    }
                }
            }
        }
        let what = best.map_or_else(|| "it has no form".to_owned(), |(_, what)| what);
        Err(Refused {
            why: Why::NoForm,
            what: format!("no rule about {} fits: {what}", escaped(name)),
        })
    }

    /// Refuses commands that are never run, not even by approval.
    pub fn refuse_never(&self, words: &Words) -> Result<(), Refused> {
        match self.never.iter().find(|never| never.matches(words)) {
            None => Ok(()),
            Some(never) => Err(Refused {
                why: Why::Never,
                what: format!("`{}` is never run here: {}", never.program, never.why),
            }),
        }
    }

    /// Returns the command as it runs when a person approves it: the rule's own words and then the caller's, unchanged,
    /// behind the walls of the program's rules, or those of a program without rules.
    pub fn approved(&self, words: &Words) -> Result<Allowed, Refused> {
        self.refuse_never(words)?;
        let name = words.program();
        let in_system = name
            .rsplit_once('/')
            .is_none_or(|(directory, _)| DIRECTORIES.contains(&directory));
        if self.program(name).is_none() && !in_system {
            // Also if the file does not exist: the caller is not to learn that.
            return Err(Refused {
                why: Why::NoProgram,
                what: format!("{} is not in a directory of the system's programs", escaped(name)),
            });
        }
        let by_rules = self.program(name);
        Ok(Allowed {
            rule: None,
            why: "a person approved it".to_owned(),
            deadline: Duration::from_secs(APPROVED_SECONDS),
            ..match by_rules {
                Some(program) => program.allowed(
                    program.before.iter().chain(words.arguments()).cloned().collect(),
                    program.approved_effect.as_ref().unwrap_or(&program.effect),
                ),
                None => without_rules(words),
            }
        })
    }

    pub fn may_last(&self, words: &Words) -> bool {
        let known = self.program(words.program());
        let lasting = known.is_some_and(|program| program.approvals == Approvals::Lasting);
        lasting && !is_single_use(words.program())
    }
}

/// An approved program without rules: its walls are those of a sandbox with this directory, and it may start system
/// programs.
fn without_rules(words: &Words) -> Allowed {
    let paths = |all: &[&str]| all.iter().map(|path| PathBuf::from(*path)).collect();
    Allowed {
        program: words.program().to_owned(),
        arguments: words.arguments().to_vec(),
        effect: Effect {
            reads: vec!["directory".to_owned()],
            writes: vec!["directory".to_owned()],
            runs: paths(&["/usr/bin", "/usr/local/bin", "/bin", "/usr/lib", "/lib"]),
            user: crate::User::Owner,
            ..Effect::default()
        },
        ..Allowed::default()
    }
}

impl Program {
    fn allowed(&self, arguments: Vec<String>, effect: &Effect) -> Allowed {
        Allowed {
            rule: None,
            why: self.why.clone(),
            program: self.name.clone(),
            interpreter: self.interpreter.clone(),
            interpreter_words: self.interpreter_words.clone(),
            arguments,
            paths: Vec::new(),
            environment: self.environment.clone(),
            effect: effect.clone(),
            deadline: Duration::from_secs(self.deadline_seconds),
        }
    }

    fn allowed_by(&self, form: &Form, read: Read) -> Allowed {
        let (mut arguments, mut paths) = (self.before.clone(), Vec::new());
        arguments.extend(form.words.iter().chain(&form.after).cloned());
        arguments.extend(read.options);
        let mut push_all = |all: Vec<String>, operands: &Option<Operands>, arguments: &mut Vec<String>| {
            for operand in all {
                let wanted = match operands.as_ref().map(|operands| &operands.kind) {
                    Some(Kind::Read) => Some(PathUse::Read),
                    Some(Kind::List) => Some(PathUse::List),
                    _ => None,
                };
                paths.extend(wanted.map(|wanted| (arguments.len(), wanted)));
                arguments.push(operand);
            }
        };
        if form.paths.is_none() && form.separator && !read.operands.is_empty() {
            arguments.push("--".to_owned());
        }
        push_all(read.operands, &form.operands, &mut arguments);
        if form.paths.is_some() {
            arguments.push("--".to_owned());
            push_all(read.paths, &form.paths, &mut arguments);
        }
        Allowed {
            rule: Some(form.rule.clone()),
            paths,
            ..self.allowed(arguments, &self.effect)
        }
    }
}

/// The arguments of a command, divided by kind.
#[derive(Default)]
struct Read {
    options: Vec<String>,
    operands: Vec<String>,
    paths: Vec<String>,
}

struct Mismatch {
    /// Matching words of the form's sub-command.
    words: usize,
    what: String,
}

impl Form {
    fn read(&self, arguments: &[String]) -> Result<Read, Mismatch> {
        let same = self
            .words
            .iter()
            .zip(arguments)
            .take_while(|(own, word)| own == word);
        let words = same.count();
        let unfit = |what: String| Mismatch { words, what };
        if words < self.words.len() {
            let wanted = self.words.join(" ");
            return Err(unfit(match arguments.get(words) {
                Some(word) => format!("{} stands where `{wanted}` is expected", escaped(word)),
                None => format!("`{wanted}` is expected"),
            }));
        }
        let mut read = Read::default();
        let mut rest = arguments[words..].iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                let target = if self.paths.is_some() {
                    &mut read.paths
                } else {
                    &mut read.operands
                };
                target.extend(rest.by_ref().cloned());
            } else if !word.starts_with('-') {
                read.operands.push(word.clone());
            } else {
                let value = self.option(word, &mut rest).map_err(unfit)?;
                read.options.push(word.clone());
                read.options.extend(value);
            }
        }
        self.check(&read).map_err(|what| Mismatch { words, what })?;
        Ok(read)
    }

    /// Checks an option and takes its value, if that is the next word.
    fn option<'a>(
        &self,
        word: &str,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<Option<String>, String> {
        if self.flags.iter().any(|flag| flag == word) {
            return Ok(None);
        }
        let wrong = |option: &str, kind: &Kind| Err(format!("{} of `{option}` is not {kind}", "the value"));
        if let Some(kind) = self.options.get(word).filter(|_| !word.ends_with('=')) {
            return match rest.next() {
                Some(value) if kind.admits(value) => Ok(Some(value.clone())),
                _ => wrong(word, kind),
            };
        }
        let attached = self.options.iter().find_map(|(option, kind)| {
            let value = option
                .ends_with('=')
                .then(|| word.strip_prefix(option.as_str()))??;
            Some((option, kind, value))
        });
        match attached {
            Some((_, kind, value)) if kind.admits(value) => Ok(None),
            Some((option, kind, _)) => wrong(option, kind),
            None => {
                // No suggestion for one-letter options, all of which are near each other.
                let known = self.flags.iter().chain(self.options.keys()).map(String::as_str);
                let known = known.filter(|_| word.len() > 2);
                Err(format!(
                    "the option {} is not listed.{}",
                    escaped(word),
                    suggestion(word, known)
                ))
            }
        }
    }

    fn check(&self, read: &Read) -> Result<(), String> {
        let has = |required: &String| {
            let attached = required.ends_with('=');
            read.options.iter().any(|word| match attached {
                true => word.starts_with(required.as_str()),
                false => word == required,
            })
        };
        if !self.required.is_empty() && !self.required.iter().any(has) {
            return Err(format!("it needs {}", self.required.join(" or ")));
        }
        admit(self.operands.as_ref(), &read.operands)?;
        admit(self.paths.as_ref(), &read.paths)
    }
}

fn admit(operands: Option<&Operands>, given: &[String]) -> Result<(), String> {
    let Some(Operands { kind, min, max }) = operands else {
        return match given.first() {
            None => Ok(()),
            Some(word) => Err(format!("it takes no operand, and {} is one", escaped(word))),
        };
    };
    if let Some(word) = given.iter().find(|word| !kind.admits(word)) {
        return Err(format!("{} is not {kind}", escaped(word)));
    }
    match given.len() {
        count if count < *min => Err(format!("it needs {kind}")),
        count if count > *max => Err(format!("it has more than {max} operands")),
        _ => Ok(()),
    }
}
