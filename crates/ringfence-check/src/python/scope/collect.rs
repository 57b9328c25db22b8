//! One walk over a module: which scopes there are, what is bound and what is read in each.

use super::{
    Kind, MODULE, NameId, Scope, ScopeId, ScopeKind, Star, Sure, name_of_pattern, name_of_type_param,
};
use crate::python::{
    spine::{spine_of, walk_right},
    syntax::{BlockKind, Compiler},
};
use ruff_python_ast::{
    self as ast, Alias, Comprehension, ExceptHandler, Expr, ExprContext, Identifier, ModModule, Parameters,
    Pattern, Stmt, TypeParams,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};
use std::collections::HashMap;

/// `global x` or `nonlocal x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    Global,
    Nonlocal,
}

/// A name is bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) scope: ScopeId,
    pub(super) name: NameId,
    pub(super) kind: Kind<'a>,
    pub(super) deletes: bool,
    pub(super) sure: Option<Sure>,
}

/// A name is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRead<'a> {
    pub(super) scope: ScopeId,
    pub(super) name: NameId,
    pub(super) text: &'a str,
    pub(super) range: TextRange,
    pub(super) evaluated: bool,
}

/// Names as numbers.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    plain: HashMap<&'a str, NameId>,
    private: HashMap<String, NameId>,
    count: u32,
}

impl<'a> Names<'a> {
    pub(super) fn find(&self, name: &str) -> Option<NameId> {
        self.plain.get(name).copied()
    }

    /// In a class, `__x` is `_Class__x`.
    fn number(&mut self, name: &'a str, class: Option<&str>) -> NameId {
        let next = NameId(self.count);
        let known = match class.map(|class| class.trim_start_matches('_')) {
            Some(class) if is_private(name) && !class.is_empty() => {
                let mangled = format!("_{class}{name}");
                match self.plain.get(mangled.as_str()) {
                    Some(plain) => *plain,
                    None => *self.private.entry(mangled).or_insert(next),
                }
            }
            _ => *self
                .plain
                .entry(name)
                .or_insert_with(|| self.private.get(name).copied().unwrap_or(next)),
        };
        if known == next {
            self.count += 1;
        }
        known
    }
}

fn is_private(name: &str) -> bool {
    name.starts_with("__") && !name.ends_with("__") && !name.contains('.')
}

/// The walk.
#[derive(Default)]
pub(super) struct Collector<'a> {
    pub(super) scopes: Vec<Scope>,
    pub(super) events: Vec<Event<'a>>,
    pub(super) uses: Vec<NameRead<'a>>,
    pub(super) declared: HashMap<(ScopeId, NameId), Declared>,
    pub(super) nonlocals: Vec<NameRead<'a>>,
    pub(super) names: Names<'a>,
    pub(super) stars: Vec<Star<'a>>,
    pub(super) binds_by_text: bool,
    /// None: what the compiler refuses is not asked.
    pub(super) compiler: Option<Compiler<'a>>,
    at: Position<'a>,
    future_annotations: bool,
}

/// Where the walk is.
#[derive(Clone, Copy, Default)]
struct Position<'a> {
    scope: ScopeId,
    /// The innermost class, for private names.
    class: Option<&'a str>,
    /// Blocks of this scope that may be left out: `if`, `for`, `try`.
    branches: u32,
    /// What the statement binds is bound for sure.
    sure: Option<Sure>,
    /// In an annotation that is never evaluated.
    unevaluated: bool,
    /// Of the compiler's places.
    depth: usize,
}

impl Default for ScopeId {
    fn default() -> Self {
        MODULE
    }
}

impl<'a> Collector<'a> {
    pub(super) fn collect(module: &'a ModModule, compiler: Option<Compiler<'a>>) -> Self {
        let mut collector = Self {
            scopes: vec![Scope {
                kind: ScopeKind::Module,
                parent: None,
            }],
            compiler,
            ..Self::default()
        };
        collector.at.depth = collector.compiler.as_ref().map_or(0, Compiler::depth);
        collector.visit_body(&module.body);
        collector
    }

    /// Enters a scope; gives the place outside.
    fn enter(&mut self, kind: ScopeKind, place: Option<BlockKind>) -> Position<'a> {
        let id = ScopeId(u32::try_from(self.scopes.len()).unwrap_or(u32::MAX));
        self.scopes.push(Scope {
            kind,
            parent: Some(self.at.scope),
        });
        let around = self.at;
        self.at = Position {
            scope: id,
            branches: 0,
            sure: None,
            ..around
        };
        if let (Some(compiler), Some(place)) = (&mut self.compiler, place) {
            compiler.enter(place);
            self.at.depth = compiler.depth();
        }
        around
    }

    fn leave(&mut self, around: Position<'a>) {
        self.at = around;
        if let Some(compiler) = &mut self.compiler {
            compiler.leave(around.depth);
        }
    }

    /// Is it something that the compiler refuses.
    fn compile(&mut self, expr: &'a Expr) {
        if let Some(compiler) = &mut self.compiler {
            compiler.expression(expr);
        }
    }

    fn count_loops(&mut self, more: i32) {
        if let Some(compiler) = &mut self.compiler {
            compiler.count_loops(more);
        }
    }

    fn in_loop(&mut self, body: &'a [Stmt]) {
        self.count_loops(1);
        self.visit_body(body);
        self.count_loops(-1);
    }

    fn kind_of(&self, scope: ScopeId) -> ScopeKind {
        self.scopes
            .get(scope.0 as usize)
            .map_or(ScopeKind::Module, |scope| scope.kind)
    }

    fn bind(&mut self, text: &'a str, kind: Kind<'a>) {
        self.bind_in(self.at.scope, text, kind, self.at.sure);
    }

    fn bind_in(&mut self, scope: ScopeId, text: &'a str, kind: Kind<'a>, sure: Option<Sure>) {
        let name = self.names.number(text, self.at.class);
        self.events.push(Event {
            scope,
            name,
            kind,
            deletes: false,
            sure,
        });
    }

    fn delete(&mut self, text: &'a str) {
        self.bind_in(self.at.scope, text, Kind::Other, None);
        if let Some(event) = self.events.last_mut() {
            event.deletes = true;
        }
    }

    fn read(&mut self, text: &'a str, range: TextRange) {
        let name = self.names.number(text, self.at.class);
        self.uses.push(NameRead {
            scope: self.at.scope,
            name,
            text,
            range,
            evaluated: !self.at.unevaluated,
        });
    }

    fn declare(&mut self, names: &'a [Identifier], declared: Declared) {
        for name in names {
            let id = self.names.number(name.as_str(), self.at.class);
            // At the top of a module `global` says what is so anyway.
            if self.at.scope != MODULE {
                self.declared.insert((self.at.scope, id), declared);
                if declared == Declared::Nonlocal {
                    self.nonlocals.push(NameRead {
                        scope: self.at.scope,
                        name: id,
                        text: name.as_str(),
                        range: name.range(),
                        evaluated: true,
                    });
                }
            }
        }
    }

    /// `target = value`, by which a name may be followed to what it is.
    fn assign(&mut self, target: &'a Expr, value: &'a Expr) {
        match (target, value) {
            (Expr::Name(name), _) => {
                self.compile(target);
                self.bind(name.id.as_str(), Kind::Value(value));
            }
            (Expr::Tuple(ast::ExprTuple { elts, .. }) | Expr::List(ast::ExprList { elts, .. }), _) => {
                let values: &[Expr] = match value {
                    Expr::Tuple(tuple) => &tuple.elts,
                    Expr::List(list) => &list.elts,
                    _ => &[],
                };
                let starred = |exprs: &[Expr]| exprs.iter().any(Expr::is_starred_expr);
                if values.len() != elts.len() || starred(values) || starred(elts) {
                    self.visit_expr(target);
                    return;
                }
                for (target, value) in elts.iter().zip(values) {
                    self.assign(target, value);
                }
            }
            _ => self.visit_expr(target),
        }
    }

    /// In parentheses: the statement's annotation.
    fn annotation(&mut self, expr: &'a Expr, evaluated: Evaluated) {
        let around = self.at.unevaluated;
        self.at.unevaluated |= self.future_annotations || evaluated == Evaluated::Never;
        self.visit_expr(expr);
        self.at.unevaluated = around;
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        for decorator in &function.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        self.defaults(&function.parameters);
        let around = function
            .type_params
            .as_deref()
            .map(|params| self.type_parameters(params));
        self.annotations(&function.parameters);
        if let Some(returns) = &function.returns {
            self.annotation(returns, Evaluated::Once);
        }
        let place = BlockKind::Function {
            is_async: function.is_async,
        };
        let outside = self.enter(ScopeKind::Function, Some(place));
        if let Some(compiler) = &mut self.compiler {
            compiler.in_function(&function.parameters, &function.body);
        }
        self.parameters(&function.parameters);
        self.visit_body(&function.body);
        self.leave(around.unwrap_or(outside));
        let range = function.range();
        let sure = self.at.sure.map(|sure| match function.decorator_list.is_empty() {
            // The body runs when it is called, and it cannot be called before it is bound.
            true => Sure {
                inside: range.start().to_u32(),
                ..sure
            },
            false => sure,
        });
        self.bind_in(self.at.scope, function.name.as_str(), Kind::Function, sure);
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        for decorator in &class.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        let around = class
            .type_params
            .as_deref()
            .map(|params| self.type_parameters(params));
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        let outside = self.enter(ScopeKind::Class, Some(BlockKind::Class));
        self.at.class = Some(class.name.as_str());
        self.visit_body(&class.body);
        self.leave(around.unwrap_or(outside));
        self.bind(class.name.as_str(), Kind::Class);
    }

    /// Enters their scope; gives the place outside.
    fn type_parameters(&mut self, params: &'a TypeParams) -> Position<'a> {
        let around = self.enter(ScopeKind::TypeParameters, None);
        for param in &params.type_params {
            self.bind(name_of_type_param(param).as_str(), Kind::Other);
        }
        self.visit_type_params(params);
        around
    }

    fn defaults(&mut self, parameters: &'a Parameters) {
        for parameter in parameters.iter_non_variadic_params() {
            if let Some(default) = &parameter.default {
                self.visit_expr(default);
            }
        }
    }

    fn annotations(&mut self, parameters: &'a Parameters) {
        for parameter in parameters {
            if let Some(annotation) = parameter.annotation() {
                self.annotation(annotation, Evaluated::Once);
            }
        }
    }

    fn parameters(&mut self, parameters: &'a Parameters) {
        for parameter in parameters {
            self.bind(parameter.name().as_str(), Kind::Parameter(parameter.default()));
        }
    }

    /// The first iterator is evaluated outside.
    fn comprehension(
        &mut self,
        generators: &'a [Comprehension],
        elements: [Option<&'a Expr>; 2],
        runs: Runs,
    ) {
        if let Some(first) = generators.first() {
            self.visit_expr(&first.iter);
        }
        let place = BlockKind::Comprehension {
            is_async: generators.iter().any(|generator| generator.is_async),
            is_generator: runs == Runs::Later,
        };
        let around = self.enter(ScopeKind::Comprehension, Some(place));
        for (at, generator) in generators.iter().enumerate() {
            self.visit_expr(&generator.target);
            if at > 0 {
                self.visit_expr(&generator.iter);
            }
            for condition in &generator.ifs {
                self.visit_expr(condition);
            }
        }
        for element in elements.into_iter().flatten() {
            self.visit_expr(element);
        }
        self.leave(around);
    }
}

/// When a comprehension runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Now,
    /// It is a generator.
    Later,
}

/// When an annotation is evaluated, unless the module puts all of them off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evaluated {
    Once,
    Never,
}

impl<'a> Visitor<'a> for Collector<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let around = self.at;
        let branches = u32::from(matches!(
            stmt,
            Stmt::If(_) | Stmt::For(_) | Stmt::While(_) | Stmt::Try(_) | Stmt::With(_) | Stmt::Match(_)
        ));
        self.at.branches += branches;
        let end = stmt.end().to_u32();
        self.at.sure = (self.at.branches == 0).then_some(Sure {
            here: end,
            inside: end,
        });
        self.compiler
            .iter_mut()
            .for_each(|compiler| compiler.statement(stmt));
        self.statement(stmt);
        self.at = around;
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => {
                for part in spine_of(expr).iter().copied() {
                    match part {
                        Expr::BinOp(_) | Expr::Call(_) | Expr::Subscript(_) => {
                            self.compile(part);
                            walk_right(self, part);
                        }
                        Expr::Attribute(attribute) => {
                            self.compile(part);
                            self.binds_by_text |= NAMESPACES.contains(&attribute.attr.as_str());
                        }
                        innermost => self.visit_expr(innermost),
                    }
                }
                return;
            }
            _ => self.compile(expr),
        }
        match expr {
            Expr::Name(name) => match name.ctx {
                ExprContext::Load => self.read(name.id.as_str(), name.range),
                ExprContext::Store => self.bind(name.id.as_str(), Kind::Other),
                ExprContext::Del => self.delete(name.id.as_str()),
                ExprContext::Invalid => {}
            },
            Expr::Named(named) => self.named(named),
            Expr::Lambda(lambda) => {
                if let Some(parameters) = &lambda.parameters {
                    self.defaults(parameters);
                }
                let around = self.enter(ScopeKind::Function, Some(BlockKind::Lambda));
                if let Some(parameters) = &lambda.parameters {
                    if let Some(compiler) = &mut self.compiler {
                        compiler.in_function(parameters, &[]);
                    }
                    self.parameters(parameters);
                }
                self.visit_expr(&lambda.body);
                self.leave(around);
            }
            Expr::ListComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Now),
            Expr::SetComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Now),
            Expr::Generator(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Later),
            Expr::DictComp(of) => {
                self.comprehension(&of.generators, [of.key.as_deref(), Some(&of.value)], Runs::Now)
            }
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(handler) = handler;
        if let Some(kind) = &handler.type_ {
            self.visit_expr(kind);
        }
        if let Some(name) = &handler.name {
            self.delete(name.as_str());
        }
        self.visit_body(&handler.body);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Some(name) = name_of_pattern(pattern) {
            self.bind(name.as_str(), Kind::Other);
        }
        visitor::walk_pattern(self, pattern);
    }
}

/// Attributes that are the names of a module or the modules of a process.
#[rustfmt::skip]
const NAMESPACES: &[&str] = &[
    "__dict__", "__globals__", "__builtins__", "f_globals", "f_locals", "f_builtins", "modules",
];

impl<'a> Collector<'a> {
    fn statement(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::Assign(assign) => {
                self.visit_expr(&assign.value);
                for target in &assign.targets {
                    self.assign(target, &assign.value);
                }
            }
            Stmt::AnnAssign(assign) => self.annotated(assign),
            Stmt::For(each) => {
                let (body, orelse) = (&each.body, &each.orelse);
                self.visit_expr(&each.iter);
                self.visit_expr(&each.target);
                self.in_loop(body);
                self.visit_body(orelse);
            }
            Stmt::While(repeat) => {
                let (body, orelse) = (&repeat.body, &repeat.orelse);
                self.visit_expr(&repeat.test);
                self.in_loop(body);
                self.visit_body(orelse);
            }
            Stmt::TypeAlias(alias) => {
                let around = match alias.type_params.as_deref() {
                    Some(params) => self.type_parameters(params),
                    None => self.enter(ScopeKind::TypeParameters, None),
                };
                self.visit_expr(&alias.value);
                self.leave(around);
                self.visit_expr(&alias.name);
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    self.import(alias);
                }
            }
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::Global(global) => self.declare(&global.names, Declared::Global),
            Stmt::Nonlocal(nonlocal) => self.declare(&nonlocal.names, Declared::Nonlocal),
            _ => visitor::walk_stmt(self, stmt),
        }
    }

    fn annotated(&mut self, assign: &'a ast::StmtAnnAssign) {
        if let Some(value) = &assign.value {
            self.visit_expr(value);
        }
        let never = match self.kind_of(self.at.scope) {
            ScopeKind::Function => Evaluated::Never,
            _ => Evaluated::Once,
        };
        self.annotation(&assign.annotation, never);
        match &assign.value {
            Some(value) => self.assign(&assign.target, value),
            None => {
                self.at.sure = None;
                self.visit_expr(&assign.target);
            }
        }
    }

    fn import(&mut self, alias: &'a Alias) {
        let module = alias.name.as_str();
        let root = module.split('.').next().unwrap_or(module);
        self.binds_by_text |= matches!(root, "builtins" | "__main__");
        match &alias.asname {
            Some(name) => self.bind(name.as_str(), Kind::Import { module }),
            None => self.bind(root, Kind::Import { module: root }),
        }
    }

    fn import_from(&mut self, import: &'a ast::StmtImportFrom) {
        let module = import.module.as_ref().map_or("", Identifier::as_str);
        self.binds_by_text |= matches!(module, "builtins" | "__main__");
        for alias in &import.names {
            let name = alias.name.as_str();
            if name == "*" {
                self.stars.push(Star {
                    module,
                    level: import.level,
                    end: import.end().to_u32(),
                });
                continue;
            }
            self.future_annotations |= module == "__future__" && name == "annotations";
            let kind = Kind::From {
                module,
                level: import.level,
                name,
            };
            self.bind(alias.asname.as_ref().unwrap_or(&alias.name).as_str(), kind);
        }
    }

    /// `(x := value)` binds in the function around the comprehension.
    fn named(&mut self, named: &'a ast::ExprNamed) {
        self.visit_expr(&named.value);
        let Expr::Name(target) = named.target.as_ref() else {
            self.visit_expr(&named.target);
            return;
        };
        let mut scope = self.at.scope;
        while self.kind_of(scope) == ScopeKind::Comprehension {
            let parent = self.scopes.get(scope.0 as usize).and_then(|scope| scope.parent);
            scope = parent.unwrap_or(MODULE);
        }
        self.compile(&named.target);
        self.bind_in(scope, target.id.as_str(), Kind::Value(&named.value), None);
    }
}
