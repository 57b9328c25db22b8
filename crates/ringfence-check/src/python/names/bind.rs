//! One walk over a module that collects its scopes, the names bound and read in each, and the errors of the compiler.

use super::{
    Binding, Catcher, Declared, Kind, MODULE, Mode, NameRead, Names, ReadContext, Resolution, Scope,
    ScopeKind, Star,
};
use crate::{
    lists::LISTS,
    python::spine::{spine_of, walk_right},
    rule::Finding,
};
use ruff_python_ast::{
    self as ast, Alias, CmpOp, Comprehension, ExceptHandler, Expr, ExprContext, Identifier, ModModule,
    Parameters, Pattern, PythonVersion, Stmt, TypeParam, TypeParams,
    statement_visitor::{self, StatementVisitor},
    visitor::{self, Visitor},
};
use ruff_python_parser::semantic_errors::SemanticSyntaxChecker;
use ruff_text_size::{Ranged, TextRange};
use std::{cell::RefCell, collections::HashMap};

#[derive(Default)]
pub(super) struct Binder<'a> {
    pub(super) names: Names<'a>,
    pub(super) code: &'a str,
    pub(super) version: PythonVersion,
    pub(super) at: Position,
    pub(super) future_annotations: bool,
    pub(super) refused: RefCell<Vec<Finding>>,
    checker: SemanticSyntaxChecker,
    /// Bindings by `nonlocal`, with the scope of the statement.
    nonlocals: Vec<(usize, &'a str, Kind<'a>)>,
    may_have_ended: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) scope: usize,
    /// Number of enclosing loops in the same scope.
    pub(super) loops: u32,
    context: ReadContext,
    /// A binding may not take place, even if the scope runs.
    uncertain: bool,
    end: u32,
}

impl<'a> Binder<'a> {
    pub(super) fn bind(
        module: &'a ModModule,
        code: &'a str,
        version: PythonVersion,
    ) -> (Names<'a>, Vec<Finding>) {
        let mut binder = Self {
            code,
            version,
            ..Self::default()
        };
        binder.enter(ScopeKind::Module, &[]);
        binder.visit_body(&module.body);
        for (scope, name, kind) in std::mem::take(&mut binder.nonlocals) {
            if let Some(id) = binder.names.enclosing(scope, name) {
                binder.names.bindings[id].join(kind, None);
            }
        }
        (binder.names, binder.refused.into_inner())
    }

    /// Enters a scope and returns the position outside.
    fn enter(&mut self, kind: ScopeKind, body: &'a [Stmt]) -> Position {
        let mut declared = Declarations(HashMap::new());
        declared.visit_body(body);
        self.names.scopes.push(Scope {
            kind,
            parent: self.at.scope,
            declared: declared.0,
        });
        let inside = Position {
            scope: self.names.scopes.len() - 1,
            loops: 0,
            uncertain: false,
            ..self.at
        };
        std::mem::replace(&mut self.at, inside)
    }

    fn compile(&mut self, ask: impl FnOnce(&mut SemanticSyntaxChecker, &Self)) {
        let mut checker = std::mem::take(&mut self.checker);
        ask(&mut checker, self);
        self.checker = checker;
    }

    fn compile_expr(&mut self, expr: &Expr) {
        self.compile(|checker, context| checker.visit_expr(expr, context));
    }

    /// Walks code that may not run.
    fn conditional(&mut self, walk: impl FnOnce(&mut Self)) {
        let around = self.at;
        self.at.context.conditional = true;
        self.at.uncertain = true;
        walk(self);
        self.at = around;
    }

    fn exprs(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) {
        for expr in exprs {
            self.visit_expr(expr);
        }
    }

    fn add_catcher(&mut self, catcher: Catcher<'a>) {
        self.names.catchers.push((catcher, self.at.context.catcher));
        self.at.context.catcher = self.names.catchers.len();
    }

    fn bind_name(&mut self, name: &'a str, kind: Kind<'a>) {
        let from = Some(self.at.end).filter(|_| !self.at.uncertain);
        self.bind_in(self.at.scope, name, kind, from);
    }

    /// Binds a name by a statement of a scope; `None` for a `nonlocal` name, whose binding is found after the walk.
    fn bind_in(&mut self, scope: usize, name: &'a str, kind: Kind<'a>, from: Option<u32>) -> Option<usize> {
        let scope = match self.names.scopes[scope].declared.get(name) {
            Some((Declared::Global, _)) => MODULE,
            Some((Declared::Nonlocal, _)) => {
                self.nonlocals.push((scope, name, kind));
                return None;
            }
            None => scope,
        };
        Some(self.bind_at(scope, name, kind, from))
    }

    fn bind_at(&mut self, scope: usize, name: &'a str, kind: Kind<'a>, from: Option<u32>) -> usize {
        let next = self.names.bindings.len();
        let id = *self.names.index.entry((scope, name)).or_insert(next);
        if id == next {
            self.names.bindings.push(Binding {
                scope,
                certain_from: from,
                ..Binding::default()
            });
        }
        self.names.bindings[id].join(kind, from);
        id
    }

    fn delete(&mut self, name: &'a str) {
        if let Some(id) = self.bind_in(self.at.scope, name, Kind::Other, None) {
            self.names.bindings[id].deleted = true;
        }
    }

    fn mention(&mut self, name: &str) {
        self.names.has_dynamic_bindings |= LISTS.namespaces.contains(&name);
        self.may_have_ended |= LISTS.ending.contains(&name);
    }

    fn name(&mut self, name: &'a ast::ExprName, whole: &'a Expr) {
        let word = name.id.as_str();
        match name.ctx {
            ExprContext::Store => self.bind_name(word, Kind::Other),
            ExprContext::Del => self.delete(word),
            ExprContext::Invalid => {}
            ExprContext::Load => {
                let context = ReadContext {
                    conditional: self.at.context.conditional || self.may_have_ended,
                    ..self.at.context
                };
                self.names.reads.push(NameRead {
                    name: word,
                    range: name.range,
                    scope: self.at.scope,
                    whole,
                    context,
                    resolution: Resolution::Unresolved,
                    fallback: None,
                });
                self.names.reads_name_error |= word == "NameError";
                self.mention(word);
            }
        }
    }

    /// Walks a spine from the innermost part outwards: `a`, `a.b`, `a.b()`.
    fn spine(&mut self, expr: &'a Expr) {
        for part in spine_of(expr).iter().copied() {
            match part {
                Expr::Name(name) => {
                    self.compile_expr(part);
                    self.name(name, expr);
                }
                Expr::Attribute(attribute) => {
                    self.compile_expr(part);
                    self.mention(attribute.attr.as_str());
                }
                Expr::BinOp(_) | Expr::Call(_) | Expr::Subscript(_) => {
                    self.compile_expr(part);
                    walk_right(self, part);
                }
                innermost => self.visit_expr(innermost),
            }
        }
    }

    /// Binds the names of `target = value` to their values, so that a name can be followed to its value.
    fn assign(&mut self, target: &'a Expr, value: &'a Expr) {
        let elements = |expr: &'a Expr| match expr {
            Expr::Tuple(tuple) => Some(tuple.elts.as_slice()),
            Expr::List(list) => Some(list.elts.as_slice()),
            _ => None,
        };
        let starred = |exprs: &[Expr]| exprs.iter().any(Expr::is_starred_expr);
        match (target, elements(target), elements(value)) {
            (Expr::Name(name), ..) => {
                self.compile_expr(target);
                self.bind_name(name.id.as_str(), Kind::Value(value));
            }
            (_, Some(targets), Some(values))
                if targets.len() == values.len() && !starred(targets) && !starred(values) =>
            {
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value);
                }
            }
            _ => self.visit_expr(target),
        }
    }

    fn decorators(&mut self, decorators: &'a [ast::Decorator]) {
        for decorator in decorators {
            self.at.context.is_decorator = decorator.expression.is_name_expr();
            self.visit_expr(&decorator.expression);
            self.at.context.is_decorator = false;
        }
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        self.decorators(&function.decorator_list);
        self.defaults(&function.parameters);
        let outside = self.at;
        self.type_parameters(function.type_params.as_deref());
        let parameters = function.parameters.iter();
        let types = parameters.filter_map(ast::AnyParameterRef::annotation);
        for annotation in types.chain(function.returns.as_deref()) {
            self.visit_annotation(annotation);
        }
        let kind = ScopeKind::Function(function.is_async);
        self.enter(kind, &function.body);
        self.at.context.conditional = true;
        self.parameters(&function.parameters);
        self.visit_body(&function.body);
        self.at = outside;
        // The body runs when the function is called, which is not possible before it is bound.
        if let (Some(first), []) = (function.body.first(), function.decorator_list.as_slice()) {
            self.at.end = first.start().to_u32();
        }
        self.bind_name(function.name.as_str(), Kind::Function);
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        self.decorators(&class.decorator_list);
        let outside = self.at;
        self.type_parameters(class.type_params.as_deref());
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        self.enter(ScopeKind::Class, &class.body);
        self.visit_body(&class.body);
        self.at = outside;
        self.bind_name(class.name.as_str(), Kind::Class);
    }

    fn type_parameters(&mut self, params: Option<&'a TypeParams>) {
        if let Some(params) = params {
            self.enter(ScopeKind::TypeParameters, &[]);
            self.visit_type_params(params);
        }
    }

    fn defaults(&mut self, parameters: &'a Parameters) {
        let parameters = parameters.iter_non_variadic_params();
        self.exprs(parameters.filter_map(|parameter| parameter.default.as_deref()));
    }

    fn parameters(&mut self, parameters: &'a Parameters) {
        for parameter in parameters {
            let kind = Kind::Parameter(parameter.default());
            self.bind_at(self.at.scope, parameter.name().as_str(), kind, None);
        }
    }

    fn lambda(&mut self, lambda: &'a ast::ExprLambda) {
        if let Some(parameters) = &lambda.parameters {
            self.defaults(parameters);
        }
        let outside = self.enter(ScopeKind::Lambda, &[]);
        self.at.context.conditional = true;
        if let Some(parameters) = &lambda.parameters {
            self.parameters(parameters);
        }
        self.visit_expr(&lambda.body);
        self.at = outside;
    }

    /// Walks a comprehension. The first iterator is evaluated outside.
    fn comprehension(&mut self, of: &'a [Comprehension], elements: [Option<&'a Expr>; 2], mode: Mode) {
        self.exprs(of.iter().take(1).map(|generator| &generator.iter));
        let mode = match of.iter().any(|generator| generator.is_async) {
            true if mode == Mode::Sync => Mode::Async,
            _ => mode,
        };
        let outside = self.enter(ScopeKind::Comprehension(mode), &[]);
        self.conditional(|binder| {
            for (at, generator) in of.iter().enumerate() {
                binder.visit_expr(&generator.target);
                binder.exprs(Some(&generator.iter).filter(|_| at > 0));
                binder.exprs(&generator.ifs);
            }
            binder.exprs(elements.into_iter().flatten());
        });
        self.at = outside;
    }

    /// Walks expressions of which only the first is certainly evaluated.
    fn first_of(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) {
        let mut exprs = exprs.into_iter();
        self.exprs(exprs.next());
        self.conditional(|binder| binder.exprs(exprs));
    }

    /// Walks `(x := value)`, which binds in the scope around the comprehension.
    fn named(&mut self, named: &'a ast::ExprNamed) {
        self.visit_expr(&named.value);
        let Expr::Name(target) = named.target.as_ref() else {
            return self.visit_expr(&named.target);
        };
        let mut scope = self.at.scope;
        while matches!(self.names.scopes[scope].kind, ScopeKind::Comprehension(_)) {
            scope = self.names.scopes[scope].parent;
        }
        self.compile_expr(&named.target);
        self.bind_in(scope, target.id.as_str(), Kind::Value(&named.value), None);
    }

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
            Stmt::TypeAlias(alias) => {
                let outside = self.enter(ScopeKind::TypeParameters, &[]);
                self.conditional(|binder| {
                    binder.type_parameters(alias.type_params.as_deref());
                    binder.visit_expr(&alias.value);
                });
                self.at = outside;
                self.visit_expr(&alias.name);
            }
            Stmt::Import(import) => import.names.iter().for_each(|alias| self.import(alias)),
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::Assert(assertion) => {
                self.visit_expr(&assertion.test);
                self.conditional(|binder| assertion.msg.iter().for_each(|said| binder.visit_expr(said)));
            }
            _ => self.compound(stmt),
        }
    }

    fn compound(&mut self, stmt: &'a Stmt) {
        let is_compound = matches!(
            stmt,
            Stmt::If(_) | Stmt::For(_) | Stmt::While(_) | Stmt::Match(_) | Stmt::With(_) | Stmt::Try(_)
        );
        self.at.uncertain |= is_compound;
        match stmt {
            Stmt::If(branch) => {
                self.visit_expr(&branch.test);
                match is_main(&branch.test) {
                    true => self.visit_body(&branch.body),
                    false => self.conditional(|binder| binder.visit_body(&branch.body)),
                }
                for clause in &branch.elif_else_clauses {
                    self.conditional(|binder| binder.visit_elif_else_clause(clause));
                }
            }
            Stmt::For(each) => {
                self.visit_expr(&each.iter);
                self.conditional(|binder| {
                    binder.visit_expr(&each.target);
                    binder.repeated(&each.body, &each.orelse);
                });
            }
            Stmt::While(repeat) => {
                self.visit_expr(&repeat.test);
                self.conditional(|binder| binder.repeated(&repeat.body, &repeat.orelse));
            }
            Stmt::Match(choice) => {
                self.visit_expr(&choice.subject);
                self.conditional(|binder| choice.cases.iter().for_each(|case| binder.visit_match_case(case)));
            }
            Stmt::With(with) => {
                for item in &with.items {
                    self.visit_with_item(item);
                    if let Expr::Call(manager) = &item.context_expr {
                        self.add_catcher(catcher_of(manager));
                    }
                }
                self.visit_body(&with.body);
            }
            Stmt::Try(attempt) => self.attempt(attempt),
            _ => visitor::walk_stmt(self, stmt),
        }
    }

    fn repeated(&mut self, body: &'a [Stmt], orelse: &'a [Stmt]) {
        self.at.loops += 1;
        self.visit_body(body);
        self.at.loops -= 1;
        self.visit_body(orelse);
    }

    fn attempt(&mut self, attempt: &'a ast::StmtTry) {
        let outside = self.at;
        for ExceptHandler::ExceptHandler(handler) in &attempt.handlers {
            let types = match handler.type_.as_deref() {
                Some(Expr::Tuple(several)) => several.elts.as_slice(),
                one => one.map(std::slice::from_ref).unwrap_or_default(),
            };
            self.at.context.conditional = true;
            self.add_catcher(Catcher::Handler(types));
        }
        let ends = |last: &Stmt| matches!(last, Stmt::Return(_) | Stmt::Break(_) | Stmt::Continue(_));
        if attempt.finalbody.iter().any(ends) {
            self.add_catcher(Catcher::Return);
        }
        self.visit_body(&attempt.body);
        self.at = outside;
        self.conditional(|binder| {
            binder.visit_body(&attempt.orelse);
            for handler in &attempt.handlers {
                binder.visit_except_handler(handler);
            }
        });
        self.visit_body(&attempt.finalbody);
    }

    fn annotated(&mut self, assign: &'a ast::StmtAnnAssign) {
        self.exprs(assign.value.as_deref());
        let around = self.at.context;
        self.at.context.skipped |= matches!(self.names.scopes[self.at.scope].kind, ScopeKind::Function(_));
        self.visit_annotation(&assign.annotation);
        self.at.context = around;
        match &assign.value {
            Some(value) => self.assign(&assign.target, value),
            None => {
                self.at.uncertain = true;
                self.visit_expr(&assign.target);
            }
        }
    }

    fn import(&mut self, alias: &'a Alias) {
        let module = alias.name.as_str();
        let root = module.split('.').next().unwrap_or(module);
        self.names.has_dynamic_bindings |= matches!(root, "builtins" | "__main__");
        match &alias.asname {
            Some(name) => self.bind_name(name.as_str(), Kind::Import(module, None)),
            None => self.bind_name(root, Kind::Import(root, None)),
        }
    }

    fn import_from(&mut self, import: &'a ast::StmtImportFrom) {
        let module = import.module.as_deref().unwrap_or_default();
        self.names.has_dynamic_bindings |= matches!(module, "builtins" | "__main__");
        let end = import.end().to_u32();
        for alias in &import.names {
            let name = alias.name.as_str();
            self.future_annotations |= module == "__future__" && name == "annotations";
            let bound = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
            match (name, import.level) {
                ("*", 0) => self.names.stars.push(Star { module, end }),
                ("*", _) => self.names.has_dynamic_bindings = true,
                (_, 0) => self.bind_name(bound, Kind::Import(module, Some(name))),
                _ => self.bind_name(bound, Kind::Other),
            }
        }
    }
}

impl<'a> Visitor<'a> for Binder<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let around = self.at;
        self.at.end = stmt.end().to_u32();
        self.compile(|checker, context| checker.visit_stmt(stmt, context));
        self.statement(stmt);
        self.at = around;
    }

    /// Since Python 3.14 annotations are evaluated when they are first read.
    fn visit_annotation(&mut self, expr: &'a Expr) {
        let around = self.at;
        self.at.context.skipped |= self.future_annotations;
        self.at.context.conditional = true;
        self.visit_expr(expr);
        self.at = around;
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) | Expr::Name(_) => {
                return self.spine(expr);
            }
            _ => self.compile_expr(expr),
        }
        match expr {
            Expr::Named(named) => self.named(named),
            Expr::Lambda(lambda) => self.lambda(lambda),
            Expr::BoolOp(either) => self.first_of(&either.values),
            Expr::If(either) => self.first_of([&*either.test, &either.body, &either.orelse]),
            Expr::Compare(compare) => {
                self.visit_expr(&compare.left);
                self.first_of(&compare.comparators);
            }
            Expr::ListComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Mode::Sync),
            Expr::SetComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Mode::Sync),
            Expr::Generator(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Mode::Generator),
            Expr::DictComp(of) => {
                let elements = [of.key.as_deref(), Some(&*of.value)];
                self.comprehension(&of.generators, elements, Mode::Sync);
            }
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(handler) = handler;
        self.exprs(handler.type_.as_deref());
        if let Some(name) = &handler.name {
            self.delete(name.as_str());
        }
        self.visit_body(&handler.body);
    }

    fn visit_type_param(&mut self, parameter: &'a TypeParam) {
        self.bind_name(parameter.name().as_str(), Kind::Other);
        self.conditional(|binder| visitor::walk_type_param(binder, parameter));
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Some(name) = name_of_pattern(pattern) {
            self.bind_name(name.as_str(), Kind::Other);
        }
        visitor::walk_pattern(self, pattern);
    }
}

/// Names declared by `global` and `nonlocal` in a body, but not in functions and classes inside it.
struct Declarations<'a>(HashMap<&'a str, (Declared, TextRange)>);

impl<'a> StatementVisitor<'a> for Declarations<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let (names, declared) = match stmt {
            Stmt::Global(global) => (&global.names, Declared::Global),
            Stmt::Nonlocal(nonlocal) => (&nonlocal.names, Declared::Nonlocal),
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => return,
            _ => return statement_visitor::walk_stmt(self, stmt),
        };
        for name in names {
            self.0.entry(name.as_str()).or_insert((declared, stmt.range()));
        }
    }
}

pub(crate) fn name_of_pattern(pattern: &Pattern) -> Option<&Identifier> {
    match pattern {
        Pattern::MatchAs(pattern) => pattern.name.as_ref(),
        Pattern::MatchStar(pattern) => pattern.name.as_ref(),
        Pattern::MatchMapping(pattern) => pattern.rest.as_ref(),
        _ => None,
    }
}

fn catcher_of(manager: &ast::ExprCall) -> Catcher<'_> {
    let name = match manager.func.as_ref() {
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        func => func.as_name_expr().map_or("", |name| name.id.as_str()),
    };
    match LISTS.swallowing.contains(&name) {
        true => Catcher::Handler(&manager.arguments.args),
        false => Catcher::Manager(&manager.func),
    }
}

/// True for `__name__ == '__main__'`, which holds whenever a program runs.
fn is_main(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else {
        return false;
    };
    let sides = || std::iter::once(&*compare.left).chain(&compare.comparators);
    let is_name = |side: &Expr| matches!(side, Expr::Name(name) if name.id == "__name__");
    let is_text = |side: &Expr| matches!(side, Expr::StringLiteral(text) if &text.value == "__main__");
    *compare.ops == [CmpOp::Eq] && sides().any(is_name) && sides().any(is_text)
}
