//! How a program uses the names that it does not have: as what, in which place, and what is around them. And every name that it
//! binds anywhere, because such a name is never given another meaning.

use crate::python::{
    children::{Node, add_below},
    spine::left_of,
    well_known::{ATTRIBUTES_MAX, Use},
};
use ruff_python_ast::{
    ExceptHandler, Expr, ExprContext, ModModule, Parameters, Pattern, Stmt, StmtTry, TypeParam, TypeParams,
};
use ruff_text_size::{TextRange, TextSize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// More uses of one name tell nothing new.
const USES_MAX: usize = 1000;

/// Of the module `enum`: they give the members of a class to the module around it.
const SPREADS_MEMBERS: &[&str] = &["global_enum", "_convert_", "_convert"];
/// Longer chains of calls and attributes are not followed to their beginning.
const LINKS_MAX: usize = 100;

/// A name that the program does not have.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) uses: Vec<Use<'a>>,
    /// The first place that runs as soon as the program does.
    pub(super) at_once: Option<TextRange>,
    /// The first place in a function.
    pub(super) in_function: Option<TextRange>,
    /// Used where the program is ready for its absence: `try: name except NameError: ...`.
    pub(super) expected_absent: bool,
    /// Some use is not in a function that nobody mentions.
    pub(super) reached: bool,
}

/// All of them, and what else decides.
#[derive(Debug, Default)]
pub(super) struct Uses<'a> {
    pub(super) wanted: BTreeMap<&'a str, Wanted<'a>>,
    pub(super) bound: HashSet<&'a str>,
    /// The program catches errors about names that may come from anywhere.
    pub(super) expects_name_errors: bool,
    /// Something gives the module names that no binding shows.
    pub(super) binds_out_of_sight: bool,
    /// The program does more than define.
    pub(super) acts: bool,
}

impl<'a> Uses<'a> {
    /// Of the names that are read at these places.
    pub(super) fn of(module: &'a ModModule, unresolved: HashSet<TextSize>) -> Self {
        let mut walk = Walk {
            unresolved,
            owners: vec![Owner::default()],
            ..Walk::default()
        };
        let here = Place::default();
        let mut pending: Vec<(Node<'a>, Place)> = module
            .body
            .iter()
            .rev()
            .map(|stmt| (Node::Stmt(stmt), here))
            .collect();
        let mut below = Vec::new();
        while let Some((node, place)) = pending.pop() {
            let inner = walk.enter(node, place, &mut pending);
            let Some(inner) = inner else { continue };
            add_below(node, &mut below);
            pending.extend(below.drain(..).map(|node| (node, inner.of(node))));
        }
        walk.conclude(module)
    }
}

/// Where a node stands.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Which function or class; 0: the module.
    owner: usize,
    /// In a `try` that catches errors about names.
    watched: bool,
    /// What stands there is called.
    called: bool,
}

/// Where the nodes below one stand.
struct Inner {
    place: Place,
    /// Statements of a function or class are its own; defaults, bases and decorators belong to what is around it.
    statements: Place,
}

impl Inner {
    fn of(&self, node: Node<'_>) -> Place {
        match node {
            Node::Stmt(_) => self.statements,
            Node::Decorator(_) => Place {
                called: true,
                ..self.place
            },
            _ => self.place,
        }
    }
}

/// A function or a class.
#[derive(Clone, Copy, Default)]
struct Owner<'a> {
    around: usize,
    /// None: the module, or a function without a name.
    name: Option<&'a str>,
    function: bool,
    /// Somebody else knows it: it has a decorator, or a name that the interpreter calls.
    known: bool,
}

#[derive(Default)]
struct Walk<'a> {
    unresolved: HashSet<TextSize>,
    owners: Vec<Owner<'a>>,
    found: Vec<(&'a str, TextRange, Use<'a>, Place)>,
    bound: HashSet<&'a str>,
    mentioned: HashSet<&'a str>,
    /// Of calls in a `try` that catches errors about names: by which name.
    watched_calls: HashSet<&'a str>,
    /// Reads of the name `NameError`, without those of handlers.
    name_errors: usize,
    handlers: usize,
}

impl<'a> Walk<'a> {
    /// Reads a node itself, and says where the nodes below it stand. None: they are taken care of.
    fn enter(&mut self, node: Node<'a>, place: Place, pending: &mut Vec<(Node<'a>, Place)>) -> Option<Inner> {
        let plain = Place {
            called: false,
            ..place
        };
        let mut inner = Inner {
            place: plain,
            statements: plain,
        };
        match node {
            Node::Stmt(Stmt::Try(attempt)) => {
                self.attempt(attempt, plain, pending);
                return None;
            }
            Node::Stmt(statement) => inner.statements.owner = self.statement(statement, place.owner),
            Node::Expr(Expr::Call(call)) => {
                if place.watched
                    && let Some(name) = root_of(&call.func)
                {
                    self.watched_calls.insert(name);
                }
                // In the order in which `add_below` gives them: the function last, because it is read first.
                pending.extend(
                    call.arguments
                        .keywords
                        .iter()
                        .rev()
                        .map(|word| (Node::Expr(&word.value), plain)),
                );
                pending.extend(
                    call.arguments
                        .args
                        .iter()
                        .rev()
                        .map(|value| (Node::Expr(value), plain)),
                );
                pending.push((
                    Node::Expr(&call.func),
                    Place {
                        called: true,
                        ..place
                    },
                ));
                return None;
            }
            Node::Expr(expression) | Node::Annotation(expression) | Node::Decorator(expression) => {
                return self.expression(expression, place, inner, pending);
            }
            Node::Pattern(pattern) => self.pattern(pattern),
            Node::Element(_) => {}
        }
        Some(inner)
    }

    fn expression(
        &mut self,
        expression: &'a Expr,
        place: Place,
        mut inner: Inner,
        pending: &mut Vec<(Node<'a>, Place)>,
    ) -> Option<Inner> {
        match expression {
            Expr::Attribute(_) => {
                let (root, chain) = self.attributes(expression);
                match root {
                    Expr::Name(name) => self.name(name, Use::Attributes(chain), place),
                    other => pending.push((Node::Expr(other), inner.place)),
                }
                return None;
            }
            // A decorator with arguments is a call like any other.
            Expr::Call(_) => {
                pending.push((Node::Expr(expression), inner.place));
                return None;
            }
            Expr::Name(name) => {
                let used = if place.called { Use::Called } else { Use::Bare };
                self.name(name, used, place);
            }
            Expr::Lambda(lambda) => {
                self.parameters(lambda.parameters.as_deref());
                let owner = self.own(Owner {
                    around: place.owner,
                    function: true,
                    known: true,
                    name: None,
                });
                inner.place.owner = owner;
            }
            _ => {}
        }
        Some(inner)
    }

    /// The leftmost part of a chain, and the first attributes.
    fn attributes(&mut self, expression: &'a Expr) -> (&'a Expr, Vec<&'a str>) {
        let mut chain = Vec::new();
        let mut at = expression;
        while let Expr::Attribute(attribute) = at {
            self.mentioned.insert(attribute.attr.as_str());
            chain.push(attribute.attr.as_str());
            at = &attribute.value;
        }
        chain.reverse();
        chain.truncate(ATTRIBUTES_MAX);
        (at, chain)
    }

    fn name(&mut self, name: &'a ruff_python_ast::ExprName, used: Use<'a>, place: Place) {
        let word = name.id.as_str();
        if name.ctx != ExprContext::Load {
            self.bound.insert(word);
            return;
        }
        self.mentioned.insert(word);
        self.name_errors += usize::from(word == "NameError");
        if self.unresolved.contains(&name.range.start()) {
            self.found.push((word, name.range, used, place));
        }
    }

    /// The owner of the statements in it.
    fn statement(&mut self, statement: &'a Stmt, around: usize) -> usize {
        match statement {
            Stmt::FunctionDef(function) => {
                let name = function.name.as_str();
                self.bound.insert(name);
                self.parameters(Some(&function.parameters));
                self.type_parameters(function.type_params.as_deref());
                return self.own(Owner {
                    around,
                    name: Some(name),
                    function: true,
                    known: !function.decorator_list.is_empty() || name.starts_with("__"),
                });
            }
            Stmt::ClassDef(class) => {
                let name = class.name.as_str();
                self.bound.insert(name);
                self.type_parameters(class.type_params.as_deref());
                return self.own(Owner {
                    around,
                    name: Some(name),
                    function: false,
                    known: !class.decorator_list.is_empty(),
                });
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let root = alias.name.as_str().split('.').next().unwrap_or_default();
                    self.bound
                        .insert(alias.asname.as_ref().map_or(root, |name| name.as_str()));
                }
            }
            Stmt::ImportFrom(import) => {
                let names = import.names.iter();
                self.bound
                    .extend(names.map(|alias| alias.asname.as_ref().unwrap_or(&alias.name).as_str()));
            }
            Stmt::Global(global) => self.bound.extend(global.names.iter().map(|name| name.as_str())),
            Stmt::Nonlocal(nonlocal) => self.bound.extend(nonlocal.names.iter().map(|name| name.as_str())),
            Stmt::TypeAlias(alias) => self.type_parameters(alias.type_params.as_deref()),
            _ => {}
        }
        around
    }

    fn own(&mut self, owner: Owner<'a>) -> usize {
        self.owners.push(owner);
        self.owners.len() - 1
    }

    fn parameters(&mut self, parameters: Option<&'a Parameters>) {
        let all = parameters.into_iter().flat_map(Parameters::iter);
        self.bound.extend(all.map(|parameter| parameter.name().as_str()));
    }

    fn type_parameters(&mut self, parameters: Option<&'a TypeParams>) {
        let all = parameters
            .into_iter()
            .flat_map(|parameters| parameters.type_params.iter());
        self.bound.extend(all.map(|parameter| match parameter {
            TypeParam::TypeVar(one) => one.name.as_str(),
            TypeParam::TypeVarTuple(one) => one.name.as_str(),
            TypeParam::ParamSpec(one) => one.name.as_str(),
        }));
    }

    fn pattern(&mut self, pattern: &'a Pattern) {
        let name = match pattern {
            Pattern::MatchAs(capture) => capture.name.as_ref(),
            Pattern::MatchStar(star) => star.name.as_ref(),
            Pattern::MatchMapping(mapping) => mapping.rest.as_ref(),
            _ => None,
        };
        self.bound.extend(name.map(|name| name.as_str()));
    }

    fn attempt(&mut self, attempt: &'a StmtTry, place: Place, pending: &mut Vec<(Node<'a>, Place)>) {
        let mut watched = place;
        for handler in &attempt.handlers {
            let ExceptHandler::ExceptHandler(handler) = handler;
            self.bound.extend(handler.name.as_ref().map(|name| name.as_str()));
            let types = match handler.type_.as_deref() {
                Some(Expr::Tuple(several)) => several.elts.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            let caught = |word: &str| {
                types
                    .iter()
                    .any(|kind| matches!(kind, Expr::Name(name) if name.id == word))
            };
            let by_name = caught("NameError");
            self.handlers += usize::from(by_name);
            let anything = types.is_empty() || caught("Exception") || caught("BaseException");
            watched.watched |= by_name || (anything && is_probe(&attempt.body));
            pending.extend(handler.body.iter().rev().map(|stmt| (Node::Stmt(stmt), place)));
            pending.extend(types.iter().map(|kind| (Node::Expr(kind), place)));
        }
        for body in [&attempt.finalbody, &attempt.orelse] {
            pending.extend(body.iter().rev().map(|stmt| (Node::Stmt(stmt), place)));
        }
        pending.extend(attempt.body.iter().rev().map(|stmt| (Node::Stmt(stmt), watched)));
    }

    fn conclude(self, module: &ModModule) -> Uses<'a> {
        let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        let mut reached = HashMap::new();
        for (name, range, used, place) in &self.found {
            let entry = wanted.entry(name).or_default();
            let first = if self.in_function(place.owner) {
                &mut entry.in_function
            } else {
                &mut entry.at_once
            };
            if first.is_none_or(|known| range.start() < known.start()) {
                *first = Some(*range);
            }
            entry.expected_absent |= place.watched;
            entry.reached |= *reached
                .entry(place.owner)
                .or_insert_with(|| self.is_reached(place.owner));
            if entry.uses.len() < USES_MAX {
                entry.uses.push(used.clone());
            }
        }
        let elsewhere = self.name_errors > self.handlers;
        let far = self.watched_calls.iter().any(|name| self.bound.contains(name));
        Uses {
            wanted,
            bound: self.bound,
            expects_name_errors: elsewhere || far,
            binds_out_of_sight: SPREADS_MEMBERS.iter().any(|name| self.mentioned.contains(name)),
            acts: module.body.iter().any(acts),
        }
    }

    fn in_function(&self, owner: usize) -> bool {
        self.chain(owner).any(|owner| owner.function)
    }

    /// From the inside to the outside.
    fn chain(&self, owner: usize) -> impl Iterator<Item = &Owner<'a>> {
        let mut next = owner;
        std::iter::from_fn(move || {
            let owner = self.owners.get(next).filter(|_| next > 0)?;
            next = owner.around;
            Some(owner)
        })
    }

    /// Can the code of this function run, as far as names tell. The body of a class always runs.
    fn is_reached(&self, owner: usize) -> bool {
        let mut in_function = false;
        self.chain(owner).all(|owner| {
            in_function |= owner.function;
            !in_function || owner.known || owner.name.is_some_and(|name| self.mentioned.contains(name))
        })
    }
}

/// The name at the left end of a function that is called.
fn root_of(expression: &Expr) -> Option<&str> {
    let mut at = expression;
    for _ in 0..LINKS_MAX {
        at = match at {
            Expr::Name(name) => return Some(name.id.as_str()),
            other => left_of(other)?,
        };
    }
    None
}

/// Does the whole attempt only ask whether a name is there.
fn is_probe(body: &[Stmt]) -> bool {
    match body {
        [Stmt::Expr(statement)] => statement.value.is_name_expr(),
        [Stmt::Assign(assignment)] => assignment.value.is_name_expr(),
        _ => false,
    }
}

fn acts(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(statement) => !statement.value.is_string_literal_expr(),
        Stmt::FunctionDef(_)
        | Stmt::ClassDef(_)
        | Stmt::Import(_)
        | Stmt::ImportFrom(_)
        | Stmt::Assign(_)
        | Stmt::AnnAssign(_)
        | Stmt::Pass(_) => false,
        _ => true,
    }
}

impl Wanted<'_> {
    /// Where it is first read.
    pub(super) fn first(&self) -> Option<TextRange> {
        self.at_once.or(self.in_function)
    }
}
