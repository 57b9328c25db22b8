//! Rules for calls: the function that is called, and its arguments.

use super::{
    effects::{Effect, effect},
    resolve::Known,
    rules,
    visit::Visit,
};
use crate::{
    credentials,
    lists::LISTS,
    shell,
    unknown::{UNKNOWN, shown},
};
use oxc_ast::ast::{Argument, Expression, MemberExpression};
use oxc_span::{GetSpan, Span};
use ringfence_types::Severity::{Error, Info, Warning};

/// Base64 or digits of this length are a program or data, not a name.
const BLOB_BYTES_MIN: usize = 120;
/// Maximum number of decoding calls compared with one executed argument.
const DECODERS_MAX: usize = 200;

/// Arguments of a call; `None` if they are not known, as with `apply`.
type Arguments<'a> = Option<&'a [Argument<'a>]>;

fn argument<'a>(arguments: Arguments<'a>, index: usize) -> Option<&'a Expression<'a>> {
    arguments?.get(index)?.as_expression()
}

impl<'a> Visit<'_, 'a> {
    pub(super) fn call(&mut self, span: Span, callee: &'a Expression<'a>, arguments: &'a [Argument<'a>]) {
        match self.resolver.resolve(callee).path() {
            Some(path) => self.called(span, path, Some(arguments)),
            None => self.called_unknown(span, callee, arguments),
        }
    }

    /// Checks a call of a known function, also one through `call`, `apply` or `Reflect`.
    fn called(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        if let ("Reflect.apply" | "Reflect.construct", Some(first)) = (path, argument(arguments, 0)) {
            if let Some(path) = self.resolver.resolve(first).path() {
                self.called(span, path, None);
            }
            return;
        }
        if let Some(target) = path.strip_suffix(".call") {
            let rest = arguments.map(|all| all.get(1..).unwrap_or_default());
            return self.called(span, target, rest);
        }
        if let Some(target) = path.strip_suffix(".apply") {
            return self.called(span, target, None);
        }
        self.apply_effect(span, path, arguments);
        if LISTS.decoders.contains(path) {
            self.decoders.push(span);
        }
    }

    fn apply_effect(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        let first = argument(arguments, 0);
        let name = path.trim_start_matches("node:");
        match effect(path) {
            Effect::Execute if path.ends_with("._compile") => self.executed(span, "_compile", arguments),
            Effect::Execute => self.executed(span, name, arguments),
            Effect::Start => self.started(span, path, arguments),
            Effect::Load => self.loaded(span, path, first),
            Effect::Tell(rule, severity, what) => {
                self.add_as(span, rule, severity, format!("`{name}` {what}"))
            }
            Effect::Later => {
                let is_template = matches!(first, Some(Expression::TemplateLiteral(_)));
                if is_template || self.resolve_optional(first).text().is_some() {
                    let what = format!("`{path}` is given a text");
                    self.add(span, &rules::DYNAMIC_EXECUTION, what);
                }
            }
            Effect::Connect => {
                if let "net.connect" | "net.createConnection" | "net.Socket" | "net.Socket.connect" = name {
                    self.connection = Some(span);
                }
                self.add(span, &rules::NETWORK, format!("`{name}` speaks to other hosts"));
                let hosts = (0..3).filter_map(|index| argument(arguments, index));
                hosts.for_each(|host| self.add_host(host));
            }
            Effect::Kill => {
                if first.is_some_and(|first| self.written(first.span()).replace(' ', "") == "-1") {
                    self.add(span, &rules::KILL_ALL, "`process.kill(-1)` ends every process");
                }
            }
            Effect::Thread => match self.has_flag(argument(arguments, 1), "eval") {
                true => self.executed(span, "Worker", arguments),
                false => self.add(span, &rules::WORKER_THREADS, "`Worker` starts a thread"),
            },
            Effect::Read => self.read(span, first),
            effect @ (Effect::Remove | Effect::Empty) => self.removed(span, effect, arguments),
            Effect::Change => self.changed(span, name, first),
            Effect::Parse => {
                let has_prototype = |text: &str| text.contains("\"__proto__\"");
                if self.resolve_optional(first).text().is_some_and(has_prototype) {
                    let what = "an object with `__proto__` is made from a text";
                    self.add(span, &rules::PROTOTYPE_POLLUTION, what);
                }
            }
            Effect::Nothing => {}
        }
    }

    fn resolve_optional(&self, expression: Option<&'a Expression<'a>>) -> Known<'a> {
        expression.map_or(Known::Unknown, |expression| self.resolver.resolve(expression))
    }

    fn has_flag(&self, options: Option<&'a Expression<'a>>, name: &str) -> bool {
        let option = options.and_then(|options| self.resolver.option(options, name));
        option.is_some_and(|value| self.written(value.span()) != "false")
    }

    fn executed(&mut self, span: Span, name: &str, arguments: Arguments<'a>) {
        self.add(span, &rules::DYNAMIC_EXECUTION, format!("`{name}` runs a text"));
        let arguments = arguments.unwrap_or_default().iter();
        for argument in arguments.filter_map(Argument::as_expression) {
            let place = argument.span();
            let mut decoders = self.decoders.iter().rev().take(DECODERS_MAX);
            if decoders.any(|decoder| place.contains_inclusive(*decoder))
                || self.resolver.resolve(argument).text().is_some_and(is_blob)
            {
                self.add(place, &rules::OBFUSCATION, "the text that is run is encoded");
            }
        }
    }

    pub(super) fn loaded(&mut self, span: Span, path: &str, first: Option<&'a Expression<'a>>) {
        let Some(first) = first else {
            return;
        };
        match self.resolver.resolve(first) {
            Known::Text(name) if !name.contains(UNKNOWN) => self.imported(span, &name),
            Known::Text(name) if name.starts_with(['.', '~']) => {
                let what = format!("`{path}` loads `{}`", name.replace(UNKNOWN, "…"));
                self.add_as(span, &rules::DYNAMIC_REQUIRE, Info, what);
            }
            _ => {
                let what = format!("`{path}` loads what is only known at run time");
                self.add(span, &rules::DYNAMIC_REQUIRE, what);
            }
        }
    }

    /// Reports the start of a program; a command that is known is checked as a shell script.
    fn started(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        let name = path.trim_start_matches("node:child_process.");
        let program = self.resolve_optional(argument(arguments, 0));
        let command = match (&program, self.resolve_optional(argument(arguments, 1))) {
            (Known::Text(program), Known::List(words)) if !matches!(name, "exec" | "execSync") => {
                let words = words.iter().map(|word| word.text().unwrap_or("\u{FFFD}"));
                shell::quoted(std::iter::once(&**program).chain(words))
            }
            (Known::Text(program), _) => program.to_string(),
            _ => String::new(),
        };
        let what = match command.is_empty() {
            true => format!("`{name}` starts a program"),
            false => format!("`{name}` starts `{}`", shown(&command)),
        };
        self.add(span, &rules::CHILD_PROCESS, what);
        if let Known::Computed = program {
            let what = "what is started is computed from constants";
            self.add_as(span, &rules::OBFUSCATION, Error, what);
        }
        let bare = command.replace('\'', "");
        if let "sh" | "/bin/sh" | "bash" | "/bin/bash" | "cmd.exe" = bare.trim().trim_end_matches(" -i") {
            self.shell = Some(span);
        }
        for finding in shell::findings_of(&command) {
            self.add_as(span, finding.rule, finding.severity, finding.what);
        }
    }

    fn read(&mut self, span: Span, path: Option<&'a Expression<'a>>) {
        let known = self.resolve_optional(path);
        if let Some(path) = known.text().filter(|path| credentials::secret_at(path).is_some()) {
            let what = format!("`{}` is read", shown(path));
            self.add(span, &rules::CREDENTIAL_PATH, what);
        }
    }

    fn removed(&mut self, span: Span, effect: Effect, arguments: Arguments<'a>) {
        let known = self.resolve_optional(argument(arguments, 0));
        let recursive = matches!(effect, Effect::Empty) || self.has_flag(argument(arguments, 1), "recursive");
        let path = known.text().unwrap_or("\u{FFFD}");
        let severity = match known {
            _ if !recursive => rules::FILE_DELETION.severity,
            Known::Computed => Error,
            _ if shell::loses_much(path) => Error,
            _ if is_below(path) => rules::FILE_DELETION.severity,
            _ => Warning,
        };
        let with = if recursive { " with everything in it" } else { "" };
        let what = format!("`{}` is removed{with}", shown(path));
        self.add_as(span, &rules::FILE_DELETION, severity, what);
    }

    fn changed(&mut self, span: Span, name: &str, object: Option<&'a Expression<'a>>) {
        if let Some(shared) = object.and_then(|object| self.shared_prototype(object)) {
            let how = match name.ends_with("setPrototypeOf") {
                true => "given another prototype",
                false => "changed",
            };
            self.add(span, &rules::PROTOTYPE_POLLUTION, format!("`{shared}` is {how}"));
        }
    }

    /// `things[name](…)`, `object._compile(…)`
    fn called_unknown(&mut self, span: Span, callee: &'a Expression<'a>, arguments: &'a [Argument<'a>]) {
        match callee.get_inner_expression().as_member_expression() {
            Some(MemberExpression::ComputedMemberExpression(member)) => {
                let (rule, subject) = match self.resolver.resolve(&member.object).path() {
                    Some("globalThis") => (&rules::DYNAMIC_EXECUTION, "a global function"),
                    Some("node:child_process") => (&rules::CHILD_PROCESS, "a function"),
                    Some("node:vm") => (&rules::DYNAMIC_EXECUTION, "a function of `vm`"),
                    Some("process") => (&rules::NATIVE, "a function of `process`"),
                    _ => return,
                };
                self.add(span, rule, format!("{subject} is chosen at run time"));
            }
            Some(MemberExpression::StaticMemberExpression(member)) if member.property.name == "_compile" => {
                self.executed(span, "_compile", Some(arguments));
            }
            _ => {}
        }
    }
}

/// True for a path below the working directory or in `/tmp`.
fn is_below(path: &str) -> bool {
    let climbs = path.split('/').any(|name| name == "..");
    let starts = !path.starts_with(['/', '~', UNKNOWN]) || path.starts_with("/tmp/");
    starts && !climbs && !path.is_empty()
}

fn is_blob(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
    text.len() >= BLOB_BYTES_MIN && text.bytes().all(is_part)
}
