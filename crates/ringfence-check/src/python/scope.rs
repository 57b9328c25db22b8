//! What each name of a module means, as the interpreter's compiler finds it out: which scope binds it, by what, or that
//! nothing does. A name that is bound anywhere in a scope is bound in all of it.

mod collect;

use super::{
    builtin_names::{is_builtin, is_of_a_class},
    syntax::{Compiler, finding},
};
use crate::rule::Finding;
use collect::{Collector, Declared, Event};
use ruff_python_ast::{Expr, Identifier, ModModule, Pattern, TypeParam};
use ruff_text_size::TextRange;
use std::collections::HashMap;

/// Of a binding, so many kinds are kept; the rest are counted.
const KINDS_MAX: usize = 8;

/// Which binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BindingId(pub(crate) u32);

/// Which scope; 0 is the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ScopeId(pub(crate) u32);

/// Of the module.
pub(crate) const MODULE: ScopeId = ScopeId(0);

/// Names as numbers; a private name of a class (`__x`) is another name in another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NameId(u32);

/// What makes a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Module,
    Class,
    /// A function or a lambda.
    Function,
    Comprehension,
    /// `[T]` of a function, a class or a type: unlike a function it sees the class around it.
    TypeParameters,
}

#[derive(Clone, Copy, Debug)]
struct Scope {
    kind: ScopeKind,
    parent: Option<ScopeId>,
}

/// How a name comes to be bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// `import a.b as x` binds `a.b`, `import a.b` binds `a`.
    Import {
        module: &'a str,
    },
    /// `from ..module import name`.
    From {
        module: &'a str,
        level: u32,
        name: &'a str,
    },
    /// `x = value`, `(x := value)`.
    Value(&'a Expr),
    Function,
    Class,
    /// With its default.
    Parameter(Option<&'a Expr>),
    /// `for`, `with`, unpacking, `except`, `del`, patterns, `+=`.
    Other,
}

impl Kind<'_> {
    fn is_same_import(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Import { module: a }, Self::Import { module: b }) => a == b,
            (
                Self::From { module, level, name },
                Self::From {
                    module: b,
                    level: c,
                    name: d,
                },
            ) => (module, level, name) == (b, c, d),
            _ => false,
        }
    }
}

/// A name in a scope, with everything that binds it there.
#[derive(Clone, Debug)]
pub(crate) struct Binding<'a> {
    scope: ScopeId,
    /// The first of them, without repeated imports of the same.
    pub(crate) kinds: Vec<Kind<'a>>,
    /// How often it is bound, without repeated imports of the same.
    pub(crate) times: u32,
    /// By `del`, or at the end of an `except ... as`.
    pub(crate) deleted: bool,
    sure: Option<Sure>,
}

impl<'a> Binding<'a> {
    /// If there is exactly one way in which it is bound.
    pub(crate) fn only_kind(&self) -> Option<&Kind<'a>> {
        (self.times == 1 && !self.deleted)
            .then(|| self.kinds.first())
            .flatten()
    }
}

/// From where on a name of a module or class is bound whatever happens.
#[derive(Clone, Copy, Debug)]
struct Sure {
    /// For code of the same scope.
    here: u32,
    /// For code of functions in it.
    inside: u32,
}

/// `from module import *`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Star<'a> {
    pub(crate) module: &'a str,
    pub(crate) level: u32,
    /// From there on its names are bound.
    end: u32,
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    Builtin,
    Binding(BindingId),
    Unresolved,
}

/// A name that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use<'a> {
    pub(crate) name: &'a str,
    pub(crate) range: TextRange,
    /// Not in an annotation that the interpreter never evaluates.
    pub(crate) evaluated: bool,
    pub(crate) resolution: Resolution,
    /// What it means while the binding is not there yet, or no more: `eval` before `eval = None`.
    pub(crate) otherwise: Option<Resolution>,
}

/// The scopes of a module.
#[derive(Debug)]
pub(crate) struct Scopes<'a> {
    scopes: Vec<Scope>,
    bindings: Vec<Binding<'a>>,
    /// By name, then scope.
    index: Vec<(NameId, ScopeId, BindingId)>,
    declared: HashMap<(ScopeId, NameId), Declared>,
    /// By position.
    uses: Vec<Use<'a>>,
    names: collect::Names<'a>,
    stars: Vec<Star<'a>>,
    binds_by_text: bool,
}

impl<'a> Scopes<'a> {
    /// Those of a module whose nesting was looked at.
    #[cfg(test)]
    pub(crate) fn of(module: &'a ModModule) -> Self {
        Self::compiled(module, None).0
    }

    /// With what the compiler refuses.
    pub(super) fn compiled(module: &'a ModModule, compiler: Option<Compiler<'a>>) -> (Self, Vec<Finding>) {
        let mut collected = Collector::collect(module, compiler);
        let refused = collected.compiler.take().map_or_else(Vec::new, Compiler::found);
        let mut scopes = Self {
            scopes: collected.scopes,
            bindings: Vec::new(),
            index: Vec::new(),
            declared: collected.declared,
            uses: Vec::new(),
            names: collected.names,
            stars: collected.stars,
            binds_by_text: collected.binds_by_text,
        };
        scopes.bind(collected.events);
        let unbound = |name: &&collect::NameRead<'a>| {
            scopes.enclosing(name.scope, name.name).is_none() && !scopes.is_class_cell(name)
        };
        let nonlocals = collected.nonlocals.iter().filter(unbound);
        let unbound = |name: &collect::NameRead<'a>| {
            finding(
                name.range,
                format!("no binding for nonlocal `{}` found", name.text),
            )
        };
        let refused = nonlocals.map(unbound).chain(refused).collect();
        scopes.uses = collected.uses.iter().map(|read| scopes.resolved(read)).collect();
        scopes.uses.sort_unstable_by_key(|read| read.range.start());
        scopes.binds_by_text |= scopes.uses.iter().any(|read| {
            BINDS_BY_TEXT.contains(&read.name)
                && (read.resolution == Resolution::Builtin || read.otherwise == Some(Resolution::Builtin))
        });
        (scopes, refused)
    }

    /// `from x import *` may bind anything.
    pub(crate) fn has_star_import(&self) -> bool {
        !self.stars.is_empty()
    }

    /// All of them, in the order of the text.
    pub(crate) fn stars(&self) -> &[Star<'a>] {
        &self.stars
    }

    /// May a name that is read come from a star import: nothing else binds it, or the module does, but not for sure
    /// after that.
    pub(crate) fn may_be_of_star(&self, read: &Use<'a>, star: &Star<'a>) -> bool {
        let may_be = |resolution: Resolution| match resolution {
            Resolution::Unresolved | Resolution::Builtin => true,
            Resolution::Binding(id) => self.binding(id).is_some_and(|binding| {
                let after = |sure: Sure| sure.here > star.end && sure.here <= read.range.start().to_u32();
                binding.scope == MODULE && (binding.deleted || !binding.sure.is_some_and(after))
            }),
        };
        may_be(read.resolution) || read.otherwise.is_some_and(may_be)
    }

    /// Names may be bound that no binding shows: `exec`, `globals()['x'] = 1`, `builtins.x = 1`.
    pub(crate) fn binds_by_text(&self) -> bool {
        self.binds_by_text
    }

    /// Every name that is read, by position.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> &[Use<'a>] {
        &self.uses
    }

    /// Every binding.
    pub(crate) fn bindings(&self) -> &[Binding<'a>] {
        &self.bindings
    }

    /// One of them.
    pub(crate) fn binding(&self, id: BindingId) -> Option<&Binding<'a>> {
        self.bindings.get(id.0 as usize)
    }

    /// Is it the target of a comprehension.
    pub(crate) fn is_of_comprehension(&self, id: BindingId) -> bool {
        let scope = self.binding(id).and_then(|binding| self.scope(binding.scope));
        scope.is_some_and(|scope| scope.kind == ScopeKind::Comprehension)
    }

    /// A name of the module itself: what `globals()['name']` is.
    pub(crate) fn of_module(&self, name: &str) -> Option<BindingId> {
        self.find(self.names.find(name)?, MODULE)
    }

    /// The name that stands there; none: no name is read there.
    pub(crate) fn use_at(&self, range: TextRange) -> Option<&Use<'a>> {
        let at = self
            .uses
            .binary_search_by_key(&range.start(), |read| read.range.start());
        self.uses.get(at.ok()?)
    }

    /// Names that are read and evaluated, are bound nowhere and are no builtins. They are unknown where there is a
    /// star import or something else that binds what cannot be seen.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = &Use<'a>> {
        let unknown = |read: &&Use<'a>| read.evaluated && read.resolution == Resolution::Unresolved;
        self.uses.iter().filter(unknown)
    }

    fn scope(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.get(id.0 as usize)
    }

    fn find(&self, name: NameId, scope: ScopeId) -> Option<BindingId> {
        let at = self
            .index
            .binary_search_by_key(&(name, scope), |(name, scope, _)| (*name, *scope));
        self.index.get(at.ok()?).map(|(_, _, id)| *id)
    }

    fn bind(&mut self, mut events: Vec<Event<'a>>) {
        let mut nonlocal = Vec::new();
        events.retain_mut(|event| match self.declared.get(&(event.scope, event.name)) {
            Some(Declared::Global) => {
                event.scope = MODULE;
                true
            }
            Some(Declared::Nonlocal) => {
                nonlocal.push(*event);
                false
            }
            None => true,
        });
        events.sort_by_key(|event| (event.name, event.scope));
        for event in events {
            if self.index.last().map(|(name, scope, _)| (*name, *scope)) == Some((event.name, event.scope)) {
                if let Some(binding) = self.bindings.last_mut() {
                    join(binding, &event);
                }
                continue;
            }
            let id = BindingId(u32::try_from(self.bindings.len()).unwrap_or(u32::MAX));
            self.index.push((event.name, event.scope, id));
            self.bindings.push(Binding {
                scope: event.scope,
                kinds: vec![event.kind],
                times: 1,
                deleted: event.deletes,
                sure: event.sure,
            });
        }
        for event in nonlocal {
            let found = self.enclosing(event.scope, event.name);
            if let Some(binding) = found.and_then(|id| self.bindings.get_mut(id.0 as usize)) {
                join(binding, &event);
            }
        }
    }

    /// The binding that `nonlocal` means.
    fn enclosing(&self, scope: ScopeId, name: NameId) -> Option<BindingId> {
        let mut at = self.scope(scope)?.parent;
        while let Some(id) = at {
            let scope = self.scope(id)?;
            if matches!(
                scope.kind,
                ScopeKind::Function | ScopeKind::Comprehension | ScopeKind::TypeParameters
            ) && let Some(found) = self.find(name, id)
            {
                return Some(found);
            }
            at = scope.parent;
        }
        None
    }

    fn resolved(&self, read: &collect::NameRead<'a>) -> Use<'a> {
        let (resolution, otherwise) = self.resolve(read);
        Use {
            name: read.text,
            range: read.range,
            evaluated: read.evaluated,
            resolution,
            otherwise,
        }
    }

    fn resolve(&self, read: &collect::NameRead<'a>) -> (Resolution, Option<Resolution>) {
        let mut uncertain = None;
        let mut crossed_function = false;
        let mut at = Some(read.scope);
        while let Some(id) = at {
            let Some(scope) = self.scope(id) else { break };
            match self.declared.get(&(id, read.name)) {
                Some(Declared::Global) => break,
                Some(Declared::Nonlocal) => {
                    let found = self.enclosing(id, read.name);
                    if found.is_none() && self.is_class_cell(read) {
                        return answer(uncertain, Resolution::Builtin);
                    }
                    return answer(
                        uncertain,
                        found.map_or(Resolution::Unresolved, Resolution::Binding),
                    );
                }
                None => {}
            }
            match scope.kind {
                ScopeKind::Module => break,
                ScopeKind::Class if crossed_function && read.text == "__class__" => {
                    return answer(uncertain, Resolution::Builtin);
                }
                ScopeKind::Class if crossed_function => {}
                ScopeKind::Class => {
                    if let Some(found) = self.find(read.name, id) {
                        if self.is_sure(found, read) {
                            return answer(uncertain, Resolution::Binding(found));
                        }
                        uncertain = uncertain.or(Some(found));
                    } else if is_of_a_class(read.text) {
                        return answer(uncertain, Resolution::Builtin);
                    }
                    crossed_function = true;
                }
                ScopeKind::Function | ScopeKind::Comprehension | ScopeKind::TypeParameters => {
                    if let Some(found) = self.find(read.name, id) {
                        return answer(uncertain, Resolution::Binding(found));
                    }
                    crossed_function |= scope.kind != ScopeKind::TypeParameters;
                }
            }
            at = scope.parent;
        }
        self.resolve_in_module(read, uncertain)
    }

    fn resolve_in_module(
        &self,
        read: &collect::NameRead<'a>,
        uncertain: Option<BindingId>,
    ) -> (Resolution, Option<Resolution>) {
        let builtin = || match is_builtin(read.text) {
            true => Resolution::Builtin,
            false => Resolution::Unresolved,
        };
        let Some(found) = self.find(read.name, MODULE) else {
            return answer(uncertain, builtin());
        };
        if uncertain.is_none() && !self.is_sure(found, read) && builtin() == Resolution::Builtin {
            return (Resolution::Binding(found), Some(Resolution::Builtin));
        }
        answer(uncertain, Resolution::Binding(found))
    }

    /// `__class__` in a method: the compiler binds it in a scope between the class and its functions.
    fn is_class_cell(&self, read: &collect::NameRead<'a>) -> bool {
        let mut at = Some(read.scope).filter(|_| read.text == "__class__");
        while let Some(scope) = at.and_then(|id| self.scope(id)) {
            if scope.kind == ScopeKind::Class && at != Some(read.scope) {
                return true;
            }
            at = scope.parent;
        }
        false
    }

    /// Is the name bound there whenever that code runs.
    fn is_sure(&self, id: BindingId, read: &collect::NameRead<'a>) -> bool {
        let Some(binding) = self.binding(id) else {
            return false;
        };
        let start = read.range.start().to_u32();
        binding.sure.is_some_and(|sure| {
            let from = if read.scope == binding.scope {
                sure.here
            } else {
                sure.inside
            };
            !binding.deleted && from <= start
        })
    }
}

/// Reading one of these means that names may be bound out of sight.
const BINDS_BY_TEXT: &[&str] = &["exec", "eval", "globals", "vars", "locals", "__builtins__"];

fn answer(uncertain: Option<BindingId>, found: Resolution) -> (Resolution, Option<Resolution>) {
    match uncertain {
        Some(first) => (Resolution::Binding(first), Some(found)),
        None => (found, None),
    }
}

fn join<'a>(binding: &mut Binding<'a>, event: &Event<'a>) {
    binding.deleted |= event.deletes;
    if let (Some(known), Some(new)) = (&mut binding.sure, event.sure) {
        known.here = known.here.min(new.here);
        known.inside = known.inside.min(new.inside);
    } else {
        binding.sure = binding.sure.or(event.sure);
    }
    if binding.kinds.iter().any(|kind| kind.is_same_import(&event.kind)) {
        return;
    }
    binding.times = binding.times.saturating_add(1);
    if binding.kinds.len() < KINDS_MAX {
        binding.kinds.push(event.kind);
    }
}

/// The name that a pattern itself binds.
pub(crate) fn name_of_pattern(pattern: &Pattern) -> Option<&Identifier> {
    match pattern {
        Pattern::MatchAs(pattern) => pattern.name.as_ref(),
        Pattern::MatchStar(pattern) => pattern.name.as_ref(),
        Pattern::MatchMapping(pattern) => pattern.rest.as_ref(),
        _ => None,
    }
}

/// The name of `T` in `def f[T]()`.
pub(crate) fn name_of_type_param(parameter: &TypeParam) -> &Identifier {
    match parameter {
        TypeParam::TypeVar(one) => &one.name,
        TypeParam::TypeVarTuple(one) => &one.name,
        TypeParam::ParamSpec(one) => &one.name,
    }
}

#[cfg(test)]
mod tests;
