//! What is called, with what.

use super::{
    files,
    known::Known,
    look::{Look, executes},
    rules,
    syntax::{Field, Id, Kind},
};
use crate::{
    domains, shell,
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::Info;

/// Base64 or digits that long are a program or data, not a name.
const BLOB_BYTES_MIN: usize = 120;

impl Look<'_, '_> {
    pub(super) fn call(&mut self, id: Id) {
        let Some(callee) = self.program.child(id, Field::Function) else {
            return;
        };
        let arguments = self.program.arguments(id);
        let known = self.knowledge.know(callee);
        match known.path() {
            Some(path) => {
                let path = path.to_owned();
                self.called(id, &path, Some(&arguments));
            }
            None => self.called_unknown(id, callee, &arguments),
        }
    }

    /// Things are called by `call`, `apply` and `Reflect`, too.
    pub(super) fn called(&mut self, id: Id, path: &str, arguments: Option<&[Id]>) {
        if let Some(target) = path.strip_suffix(".call").filter(|target| acts(target)) {
            return self.called(id, target, arguments.map(|all| all.get(1..).unwrap_or_default()));
        }
        if let Some(target) = path.strip_suffix(".apply").filter(|target| acts(target)) {
            return self.called(id, target, None);
        }
        if let ("Reflect.apply" | "Reflect.construct", Some([first, ..])) = (path, arguments) {
            let target = self.knowledge.know(*first);
            if let Some(path) = target.path().filter(|path| acts(path)) {
                let path = path.to_owned();
                self.called(id, &path, None);
            }
            return;
        }
        if files::removal(self, id, path, arguments) {
            return;
        }
        let first = arguments.and_then(|all| all.first().copied());
        match path {
            "eval" | "Function" | "AsyncFunction" | "GeneratorFunction" => self.executed(id, path, arguments),
            "setTimeout" | "setInterval" | "setImmediate" => {
                let known = first.map(|first| self.knowledge.know(first));
                let is_text = first
                    .is_some_and(|first| matches!(self.program.kind(first), Kind::Text | Kind::Template))
                    || matches!(known, Some(Known::Text(_)));
                if is_text {
                    self.tell(id, &rules::DYNAMIC_EXECUTION, format!("`{path}` is given a text"));
                }
            }
            "require" | "import" | "node:module._load" | "process.getBuiltinModule" => {
                self.loaded(id, path, first)
            }
            "process.exit" | "process.reallyExit" | "process.abort" => {
                self.tell(id, &rules::EXIT, format!("`{path}` ends the program"))
            }
            "process.kill" => {
                let target = first.map(|first| self.program.text(first).replace(' ', ""));
                if matches!(target.as_deref(), Some("-1")) {
                    self.tell(id, &rules::KILL_ALL, "`process.kill(-1)` ends every process");
                }
            }
            "fetch" | "WebSocket" | "EventSource" => self.speaks(id, path),
            path if path.ends_with("._compile") => self.executed(id, "_compile", arguments),
            path => self.called_of_module(id, path, arguments),
        }
    }

    pub(super) fn called_of_module(&mut self, id: Id, path: &str, arguments: Option<&[Id]>) {
        let (module, name) = path.split_once('.').unwrap_or((path, ""));
        let first = arguments.and_then(|all| all.first().copied());
        match (module, name) {
            ("node:vm", name) if executes(path) => self.executed(id, &format!("vm.{name}"), arguments),
            ("node:child_process", name) => self.started(id, name, arguments),
            ("process", "binding" | "_linkedBinding" | "dlopen")
            | ("internalBinding", "")
            | ("node:v8", "setFlagsFromString") => {
                self.tell(
                    id,
                    &rules::NATIVE,
                    format!(
                        "`{}` reaches into Node.js itself",
                        path.trim_start_matches("node:")
                    ),
                );
            }
            ("node:worker_threads", "Worker") => {
                let option = arguments
                    .and_then(|all| all.get(1))
                    .and_then(|options| self.knowledge.option(*options, "eval"));
                match option {
                    Some(value) if self.program.text(value) != "false" => {
                        self.executed(id, "Worker", arguments)
                    }
                    _ => self.tell(id, &rules::WORKER_THREADS, "`Worker` starts a thread"),
                }
            }
            (
                "node:net" | "node:tls" | "node:dgram" | "node:http" | "node:https" | "node:http2"
                | "node:dns" | "node:dns/promises",
                name,
            ) => {
                if matches!(name, "connect" | "createConnection" | "Socket" | "Socket.connect")
                    && module == "node:net"
                {
                    self.connection = Some(id);
                }
                if !matches!(name, "" | "STATUS_CODES" | "isIP" | "isIPv4" | "isIPv6" | "Agent") {
                    self.speaks(id, path.trim_start_matches("node:"));
                    self.addressed(arguments);
                }
            }
            _ => self.called_of_language(id, path, first),
        }
    }

    /// What is no module's: `Object`, `JSON`.
    fn called_of_language(&mut self, id: Id, path: &str, first: Option<Id>) {
        match path.split_once('.').unwrap_or((path, "")) {
            (
                "WebAssembly",
                "compile"
                | "instantiate"
                | "Module"
                | "Instance"
                | "compileStreaming"
                | "instantiateStreaming",
            ) => {
                self.tell_as(id, &rules::NATIVE, Info, format!("`{path}` takes native code"));
            }
            ("Object", "setPrototypeOf") | ("Reflect", "setPrototypeOf") => {
                if let Some(shared) = first.and_then(|first| self.shared_prototype(first)) {
                    self.tell(
                        id,
                        &rules::PROTOTYPE_POLLUTION,
                        format!("`{shared}` is given another prototype"),
                    );
                }
            }
            ("Object", "assign" | "defineProperty" | "defineProperties") => {
                if let Some(shared) = first.and_then(|first| self.shared_prototype(first)) {
                    self.tell(id, &rules::PROTOTYPE_POLLUTION, format!("`{shared}` is changed"));
                }
            }
            ("JSON", "parse") => {
                let text = first.map(|first| self.knowledge.know(first));
                if text
                    .as_ref()
                    .and_then(Known::text)
                    .is_some_and(|text| text.contains("\"__proto__\""))
                {
                    self.tell(
                        id,
                        &rules::PROTOTYPE_POLLUTION,
                        "an object with `__proto__` is made from a text",
                    );
                }
            }
            _ => {}
        }
    }

    fn speaks(&mut self, id: Id, path: &str) {
        self.tell(id, &rules::NETWORK, format!("`{path}` speaks to other hosts"));
    }

    /// A text is run.
    pub(super) fn executed(&mut self, id: Id, name: &str, arguments: Option<&[Id]>) {
        self.tell(id, &rules::DYNAMIC_EXECUTION, format!("`{name}` runs a text"));
        for argument in arguments.unwrap_or_default() {
            let known = self.knowledge.know(*argument);
            let hides = match known.text() {
                Some(text) => is_blob(text),
                None => false,
            };
            if hides || self.decodes(*argument) {
                self.tell(*argument, &rules::OBFUSCATION, "the text that is run is encoded");
            }
        }
    }

    /// Something is decoded in an expression.
    pub(super) fn decodes(&self, expression: Id) -> bool {
        let after = self.program.node(expression).after;
        (expression..after).take(200).any(|id| {
            let callee = match self.program.kind(id) {
                Kind::Call => self.program.child(id, Field::Function),
                _ => None,
            };
            callee.is_some_and(|callee| {
                matches!(
                    self.knowledge.know(callee).path(),
                    Some("atob" | "unescape" | "Buffer.from" | "String.fromCharCode" | "decodeURIComponent")
                )
            })
        })
    }

    pub(super) fn loaded(&mut self, id: Id, path: &str, first: Option<Id>) {
        let Some(first) = first else {
            return;
        };
        match self.knowledge.know(first) {
            Known::Text(name) if !name.contains(UNKNOWN) => self.imported(id, &name),
            Known::Text(name) if name.starts_with(['.', '~']) => {
                let name = name.replace(UNKNOWN, "…");
                self.tell_as(
                    id,
                    &rules::DYNAMIC_REQUIRE,
                    Info,
                    format!("`{path}` loads `{name}`"),
                );
            }
            _ => self.tell(
                id,
                &rules::DYNAMIC_REQUIRE,
                format!("`{path}` loads what is only known at run time"),
            ),
        }
    }

    /// A program is started; commands that are known are read as a shell reads them.
    pub(super) fn started(&mut self, id: Id, name: &str, arguments: Option<&[Id]>) {
        if !matches!(
            name,
            "exec" | "execSync" | "execFile" | "execFileSync" | "spawn" | "spawnSync" | "fork"
        ) {
            return;
        }
        let known = |index: usize| {
            arguments
                .and_then(|all| all.get(index))
                .map(|id| self.knowledge.know(*id))
        };
        let program = known(0).unwrap_or(Known::Unknown);
        let command = match (name, &program, known(1)) {
            ("exec" | "execSync", Known::Text(text), _) => text.to_string(),
            (_, Known::Text(program), Some(Known::List(words))) => {
                let quoted =
                    |word: &Known| format!("'{}'", word.text().unwrap_or("\u{FFFD}").replace('\'', "'\\''"));
                let words: Vec<String> = words.iter().map(quoted).collect();
                format!("'{program}' {}", words.join(" "))
            }
            (_, Known::Text(program), _) => program.to_string(),
            _ => String::new(),
        };
        let what = match command.is_empty() {
            true => format!("`{name}` starts a program"),
            false => format!("`{name}` starts `{}`", shown(&command)),
        };
        self.tell(id, &rules::CHILD_PROCESS, what);
        let bare = command.replace('\'', "");
        if matches!(
            bare.trim().trim_end_matches(" -i"),
            "sh" | "/bin/sh" | "bash" | "/bin/bash" | "cmd.exe"
        ) {
            self.shell = Some(id);
        }
        let range = self.program.range(id);
        for finding in shell::check(&command).findings {
            if finding.severity > Info
                && !finding.rule.id.ends_with(".syntax")
                && !finding.rule.id.ends_with(".unparsed")
            {
                self.add(range.clone(), finding.rule, finding.severity, finding.what);
            }
        }
    }

    /// Hosts in the arguments of a connection.
    pub(super) fn addressed(&mut self, arguments: Option<&[Id]>) {
        for argument in arguments.unwrap_or_default().iter().take(3) {
            if let Known::Text(text) = self.knowledge.know(*argument) {
                domains::of_address(&text, &mut self.hosts);
            }
        }
    }

    /// `things[name](…)`, `object._compile(…)`
    pub(super) fn called_unknown(&mut self, id: Id, callee: Id, arguments: &[Id]) {
        let callee = self.program.bare(callee);
        match self.program.kind(callee) {
            Kind::Subscript => {
                let object = self
                    .program
                    .child(callee, Field::Object)
                    .map(|object| self.knowledge.know(object));
                match object.as_ref().and_then(Known::path) {
                    Some("globalThis") => self.tell(
                        id,
                        &rules::DYNAMIC_EXECUTION,
                        "a global function is chosen at run time",
                    ),
                    Some("node:child_process") => {
                        self.tell(id, &rules::CHILD_PROCESS, "a function is chosen at run time")
                    }
                    Some("node:vm") => self.tell(
                        id,
                        &rules::DYNAMIC_EXECUTION,
                        "a function of `vm` is chosen at run time",
                    ),
                    Some("process") => self.tell(
                        id,
                        &rules::NATIVE,
                        "a function of `process` is chosen at run time",
                    ),
                    _ => {}
                }
            }
            Kind::Member => {
                let name = self
                    .program
                    .child(callee, Field::Property)
                    .map(|name| self.program.text(name));
                if name == Some("_compile") {
                    self.executed(id, "_compile", Some(arguments));
                }
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
