//! Which scope binds each name of a module, and by what, as the interpreter's compiler finds it out. A name that is
//! bound anywhere in a scope is bound in all of it.

mod bind;
mod compile;

pub(super) use bind::name_of_pattern;

use super::syntax::finding;
use crate::{lists::LISTS, rule::Finding};
use bind::Binder;
use ruff_python_ast::{Expr, ModModule, PythonVersion};
use ruff_text_size::TextRange;
use std::collections::HashMap;

const MODULE: usize = 0;
/// Of a binding, so many kinds are kept.
const KINDS_MAX: usize = 8;
/// Reading one of these means that names may be bound out of sight.
const BINDS_BY_TEXT: &[&str] = &["exec", "eval", "globals", "vars", "locals", "__builtins__"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeKind {
    Module,
    Class,
    Function(bool),
    Lambda,
    Comprehension(Runs),
    /// `[T]` of a function, a class or a type: unlike a function it sees the class around it.
    TypeParameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Now,
    Async,
    /// It is a generator.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    Global,
    Nonlocal,
}

#[derive(Debug)]
struct Scope<'a> {
    kind: ScopeKind,
    parent: usize,
    /// By `global` and `nonlocal`, with the statement.
    declared: HashMap<&'a str, (Declared, TextRange)>,
}

/// How a name comes to be bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// `import a.b as x` binds `a.b`, `import a.b` binds `a`, `from a import b` binds `b` of `a`.
    Import(&'a str, Option<&'a str>),
    /// `x = value`, `(x := value)`.
    Value(&'a Expr),
    Function,
    Class,
    Parameter(Option<&'a Expr>),
    /// `for`, `with`, unpacking, `except`, `del`, patterns, `+=`, a relative import.
    Other,
}

/// A name in a scope, with what binds it there.
#[derive(Debug, Default)]
pub(crate) struct Binding<'a> {
    scope: usize,
    /// The first of them, without repeated imports of the same.
    pub(crate) kinds: Vec<Kind<'a>>,
    times: u32,
    /// By `del`, or at the end of an `except ... as`.
    deleted: bool,
    /// From there on it is bound whatever happens.
    sure: Option<u32>,
}

impl<'a> Binding<'a> {
    /// If there is exactly one way in which it is bound.
    pub(crate) fn only_kind(&self) -> Option<&Kind<'a>> {
        let only = self.times == 1 && !self.deleted;
        self.kinds.first().filter(|_| only)
    }

    fn join(&mut self, kind: Kind<'a>, sure: Option<u32>) {
        self.sure = self.sure.into_iter().chain(sure).min();
        let import = |kind: &Kind<'a>| match kind {
            Kind::Import(module, name) => Some((*module, *name)),
            _ => None,
        };
        let known = import(&kind);
        if known.is_some() && self.kinds.iter().any(|kind| import(kind) == known) {
            return;
        }
        self.times += 1;
        if self.kinds.len() < KINDS_MAX {
            self.kinds.push(kind);
        }
    }
}

/// `from module import *`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Star<'a> {
    pub(crate) module: &'a str,
    /// From there on its names are bound.
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    Builtin,
    /// A place in the table of bindings.
    Binding(usize),
    Unresolved,
}

/// What is around a name that is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// It is in an annotation that the interpreter never evaluates.
    never: bool,
    /// It is not evaluated whenever the program runs.
    pub(crate) conditional: bool,
    /// It is a decorator, and so called.
    pub(crate) decorates: bool,
    /// What may catch its error: a place in the list, from 1.
    pub(crate) watch: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRead<'a> {
    pub(crate) name: &'a str,
    pub(crate) range: TextRange,
    pub(crate) scope: usize,
    /// The expression that begins with it: `a.b()` for `a`.
    pub(crate) whole: &'a Expr,
    pub(crate) at: Circumstances,
    pub(crate) resolution: Resolution,
    /// What it means while the binding is not there yet, or no more: `eval` before `eval = None`.
    pub(crate) otherwise: Option<Resolution>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Watch<'a> {
    /// `except` with these types; none: with all.
    Handler(&'a [Expr]),
    /// `with manager():`.
    Manager(&'a Expr),
    /// `finally: return`.
    Return,
}

#[derive(Debug, Default)]
pub(crate) struct Names<'a> {
    scopes: Vec<Scope<'a>>,
    pub(crate) bindings: Vec<Binding<'a>>,
    index: HashMap<(usize, &'a str), usize>,
    /// By position.
    reads: Vec<NameRead<'a>>,
    /// Star imports, in the order of the text.
    pub(crate) stars: Vec<Star<'a>>,
    /// Names may be bound that no binding shows: by `exec`, `globals()['x'] = 1`.
    pub(crate) binds_by_text: bool,
    /// Each with the one around it.
    pub(crate) watches: Vec<(Watch<'a>, usize)>,
    /// `NameError` is read: the program is ready for names that are absent.
    pub(crate) expects_name_errors: bool,
}

impl<'a> Names<'a> {
    /// Those of a module whose nesting was looked at, with what the compiler of a version refuses.
    pub(crate) fn compiled(
        module: &'a ModModule,
        code: &'a str,
        version: PythonVersion,
    ) -> (Self, Vec<Finding>) {
        let (mut names, mut refused) = Binder::bind(module, code, version);
        let mut unbound: Vec<Finding> = Vec::new();
        for (at, scope) in names.scopes.iter().enumerate() {
            for (name, (declared, range)) in &scope.declared {
                let is_bound = names.enclosing(at, name).is_some() || names.is_class_cell(at, name);
                if *declared == Declared::Nonlocal && !is_bound {
                    unbound.push(finding(*range, format!("no binding for nonlocal `{name}` found")));
                }
            }
        }
        unbound.sort_by_key(|finding| finding.range.start);
        refused.splice(0..0, unbound);
        let meanings: Vec<_> = names.reads.iter().map(|read| names.resolve(read)).collect();
        for (read, (resolution, otherwise)) in names.reads.iter_mut().zip(meanings) {
            (read.resolution, read.otherwise) = (resolution, otherwise);
        }
        names.reads.sort_unstable_by_key(|read| read.range.start());
        names.binds_by_text |= names.reads.iter().any(|read| {
            let meanings = [Some(read.resolution), read.otherwise];
            BINDS_BY_TEXT.contains(&read.name) && meanings.contains(&Some(Resolution::Builtin))
        });
        (names, refused)
    }

    /// Whether a name may come from a star import: nothing else binds it, or the module does, but not surely after it.
    pub(crate) fn may_be_of_star(&self, read: &NameRead<'a>, star: &Star<'a>) -> bool {
        let may_be = |resolution: Resolution| match resolution {
            Resolution::Unresolved | Resolution::Builtin => true,
            Resolution::Binding(id) => {
                let binding = &self.bindings[id];
                let after = |sure: u32| sure > star.end && sure <= read.range.start().to_u32();
                binding.scope == MODULE && (binding.deleted || !binding.sure.is_some_and(after))
            }
        };
        may_be(read.resolution) || read.otherwise.is_some_and(may_be)
    }

    pub(crate) fn bound(&self) -> impl Iterator<Item = &'a str> {
        self.index.keys().map(|(_, name)| *name)
    }

    pub(crate) fn bound_in_classes(&self) -> impl Iterator<Item = &'a str> {
        let in_class = self.index.keys().filter(|(scope, _)| self.is_class(*scope));
        in_class.map(|(_, name)| *name)
    }

    /// Whether a name is the target of a comprehension.
    pub(crate) fn is_of_comprehension(&self, binding: &Binding<'a>) -> bool {
        matches!(self.scopes[binding.scope].kind, ScopeKind::Comprehension(_))
    }

    /// A name of the module itself: what `globals()['name']` is.
    pub(crate) fn of_module(&self, name: &str) -> Option<usize> {
        self.index.get(&(MODULE, name)).copied()
    }

    /// The name that is read there.
    pub(crate) fn read_at(&self, range: TextRange) -> Option<&NameRead<'a>> {
        let start = range.start();
        let at = self.reads.binary_search_by_key(&start, |read| read.range.start());
        self.reads.get(at.ok()?)
    }

    /// What binds the name that is read there.
    pub(crate) fn binding_at(&self, range: TextRange) -> Option<&Binding<'a>> {
        match self.read_at(range)?.resolution {
            Resolution::Binding(id) => self.bindings.get(id),
            _ => None,
        }
    }

    /// Names that are read and evaluated, and are bound nowhere in sight. `__x` has another name in each class.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = &NameRead<'a>> {
        let is_private = |name: &str| name.starts_with("__") && !name.ends_with("__");
        self.reads.iter().filter(move |read| {
            !read.at.never && read.resolution == Resolution::Unresolved && !is_private(read.name)
        })
    }

    pub(crate) fn is_class(&self, scope: usize) -> bool {
        self.scopes[scope].kind == ScopeKind::Class
    }

    pub(crate) fn is_in_function(&self, scope: usize) -> bool {
        let is_function = |kind| matches!(kind, ScopeKind::Function(_) | ScopeKind::Lambda);
        self.around(scope).any(|at| is_function(self.scopes[at].kind))
    }

    /// A scope, and those around it, but the module.
    fn around(&self, scope: usize) -> impl Iterator<Item = usize> {
        let parent = |at: &usize| Some(self.scopes[*at].parent).filter(|at| *at != MODULE);
        std::iter::successors(Some(scope).filter(|at| *at != MODULE), parent)
    }

    /// The binding that `nonlocal` means.
    fn enclosing(&self, scope: usize, name: &'a str) -> Option<usize> {
        let mut around = self.around(scope).skip(1).filter(|at| !self.is_class(*at));
        around.find_map(|at| self.index.get(&(at, name)).copied())
    }

    /// `__class__` in a method: the compiler binds it in a scope between the class and its functions.
    fn is_class_cell(&self, scope: usize, name: &str) -> bool {
        name == "__class__" && self.around(scope).skip(1).any(|at| self.is_class(at))
    }

    fn resolve(&self, read: &NameRead<'a>) -> (Resolution, Option<Resolution>) {
        let mut uncertain = None;
        let mut crossed_function = false;
        for at in self.around(read.scope) {
            let scope = &self.scopes[at];
            match scope.declared.get(read.name) {
                Some((Declared::Global, _)) => break,
                Some((Declared::Nonlocal, _)) => {
                    let unbound = match read.name {
                        "__class__" => Resolution::Builtin,
                        _ => Resolution::Unresolved,
                    };
                    let found = self.enclosing(at, read.name);
                    return answer(uncertain, found.map_or(unbound, Resolution::Binding));
                }
                None => {}
            }
            let is_class = scope.kind == ScopeKind::Class;
            if is_class && crossed_function {
                if read.name == "__class__" {
                    return answer(uncertain, Resolution::Builtin);
                }
                continue;
            }
            if let Some(found) = self.index.get(&(at, read.name)).copied() {
                if !is_class || self.is_sure(found, read) {
                    return answer(uncertain, Resolution::Binding(found));
                }
                uncertain = uncertain.or(Some(Resolution::Binding(found)));
            } else if is_class && matches!(read.name, "__module__" | "__qualname__") {
                return answer(uncertain, Resolution::Builtin);
            }
            crossed_function |= scope.kind != ScopeKind::TypeParameters;
        }
        let otherwise = match LISTS.builtins.contains(read.name) {
            true => Resolution::Builtin,
            false => Resolution::Unresolved,
        };
        match self.of_module(read.name) {
            Some(found) if self.is_sure(found, read) || otherwise == Resolution::Unresolved => {
                answer(uncertain, Resolution::Binding(found))
            }
            Some(found) => answer(uncertain.or(Some(Resolution::Binding(found))), otherwise),
            None => answer(uncertain, otherwise),
        }
    }

    /// Whether the name is bound there whenever that code runs.
    fn is_sure(&self, id: usize, read: &NameRead<'a>) -> bool {
        let binding = &self.bindings[id];
        let start = read.range.start().to_u32();
        !binding.deleted && binding.sure.is_some_and(|from| from <= start)
    }
}

fn answer(uncertain: Option<Resolution>, found: Resolution) -> (Resolution, Option<Resolution>) {
    (uncertain.unwrap_or(found), uncertain.map(|_| found))
}

#[cfg(test)]
mod tests;
