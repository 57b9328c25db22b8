//! The rules: what is called, what is passed on, what is assigned, and what is written in texts.

use super::{
    known::{Knowledge, Known},
    rules,
    scope::Scopes,
    syntax::{Field, Id, Kind, Program},
    text,
};
use crate::{
    credentials::{self, Secret},
    domains,
    rule::{Finding, Rule},
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{self, Error, Info, Warning};
use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map::Entry},
    ops::Range,
};

/// Names like `_0x3f2a` from which on a program was made unreadable by a tool.
const HEX_NAMES_MIN: usize = 6;
/// Letters that are written as numbers, in one text.
const HIDDEN_LETTERS_MIN: usize = 12;

pub(super) struct Look<'p, 'a> {
    pub(super) program: &'p Program<'a>,
    pub(super) knowledge: Knowledge<'p, 'a>,
    pub(super) findings: Vec<Finding>,
    /// By place and rule: which finding it is.
    told: HashMap<(usize, &'static str), usize>,
    pub(super) imports: BTreeSet<String>,
    pub(super) hosts: BTreeSet<String>,
    hex_names: HashSet<&'a str>,
    /// Where a connection is made, and where a shell is started without a text to run.
    pub(super) connection: Option<Id>,
    pub(super) shell: Option<Id>,
}

impl<'p, 'a> Look<'p, 'a> {
    pub(super) fn of(program: &'p Program<'a>, scopes: &'p Scopes<'a>) -> Self {
        let mut look = Self {
            program,
            knowledge: Knowledge::of(program, scopes),
            findings: Vec::new(),
            told: HashMap::new(),
            imports: BTreeSet::new(),
            hosts: BTreeSet::new(),
            hex_names: HashSet::new(),
            connection: None,
            shell: None,
        };
        // What is inside comes first, so that nothing is found out twice.
        for id in program.ids().rev() {
            look.node(id);
        }
        look.whole();
        look
    }

    pub(super) fn tell(&mut self, id: Id, rule: &'static Rule, what: impl Into<String>) {
        self.tell_as(id, rule, rule.severity, what);
    }

    pub(super) fn tell_as(
        &mut self,
        id: Id,
        rule: &'static Rule,
        severity: Severity,
        what: impl Into<String>,
    ) {
        let range = self.program.range(id);
        self.add(range, rule, severity, what.into());
    }

    pub(super) fn add(&mut self, range: Range<usize>, rule: &'static Rule, severity: Severity, what: String) {
        let found = Finding {
            range,
            rule,
            severity,
            what,
            hint: None,
        };
        match self.told.entry((found.range.start, rule.id)) {
            Entry::Vacant(place) => {
                place.insert(self.findings.len());
                self.findings.push(found);
            }
            // `require('x').y()` begins where `require('x')` does; the worse of the two is told.
            Entry::Occupied(place) => {
                if let Some(known) = self
                    .findings
                    .get_mut(*place.get())
                    .filter(|known| known.severity < severity)
                {
                    *known = found;
                }
            }
        }
    }

    pub(super) fn node(&mut self, id: Id) {
        match self.program.kind(id) {
            Kind::Call | Kind::New => self.call(id),
            Kind::Identifier | Kind::ShorthandProperty => self.identifier(id),
            Kind::Member | Kind::Subscript => self.passed_on(id),
            Kind::Assignment | Kind::Augmented => self.assignment(id),
            Kind::Text | Kind::Template => self.literal(id),
            Kind::Binary => self.sum(id),
            Kind::ImportStatement | Kind::Export => self.import(id),
            Kind::Pair => self.pair(id),
            Kind::PropertyName if self.program.text(id).contains('\\') => self.escaped_name(id),
            _ => {}
        }
    }

    pub(super) fn identifier(&mut self, id: Id) {
        let name = self.program.text(id);
        if name.contains('\\') {
            self.escaped_name(id);
        }
        let digits = name.strip_prefix("_0x").or_else(|| name.strip_prefix("a0_0x"));
        if digits.is_some_and(|digits| digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_hexdigit())) {
            self.hex_names.insert(name);
        }
        self.passed_on(id);
    }

    pub(super) fn escaped_name(&mut self, id: Id) {
        let plain = text::unescaped(self.program.text(id));
        if plain.is_ascii() {
            self.tell(
                id,
                &rules::OBFUSCATION,
                format!("`{}` is `{plain}`", self.program.text(id)),
            );
        }
    }

    pub(super) fn import(&mut self, id: Id) {
        let source = self.program.child(id, Field::Source).or_else(|| {
            let clause = self
                .program
                .children(id)
                .find(|child| self.program.kind(*child) == Kind::ImportRequire)?;
            self.program.child(clause, Field::Source)
        });
        if let Some(source) = source {
            let name = text::value(self.program.text(source));
            self.imported(id, &name);
        }
    }

    /// A module is loaded by a name that is known.
    pub(super) fn imported(&mut self, id: Id, name: &str) {
        self.imports.insert(name.to_owned());
        if name.ends_with(".node") {
            self.tell(id, &rules::NATIVE, format!("`{name}` is native code"));
        }
        if name.starts_with("data:") || name.starts_with("blob:") {
            self.tell(id, &rules::DYNAMIC_EXECUTION, "a text is loaded as a module");
        }
        let known = self.knowledge.module(name);
        match known.path() {
            Some("node:child_process") => {
                self.tell_as(id, &rules::CHILD_PROCESS, Info, format!("`{name}` is loaded"))
            }
            Some("node:inspector" | "node:inspector/promises") => {
                self.tell(id, &rules::INSPECTOR, format!("`{name}` is loaded"))
            }
            Some("node:worker_threads" | "node:cluster") => {
                self.tell(id, &rules::WORKER_THREADS, format!("`{name}` is loaded"));
            }
            Some("node:net" | "node:tls" | "node:dgram" | "node:http2") => {
                self.tell(id, &rules::NETWORK, format!("`{name}` is loaded"));
            }
            Some("node:wasi" | "node:repl") => {
                self.tell_as(id, &rules::NATIVE, Info, format!("`{name}` is loaded"))
            }
            Some("npm:execa" | "npm:shelljs" | "npm:cross-spawn" | "npm:zx" | "npm:node-pty") => {
                self.tell_as(id, &rules::CHILD_PROCESS, Info, format!("`{name}` is loaded"));
            }
            _ => {}
        }
    }
    /// A function that does harm, given to others under another name.
    pub(super) fn passed_on(&mut self, id: Id) {
        let node = self.program.node(id);
        let parent = self.program.kind(node.parent);
        let elsewhere = match (parent, node.field) {
            // Told when it is called, or is a part of a longer path.
            (Kind::Call | Kind::New, Field::Function) | (Kind::Member | Kind::Subscript, Field::Object) => {
                true
            }
            (Kind::Parenthesized | Kind::Sequence | Kind::Typed, _) => self.is_callee(node.parent),
            (Kind::Declarator, Field::Value) => {
                let name = self.program.child(node.parent, Field::Name);
                name.is_some_and(|name| {
                    self.program.kind(name) != Kind::Identifier || self.knowledge.scopes.is_constant(name)
                })
            }
            (Kind::Declarator | Kind::Assignment | Kind::Augmented, Field::Name | Field::Left) => true,
            (Kind::ImportSpecifier | Kind::ImportClause | Kind::NamespaceImport | Kind::ImportRequire, _) => {
                true
            }
            (Kind::Unary, _) => self
                .program
                .children(node.parent)
                .next()
                .is_some_and(|sign| self.program.kind(sign) == Kind::Typeof),
            (
                Kind::FunctionDeclaration
                | Kind::FunctionExpression
                | Kind::ClassDeclaration
                | Kind::Parameters,
                _,
            ) => true,
            _ => false,
        };
        if elsewhere || self.program.kind(id) == Kind::Identifier && !self.may_matter(id) {
            return;
        }
        let known = self.knowledge.know(id);
        match known.path() {
            Some(path) if path == "eval" || executes(path) => {
                let what = format!("`{}` is passed on", path.trim_start_matches("node:"));
                self.tell(id, &rules::DYNAMIC_EXECUTION, what);
            }
            Some(path) if starts(path) => {
                let what = format!("`{}` is passed on", path.trim_start_matches("node:"));
                self.tell(id, &rules::CHILD_PROCESS, what);
            }
            Some(path @ ("process.binding" | "process.dlopen" | "process._linkedBinding")) => {
                let what = format!("`{path}` is passed on");
                self.tell(id, &rules::NATIVE, what);
            }
            _ => {}
        }
    }

    /// Most names are those of the program's own values.
    pub(super) fn may_matter(&self, id: Id) -> bool {
        match self.knowledge.scopes.binding(id) {
            None => self.program.text(id) == "eval" || self.program.text(id).contains('\\'),
            Some(_) => true,
        }
    }

    pub(super) fn is_callee(&self, id: Id) -> bool {
        let mut id = id;
        loop {
            let node = self.program.node(id);
            match (self.program.kind(node.parent), node.field) {
                (Kind::Call | Kind::New, Field::Function) => return true,
                (Kind::Parenthesized | Kind::Sequence | Kind::Typed, _) if node.parent != id => {
                    id = node.parent
                }
                _ => return false,
            }
        }
    }

    pub(super) fn assignment(&mut self, id: Id) {
        let Some(left) = self.program.child(id, Field::Left) else {
            return;
        };
        if !matches!(self.program.kind(left), Kind::Member | Kind::Subscript) {
            return;
        }
        let object = self.program.child(left, Field::Object);
        if let Some(shared) = object.and_then(|object| self.shared_prototype(object)) {
            return self.tell(id, &rules::PROTOTYPE_POLLUTION, format!("`{shared}` is changed"));
        }
        if self.property(left).as_deref() == Some("__proto__") {
            self.tell_as(id, &rules::PROTOTYPE_POLLUTION, Info, "`__proto__` is set");
        }
    }

    pub(super) fn property(&self, member: Id) -> Option<String> {
        let program = self.program;
        match program.child(member, Field::Property) {
            Some(name) => Some(program.text(name).to_owned()),
            None => {
                let index = program.child(member, Field::Index)?;
                self.knowledge.know(index).constant().map(str::to_owned)
            }
        }
    }

    /// `x.__proto__`, `x.constructor.prototype`, `Object.prototype`, `Array.prototype`
    pub(super) fn shared_prototype(&self, expression: Id) -> Option<String> {
        let expression = self.program.bare(expression);
        if !matches!(self.program.kind(expression), Kind::Member | Kind::Subscript) {
            let known = self.knowledge.know(expression);
            let class = known.path().and_then(|path| path.strip_suffix(".prototype"));
            return class
                .filter(|class| is_class_of_all(class))
                .map(|class| format!("{class}.prototype"));
        }
        let property = self.property(expression)?;
        let object = self.program.bare(self.program.child(expression, Field::Object)?);
        let inner = match self.program.kind(object) {
            Kind::Member | Kind::Subscript => self.property(object),
            _ => None,
        };
        let shared = match (property.as_str(), inner.as_deref()) {
            ("__proto__", _) => true,
            ("prototype", Some("constructor")) => true,
            ("prototype", _) => self.knowledge.know(object).path().is_some_and(is_class_of_all),
            _ => false,
        };
        shared.then(|| shown(self.program.text(expression)))
    }

    pub(super) fn pair(&mut self, id: Id) {
        let key = self
            .program
            .child(id, Field::Key)
            .map(|key| self.program.text(key).trim_matches(['\'', '"']));
        if let Some("host" | "hostname") = key
            && let Some(value) = self.program.child(id, Field::Value)
            && let Known::Text(text) = self.knowledge.know(value)
        {
            domains::of_address(&text, &mut self.hosts);
        }
    }

    pub(super) fn literal(&mut self, id: Id) {
        let raw = self.program.text(id);
        if text::hidden_letters(raw) >= HIDDEN_LETTERS_MIN {
            self.tell(id, &rules::OBFUSCATION, "letters are written as numbers");
        }
        if raw.len() < 6 {
            return;
        }
        match self.knowledge.know(id) {
            Known::Text(text) => self.text(id, &text),
            // Longer than is kept.
            _ => domains::of(raw, &mut self.hosts),
        }
    }

    /// Texts that are put together.
    pub(super) fn sum(&mut self, id: Id) {
        let outermost = self.program.kind(self.program.node(id).parent) != Kind::Binary;
        if outermost && let Known::Text(text) = self.knowledge.know(id) {
            self.text(id, &text);
        }
    }

    pub(super) fn text(&mut self, id: Id, text: &str) {
        domains::of(text, &mut self.hosts);
        let whole = text.replace(UNKNOWN, "~");
        if credentials::kept_at(&whole) == Some(Secret::Certain) {
            self.tell(id, &rules::CREDENTIAL_PATH, format!("`{}` is named", shown(text)));
        }
    }

    /// What the program as a whole tells.
    pub(super) fn whole(&mut self) {
        if self.hex_names.len() >= HEX_NAMES_MIN {
            let first = self.program.ids().find(|id| {
                self.program.kind(*id) == Kind::Identifier && self.hex_names.contains(self.program.text(*id))
            });
            let what = format!("{} names are numbers", self.hex_names.len());
            self.tell(first.unwrap_or(0), &rules::OBFUSCATION, what);
        }
        if let (Some(_), Some(shell)) = (self.connection, self.shell) {
            self.tell_as(
                shell,
                &rules::REVERSE_SHELL,
                Error,
                "a shell is started beside a connection",
            );
        }
    }

    /// For rules of other files.
    pub(super) fn warn_at(&mut self, id: Id, rule: &'static Rule, worse: Worse, what: String) {
        let severity = match worse {
            Worse::No => rule.severity,
            Worse::Warning => Warning,
            Worse::Error => Error,
        };
        self.tell_as(id, rule, severity, what);
    }
}

/// Than the rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worse {
    No,
    Warning,
    Error,
}
/// A class of the language, whose prototype every program's own values have.
fn is_class_of_all(path: &str) -> bool {
    const CLASSES: &[&str] = &[
        "Object",
        "Function",
        "AsyncFunction",
        "GeneratorFunction",
        "Array",
        "String",
        "Number",
        "Boolean",
        "BigInt",
        "Symbol",
        "RegExp",
        "Date",
        "Promise",
        "Map",
        "Set",
        "WeakMap",
        "WeakSet",
        "WeakRef",
        "Proxy",
        "Iterator",
        "ArrayBuffer",
        "SharedArrayBuffer",
        "DataView",
        "Buffer",
        "URL",
    ];
    CLASSES.contains(&path)
        || path.ends_with("Error") && path.starts_with(char::is_uppercase) && !path.contains('.')
        || path.ends_with("Array") && matches!(path.as_bytes(), [b'I' | b'U' | b'F' | b'B', ..])
}

pub(super) fn executes(path: &str) -> bool {
    matches!(
        path,
        "node:vm.runInThisContext"
            | "node:vm.runInNewContext"
            | "node:vm.runInContext"
            | "node:vm.compileFunction"
            | "node:vm.Script"
            | "node:vm.SourceTextModule"
    )
}

fn starts(path: &str) -> bool {
    path.strip_prefix("node:child_process.").is_some_and(|name| {
        matches!(
            name,
            "exec" | "execSync" | "execFile" | "execFileSync" | "spawn" | "spawnSync" | "fork"
        )
    })
}
