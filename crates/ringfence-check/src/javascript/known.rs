//! What an expression is, as far as that can be known without running it: a text, or a thing of the language or of Node.js by its
//! path (`eval`, `node:child_process.exec`), whatever names and detours it is reached by.

use super::{
    scope::{Key, Origin, Scopes, name_of},
    syntax::{Field, Id, Kind, Program},
    text,
};
use crate::unknown::UNKNOWN;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

const DEPTH_MAX: u32 = 48;
/// Nodes that are looked at for one expression.
const STEPS_MAX: u32 = 400;
pub(super) const TEXT_BYTES_MAX: usize = 4096;
/// Longer ones are made again each time.
const KEPT_BYTES_MAX: usize = 128;
/// Of all values of names, together.
const MEMORY_BYTES_MAX: usize = 16 * 1024 * 1024;
pub(super) const LIST_MAX: usize = 4096;

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    Unknown,
    /// Perhaps with [`UNKNOWN`] in it.
    Text(Rc<str>),
    Number(f64),
    List(Rc<[Known]>),
    /// A thing that everybody can reach: `process.env`, `node:fs.rmSync`.
    Path(Rc<str>),
    /// A function of the program.
    Function(Id),
    /// An object literal.
    Object(Id),
    /// Of something that is no function: its `constructor` makes functions.
    Class,
}

/// Functions and classes of the language: their `constructor` is `Function`.
const FUNCTIONS: &[&str] = &[
    "eval",
    "require",
    "Object",
    "Array",
    "String",
    "Number",
    "Boolean",
    "Symbol",
    "RegExp",
    "Date",
    "Promise",
    "Map",
    "Set",
    "WeakMap",
    "Error",
    "TypeError",
    "Proxy",
    "Buffer",
    "setTimeout",
    "setInterval",
    "setImmediate",
    "queueMicrotask",
    "parseInt",
    "parseFloat",
    "isNaN",
    "fetch",
    "URL",
    "BigInt",
    "Function",
    "structuredClone",
    "atob",
    "btoa",
    "alert",
    "Uint8Array",
];

/// Modules that come with Node.js and that rules know.
const MODULES: &[&str] = &[
    "assert",
    "async_hooks",
    "buffer",
    "child_process",
    "cluster",
    "console",
    "constants",
    "crypto",
    "dgram",
    "diagnostics_channel",
    "dns",
    "dns/promises",
    "domain",
    "events",
    "fs",
    "fs/promises",
    "http",
    "http2",
    "https",
    "inspector",
    "inspector/promises",
    "module",
    "net",
    "os",
    "path",
    "path/posix",
    "perf_hooks",
    "process",
    "punycode",
    "querystring",
    "readline",
    "repl",
    "stream",
    "stream/promises",
    "string_decoder",
    "sys",
    "timers",
    "timers/promises",
    "tls",
    "trace_events",
    "tty",
    "url",
    "util",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];

pub(super) struct Knowledge<'p, 'a> {
    pub(super) program: &'p Program<'a>,
    pub(super) scopes: &'p Scopes<'a>,
    memory: RefCell<Vec<Memory>>,
    /// Bytes of texts in it.
    kept: Cell<usize>,
    /// By node: a bit, if it was found out; and what was, if it is something.
    done: RefCell<Vec<u64>>,
    values: RefCell<HashMap<Id, Known>>,
}

/// Of a binding.
#[derive(Clone, Debug)]
enum Memory {
    Empty,
    /// It is being found out: a name that is defined by itself.
    Busy,
    Known(Known),
}

pub(super) struct Budget {
    depth: u32,
    steps: u32,
    /// It was not enough.
    spent: Spent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spent {
    Yes,
    No,
}

impl Known {
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }

    /// A text of which every letter is known.
    pub(super) fn constant(&self) -> Option<&str> {
        match self {
            Self::Text(text) if !text.contains(UNKNOWN) => Some(text),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn of_path(path: &str) -> Self {
        Self::Path(Rc::from(path))
    }

    pub(super) fn of_text(text: &str) -> Self {
        match text.len() > TEXT_BYTES_MAX {
            true => Self::Unknown,
            false => Self::Text(Rc::from(text)),
        }
    }
}

impl<'p, 'a> Knowledge<'p, 'a> {
    pub(super) fn of(program: &'p Program<'a>, scopes: &'p Scopes<'a>) -> Self {
        Self {
            program,
            scopes,
            memory: RefCell::new(vec![Memory::Empty; scopes.bindings.len()]),
            kept: Cell::new(0),
            done: RefCell::new(vec![0; program.nodes.len() / 64 + 1]),
            values: RefCell::new(HashMap::new()),
        }
    }

    pub(super) fn know(&self, id: Id) -> Known {
        let mut budget = Budget {
            depth: DEPTH_MAX,
            steps: STEPS_MAX,
            spent: Spent::No,
        };
        self.expression(id, &mut budget)
    }

    pub(super) fn expression(&self, id: Id, budget: &mut Budget) -> Known {
        let (word, bit) = (id as usize / 64, 1_u64 << (id % 64));
        if self.done.borrow()[word] & bit != 0 {
            return self.values.borrow().get(&id).cloned().unwrap_or(Known::Unknown);
        }
        if budget.depth == 0 || budget.steps == 0 {
            budget.spent = Spent::Yes;
            return Known::Unknown;
        }
        budget.depth -= 1;
        budget.steps -= 1;
        let before = std::mem::replace(&mut budget.spent, Spent::No);
        let known = self.by_kind(id, budget);
        budget.depth += 1;
        if budget.spent == Spent::No {
            budget.spent = before;
            self.keep(id, word, bit, &known);
        }
        known
    }

    pub(super) fn keep(&self, id: Id, word: usize, bit: u64, known: &Known) {
        match known {
            Known::Unknown => {}
            Known::Text(text) if text.len() > KEPT_BYTES_MAX => return,
            Known::List(all) if all.len() > KEPT_BYTES_MAX => return,
            known => drop(self.values.borrow_mut().insert(id, known.clone())),
        }
        self.done.borrow_mut()[word] |= bit;
    }

    pub(super) fn by_kind(&self, id: Id, budget: &mut Budget) -> Known {
        let program = self.program;
        let last = || program.children(id).last();
        match program.kind(id) {
            Kind::Identifier | Kind::ShorthandProperty => self.name(id, budget),
            Kind::Text => Known::of_text(&text::value(program.text(id))),
            Kind::Template => self.template(id, budget),
            Kind::Number => program
                .text(id)
                .replace('_', "")
                .parse()
                .map_or(Known::Unknown, Known::Number),
            Kind::Parenthesized | Kind::Sequence => {
                last().map_or(Known::Unknown, |inner| self.expression(inner, budget))
            }
            Kind::Typed => program
                .children(id)
                .next()
                .map_or(Known::Unknown, |inner| self.expression(inner, budget)),
            Kind::Await => last().map_or(Known::Unknown, |inner| self.expression(inner, budget)),
            Kind::Assignment => self.part(id, Field::Right, budget),
            Kind::Binary => self.binary(id, budget),
            Kind::Ternary => {
                let one = self.part(id, Field::Consequence, budget);
                either(one, self.part(id, Field::Alternative, budget))
            }
            Kind::Array => self.array(id, budget),
            Kind::Object => Known::Object(id),
            Kind::FunctionExpression | Kind::Arrow | Kind::FunctionDeclaration => Known::Function(id),
            Kind::ClassExpression => Known::Class,
            Kind::Member | Kind::Subscript => self.member(id, budget),
            Kind::Call => self.call(id, budget),
            Kind::ImportCall => Known::of_path("import"),
            Kind::Meta => Known::of_path("import.meta"),
            _ => Known::Unknown,
        }
    }

    pub(super) fn part(&self, id: Id, field: Field, budget: &mut Budget) -> Known {
        let child = self.program.child(id, field);
        child.map_or(Known::Unknown, |child| self.expression(child, budget))
    }

    pub(super) fn name(&self, id: Id, budget: &mut Budget) -> Known {
        let Some((index, binding)) = self.scopes.binding(id) else {
            let name = name_of(self.program.text(id));
            return match name.as_ref() {
                "undefined" | "NaN" | "Infinity" => Known::Unknown,
                name => Known::Path(global(name)),
            };
        };
        match &self.memory.borrow()[index as usize] {
            Memory::Known(known) => return known.clone(),
            Memory::Busy => return Known::Unknown,
            Memory::Empty => {}
        }
        self.memory.borrow_mut()[index as usize] = Memory::Busy;
        let known = self.origin(&binding.origin, budget);
        let bytes = match &known {
            Known::Text(text) => text.len(),
            Known::List(all) => all.len() * size_of::<Known>(),
            _ => 0,
        };
        self.kept.set(self.kept.get() + bytes);
        let known = if self.kept.get() > MEMORY_BYTES_MAX && bytes > 0 {
            Known::Unknown
        } else {
            known
        };
        // What was not found out because it is too deep from here may be found from elsewhere.
        self.memory.borrow_mut()[index as usize] = match budget.spent {
            Spent::No => Memory::Known(known.clone()),
            Spent::Yes => Memory::Empty,
        };
        known
    }

    pub(super) fn origin(&self, origin: &Origin, budget: &mut Budget) -> Known {
        match origin {
            Origin::Unknown => Known::Unknown,
            Origin::Function(id) => Known::Function(*id),
            Origin::Values(values) => {
                let mut all = values.iter().map(|value| self.expression(*value, budget));
                let first = all.next().unwrap_or(Known::Unknown);
                all.fold(first, either)
            }
            Origin::Part(value, keys) => {
                let mut known = self.expression(*value, budget);
                for key in keys {
                    known = match key {
                        Key::Index(index) => match known {
                            Known::List(all) => all.get(*index).cloned().unwrap_or(Known::Unknown),
                            _ => Known::Unknown,
                        },
                        Key::Name(name) => match self.property_name(*name, budget) {
                            Some(name) => self.member_of(&known, &name, budget),
                            None => Known::Unknown,
                        },
                    };
                }
                known
            }
            Origin::Import(source, name) => {
                let module = self.module(&text::value(self.program.text(*source)));
                match name {
                    Some(name) => match self.property_name(*name, budget) {
                        Some(name) => self.member_of(&module, &name, budget),
                        None => Known::Unknown,
                    },
                    None => module,
                }
            }
        }
    }

    /// The name that a key, a pattern or a property stands for.
    pub(super) fn property_name(&self, id: Id, budget: &mut Budget) -> Option<Rc<str>> {
        let text = self.program.text(id);
        match self.program.kind(id) {
            Kind::Text => Some(Rc::from(text::value(text))),
            Kind::Computed => {
                let inner = self.program.children(id).next()?;
                match self.expression(inner, budget) {
                    Known::Text(text) if !text.contains(UNKNOWN) => Some(text),
                    _ => None,
                }
            }
            _ => Some(Rc::from(name_of(text).as_ref())),
        }
    }

    pub(super) fn template(&self, id: Id, budget: &mut Budget) -> Known {
        let program = self.program;
        let range = program.range(id);
        let mut told = String::new();
        let mut from = range.start + 1;
        for hole in program
            .children(id)
            .filter(|hole| program.kind(*hole) == Kind::TemplateHole)
        {
            let place = program.range(hole);
            told.push_str(&text::unescaped(
                program.code.get(from..place.start).unwrap_or_default(),
            ));
            let inner = program.children(hole).next();
            let value = inner.map_or(Known::Unknown, |inner| self.expression(inner, budget));
            push(&mut told, &value);
            if told.len() > TEXT_BYTES_MAX {
                return Known::Unknown;
            }
            from = place.end;
        }
        told.push_str(&text::unescaped(
            program
                .code
                .get(from..range.end.saturating_sub(1))
                .unwrap_or_default(),
        ));
        Known::of_text(&told)
    }

    pub(super) fn binary(&self, id: Id, budget: &mut Budget) -> Known {
        let program = self.program;
        let operator = program.child(id, Field::Operator).map(|sign| program.kind(sign));
        match operator {
            Some(Kind::Plus) => {
                let left = self.part(id, Field::Left, budget);
                let right = self.part(id, Field::Right, budget);
                if let (Known::Number(left), Known::Number(right)) = (&left, &right) {
                    return Known::Number(left + right);
                }
                if left.text().is_none() && right.text().is_none() {
                    return Known::Unknown;
                }
                let mut told = String::new();
                push(&mut told, &left);
                push(&mut told, &right);
                Known::of_text(&told)
            }
            Some(Kind::And) => self.part(id, Field::Right, budget),
            Some(Kind::Or | Kind::Nullish) => {
                let left = self.part(id, Field::Left, budget);
                either(left, self.part(id, Field::Right, budget))
            }
            _ => Known::Unknown,
        }
    }

    pub(super) fn array(&self, id: Id, budget: &mut Budget) -> Known {
        let items = self.program.children(id).take(LIST_MAX);
        Known::List(items.map(|item| self.expression(item, budget)).collect())
    }

    pub(super) fn member(&self, id: Id, budget: &mut Budget) -> Known {
        let object = self.part(id, Field::Object, budget);
        let name = match self.program.child(id, Field::Property) {
            Some(property) => self.property_name(property, budget),
            None => match self.part(id, Field::Index, budget) {
                Known::Text(text) if !text.contains(UNKNOWN) => Some(text),
                Known::Number(index) => match &object {
                    Known::List(all) if index >= 0.0 => {
                        return all.get(index as usize).cloned().unwrap_or(Known::Unknown);
                    }
                    _ => None,
                },
                _ => None,
            },
        };
        name.map_or(Known::Unknown, |name| self.member_of(&object, &name, budget))
    }

    pub(super) fn member_of(&self, object: &Known, name: &str, budget: &mut Budget) -> Known {
        match (object, name) {
            (Known::Path(path), name) => Known::Path(joined(path, name)),
            (Known::Object(id), name) => match self.pair(*id, name, budget) {
                Some(known) => known,
                None if name == "constructor" => Known::of_path("Object"),
                None => Known::Unknown,
            },
            (Known::Function(_) | Known::Class, "constructor") => Known::of_path("Function"),
            (Known::Text(_), "constructor") => Known::of_path("String"),
            (Known::Number(_), "constructor") => Known::of_path("Number"),
            (Known::List(_), "constructor") => Known::of_path("Array"),
            (Known::List(_), _) => Known::Unknown,
            (Known::Function(_), "__proto__") => Known::of_path("Function.prototype"),
            (_, "constructor") => Known::Class,
            _ => Known::Unknown,
        }
    }

    pub(super) fn pair(&self, object: Id, name: &str, budget: &mut Budget) -> Option<Known> {
        let program = self.program;
        for item in program.children(object).take(64) {
            match program.kind(item) {
                Kind::Pair => {
                    let key = program.child(item, Field::Key)?;
                    if self.property_name(key, budget).as_deref() == Some(name) {
                        return Some(self.part(item, Field::Value, budget));
                    }
                }
                Kind::ShorthandProperty if name_of(program.text(item)) == name => {
                    return Some(self.expression(item, budget));
                }
                _ => {}
            }
        }
        None
    }

    /// The value of an option in an object literal.
    pub(super) fn option(&self, object: Id, name: &str) -> Option<Id> {
        let program = self.program;
        let object = match self.know(object) {
            Known::Object(id) => id,
            _ => return None,
        };
        let mut pairs = program
            .children(object)
            .filter(|item| program.kind(*item) == Kind::Pair);
        let named = |item: &Id| {
            let key = program.child(*item, Field::Key);
            key.is_some_and(|key| program.text(key).trim_matches(['\'', '"']) == name)
        };
        pairs
            .find(named)
            .and_then(|item| program.child(item, Field::Value))
    }

    /// What `require(name)` is.
    pub(super) fn module(&self, name: &str) -> Known {
        let bare = name.strip_prefix("node:").unwrap_or(name);
        match MODULES.contains(&bare) {
            true if bare == "process" => Known::of_path("process"),
            true => Known::of_path(&format!("node:{bare}")),
            false => Known::of_path(&format!("npm:{name}")),
        }
    }
}

/// A value as a part of a text.
pub(super) fn push(told: &mut String, known: &Known) {
    match known {
        Known::Text(text) => told.push_str(text),
        Known::Number(number) => told.push_str(&number.to_string()),
        // Where the program stands is below the workspace.
        Known::Path(path) if matches!(path.as_ref(), "__dirname" | "import.meta.dirname") => told.push('.'),
        Known::Path(path) if path.as_ref() == "process.env.HOME" => told.push('~'),
        _ => told.push(UNKNOWN),
    }
}

/// Two values, of which it is one: what can be reached by either.
fn either(one: Known, other: Known) -> Known {
    match (one, other) {
        (one, other) if one == other => one,
        (Known::Path(path), other) => match (is_plain(&path), other) {
            (true, Known::Path(other)) => Known::Path(other),
            _ => Known::Path(path),
        },
        (_, Known::Path(path)) => Known::Path(path),
        _ => Known::Unknown,
    }
}

/// A global name that nobody knows: `window`.
fn is_plain(path: &str) -> bool {
    !path.contains([':', '.']) && !FUNCTIONS.contains(&path)
}
/// `global` is `globalThis`.
fn global(name: &str) -> Rc<str> {
    Rc::from(match name {
        "global" | "window" | "self" | "root" | "GLOBAL" => "globalThis",
        name => name,
    })
}

/// A path with one more name, by its shortest form.
fn joined(path: &str, name: &str) -> Rc<str> {
    match (path, name) {
        ("globalThis", name) => return global(name),
        ("module" | "process.mainModule" | "require.main" | "module.parent", "require") => {
            return Rc::from("require");
        }
        ("module" | "process.mainModule" | "require.main", "constructor") => return Rc::from("node:module"),
        ("node:module", "Module") | ("node:module.prototype", "constructor") => {
            return Rc::from("node:module");
        }
        ("node:module.prototype", "require") => return Rc::from("require"),
        ("node:fs", "promises") => return Rc::from("node:fs/promises"),
        ("node:path", "posix" | "win32") => return Rc::from("node:path"),
        ("globalThis.constructor", "constructor") => return Rc::from("Function"),
        (path, "default") if path.starts_with("node:") && !path.contains('.') => return Rc::from(path),
        (path, "constructor") => {
            if let Some(class) = path.strip_suffix(".prototype") {
                return Rc::from(class);
            }
            if FUNCTIONS.contains(&path)
                || path.contains('.') && path.starts_with("node:")
                || path.ends_with(".constructor")
            {
                return Rc::from("Function");
            }
        }
        _ => {}
    }
    match path.len() > 256 {
        true => Rc::from(UNKNOWN.to_string()),
        false => Rc::from(format!("{path}.{name}")),
    }
}
