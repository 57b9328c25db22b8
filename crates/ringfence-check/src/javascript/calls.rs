//! What is called, with what.

use super::{
    files,
    look::{Arguments, Look, argument, executes, starts},
    resolve::{DECODERS, Known},
    rules,
};
use crate::{
    domains, shell,
    unknown::{UNKNOWN, shown},
};
use oxc_ast::ast::{Argument, Expression, MemberExpression};
use oxc_span::{GetSpan, Span};
use ringfence_types::Severity::{Error, Info};

/// Base64 or digits that long are a program or data, not a name.
const BLOB_BYTES_MIN: usize = 120;
/// Places where something is decoded that are looked at for one text.
const DECODERS_MAX: usize = 200;

impl<'a> Look<'_, 'a> {
    pub(super) fn call(&mut self, span: Span, callee: &'a Expression<'a>, arguments: &'a [Argument<'a>]) {
        match self.resolver.know(callee).path() {
            Some(path) => self.called(span, path, Some(arguments)),
            None => self.called_unknown(span, callee, arguments),
        }
    }

    /// Things are called by `call`, `apply` and `Reflect`, too.
    fn called(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        if let Some(target) = path.strip_suffix(".call").filter(|target| acts(target)) {
            return self.called(
                span,
                target,
                arguments.map(|all| all.get(1..).unwrap_or_default()),
            );
        }
        if let Some(target) = path.strip_suffix(".apply").filter(|target| acts(target)) {
            return self.called(span, target, None);
        }
        if let ("Reflect.apply" | "Reflect.construct", Some(first)) = (path, argument(arguments, 0)) {
            if let Some(path) = self.resolver.know(first).path().filter(|path| acts(path)) {
                self.called(span, path, None);
            }
            return;
        }
        if files::removal(self, span, path, arguments) {
            return;
        }
        let first = argument(arguments, 0);
        match path {
            "eval" | "Function" | "AsyncFunction" | "GeneratorFunction" => {
                self.executed(span, path, arguments)
            }
            path if executes(path) => self.executed(span, path.trim_start_matches("node:"), arguments),
            path if path.ends_with("._compile") => self.executed(span, "_compile", arguments),
            "setTimeout" | "setInterval" | "setImmediate" => {
                let is_text = first.is_some_and(|first| {
                    matches!(first, Expression::TemplateLiteral(_))
                        || self.resolver.know(first).text().is_some()
                });
                if is_text {
                    self.tell(
                        span,
                        &rules::DYNAMIC_EXECUTION,
                        format!("`{path}` is given a text"),
                    );
                }
            }
            "require" | "node:module._load" | "process.getBuiltinModule" => self.loaded(span, path, first),
            "process.exit" | "process.reallyExit" | "process.abort" => {
                self.tell(span, &rules::EXIT, format!("`{path}` ends the program"))
            }
            "process.kill"
                if first.is_some_and(|first| self.written(first.span()).replace(' ', "") == "-1") =>
            {
                self.tell(span, &rules::KILL_ALL, "`process.kill(-1)` ends every process");
            }
            "fetch" | "WebSocket" | "EventSource" => self.speaks(span, path),
            path if starts(path) => self.started(span, path, arguments),
            path => self.called_of_module(span, path, arguments),
        }
        if DECODERS.contains(&path) {
            self.decoders.push(span);
        }
    }

    fn called_of_module(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        let first = argument(arguments, 0);
        match path.split_once('.').unwrap_or((path, "")) {
            ("process", "binding" | "_linkedBinding" | "dlopen")
            | ("internalBinding", "")
            | ("node:v8", "setFlagsFromString") => {
                let path = path.trim_start_matches("node:");
                self.tell(
                    span,
                    &rules::NATIVE,
                    format!("`{path}` reaches into Node.js itself"),
                );
            }
            ("node:worker_threads", "Worker") => {
                let options = argument(arguments, 1);
                let option = options.and_then(|options| self.resolver.option(options, "eval"));
                match option.is_some_and(|value| self.written(value.span()) != "false") {
                    true => self.executed(span, "Worker", arguments),
                    false => self.tell(span, &rules::WORKER_THREADS, "`Worker` starts a thread"),
                }
            }
            (
                module @ ("node:net" | "node:tls" | "node:dgram" | "node:http" | "node:https" | "node:http2"
                | "node:dns" | "node:dns/promises"),
                name,
            ) => {
                if module == "node:net"
                    && matches!(name, "connect" | "createConnection" | "Socket" | "Socket.connect")
                {
                    self.connection = Some(span);
                }
                if !matches!(name, "" | "STATUS_CODES" | "isIP" | "isIPv4" | "isIPv6" | "Agent") {
                    self.speaks(span, path.trim_start_matches("node:"));
                    self.addressed(arguments);
                }
            }
            (
                "WebAssembly",
                "compile"
                | "instantiate"
                | "Module"
                | "Instance"
                | "compileStreaming"
                | "instantiateStreaming",
            ) => self.tell_as(span, &rules::NATIVE, Info, format!("`{path}` takes native code")),
            (
                "Object" | "Reflect",
                name @ ("setPrototypeOf" | "assign" | "defineProperty" | "defineProperties"),
            ) => {
                if let Some(shared) = first.and_then(|first| self.shared_prototype(first)) {
                    let how = if name == "setPrototypeOf" {
                        "given another prototype"
                    } else {
                        "changed"
                    };
                    self.tell(span, &rules::PROTOTYPE_POLLUTION, format!("`{shared}` is {how}"));
                }
            }
            ("JSON", "parse") => {
                let text = first.map_or(Known::Unknown, |first| self.resolver.know(first));
                if text.text().is_some_and(|text| text.contains("\"__proto__\"")) {
                    let what = "an object with `__proto__` is made from a text";
                    self.tell(span, &rules::PROTOTYPE_POLLUTION, what);
                }
            }
            _ => {}
        }
    }

    fn speaks(&mut self, span: Span, path: &str) {
        self.tell(span, &rules::NETWORK, format!("`{path}` speaks to other hosts"));
    }

    /// A text is run.
    fn executed(&mut self, span: Span, name: &str, arguments: Arguments<'a>) {
        self.tell(span, &rules::DYNAMIC_EXECUTION, format!("`{name}` runs a text"));
        for argument in arguments
            .unwrap_or_default()
            .iter()
            .filter_map(Argument::as_expression)
        {
            let place = argument.span();
            let mut decoders = self.decoders.iter().rev().take(DECODERS_MAX);
            if decoders.any(|decoder| place.contains_inclusive(*decoder))
                || self.resolver.know(argument).text().is_some_and(is_blob)
            {
                self.tell(place, &rules::OBFUSCATION, "the text that is run is encoded");
            }
        }
    }

    pub(super) fn loaded(&mut self, span: Span, path: &str, first: Option<&'a Expression<'a>>) {
        let Some(first) = first else {
            return;
        };
        match self.resolver.know(first) {
            Known::Text(name) if !name.contains(UNKNOWN) => self.imported(span, &name),
            Known::Text(name) if name.starts_with(['.', '~']) => {
                let what = format!("`{path}` loads `{}`", name.replace(UNKNOWN, "…"));
                self.tell_as(span, &rules::DYNAMIC_REQUIRE, Info, what);
            }
            _ => {
                let what = format!("`{path}` loads what is only known at run time");
                self.tell(span, &rules::DYNAMIC_REQUIRE, what);
            }
        }
    }

    /// A program is started; commands that are known are read as a shell reads them.
    fn started(&mut self, span: Span, path: &str, arguments: Arguments<'a>) {
        let name = path.trim_start_matches("node:child_process.");
        let known =
            |index: usize| argument(arguments, index).map_or(Known::Unknown, |one| self.resolver.know(one));
        let is_computed = matches!(known(0), Known::Computed);
        let command = match (known(0), known(1)) {
            (Known::Text(program), Known::List(words))
                if !name.starts_with("exec") || name.starts_with("execFile") =>
            {
                let quoted = |word: &Known<'_>| {
                    format!("'{}'", word.text().unwrap_or("\u{FFFD}").replace('\'', "'\\''"))
                };
                let words: Vec<String> = words.iter().map(quoted).collect();
                format!("'{program}' {}", words.join(" "))
            }
            (Known::Text(program), _) => program.to_string(),
            _ => String::new(),
        };
        let what = match command.is_empty() {
            true => format!("`{name}` starts a program"),
            false => format!("`{name}` starts `{}`", shown(&command)),
        };
        self.tell(span, &rules::CHILD_PROCESS, what);
        if is_computed {
            let what = "what is started is computed from constants";
            self.tell_as(span, &rules::OBFUSCATION, Error, what);
        }
        let bare = command.replace('\'', "");
        if let "sh" | "/bin/sh" | "bash" | "/bin/bash" | "cmd.exe" = bare.trim().trim_end_matches(" -i") {
            self.shell = Some(span);
        }
        for finding in shell::check(&command).findings {
            let is_read = !finding.rule.id.ends_with(".syntax") && !finding.rule.id.ends_with(".unparsed");
            if finding.severity > Info && is_read {
                self.tell_as(span, finding.rule, finding.severity, finding.what);
            }
        }
    }

    /// Hosts in the arguments of a connection.
    fn addressed(&mut self, arguments: Arguments<'a>) {
        for index in 0..3 {
            if let Some(Known::Text(text)) = argument(arguments, index).map(|one| self.resolver.know(one)) {
                domains::of_address(&text, &mut self.hosts);
            }
        }
    }

    /// `things[name](…)`, `object._compile(…)`
    fn called_unknown(&mut self, span: Span, callee: &'a Expression<'a>, arguments: &'a [Argument<'a>]) {
        match callee.get_inner_expression().as_member_expression() {
            Some(MemberExpression::ComputedMemberExpression(member)) => {
                let (rule, whose) = match self.resolver.know(&member.object).path() {
                    Some("globalThis") => (&rules::DYNAMIC_EXECUTION, "a global function"),
                    Some("node:child_process") => (&rules::CHILD_PROCESS, "a function"),
                    Some("node:vm") => (&rules::DYNAMIC_EXECUTION, "a function of `vm`"),
                    Some("process") => (&rules::NATIVE, "a function of `process`"),
                    _ => return,
                };
                self.tell(span, rule, format!("{whose} is chosen at run time"));
            }
            Some(MemberExpression::StaticMemberExpression(member)) if member.property.name == "_compile" => {
                self.executed(span, "_compile", Some(arguments));
            }
            _ => {}
        }
    }
}

/// Does something with its arguments that a rule knows.
fn acts(path: &str) -> bool {
    matches!(
        path,
        "eval" | "Function" | "require" | "setTimeout" | "setInterval" | "fetch" | "AsyncFunction"
    ) || path.starts_with("node:")
        || path.starts_with("process.")
}

/// Nothing but digits or base64, and long.
fn is_blob(text: &str) -> bool {
    text.len() >= BLOB_BYTES_MIN
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b))
}
