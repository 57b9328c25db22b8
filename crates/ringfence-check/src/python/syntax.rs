//! What the interpreter's compiler refuses in a text that its grammar accepts: `return` outside of a function, `break` outside
//! of a loop, a parameter twice.

use super::{
    nesting::Height,
    rules::SYNTAX,
    scope::Scopes,
    spine::{spine_of, walk_right},
    told::Told,
};
use crate::rule::{Finding, LeftOut};
use ringfence_types::Severity;
use ruff_python_ast::{
    self as ast, Expr, PythonVersion, Stmt,
    visitor::{self, Visitor},
};
use ruff_python_parser::{
    UnsupportedSyntaxError,
    semantic_errors::{
        SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError, SemanticSyntaxErrorKind,
        YieldOutsideFunctionKind,
    },
};
use ruff_text_size::TextRange;
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// So many are told of one text.
const ERRORS_MAX: usize = 20;
/// The checks of higher trees recurse further than the stack is deep; the interpreter tells their errors itself.
const HEIGHT_MAX: Height = Height(1500);

/// As findings: what an older interpreter does not read.
pub(crate) fn newer(unsupported: &[UnsupportedSyntaxError]) -> Vec<Finding> {
    let newer = unsupported.iter().map(|error| Finding {
        hint: Some(format!("Write it as Python {} reads it.", error.target_version)),
        ..finding(error.range, error.to_string())
    });
    newer.collect()
}

/// The first of them; the others are counted.
pub(super) fn tell(findings: impl Iterator<Item = Finding>, told: &mut Told) {
    let mut findings = findings;
    told.extend(findings.by_ref().take(ERRORS_MAX));
    told.count(LeftOut {
        errors: findings.count(),
        ..LeftOut::default()
    });
}

pub(super) fn finding(range: TextRange, what: String) -> Finding {
    Finding {
        range: range.start().to_usize()..range.end().to_usize(),
        rule: &SYNTAX,
        severity: Severity::Error,
        what,
        hint: None,
    }
}

/// What the compiler refuses.
pub(crate) fn check<'a>(
    code: &'a str,
    module: &'a ast::ModModule,
    scopes: &Scopes<'a>,
    height: Height,
    version: PythonVersion,
    told: &mut Told,
) {
    let mut found: Vec<Finding> = scopes
        .unbound_nonlocals()
        .iter()
        .map(|(name, range)| finding(*range, format!("no binding for nonlocal `{name}` found")))
        .collect();
    if height <= HEIGHT_MAX {
        let mut walk = Walk {
            checker: SemanticSyntaxChecker::new(),
            context: Context {
                code,
                version,
                places: vec![Place::new(PlaceKind::Module)],
                future_annotations: false,
                found: RefCell::new(Vec::new()),
            },
        };
        walk.visit_body(&module.body);
        found.extend(walk.context.found.into_inner());
    }
    tell(found.into_iter(), told);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    Module,
    Class,
    Function { is_async: bool },
    Lambda,
    Comprehension { is_async: bool, is_generator: bool },
}

/// When a comprehension runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Now,
    /// It is a generator.
    Later,
}

/// A scope in which the walk is.
struct Place<'a> {
    kind: PlaceKind,
    loops: u32,
    globals: HashMap<&'a str, TextRange>,
    parameters: HashSet<&'a str>,
}

impl Place<'_> {
    fn new(kind: PlaceKind) -> Self {
        Self {
            kind,
            loops: 0,
            globals: HashMap::new(),
            parameters: HashSet::new(),
        }
    }
}

struct Context<'a> {
    code: &'a str,
    version: PythonVersion,
    places: Vec<Place<'a>>,
    future_annotations: bool,
    found: RefCell<Vec<Finding>>,
}

impl Context<'_> {
    fn kind(&self) -> PlaceKind {
        self.places.last().map_or(PlaceKind::Module, |place| place.kind)
    }

    /// The innermost place that is no comprehension.
    fn around_comprehensions(&self) -> PlaceKind {
        let mut kinds = self.places.iter().rev().map(|place| place.kind);
        kinds
            .find(|kind| !matches!(kind, PlaceKind::Comprehension { .. }))
            .unwrap_or(PlaceKind::Module)
    }
}

impl SemanticSyntaxContext for Context<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        self.future_annotations
    }

    fn lazy_import_context(&self) -> Option<ruff_python_parser::semantic_errors::LazyImportContext> {
        None
    }

    fn python_version(&self) -> PythonVersion {
        self.version
    }

    fn source(&self) -> &str {
        self.code
    }

    fn global(&self, name: &str) -> Option<TextRange> {
        self.places.last()?.globals.get(name).copied()
    }

    /// Told by the scopes.
    fn has_nonlocal_binding(&self, _name: &str) -> bool {
        true
    }

    /// The driver compiles a module so that it may await at its top (`PyCF_ALLOW_TOP_LEVEL_AWAIT`).
    fn in_async_context(&self) -> bool {
        for place in self.places.iter().rev() {
            match place.kind {
                PlaceKind::Function { is_async } => return is_async,
                PlaceKind::Module => return true,
                PlaceKind::Lambda | PlaceKind::Class => return false,
                PlaceKind::Comprehension {
                    is_generator: true, ..
                } => return true,
                PlaceKind::Comprehension { .. } => {}
            }
        }
        false
    }

    fn in_await_allowed_context(&self) -> bool {
        matches!(
            self.around_comprehensions(),
            PlaceKind::Module | PlaceKind::Function { .. } | PlaceKind::Lambda
        )
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.kind(), PlaceKind::Function { .. } | PlaceKind::Lambda)
    }

    fn in_sync_comprehension(&self) -> bool {
        let places = self.places.iter().rev().map(|place| place.kind);
        places
            .take_while(|kind| matches!(kind, PlaceKind::Comprehension { .. }))
            .any(|kind| {
                kind == PlaceKind::Comprehension {
                    is_async: false,
                    is_generator: false,
                }
            })
    }

    fn in_class_body_comprehension(&self) -> bool {
        self.around_comprehensions() == PlaceKind::Class
    }

    fn in_module_scope(&self) -> bool {
        self.kind() == PlaceKind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.kind(), PlaceKind::Function { .. })
    }

    fn in_generator_context(&self) -> bool {
        matches!(
            self.kind(),
            PlaceKind::Comprehension {
                is_generator: true,
                ..
            }
        )
    }

    fn in_notebook(&self) -> bool {
        false
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        // Told as `await` outside of an asynchronous function already.
        if error.kind == SemanticSyntaxErrorKind::YieldOutsideFunction(YieldOutsideFunctionKind::Await) {
            return;
        }
        self.found
            .borrow_mut()
            .push(finding(error.range, error.to_string()));
    }

    fn in_loop_context(&self) -> bool {
        self.places.last().is_some_and(|place| place.loops > 0)
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        self.places
            .last()
            .is_some_and(|place| place.parameters.contains(name))
    }
}

struct Walk<'a> {
    checker: SemanticSyntaxChecker,
    context: Context<'a>,
}

impl<'a> Walk<'a> {
    fn within(
        &mut self,
        kind: PlaceKind,
        parameters: Option<&'a ast::Parameters>,
        walk: impl FnOnce(&mut Self),
    ) {
        let mut place = Place::new(kind);
        if let Some(parameters) = parameters {
            place.parameters = parameters
                .iter()
                .map(|parameter| parameter.name().as_str())
                .collect();
        }
        self.context.places.push(place);
        walk(self);
        self.context.places.pop();
    }

    fn in_loop(&mut self, walk: impl FnOnce(&mut Self)) {
        self.count_loops(1);
        walk(self);
        self.count_loops(-1);
    }

    fn count_loops(&mut self, more: i32) {
        if let Some(place) = self.context.places.last_mut() {
            place.loops = place.loops.saturating_add_signed(more);
        }
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        for decorator in &function.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        if let Some(params) = &function.type_params {
            self.visit_type_params(params);
        }
        self.visit_parameters(&function.parameters);
        if let Some(returns) = &function.returns {
            self.visit_expr(returns);
        }
        let kind = PlaceKind::Function {
            is_async: function.is_async,
        };
        let globals = globals_of(&function.body);
        self.within(kind, Some(&function.parameters), |walk| {
            if let Some(place) = walk.context.places.last_mut() {
                place.globals = globals;
            }
            walk.visit_body(&function.body);
        });
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        for decorator in &class.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        if let Some(params) = &class.type_params {
            self.visit_type_params(params);
        }
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        self.within(PlaceKind::Class, None, |walk| walk.visit_body(&class.body));
    }

    fn comprehension(
        &mut self,
        generators: &'a [ast::Comprehension],
        elements: [Option<&'a Expr>; 2],
        runs: Runs,
    ) {
        if let Some(first) = generators.first() {
            self.visit_expr(&first.iter);
        }
        let kind = PlaceKind::Comprehension {
            is_async: generators.iter().any(|generator| generator.is_async),
            is_generator: runs == Runs::Later,
        };
        self.within(kind, None, |walk| {
            for (at, generator) in generators.iter().enumerate() {
                walk.visit_expr(&generator.target);
                if at > 0 {
                    walk.visit_expr(&generator.iter);
                }
                for condition in &generator.ifs {
                    walk.visit_expr(condition);
                }
            }
            for element in elements.into_iter().flatten() {
                walk.visit_expr(element);
            }
        });
    }
}

/// `global` statements of a body, but not of functions and classes in it.
fn globals_of(body: &[Stmt]) -> HashMap<&str, TextRange> {
    struct Globals<'a>(HashMap<&'a str, TextRange>);
    impl<'a> ast::statement_visitor::StatementVisitor<'a> for Globals<'a> {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            match stmt {
                Stmt::Global(global) => {
                    for name in &global.names {
                        self.0.entry(name.as_str()).or_insert(global.range);
                    }
                }
                Stmt::FunctionDef(_) | Stmt::ClassDef(_) => {}
                _ => ast::statement_visitor::walk_stmt(self, stmt),
            }
        }
    }
    let mut globals = Globals(HashMap::new());
    ast::statement_visitor::StatementVisitor::visit_body(&mut globals, body);
    globals.0
}

impl<'a> Visitor<'a> for Walk<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::ImportFrom(import) = stmt
            && import
                .module
                .as_ref()
                .is_some_and(|module| module.as_str() == "__future__")
        {
            let annotations = |alias: &ast::Alias| alias.name.as_str() == "annotations";
            self.context.future_annotations |= import.names.iter().any(annotations);
        }
        self.checker.visit_stmt(stmt, &self.context);
        match stmt {
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::For(ast::StmtFor {
                target,
                iter,
                body,
                orelse,
                ..
            }) => {
                self.visit_expr(iter);
                self.visit_expr(target);
                self.in_loop(|walk| walk.visit_body(body));
                self.visit_body(orelse);
            }
            Stmt::While(ast::StmtWhile {
                test, body, orelse, ..
            }) => {
                self.visit_expr(test);
                self.in_loop(|walk| walk.visit_body(body));
                self.visit_body(orelse);
            }
            _ => visitor::walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if matches!(
            expr,
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_)
        ) {
            for part in spine_of(expr).iter().copied() {
                match part {
                    Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => {
                        self.checker.visit_expr(part, &self.context);
                        walk_right(self, part);
                    }
                    innermost => self.visit_expr(innermost),
                }
            }
            return;
        }
        self.checker.visit_expr(expr, &self.context);
        match expr {
            Expr::Lambda(lambda) => {
                let parameters = lambda.parameters.as_deref();
                if let Some(parameters) = parameters {
                    self.visit_parameters(parameters);
                }
                self.within(PlaceKind::Lambda, parameters, |walk| {
                    walk.visit_expr(&lambda.body)
                });
            }
            Expr::ListComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Now),
            Expr::SetComp(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Now),
            Expr::Generator(of) => self.comprehension(&of.generators, [Some(&of.elt), None], Runs::Later),
            Expr::DictComp(of) => {
                self.comprehension(&of.generators, [of.key.as_deref(), Some(&of.value)], Runs::Now);
            }
            _ => visitor::walk_expr(self, expr),
        }
    }
}
