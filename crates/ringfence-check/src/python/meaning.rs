//! What an expression denotes, as far as its text tells: `s` after `from os import system as s` is `os.system`, and so
//! is `getattr(__import__('os'), 'sys' + 'tem')`. Nothing is computed but sums of texts: what is not plain is unknown,
//! and rules refuse it where it matters.

mod calls;
mod stars;

use super::{
    builtin_names::{builtin, is_builtin},
    module_attributes::module_at,
    scope::{BindingId, Kind, Resolution, Scopes, Use},
    spine::spine_of,
    standard_modules::is_grave,
};
use ruff_python_ast::{self as ast, Expr, Operator};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Longer texts are not put together.
const TEXT_BYTES_MAX: usize = 65_536;
/// Longer paths denote nothing that a rule knows.
const PATH_BYTES_MAX: usize = 200;
/// Names and calls that are followed one into another.
const DEPTH_MAX: u32 = 60;
/// What may be spent on a text of no length; longer ones have more, by their length.
const FUEL: u64 = 100_000;

/// What is denoted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning<'a> {
    Unknown,
    /// A name of the module `builtins`.
    Builtin(&'a str),
    /// A module, or something by its way from a module: `os`, `os.system`, `pathlib.Path()`.
    Path(Rc<str>),
    Text(Rc<str>),
    /// A method of a text.
    Method(Rc<str>, &'a str),
    /// `operator.attrgetter('a.b')`.
    Getter(Rc<str>),
    /// `operator.itemgetter('a')`.
    Item(Rc<str>),
    /// `operator.methodcaller('a')`.
    Caller(Rc<str>),
}

impl Meaning<'_> {
    pub(crate) fn path(text: &str) -> Self {
        Self::Path(Rc::from(text))
    }

    pub(crate) fn text(text: &str) -> Self {
        if text.len() > TEXT_BYTES_MAX {
            return Self::Unknown;
        }
        Self::Text(Rc::from(text))
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }

    fn is_place(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Builtin(_))
    }
}

#[derive(Clone, Debug)]
enum Known<'a> {
    Not,
    /// It is being found out: the name stands in its own value.
    Asked,
    Found(Meaning<'a>),
}

/// Finds out what expressions denote.
#[derive(Debug)]
pub(crate) struct Meanings<'a, 's> {
    scopes: &'s Scopes<'a>,
    known: RefCell<Vec<Known<'a>>>,
    fuel: Cell<u64>,
    depth: Cell<u32>,
    given_up: Cell<bool>,
}

impl<'a, 's> Meanings<'a, 's> {
    /// For a text of that length.
    pub(crate) fn of_module(scopes: &'s Scopes<'a>, code_bytes: usize) -> Self {
        Self {
            scopes,
            known: RefCell::new(vec![Known::Not; scopes.bindings().len()]),
            fuel: Cell::new(FUEL.saturating_add(code_bytes as u64 * 8)),
            depth: Cell::new(0),
            given_up: Cell::new(false),
        }
    }

    /// Something was too intricate to be followed.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.get()
    }

    fn spend(&self, fuel: usize) -> bool {
        let left = self.fuel.get().checked_sub(fuel as u64);
        self.fuel.set(left.unwrap_or(0));
        if left.is_none() {
            self.given_up.set(true);
        }
        left.is_some()
    }

    /// What an expression denotes.
    pub(crate) fn of(&self, expr: &'a Expr) -> Meaning<'a> {
        if self.depth.get() >= DEPTH_MAX {
            self.given_up.set(true);
            return Meaning::Unknown;
        }
        if !self.spend(1) {
            return Meaning::Unknown;
        }
        self.depth.set(self.depth.get() + 1);
        let meaning = self.along_spine(expr);
        self.depth.set(self.depth.get() - 1);
        meaning
    }

    fn along_spine(&self, expr: &'a Expr) -> Meaning<'a> {
        let spine = spine_of(expr);
        let Some((innermost, outer)) = spine.split_first() else {
            return Meaning::Unknown;
        };
        let mut meaning = self.of_innermost(innermost);
        // A sum of texts is put together in one piece, so that its cost is its length.
        let mut sum: Option<String> = None;
        for part in outer {
            if !self.spend(1) {
                return Meaning::Unknown;
            }
            let addition = match part {
                Expr::BinOp(binary) if binary.op == Operator::Add => Some(&binary.right),
                _ => None,
            };
            if let Some(right) = addition
                && (sum.is_some() || matches!(meaning, Meaning::Text(_)))
            {
                let mut text = sum
                    .take()
                    .unwrap_or_else(|| meaning.as_text().unwrap_or_default().to_owned());
                meaning = Meaning::Unknown;
                if let Meaning::Text(more) = self.of(right)
                    && text.len() + more.len() <= TEXT_BYTES_MAX
                    && self.spend(more.len() / 16)
                {
                    text.push_str(&more);
                    sum = Some(text);
                }
                continue;
            }
            if let Some(text) = sum.take() {
                meaning = Meaning::text(&text);
            }
            meaning = self.step(&meaning, part);
        }
        match sum {
            Some(text) => Meaning::text(&text),
            None => meaning,
        }
    }

    /// What stands at the beginning of a spine.
    pub(crate) fn of_innermost(&self, expr: &'a Expr) -> Meaning<'a> {
        match expr {
            Expr::Name(name) => self.of_name(name),
            Expr::StringLiteral(literal) => Meaning::text(literal.value.to_str()),
            Expr::Named(named) => self.of(&named.value),
            Expr::If(either) => self.first_place([either.body.as_ref(), either.orelse.as_ref()]),
            Expr::BoolOp(either) => self.first_place(&either.values),
            _ => Meaning::Unknown,
        }
    }

    /// Of several that it may be, one that leads somewhere.
    fn first_place(&self, exprs: impl IntoIterator<Item = &'a Expr>) -> Meaning<'a> {
        let mut meanings = exprs.into_iter().map(|expr| self.of(expr));
        meanings.find(Meaning::is_place).unwrap_or(Meaning::Unknown)
    }

    fn of_name(&self, name: &'a ast::ExprName) -> Meaning<'a> {
        let Some(read) = self.scopes.use_at(name.range) else {
            return Meaning::Unknown;
        };
        self.of_use(read)
    }

    /// What a name denotes where it is read.
    pub(crate) fn of_use(&self, read: &Use<'a>) -> Meaning<'a> {
        let meaning = self.of_bound(read);
        if self.scopes.has_star_import() {
            return self.of_star(read, &meaning).unwrap_or(meaning);
        }
        match is_grave(read.name) {
            // What stands for a module without its import may get it: from us, or in an earlier call of the session.
            Some(module) if read.resolution == Resolution::Unresolved && meaning == Meaning::Unknown => {
                Meaning::path(module)
            }
            _ => meaning,
        }
    }

    /// What it denotes by what binds it in sight.
    fn of_bound(&self, read: &Use<'a>) -> Meaning<'a> {
        // What the name means while its binding is not there: of the two the one that leads further.
        if read.otherwise == Some(Resolution::Builtin) {
            return of_builtin(read.name);
        }
        let meaning = match read.resolution {
            Resolution::Builtin => return of_builtin(read.name),
            Resolution::Binding(id) => self.of_binding(id),
            Resolution::Unresolved => Meaning::Unknown,
        };
        match read.otherwise {
            Some(Resolution::Binding(id)) if !meaning.is_place() => self.of_binding(id),
            _ => meaning,
        }
    }

    fn of_binding(&self, id: BindingId) -> Meaning<'a> {
        let at = id.0 as usize;
        let set = |known: Known<'a>| {
            if let Some(slot) = self.known.borrow_mut().get_mut(at) {
                *slot = known;
            }
        };
        match self.known.borrow().get(at) {
            Some(Known::Found(meaning)) => return meaning.clone(),
            Some(Known::Not) => {}
            Some(Known::Asked) | None => return Meaning::Unknown,
        }
        set(Known::Asked);
        let meaning = self.find_binding(id);
        set(Known::Found(meaning.clone()));
        meaning
    }

    fn find_binding(&self, id: BindingId) -> Meaning<'a> {
        let Some(binding) = self.scopes.binding(id) else {
            return Meaning::Unknown;
        };
        let only = binding.only_kind().is_some();
        for kind in &binding.kinds {
            let meaning = match kind {
                Kind::Import { module } => Meaning::path(module),
                Kind::From {
                    level: 0,
                    module,
                    name,
                } => self.attribute(&Meaning::path(module), name),
                Kind::Value(expr) => self.of(expr),
                Kind::Parameter(Some(default)) => match self.of(default) {
                    place if place.is_place() => place,
                    _ => Meaning::Unknown,
                },
                Kind::From { .. } | Kind::Parameter(None) | Kind::Function | Kind::Class | Kind::Other => {
                    Meaning::Unknown
                }
            };
            if meaning.is_place() || only {
                return meaning;
            }
        }
        Meaning::Unknown
    }

    /// One step outwards: what `left.a`, `left()`, `left[i]`, `left + b` denotes when it is known what the left part
    /// does.
    pub(crate) fn step(&self, left: &Meaning<'a>, part: &'a Expr) -> Meaning<'a> {
        match part {
            Expr::Attribute(attribute) => self.member(left, attribute.attr.as_str()),
            Expr::Call(call) => self.call(left, &call.arguments),
            Expr::Subscript(subscript) => self.subscript(left, &subscript.slice),
            Expr::BinOp(binary) if binary.op == Operator::Add => match (left, self.of(&binary.right)) {
                (Meaning::Text(left), Meaning::Text(right)) => Meaning::text(&format!("{left}{right}")),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    /// An attribute as it is written.
    fn member(&self, left: &Meaning<'a>, name: &'a str) -> Meaning<'a> {
        match left {
            Meaning::Text(text) => Meaning::Method(Rc::clone(text), name),
            _ => self.attribute(left, name),
        }
    }

    /// An attribute by whatever way.
    pub(crate) fn attribute(&self, left: &Meaning<'a>, name: &str) -> Meaning<'a> {
        match left {
            Meaning::Path(path) if &**path == "builtins" => match builtin(name) {
                Some(known) => of_builtin(known),
                None => join(path, name),
            },
            Meaning::Path(_) | Meaning::Builtin(_) if name == "__builtins__" => Meaning::path("builtins"),
            Meaning::Path(path) => match module_at(path, name) {
                Some(module) => Meaning::path(module),
                None => join(path, name),
            },
            // What a function of C is bound to is its module.
            Meaning::Builtin(_) if name == "__self__" => Meaning::path("builtins"),
            Meaning::Builtin(function) => join(&format!("builtins.{function}"), name),
            _ => Meaning::Unknown,
        }
    }

    fn subscript(&self, left: &Meaning<'a>, slice: &'a Expr) -> Meaning<'a> {
        match left {
            Meaning::Path(_) => match self.of(slice) {
                Meaning::Text(key) => self.item(left, &key),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    /// An item by its name: of the names of a module, or of all modules.
    fn item(&self, left: &Meaning<'a>, key: &str) -> Meaning<'a> {
        let Some(path) = left.as_path() else {
            return Meaning::Unknown;
        };
        if path == calls::OWN_NAMES {
            return match self.scopes.of_module(key) {
                Some(id) => self.of_binding(id),
                None if is_builtin(key) => of_builtin(key_of(key)),
                None => Meaning::Unknown,
            };
        }
        if path == "sys.modules" {
            return Meaning::path(key);
        }
        if path == "builtins" {
            return self.attribute(left, key);
        }
        match path.strip_suffix(".__dict__") {
            Some(module) => self.attribute(&Meaning::path(module), key),
            None => Meaning::Unknown,
        }
    }
}

fn key_of(key: &str) -> &'static str {
    builtin(key).unwrap_or("")
}

fn of_builtin(name: &str) -> Meaning<'_> {
    match name {
        "__builtins__" => Meaning::path("builtins"),
        _ => Meaning::Builtin(name),
    }
}

fn join<'a>(path: &str, name: &str) -> Meaning<'a> {
    if path.len() + name.len() >= PATH_BYTES_MAX {
        return Meaning::Unknown;
    }
    let mut joined = String::with_capacity(path.len() + name.len() + 1);
    joined.push_str(path);
    joined.push('.');
    joined.push_str(name);
    Meaning::Path(Rc::from(joined))
}

#[cfg(test)]
mod tests;
