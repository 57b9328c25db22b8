//! How a program uses the names that it does not have: as what, in which place, and what is around them. And every name
//! that it binds anywhere, because such a name is never given another meaning. All is told from names, on the safe
//! side: what may be left out is not certain, and where somebody may catch the error of one call, every function may be
//! meant.

use super::watch;
use crate::python::{
    scope::{Scopes, name_of_pattern, name_of_type_param},
    spine::{spine_of, walk_right},
    well_known::{ATTRIBUTES_MAX, Usage},
};
use ruff_python_ast::{
    self as ast, CmpOp, Comprehension, Expr, ExprContext, Identifier, ModModule, Pattern, Stmt, StmtTry,
    TypeParam,
    visitor::{self, Visitor},
};
use ruff_text_size::{TextRange, TextSize};
use std::collections::{BTreeMap, HashSet};

/// More uses of one name tell nothing new.
const USES_MAX: usize = 1000;
/// Of the module `enum`: they give the members of a class to the module around it.
const SPREADS_MEMBERS: &[&str] = &["global_enum", "_convert_", "_convert"];
/// They end the program.
const ENDS: &[&str] = &["exit", "quit", "_exit", "abort", "SystemExit"];

/// A name that the program does not have.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) uses: Vec<Usage<'a>>,
    /// The first place that runs as soon as the program does.
    pub(super) at_once: Option<TextRange>,
    /// The first place in a function.
    in_function: Option<TextRange>,
    /// Used where the program is ready for its absence: `try: name except NameError: ...`.
    pub(super) expected_absent: bool,
    /// Used where its absence may go unnoticed: `try: name() except Exception: ...`.
    pub(super) watched: bool,
    /// Some use is evaluated whenever the program runs.
    pub(super) certain: bool,
}

impl Wanted<'_> {
    /// Where it is first read.
    pub(super) fn first(&self) -> Option<TextRange> {
        self.at_once.or(self.in_function)
    }
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
            at: Position::default(),
            owners: vec![Owner::default()],
            left: HashSet::new(),
            ending: HashSet::new(),
            calls: Vec::new(),
            found: Vec::new(),
            bound: HashSet::new(),
            mentioned: HashSet::new(),
            watched: HashSet::new(),
            expected_calls: HashSet::new(),
            name_errors: 0,
            handlers: 0,
        };
        walk.visit_body(&module.body);
        walk.conclude()
    }
}

/// Where the walk is.
#[derive(Clone, Copy, Default)]
struct Position {
    /// Which function or class; 0: the module.
    owner: usize,
    /// In a `try` that is there for names that may be absent.
    expected: bool,
    /// In a `try` that catches errors about names, for whatever reason.
    watched: bool,
    /// Something around it in the same owner may leave it out.
    conditional: bool,
}

/// A function or a class; or the module.
#[derive(Default)]
struct Owner<'a> {
    name: &'a str,
    around: usize,
    kind: OwnerKind,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum OwnerKind {
    Function,
    /// Or the module.
    #[default]
    Class,
}

/// A use of a name that the program does not have.
struct Found<'a> {
    name: &'a str,
    range: TextRange,
    used: Usage<'a>,
    at: Position,
    /// It is evaluated whenever its owner runs.
    certain: bool,
}

struct Walk<'a, 's> {
    scopes: &'s Scopes<'a>,
    unresolved: HashSet<TextSize>,
    at: Position,
    owners: Vec<Owner<'a>>,
    /// Owners that may be left before what follows: `return`, `sys.exit()`.
    left: HashSet<usize>,
    /// Functions that may end the program.
    ending: HashSet<&'a str>,
    /// What an owner calls whenever it runs.
    calls: Vec<(usize, &'a str)>,
    found: Vec<Found<'a>>,
    bound: HashSet<&'a str>,
    mentioned: HashSet<&'a str>,
    /// Mentioned where errors about names are caught.
    watched: HashSet<&'a str>,
    /// Called where names may be absent.
    expected_calls: HashSet<&'a str>,
    /// Reads of the name `NameError`, without those of handlers.
    name_errors: usize,
    handlers: usize,
}

impl<'a> Walk<'a, '_> {
    fn within(&mut self, at: Position, walk: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.at, at);
        walk(self);
        self.at = around;
    }

    fn conditional(&mut self, walk: impl FnOnce(&mut Self)) {
        let at = Position {
            conditional: true,
            ..self.at
        };
        self.within(at, walk);
    }

    fn is_certain(&self) -> bool {
        !self.at.conditional && !self.left.contains(&self.at.owner)
    }

    fn bind(&mut self, name: Option<&'a Identifier>) {
        self.bound.extend(name.map(Identifier::as_str));
    }

    fn mention(&mut self, name: &'a str) {
        self.mentioned.insert(name);
        if self.at.watched {
            self.watched.insert(name);
        }
    }

    /// What follows may be left out, wherever this owner is called.
    fn end(&mut self) {
        self.left.insert(self.at.owner);
        let mut owner = self.at.owner;
        while let Some(around) = self.owners.get(owner).filter(|_| owner != 0) {
            self.ending.insert(around.name);
            owner = around.around;
        }
    }

    fn name(&mut self, name: &'a ast::ExprName, used: Usage<'a>) {
        let word = name.id.as_str();
        if name.ctx != ExprContext::Load {
            self.bound.insert(word);
            return;
        }
        self.mention(word);
        self.name_errors += usize::from(word == "NameError");
        if self.unresolved.contains(&name.range.start()) {
            self.found.push(Found {
                name: word,
                range: name.range,
                used,
                at: self.at,
                certain: self.is_certain(),
            });
        }
    }

    /// From the innermost part outwards: `a`, `a.b`, `a.b()`.
    fn spine(&mut self, expr: &'a Expr) {
        let spine = spine_of(expr);
        let Some((innermost, outer)) = spine.split_first() else {
            return;
        };
        let mut last = "";
        let mut ends = false;
        match innermost {
            Expr::Name(name) => {
                last = name.id.as_str();
                self.name(name, used(outer));
                if self.at.expected && matches!(outer.last(), Some(Expr::Call(_))) {
                    self.expected_calls.insert(last);
                }
            }
            innermost => self.visit_expr(innermost),
        }
        for part in outer {
            ends |= ENDS.contains(&last) || self.ending.contains(last);
            match part {
                Expr::Attribute(attribute) => {
                    last = attribute.attr.as_str();
                    self.mention(last);
                    continue;
                }
                Expr::Call(_) if self.is_certain() => self.calls.push((self.at.owner, last)),
                _ => {}
            }
            last = "";
            walk_right(self, part);
        }
        if ends || ENDS.contains(&last) || self.ending.contains(last) {
            self.end();
        }
    }

    fn decorators(&mut self, decorators: &'a [ast::Decorator]) {
        for decorator in decorators {
            match &decorator.expression {
                Expr::Name(name) => self.name(name, Usage::Called),
                other => self.visit_expr(other),
            }
        }
    }

    fn own(&mut self, name: &'a Identifier, body: &'a [Stmt], kind: OwnerKind) {
        self.owners.push(Owner {
            name: name.as_str(),
            around: self.at.owner,
            kind,
        });
        let at = Position {
            owner: self.owners.len() - 1,
            conditional: false,
            ..self.at
        };
        self.within(at, |walk| walk.visit_body(body));
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        self.bind(Some(&function.name));
        self.decorators(&function.decorator_list);
        if let Some(params) = &function.type_params {
            self.visit_type_params(params);
        }
        self.visit_parameters(&function.parameters);
        if let Some(returns) = &function.returns {
            self.visit_annotation(returns);
        }
        self.own(&function.name, &function.body, OwnerKind::Function);
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        self.bind(Some(&class.name));
        self.decorators(&class.decorator_list);
        if let Some(params) = &class.type_params {
            self.visit_type_params(params);
        }
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        // Its body runs at once; what may leave it out may leave out what is in it.
        let certain = self.is_certain();
        let next = self.owners.len();
        self.own(&class.name, &class.body, OwnerKind::Class);
        if !certain {
            self.found
                .iter_mut()
                .filter(|found| found.at.owner == next)
                .for_each(|found| found.certain = false);
        }
    }

    fn import(&mut self, stmt: &'a Stmt) {
        let (names, is_from) = match stmt {
            Stmt::Import(import) => (&import.names, false),
            Stmt::ImportFrom(import) => (&import.names, true),
            _ => return,
        };
        for alias in names {
            let name = alias.name.as_str();
            let root = name.split('.').next().filter(|_| !is_from).unwrap_or(name);
            self.bound
                .insert(alias.asname.as_ref().map_or(root, Identifier::as_str));
        }
    }

    fn attempt(&mut self, attempt: &'a StmtTry) {
        let mut inner = self.at;
        for ast::ExceptHandler::ExceptHandler(handler) in &attempt.handlers {
            self.bind(handler.name.as_ref());
            let types = watch::types_of(handler.type_.as_deref());
            let by_name = watch::names(types, "NameError");
            self.handlers += usize::from(by_name);
            let anything =
                types.is_empty() || watch::names(types, "Exception") || watch::names(types, "BaseException");
            inner.expected |= by_name || (anything && is_probe(&attempt.body));
            inner.watched |= watch::catches(types, self.scopes);
            inner.conditional = true;
        }
        if watch::ends_by_itself(&attempt.finalbody) {
            inner.watched = true;
            inner.conditional = true;
        }
        self.within(inner, |walk| walk.visit_body(&attempt.body));
        self.conditional(|walk| {
            walk.visit_body(&attempt.orelse);
            for ast::ExceptHandler::ExceptHandler(handler) in &attempt.handlers {
                handler.type_.iter().for_each(|kind| walk.visit_expr(kind));
                walk.visit_body(&handler.body);
            }
        });
        self.visit_body(&attempt.finalbody);
    }

    /// The first is evaluated, the others may be.
    fn first_of(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) {
        let mut exprs = exprs.into_iter();
        exprs.next().into_iter().for_each(|first| self.visit_expr(first));
        self.conditional(|walk| exprs.for_each(|expr| walk.visit_expr(expr)));
    }

    fn comprehension(&mut self, generators: &'a [Comprehension], elements: [Option<&'a Expr>; 2]) {
        let first = generators.first().map(|generator| &generator.iter);
        first.into_iter().for_each(|iter| self.visit_expr(iter));
        self.conditional(|walk| {
            for (at, generator) in generators.iter().enumerate() {
                walk.visit_expr(&generator.target);
                let iter = Some(&generator.iter).filter(|_| at > 0);
                let rest = iter.into_iter().chain(&generator.ifs);
                rest.for_each(|expr| walk.visit_expr(expr));
            }
            elements
                .into_iter()
                .flatten()
                .for_each(|element| walk.visit_expr(element));
        });
    }

    fn is_in_function(&self, mut owner: usize) -> bool {
        while let Some(at) = self.owners.get(owner).filter(|_| owner != 0) {
            if at.kind == OwnerKind::Function {
                return true;
            }
            owner = at.around;
        }
        false
    }

    /// Owners that run whenever the program does: those that are called by their names from others that do.
    fn certain_owners(&self) -> HashSet<usize> {
        let runs = |owner: &Owner<'a>, certain: &HashSet<usize>| {
            let called = |name: &str| {
                let mut calls = self.calls.iter();
                calls.any(|(by, called)| *called == name && certain.contains(by))
            };
            match owner.kind {
                OwnerKind::Function if owner.name == "__init__" => self
                    .owners
                    .get(owner.around)
                    .is_some_and(|class| called(class.name)),
                OwnerKind::Function => called(owner.name),
                OwnerKind::Class => certain.contains(&owner.around),
            }
        };
        let mut certain = HashSet::from([0]);
        for _ in 0..ROUNDS_MAX {
            let more = self.owners.iter().enumerate().skip(1);
            let more: Vec<usize> = more
                .filter(|(at, owner)| !certain.contains(at) && runs(owner, &certain))
                .map(|(at, _)| at)
                .collect();
            if more.is_empty() {
                break;
            }
            certain.extend(more);
        }
        certain
    }

    fn conclude(mut self) -> Uses<'a> {
        let unsure = self.found.iter().any(|found| found.at.owner != 0);
        self.calls.sort_unstable();
        self.calls.dedup();
        let certain = match unsure && self.owners.len() <= OWNERS_MAX {
            true => self.certain_owners(),
            false => HashSet::from([0]),
        };
        let own_is_watched = self
            .owners
            .iter()
            .skip(1)
            .any(|owner| self.watched.contains(owner.name));
        let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        for found in std::mem::take(&mut self.found) {
            let entry = wanted.entry(found.name).or_default();
            let in_function = self.is_in_function(found.at.owner);
            let first = match in_function {
                true => &mut entry.in_function,
                false => &mut entry.at_once,
            };
            if first.is_none_or(|known| found.range.start() < known.start()) {
                *first = Some(found.range);
            }
            entry.expected_absent |= found.at.expected;
            entry.watched |= found.at.watched || in_function && own_is_watched;
            entry.certain |= found.certain && certain.contains(&found.at.owner);
            if entry.uses.len() < USES_MAX {
                entry.uses.push(found.used);
            }
        }
        let elsewhere = self.name_errors > self.handlers;
        let far = self.expected_calls.iter().any(|name| self.bound.contains(name));
        Uses {
            wanted,
            bound: self.bound,
            expects_name_errors: elsewhere || far,
            binds_out_of_sight: SPREADS_MEMBERS.iter().any(|name| self.mentioned.contains(name)),
        }
    }
}

/// Functions that call functions.
const ROUNDS_MAX: usize = 20;
/// A program with more is not looked at so closely.
const OWNERS_MAX: usize = 500;

impl<'a> Visitor<'a> for Walk<'a, '_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => return self.function(function),
            Stmt::ClassDef(class) => return self.class(class),
            Stmt::Try(attempt) => return self.attempt(attempt),
            Stmt::If(branch) => {
                self.visit_expr(&branch.test);
                match is_main(&branch.test) {
                    true => self.visit_body(&branch.body),
                    false => self.conditional(|walk| walk.visit_body(&branch.body)),
                }
                let clauses = branch.elif_else_clauses.iter();
                return self
                    .conditional(|walk| clauses.for_each(|clause| walk.visit_elif_else_clause(clause)));
            }
            Stmt::For(each) => {
                let (body, orelse) = (&each.body, &each.orelse);
                self.visit_expr(&each.iter);
                self.visit_expr(&each.target);
                return self
                    .conditional(|walk| [body, orelse].into_iter().for_each(|body| walk.visit_body(body)));
            }
            Stmt::While(repeat) => {
                let (body, orelse) = (&repeat.body, &repeat.orelse);
                self.visit_expr(&repeat.test);
                return self
                    .conditional(|walk| [body, orelse].into_iter().for_each(|body| walk.visit_body(body)));
            }
            Stmt::Match(choice) => {
                self.visit_expr(&choice.subject);
                return self
                    .conditional(|walk| choice.cases.iter().for_each(|case| walk.visit_match_case(case)));
            }
            Stmt::With(with) if watch::swallows(with, self.scopes) => {
                with.items.iter().for_each(|item| self.visit_with_item(item));
                let at = Position {
                    watched: true,
                    conditional: true,
                    ..self.at
                };
                return self.within(at, |walk| walk.visit_body(&with.body));
            }
            Stmt::Assert(assertion) => {
                self.visit_expr(&assertion.test);
                return self.conditional(|walk| assertion.msg.iter().for_each(|said| walk.visit_expr(said)));
            }
            // Its value is evaluated when somebody asks for it.
            Stmt::TypeAlias(_) => return self.conditional(|walk| visitor::walk_stmt(walk, stmt)),
            Stmt::Import(_) | Stmt::ImportFrom(_) => self.import(stmt),
            Stmt::Global(global) => self.bound.extend(global.names.iter().map(Identifier::as_str)),
            Stmt::Nonlocal(nonlocal) => self.bound.extend(nonlocal.names.iter().map(Identifier::as_str)),
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
        if stmt.is_return_stmt() {
            self.left.insert(self.at.owner);
        }
    }

    /// Since Python 3.14 annotations are evaluated when somebody asks for them.
    fn visit_annotation(&mut self, expr: &'a Expr) {
        self.conditional(|walk| walk.visit_expr(expr));
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) | Expr::Name(_) => {
                self.spine(expr);
            }
            Expr::BoolOp(either) => self.first_of(&either.values),
            Expr::If(either) => self.first_of([&*either.test, &either.body, &either.orelse]),
            Expr::Compare(compare) => {
                self.visit_expr(&compare.left);
                self.first_of(&compare.comparators);
            }
            Expr::Lambda(lambda) => {
                lambda
                    .parameters
                    .iter()
                    .for_each(|parameters| self.visit_parameters(parameters));
                self.owners.push(Owner {
                    name: "",
                    around: self.at.owner,
                    kind: OwnerKind::Function,
                });
                let at = Position {
                    owner: self.owners.len() - 1,
                    ..self.at
                };
                self.within(at, |walk| walk.visit_expr(&lambda.body));
            }
            Expr::ListComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None]),
            Expr::SetComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None]),
            Expr::Generator(of) => self.comprehension(&of.generators, [Some(&of.elt), None]),
            Expr::DictComp(of) => self.comprehension(&of.generators, [of.key.as_deref(), Some(&of.value)]),
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_parameter(&mut self, parameter: &'a ast::Parameter) {
        self.bind(Some(&parameter.name));
        visitor::walk_parameter(self, parameter);
    }

    fn visit_type_param(&mut self, parameter: &'a TypeParam) {
        self.bind(Some(name_of_type_param(parameter)));
        self.conditional(|walk| visitor::walk_type_param(walk, parameter));
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        self.bind(name_of_pattern(pattern));
        visitor::walk_pattern(self, pattern);
    }
}

/// As what a name is used that stands at the left end of these parts.
fn used<'a>(outer: &[&'a Expr]) -> Usage<'a> {
    let names = outer.iter().map_while(|part| match part {
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    });
    let chain: Vec<&str> = names.take(ATTRIBUTES_MAX).collect();
    match (chain.is_empty(), outer.first()) {
        (false, _) => Usage::Attributes(chain),
        (true, Some(Expr::Call(_))) => Usage::Called,
        _ => Usage::Bare,
    }
}

/// `__name__ == '__main__'`, which is so whenever a program runs.
fn is_main(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else {
        return false;
    };
    let is_name = |part: &Expr| matches!(part, Expr::Name(name) if name.id == "__name__");
    let is_text =
        |part: &Expr| matches!(part, Expr::StringLiteral(text) if text.value.to_str() == "__main__");
    let ([right], [CmpOp::Eq]) = (compare.comparators.as_ref(), compare.ops.as_ref()) else {
        return false;
    };
    is_name(&compare.left) && is_text(right) || is_text(&compare.left) && is_name(right)
}

/// Does the whole attempt only ask whether a name is there.
fn is_probe(body: &[Stmt]) -> bool {
    match body {
        [Stmt::Expr(statement)] => statement.value.is_name_expr(),
        [Stmt::Assign(assignment)] => assignment.value.is_name_expr(),
        _ => false,
    }
}
