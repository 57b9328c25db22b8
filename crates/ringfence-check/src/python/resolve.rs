//! Finds what an expression denotes, as far as the code shows: `s` after `from os import system as s` is `os.system`,
//! as is `getattr(__import__('os'), 'system')`. A string that is no literal is unknown, and refused where it matters.

use super::{
    module_attributes::{dangerous_module, module_at},
    names::{Kind, NameRead, Names, Resolution, Star},
    spine::spine_of,
    table,
};
use crate::lists::LISTS;
use ruff_python_ast::{Arguments, Expr, ExprName};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Maximum length of a path: rules know no longer ones.
const PATH_BYTES_MAX: usize = 200;
/// Maximum number of nested names and calls followed.
const DEPTH_MAX: u32 = 60;
const STARS_MAX: usize = 100;
/// Path of the result of `globals()`.
const OWN_NAMES: &str = "globals()";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning<'a> {
    Unknown,
    /// A name of the module `builtins`.
    Builtin(&'a str),
    /// A module or a path from a module: `os`, `os.system`, `pathlib.Path()`.
    Path(Rc<str>),
    /// A string literal, also as the value of a name.
    Text(&'a str),
}

impl Meaning<'_> {
    pub(crate) fn path(text: &str) -> Self {
        Self::Path(Rc::from(text))
    }

    pub(crate) fn as_path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }

    fn is_object(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Builtin(_))
    }
}

#[derive(Debug)]
pub(crate) struct Meanings<'a, 's> {
    names: &'s Names<'a>,
    /// Meaning of each binding; `Unknown` while it is being resolved.
    known: RefCell<Vec<Option<Meaning<'a>>>>,
    depth: Cell<u32>,
    /// An expression was too deep to be followed.
    pub(crate) given_up: Cell<bool>,
}

impl<'a, 's> Meanings<'a, 's> {
    pub(crate) fn new(names: &'s Names<'a>) -> Self {
        Self {
            names,
            known: RefCell::new(vec![None; names.bindings.len()]),
            depth: Cell::new(0),
            given_up: Cell::new(false),
        }
    }

    pub(crate) fn of(&self, expr: &'a Expr) -> Meaning<'a> {
        if self.depth.get() >= DEPTH_MAX {
            self.given_up.set(true);
            return Meaning::Unknown;
        }
        self.depth.set(self.depth.get() + 1);
        let spine = spine_of(expr);
        let innermost = self.of_innermost(spine[0]);
        let outwards = spine[1..].iter();
        let meaning = outwards.fold(innermost, |left, part| self.step(&left, part));
        self.depth.set(self.depth.get() - 1);
        meaning
    }

    /// Returns the string literal that an expression denotes, itself or by the binding of a name.
    pub(crate) fn text(&self, expr: &'a Expr) -> Option<&'a str> {
        match self.of(expr) {
            Meaning::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn of_innermost(&self, expr: &'a Expr) -> Meaning<'a> {
        match expr {
            Expr::Name(name) => self.of_name(name),
            Expr::StringLiteral(literal) => Meaning::Text(literal.value.to_str()),
            Expr::Named(named) => self.of(&named.value),
            Expr::If(either) => self.first_object([either.body.as_ref(), either.orelse.as_ref()]),
            Expr::BoolOp(either) => self.first_object(&either.values),
            _ => Meaning::Unknown,
        }
    }

    /// Returns the first of several possible meanings that is a path or a builtin.
    fn first_object(&self, exprs: impl IntoIterator<Item = &'a Expr>) -> Meaning<'a> {
        let mut meanings = exprs.into_iter().map(|expr| self.of(expr));
        meanings.find(Meaning::is_object).unwrap_or(Meaning::Unknown)
    }

    fn of_name(&self, name: &'a ExprName) -> Meaning<'a> {
        let Some(read) = self.names.read_at(name.range) else {
            return Meaning::Unknown;
        };
        let meaning = self.of_bound(read);
        if !self.names.stars.is_empty() {
            return self.star_meaning(read, &meaning).unwrap_or(meaning);
        }
        match dangerous_module(read.name) {
            // A module's name without an import may get it from the added imports or an earlier call of the session.
            Some(module) if read.resolution == Resolution::Unresolved && meaning == Meaning::Unknown => {
                Meaning::path(module)
            }
            _ => meaning,
        }
    }

    /// Returns what a name denotes by its visible bindings.
    fn of_bound(&self, read: &NameRead<'a>) -> Meaning<'a> {
        let of = |resolution: Resolution| match resolution {
            Resolution::Builtin => of_builtin(read.name),
            Resolution::Binding(id) => self.of_binding(id),
            Resolution::Unresolved => Meaning::Unknown,
        };
        // A builtin as the fallback wins over the binding; any other counts if the binding is no path or builtin.
        match (of(read.resolution), read.fallback) {
            (_, Some(Resolution::Builtin)) => of_builtin(read.name),
            (meaning, Some(fallback)) if !meaning.is_object() => of(fallback),
            (meaning, _) => meaning,
        }
    }

    fn of_binding(&self, id: usize) -> Meaning<'a> {
        if let Some(known) = &self.known.borrow()[id] {
            return known.clone();
        }
        self.known.borrow_mut()[id] = Some(Meaning::Unknown);
        let meaning = self.find_binding(id);
        self.known.borrow_mut()[id] = Some(meaning.clone());
        meaning
    }

    fn find_binding(&self, id: usize) -> Meaning<'a> {
        let binding = &self.names.bindings[id];
        let only = binding.only_kind().is_some();
        for kind in &binding.kinds {
            let meaning = match kind {
                Kind::Import(module, None) => Meaning::path(module),
                Kind::Import(module, Some(name)) => self.attribute(&Meaning::path(module), name),
                Kind::Value(expr) => self.of(expr),
                Kind::Parameter(Some(default)) => self.first_object([*default]),
                Kind::Parameter(None) | Kind::Function | Kind::Class | Kind::Other => Meaning::Unknown,
            };
            if meaning.is_object() || only {
                return meaning;
            }
        }
        Meaning::Unknown
    }

    /// Returns what a name denotes by a star import; over a visible binding only a known name wins, not over a path.
    fn star_meaning(&self, read: &NameRead<'a>, bound: &Meaning<'a>) -> Option<Meaning<'a>> {
        if read.name.starts_with('_') {
            return None;
        }
        let stars = self.names.stars.iter().rev().take(STARS_MAX);
        let candidates = || stars.clone().filter(|it| self.names.may_come_from_star(read, it));
        let imported = |star: &Star<'a>| self.attribute(&Meaning::path(star.module), read.name);
        match candidates().find(|star| is_known_member(star.module, read)) {
            Some(star) => (!matches!(bound, Meaning::Path(_))).then(|| imported(star)),
            None if read.resolution == Resolution::Unresolved => candidates().next().map(imported),
            None => None,
        }
    }

    /// True if a star import decides what this name denotes.
    pub(crate) fn is_from_star(&self, name: &ExprName) -> bool {
        let read = self.names.read_at(name.range);
        read.is_some_and(|read| self.star_meaning(read, &self.of_bound(read)).is_some())
    }

    /// Takes one step outwards: returns what `left.a`, `left()` or `left[i]` denotes, from what the left part denotes.
    pub(crate) fn step(&self, left: &Meaning<'a>, part: &'a Expr) -> Meaning<'a> {
        match part {
            Expr::Attribute(attribute) => self.attribute(left, attribute.attr.as_str()),
            Expr::Call(call) => self.call(left, &call.arguments),
            Expr::Subscript(subscript) if left.as_path().is_some() => match self.of(&subscript.slice) {
                Meaning::Text(key) => self.item(left, key),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    pub(crate) fn attribute(&self, left: &Meaning<'a>, name: &str) -> Meaning<'a> {
        match left {
            Meaning::Path(path) if &**path == "builtins" => match LISTS.builtins.get(name) {
                Some(known) => of_builtin(known),
                None => join(path, name),
            },
            Meaning::Path(_) | Meaning::Builtin(_) if name == "__builtins__" => Meaning::path("builtins"),
            Meaning::Path(path) => match module_at(path, name) {
                Some(module) => Meaning::path(module),
                None => join(path, name),
            },
            // A function in C is bound to its module.
            Meaning::Builtin(_) if name == "__self__" => Meaning::path("builtins"),
            Meaning::Builtin(function) => join(&format!("builtins.{function}"), name),
            Meaning::Text(_) | Meaning::Unknown => Meaning::Unknown,
        }
    }

    /// Returns what an item denotes: of the names of a module, or of all modules.
    fn item(&self, left: &Meaning<'a>, key: &str) -> Meaning<'a> {
        let path = left.as_path().unwrap_or_default();
        match (path, path.strip_suffix(".__dict__")) {
            (OWN_NAMES, _) => match (self.names.of_module(key), LISTS.builtins.get(key)) {
                (Some(id), _) => self.of_binding(id),
                (None, Some(known)) => of_builtin(known),
                (None, None) => Meaning::Unknown,
            },
            ("sys.modules", _) => Meaning::path(key),
            ("builtins", _) => self.attribute(left, key),
            (_, Some(module)) => self.attribute(&Meaning::path(module), key),
            _ => Meaning::Unknown,
        }
    }

    pub(crate) fn argument(&self, arguments: &'a Arguments, at: usize) -> Meaning<'a> {
        match arguments.args.get(at) {
            Some(Expr::Starred(_)) | None => Meaning::Unknown,
            Some(expr) => self.of(expr),
        }
    }

    /// Returns what the result of a call denotes, if that is known without running it.
    fn call(&self, function: &Meaning<'a>, arguments: &'a Arguments) -> Meaning<'a> {
        let name = match function {
            Meaning::Builtin(name) => *name,
            Meaning::Path(path) => path,
            _ => return Meaning::Unknown,
        };
        let first = || self.argument(arguments, 0);
        let of_first = |name: Meaning<'a>| match name {
            Meaning::Text(name) => self.attribute(&first(), name),
            _ => Meaning::Unknown,
        };
        match name {
            "getattr"
            | "inspect.getattr_static"
            | "builtins.object.__getattribute__"
            | "builtins.type.__getattribute__" => of_first(self.argument(arguments, 1)),
            "vars" if !arguments.args.is_empty() => of_first(Meaning::Text("__dict__")),
            "vars" | "globals" | "locals" => Meaning::path(OWN_NAMES),
            "type" if arguments.len() == 1 && matches!(first(), Meaning::Text(_)) => Meaning::Builtin("str"),
            "__import__" | "importlib.__import__" => {
                let is_whole = arguments.len() >= 4 || arguments.find_keyword("fromlist").is_some();
                let of = |name: &'a str| match is_whole {
                    true => name,
                    false => name.split('.').next().unwrap_or(name),
                };
                let name = self.module_named(arguments);
                name.map_or(Meaning::Unknown, |name| Meaning::path(of(name)))
            }
            "operator.getitem" => match self.argument(arguments, 1) {
                Meaning::Text(key) => self.item(&first(), key),
                _ => Meaning::Unknown,
            },
            _ if function.as_path().is_none() => Meaning::Unknown,
            _ => self.call_method(name, arguments),
        }
    }

    fn call_method(&self, path: &str, arguments: &'a Arguments) -> Meaning<'a> {
        let (value, method) = path.rsplit_once('.').unwrap_or((path, ""));
        let found = match (method, self.argument(arguments, 0)) {
            ("get" | "pop" | "setdefault" | "__getitem__", Meaning::Text(key)) => {
                self.item(&Meaning::path(value), key)
            }
            ("__getattribute__" | "__getattr__", Meaning::Text(name)) => {
                return self.attribute(&Meaning::path(value), name);
            }
            ("load_module" | "import_module" | "find_module", _) => {
                let name = self.module_named(arguments);
                return name.map_or(Meaning::Unknown, Meaning::path);
            }
            _ => Meaning::Unknown,
        };
        match found.is_object() {
            true => found,
            false if path.len() + 2 < PATH_BYTES_MAX => Meaning::path(&format!("{path}()")),
            false => Meaning::Unknown,
        }
    }

    /// Returns the module name in the arguments of a function that imports by name.
    fn module_named(&self, arguments: &'a Arguments) -> Option<&'a str> {
        self.text(arguments.find_argument_value("name", 0)?)
    }
}

/// True if a name of a module is listed, or is itself a module. A name with another meaning must be listed itself:
/// `hasattr` is not a member of `ctypes`, although all members of `ctypes` are listed.
fn is_known_member(module: &str, read: &NameRead<'_>) -> bool {
    let path = format!("{module}.{}", read.name);
    let is_known = match read.resolution {
        Resolution::Unresolved => table::find(&path).is_some(),
        _ => table::find_by_name(&path).is_some(),
    };
    is_known || module_at(module, read.name).is_some()
}

fn of_builtin(name: &str) -> Meaning<'_> {
    match name {
        "__builtins__" => Meaning::path("builtins"),
        _ => Meaning::Builtin(name),
    }
}

fn join<'a>(path: &str, name: &str) -> Meaning<'a> {
    match path.len() + name.len() < PATH_BYTES_MAX {
        true => Meaning::path(&format!("{path}.{name}")),
        false => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests;
