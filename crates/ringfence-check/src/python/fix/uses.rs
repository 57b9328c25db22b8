//! How a program uses the names that it does not have: as what, in which place, and what is around them. And every name that it
//! binds anywhere, because such a name is never given another meaning.

use super::{
    branches,
    reach::{Driven, Owner, Point, Reach, Runs, Target},
    watch,
};
use crate::python::{
    children::{Node, add_below},
    scope::{Kind, Resolution, Scopes},
    spine::left_of,
    well_known::{ATTRIBUTES_MAX, Use},
};
use ruff_python_ast::{
    Expr, ExprCall, ExprContext, ModModule, Parameters, Pattern, Stmt, StmtTry, TypeParam, TypeParams,
};
use ruff_text_size::{Ranged, TextRange, TextSize};
use std::collections::{BTreeMap, HashSet};

/// More uses of one name tell nothing new.
const USES_MAX: usize = 1000;

/// Of the module `enum`: they give the members of a class to the module around it.
const SPREADS_MEMBERS: &[&str] = &["global_enum", "_convert_", "_convert"];
/// They end the program.
const ENDS: &[&str] = &["exit", "quit", "_exit", "abort", "SystemExit"];
/// They run what an asynchronous function gives.
const DRIVES: &[&str] = &["run", "run_until_complete"];
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
    /// Used where its absence may go unnoticed: `try: name() except Exception: ...`.
    pub(super) watched: bool,
    /// Some use is evaluated whenever the program runs.
    pub(super) certain: bool,
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
}

impl<'a> Uses<'a> {
    /// Of the names that are read at these places.
    pub(super) fn of(module: &'a ModModule, scopes: &Scopes<'a>, unresolved: HashSet<TextSize>) -> Self {
        let mut walk = Walk {
            scopes,
            unresolved,
            reach: Reach::of_module(),
            found: Vec::new(),
            bound: HashSet::new(),
            mentioned: HashSet::new(),
            watched_calls: HashSet::new(),
            name_errors: 0,
            handlers: 0,
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
        walk.conclude()
    }
}

/// Where a node stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    /// Which function or class; 0: the module.
    owner: usize,
    /// In a `try` that is there for names that may be absent.
    pub(super) expected: bool,
    /// In a `try` that catches errors about names, for whatever reason.
    pub(super) watched: bool,
    /// Something around it in the same owner may leave it out.
    pub(super) conditional: bool,
    /// What stands there is called.
    called: bool,
    /// What it gives is awaited.
    driven: bool,
}

impl Place {
    pub(super) fn conditional(self) -> Self {
        Self {
            conditional: true,
            ..self
        }
    }

    /// The statements of an owner: whether it runs at all is another question.
    fn of_owner(self, owner: usize) -> Self {
        Self {
            owner,
            conditional: false,
            ..self
        }
    }

    fn point(self, at: TextSize) -> Point {
        Point {
            owner: self.owner,
            at,
            conditional: self.conditional,
        }
    }
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

/// Nodes that are still to be read.
pub(super) type Pending<'a> = Vec<(Node<'a>, Place)>;

struct Walk<'a, 's> {
    scopes: &'s Scopes<'a>,
    unresolved: HashSet<TextSize>,
    reach: Reach<'a>,
    found: Vec<(&'a str, TextRange, Use<'a>, Place)>,
    bound: HashSet<&'a str>,
    mentioned: HashSet<&'a str>,
    /// Of calls in a `try` that is there for names that may be absent: by which name.
    watched_calls: HashSet<&'a str>,
    /// Reads of the name `NameError`, without those of handlers.
    name_errors: usize,
    handlers: usize,
}

impl<'a> Walk<'a, '_> {
    /// Reads a node itself, and says where the nodes below it stand. None: they are taken care of.
    fn enter(&mut self, node: Node<'a>, place: Place, pending: &mut Pending<'a>) -> Option<Inner> {
        let plain = Place {
            called: false,
            driven: false,
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
            Node::Stmt(statement) if branches::of_statement(statement, plain, pending) => return None,
            Node::Stmt(statement) => {
                inner.statements = self.statement(statement, plain);
                inner.place.conditional |= statement.is_type_alias_stmt();
            }
            Node::Expr(Expr::Call(call)) => {
                self.call(call, place, plain, pending);
                return None;
            }
            // Since Python 3.14 annotations are evaluated when somebody asks for them.
            Node::Annotation(expression) => {
                inner.place.conditional = true;
                return self.expression(expression, place.conditional(), inner, pending);
            }
            Node::Expr(expression) | Node::Decorator(expression) => {
                return self.expression(expression, place, inner, pending);
            }
            Node::Pattern(pattern) => self.pattern(pattern),
            Node::Element(_) => {}
        }
        Some(inner)
    }

    fn call(&mut self, call: &'a ExprCall, place: Place, plain: Place, pending: &mut Pending<'a>) {
        if place.expected
            && let Some(name) = root_of(&call.func)
        {
            self.watched_calls.insert(name);
        }
        let named = match call.func.as_ref() {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => "",
        };
        if ENDS.contains(&named) {
            self.reach.end(place.owner, call.end());
        }
        if let Some(target) = self.target(&call.func) {
            let driven = if place.driven { Driven::Yes } else { Driven::No };
            self.reach.call(place.point(call.func.start()), target, driven);
        }
        let argument = Place {
            driven: DRIVES.contains(&named),
            ..plain
        };
        // In the order in which `add_below` gives them: the function last, because it is read first.
        let words = call.arguments.keywords.iter().rev();
        pending.extend(words.map(|word| (Node::Expr(&word.value), argument)));
        let values = call.arguments.args.iter().rev();
        pending.extend(values.map(|value| (Node::Expr(value), argument)));
        let function = Place {
            called: true,
            ..plain
        };
        pending.push((Node::Expr(&call.func), function));
    }

    /// What of the program a call runs, where that is plain.
    fn target(&self, function: &'a Expr) -> Option<Target<'a>> {
        match function {
            Expr::Name(name) => matches!(self.only_kind(function)?, Kind::Function | Kind::Class)
                .then(|| Target::Name(name.id.as_str())),
            Expr::Attribute(attribute) => {
                let method = attribute.attr.as_str();
                if matches!(attribute.value.as_ref(), Expr::Name(name) if name.id == "self") {
                    return Some(Target::OwnMethod(method));
                }
                let made = match self.only_kind(&attribute.value) {
                    Some(Kind::Value(value)) => value,
                    _ => &attribute.value,
                };
                let Expr::Call(making) = made else { return None };
                let Expr::Name(class) = making.func.as_ref() else {
                    return None;
                };
                matches!(self.only_kind(&making.func)?, Kind::Class)
                    .then(|| Target::Method(class.id.as_str(), method))
            }
            _ => None,
        }
    }

    /// The one thing that a name is.
    fn only_kind(&self, expression: &Expr) -> Option<Kind<'a>> {
        let read = self.scopes.use_at(expression.as_name_expr()?.range)?;
        match read.resolution {
            Resolution::Binding(id) => self.scopes.binding(id)?.only_kind().copied(),
            _ => None,
        }
    }

    fn expression(
        &mut self,
        expression: &'a Expr,
        place: Place,
        mut inner: Inner,
        pending: &mut Pending<'a>,
    ) -> Option<Inner> {
        if branches::of_expression(expression, inner.place, pending) {
            return None;
        }
        match expression {
            Expr::Attribute(_) => {
                let (root, chain) = self.attributes(expression, place);
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
            Expr::Await(awaited) => {
                let place = Place {
                    driven: true,
                    ..inner.place
                };
                pending.push((Node::Expr(&awaited.value), place));
                return None;
            }
            Expr::Yield(_) | Expr::YieldFrom(_) => self.reach.yields(place.owner),
            Expr::Name(name) => {
                let used = if place.called { Use::Called } else { Use::Bare };
                self.name(name, used, place);
            }
            Expr::Lambda(lambda) => {
                self.parameters(lambda.parameters.as_deref());
                let owner = self.reach.own(Owner {
                    around: place.owner,
                    name: None,
                    function: true,
                    runs: Runs::Unknown,
                });
                inner.place = inner.place.of_owner(owner);
            }
            _ => {}
        }
        Some(inner)
    }

    /// The leftmost part of a chain, and the first attributes.
    fn attributes(&mut self, expression: &'a Expr, place: Place) -> (&'a Expr, Vec<&'a str>) {
        let mut chain = Vec::new();
        let mut at = expression;
        while let Expr::Attribute(attribute) = at {
            self.mention(attribute.attr.as_str(), attribute.attr.range, place);
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
        self.mention(word, name.range, place);
        self.name_errors += usize::from(word == "NameError");
        if self.unresolved.contains(&name.range.start()) {
            self.found.push((word, name.range, used, place));
        }
    }

    fn mention(&mut self, name: &'a str, range: TextRange, place: Place) {
        self.mentioned.insert(name);
        self.reach.mention(name, place.owner, range.start());
        if place.watched {
            self.reach.watch(name);
        }
        // A call of it ends with its arguments.
        if ENDS.contains(&name) && !place.called {
            self.reach.end(place.owner, range.end());
        }
    }

    /// Where the statements in it stand.
    fn statement(&mut self, statement: &'a Stmt, place: Place) -> Place {
        match statement {
            Stmt::FunctionDef(function) => {
                let name = function.name.as_str();
                self.bound.insert(name);
                self.parameters(Some(&function.parameters));
                self.type_parameters(function.type_params.as_deref());
                let owner = self.reach.own(Owner {
                    around: place.owner,
                    name: Some(name),
                    function: true,
                    runs: match (function.decorator_list.is_empty(), function.is_async) {
                        (false, _) => Runs::Unknown,
                        (true, true) => Runs::WhenAwaited,
                        (true, false) => Runs::WhenCalled,
                    },
                });
                return place.of_owner(owner);
            }
            Stmt::ClassDef(class) => {
                let name = class.name.as_str();
                self.bound.insert(name);
                self.type_parameters(class.type_params.as_deref());
                let owner = self.reach.own(Owner {
                    around: place.owner,
                    name: Some(name),
                    function: false,
                    runs: Runs::AtOnce,
                });
                let from = place.point(class.start());
                self.reach.call(from, Target::Body(owner), Driven::No);
                return place.of_owner(owner);
            }
            Stmt::Return(_) => self.reach.leave(place.owner, statement.end()),
            Stmt::For(_) | Stmt::While(_) => return place.conditional(),
            Stmt::With(with) if watch::swallows(with, self.scopes) => {
                return Place {
                    watched: true,
                    ..place.conditional()
                };
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
            // Its value is evaluated when somebody asks for it.
            Stmt::TypeAlias(alias) => {
                self.type_parameters(alias.type_params.as_deref());
                return place.conditional();
            }
            _ => {}
        }
        place
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

    fn attempt(&mut self, attempt: &'a StmtTry, place: Place, pending: &mut Pending<'a>) {
        let mut inner = place;
        for handler in &attempt.handlers {
            let Some(handler) = handler.as_except_handler() else {
                continue;
            };
            self.bound.extend(handler.name.as_ref().map(|name| name.as_str()));
            let types = watch::types_of(handler.type_.as_deref());
            let by_name = watch::names(types, "NameError");
            self.handlers += usize::from(by_name);
            let anything =
                types.is_empty() || watch::names(types, "Exception") || watch::names(types, "BaseException");
            inner.expected |= by_name || (anything && is_probe(&attempt.body));
            inner.watched |= watch::catches(types, self.scopes);
            inner.conditional = true;
            let statements = handler.body.iter().rev();
            pending.extend(statements.map(|stmt| (Node::Stmt(stmt), place.conditional())));
            pending.extend(types.iter().map(|kind| (Node::Expr(kind), place.conditional())));
        }
        if watch::ends_by_itself(&attempt.finalbody) {
            inner.watched = true;
            inner.conditional = true;
        }
        let last = attempt.finalbody.iter().rev();
        pending.extend(last.map(|stmt| (Node::Stmt(stmt), place)));
        let otherwise = attempt.orelse.iter().rev();
        pending.extend(otherwise.map(|stmt| (Node::Stmt(stmt), place.conditional())));
        pending.extend(attempt.body.iter().rev().map(|stmt| (Node::Stmt(stmt), inner)));
    }

    fn conclude(self) -> Uses<'a> {
        let reach = self.reach.conclude();
        let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        for (name, range, used, place) in &self.found {
            let entry = wanted.entry(name).or_default();
            let first = if reach.is_in_function(place.owner) {
                &mut entry.in_function
            } else {
                &mut entry.at_once
            };
            if first.is_none_or(|known| range.start() < known.start()) {
                *first = Some(*range);
            }
            entry.expected_absent |= place.expected;
            entry.watched |= place.watched || reach.is_watched(place.owner);
            entry.certain |= reach.is_certain(&place.point(range.start()));
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
        }
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

impl Wanted<'_> {
    /// Where it is first read.
    pub(super) fn first(&self) -> Option<TextRange> {
        self.at_once.or(self.in_function)
    }
}
