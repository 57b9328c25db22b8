//! Resolves each name of a module to its scope and bindings, by the rules of the interpreter's compiler. A name that is
//! bound anywhere in a scope is bound in all of it.

mod bind;
mod compile;

pub(super) use bind::name_of_pattern;

use super::{spine::spine_of, syntax::finding};
use crate::{lists::LISTS, rule::Finding};
use bind::Binder;
use ruff_python_ast::{Expr, ModModule, PythonVersion};
use ruff_text_size::TextRange;
use std::collections::HashMap;

const MODULE: usize = 0;
/// Maximum number of kinds kept for one binding.
const KINDS_MAX: usize = 8;
/// Builtins that may bind names in ways that the code does not show.
const DYNAMIC_BINDERS: &[&str] = &["exec", "eval", "globals", "vars", "locals", "__builtins__"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeKind {
    Module,
    Class,
    Function(bool),
    Lambda,
    Comprehension(Mode),
    /// `[T]` of a function, a class or a type: unlike a function, it sees the names of the class around it.
    TypeParameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Sync,
    Async,
    Generator,
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
    /// Names declared by `global` and `nonlocal`, with the range of the statement.
    declared: HashMap<&'a str, (Declared, TextRange)>,
}

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

/// A name in a scope, with its bindings there.
#[derive(Debug, Default)]
pub(crate) struct Binding<'a> {
    scope: usize,
    /// The first ways in which the name is bound, without repeated imports of the same thing.
    pub(crate) kinds: Vec<Kind<'a>>,
    times: u32,
    /// The name is unbound by `del` or at the end of an `except ... as`.
    deleted: bool,
    /// Offset after which the name is certainly bound.
    certain_from: Option<u32>,
}

impl<'a> Binding<'a> {
    /// Returns the way in which the name is bound, if there is exactly one.
    pub(crate) fn only_kind(&self) -> Option<&Kind<'a>> {
        let only = self.times == 1 && !self.deleted;
        self.kinds.first().filter(|_| only)
    }

    fn join(&mut self, kind: Kind<'a>, from: Option<u32>) {
        self.certain_from = self.certain_from.into_iter().chain(from).min();
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
    /// Offset after which its names are bound.
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    Builtin,
    /// An index into the table of bindings.
    Binding(usize),
    Unresolved,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadContext {
    /// The name is in an annotation that the interpreter never evaluates.
    skipped: bool,
    /// A run of the program may not evaluate the name.
    pub(crate) conditional: bool,
    /// The name is a decorator, and so it is called.
    pub(crate) is_decorator: bool,
    /// The innermost statement that may catch its error: an index into `catchers`, from 1; 0 for none.
    pub(crate) catcher: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRead<'a> {
    pub(crate) name: &'a str,
    pub(crate) range: TextRange,
    pub(crate) scope: usize,
    /// The expression that begins with the name: `a.b()` for `a`.
    pub(crate) whole: &'a Expr,
    pub(crate) context: ReadContext,
    pub(crate) resolution: Resolution,
    /// The resolution while the binding does not exist yet, or no longer: `eval` before `eval = None`.
    pub(crate) fallback: Option<Resolution>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Catcher<'a> {
    /// `except` with these types; without any, it catches all.
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
    /// Ordered by position.
    reads: Vec<NameRead<'a>>,
    /// Star imports, in the order of the code.
    pub(crate) stars: Vec<Star<'a>>,
    /// Names may be bound that `bindings` does not contain: by `exec`, `globals()['x'] = 1`.
    pub(crate) has_dynamic_bindings: bool,
    /// Each with the index of the one around it, from 1; 0 for none.
    pub(crate) catchers: Vec<(Catcher<'a>, usize)>,
    /// The program reads `NameError`, and so expects that names may be absent.
    pub(crate) reads_name_error: bool,
}

impl<'a> Names<'a> {
    /// Resolves the names of a module whose nesting is checked, and returns the errors of this version's compiler.
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
        for (read, (resolution, fallback)) in names.reads.iter_mut().zip(meanings) {
            (read.resolution, read.fallback) = (resolution, fallback);
        }
        names.reads.sort_unstable_by_key(|read| read.range.start());
        names.has_dynamic_bindings |= names.reads.iter().any(|read| {
            let meanings = [Some(read.resolution), read.fallback];
            // `dir()` gives the names of its scope, also one that an added import would bind.
            let call = || spine_of(read.whole).get(1)?.as_call_expr();
            let gives_names = || read.name == "dir" && call().is_some_and(|call| call.arguments.is_empty());
            (DYNAMIC_BINDERS.contains(&read.name) || gives_names())
                && meanings.contains(&Some(Resolution::Builtin))
        });
        (names, refused)
    }

    /// True if a name may come from a star import: nothing else binds it, or the module does, not certainly after it.
    pub(crate) fn may_come_from_star(&self, read: &NameRead<'a>, star: &Star<'a>) -> bool {
        let may_be = |resolution: Resolution| match resolution {
            Resolution::Unresolved | Resolution::Builtin => true,
            Resolution::Binding(id) => {
                let binding = &self.bindings[id];
                let after = |from: u32| from > star.end && from <= read.range.start().to_u32();
                binding.scope == MODULE && (binding.deleted || !binding.certain_from.is_some_and(after))
            }
        };
        may_be(read.resolution) || read.fallback.is_some_and(may_be)
    }

    pub(crate) fn bound(&self) -> impl Iterator<Item = &'a str> {
        self.index.keys().map(|(_, name)| *name)
    }

    pub(crate) fn bound_in_classes(&self) -> impl Iterator<Item = &'a str> {
        let in_class = self.index.keys().filter(|(scope, _)| self.is_class(*scope));
        in_class.map(|(_, name)| *name)
    }

    pub(crate) fn is_of_comprehension(&self, binding: &Binding<'a>) -> bool {
        matches!(self.scopes[binding.scope].kind, ScopeKind::Comprehension(_))
    }

    /// Returns the binding of a name of the module itself, as `globals()['name']` does.
    pub(crate) fn of_module(&self, name: &str) -> Option<usize> {
        self.index.get(&(MODULE, name)).copied()
    }

    pub(crate) fn read_at(&self, range: TextRange) -> Option<&NameRead<'a>> {
        let start = range.start();
        let at = self.reads.binary_search_by_key(&start, |read| read.range.start());
        self.reads.get(at.ok()?)
    }

    /// Returns the binding of the name that is read at this range.
    pub(crate) fn binding_at(&self, range: TextRange) -> Option<&Binding<'a>> {
        match self.read_at(range)?.resolution {
            Resolution::Binding(id) => self.bindings.get(id),
            _ => None,
        }
    }

    /// Returns the names that are evaluated and have no visible binding, except `__x`, a different name in each class.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = &NameRead<'a>> {
        let is_private = |name: &str| name.starts_with("__") && !name.ends_with("__");
        self.reads.iter().filter(move |read| {
            !read.context.skipped && read.resolution == Resolution::Unresolved && !is_private(read.name)
        })
    }

    pub(crate) fn is_class(&self, scope: usize) -> bool {
        self.scopes[scope].kind == ScopeKind::Class
    }

    pub(crate) fn is_in_function(&self, scope: usize) -> bool {
        let is_function = |kind| matches!(kind, ScopeKind::Function(_) | ScopeKind::Lambda);
        self.around(scope).any(|at| is_function(self.scopes[at].kind))
    }

    /// Returns a scope and the scopes around it, except the module.
    fn around(&self, scope: usize) -> impl Iterator<Item = usize> {
        let parent = |at: &usize| Some(self.scopes[*at].parent).filter(|at| *at != MODULE);
        std::iter::successors(Some(scope).filter(|at| *at != MODULE), parent)
    }

    /// Returns the binding to which `nonlocal` refers.
    fn enclosing(&self, scope: usize, name: &'a str) -> Option<usize> {
        let mut around = self.around(scope).skip(1).filter(|at| !self.is_class(*at));
        around.find_map(|at| self.index.get(&(at, name)).copied())
    }

    /// True for `__class__` in a method: the compiler binds it in a scope between the class and its functions.
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
                if !is_class || self.is_certainly_bound(found, read) {
                    return answer(uncertain, Resolution::Binding(found));
                }
                uncertain = uncertain.or(Some(Resolution::Binding(found)));
            } else if is_class && matches!(read.name, "__module__" | "__qualname__") {
                return answer(uncertain, Resolution::Builtin);
            }
            crossed_function |= scope.kind != ScopeKind::TypeParameters;
        }
        let fallback = match LISTS.builtins.contains(read.name) {
            true => Resolution::Builtin,
            false => Resolution::Unresolved,
        };
        match self.of_module(read.name) {
            Some(found) if self.is_certainly_bound(found, read) || fallback == Resolution::Unresolved => {
                answer(uncertain, Resolution::Binding(found))
            }
            Some(found) => answer(uncertain.or(Some(Resolution::Binding(found))), fallback),
            None => answer(uncertain, fallback),
        }
    }

    fn is_certainly_bound(&self, id: usize, read: &NameRead<'a>) -> bool {
        let binding = &self.bindings[id];
        let start = read.range.start().to_u32();
        !binding.deleted && binding.certain_from.is_some_and(|from| from <= start)
    }
}

fn answer(uncertain: Option<Resolution>, found: Resolution) -> (Resolution, Option<Resolution>) {
    (uncertain.unwrap_or(found), uncertain.map(|_| found))
}

#[cfg(test)]
mod tests;
