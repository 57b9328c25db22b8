//! What the interpreter's compiler refuses in a text that its grammar accepts: `return` outside of a function, `break`
//! outside of a loop, a parameter twice.

use super::findings::Findings;
use crate::{
    registry::python::SYNTAX,
    rule::{Finding, LeftOut},
};
use ruff_python_ast::{self as ast, Expr, PythonVersion, Stmt};
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
/// As findings: what an older interpreter does not read.
pub(crate) fn newer(unsupported: &[UnsupportedSyntaxError]) -> Vec<Finding> {
    let newer = unsupported.iter().map(|error| Finding {
        hint: Some(format!("Write it as Python {} reads it.", error.target_version)),
        ..finding(error.range, error.to_string())
    });
    newer.collect()
}

/// The first of them; the others are counted.
pub(super) fn tell(findings: impl Iterator<Item = Finding>, told: &mut Findings) {
    let mut findings = findings;
    told.extend(findings.by_ref().take(ERRORS_MAX));
    told.count(LeftOut {
        errors: findings.count(),
        ..LeftOut::default()
    });
}

pub(super) fn finding(range: TextRange, what: String) -> Finding {
    Finding::new(&SYNTAX, range.to_std_range(), what)
}

/// What the compiler refuses, told while the walk over a module goes on.
pub(super) struct Compiler<'a> {
    checker: SemanticSyntaxChecker,
    context: Context<'a>,
}

impl<'a> Compiler<'a> {
    pub(super) fn of(code: &'a str, version: PythonVersion) -> Self {
        Self {
            checker: SemanticSyntaxChecker::new(),
            context: Context {
                code,
                version,
                places: vec![CodeBlock::new(BlockKind::Module)],
                future_annotations: false,
                found: RefCell::new(Vec::new()),
            },
        }
    }

    pub(super) fn statement(&mut self, stmt: &Stmt) {
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
    }

    pub(super) fn expression(&mut self, expr: &Expr) {
        self.checker.visit_expr(expr, &self.context);
    }

    pub(super) fn enter(&mut self, kind: BlockKind) {
        self.context.places.push(CodeBlock::new(kind));
    }

    /// The innermost place is one of a function.
    pub(super) fn in_function(&mut self, parameters: &'a ast::Parameters, body: &'a [Stmt]) {
        if let Some(place) = self.context.places.last_mut() {
            place.parameters = parameters
                .iter()
                .map(|parameter| parameter.name().as_str())
                .collect();
            place.globals = globals_of(body);
        }
    }

    /// How many places are around.
    pub(super) fn depth(&self) -> usize {
        self.context.places.len()
    }

    pub(super) fn leave(&mut self, depth: usize) {
        self.context.places.truncate(depth);
    }

    pub(super) fn count_loops(&mut self, more: i32) {
        if let Some(place) = self.context.places.last_mut() {
            place.loops = place.loops.saturating_add_signed(more);
        }
    }

    pub(super) fn found(self) -> Vec<Finding> {
        self.context.found.into_inner()
    }
}

/// What makes a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Module,
    Class,
    Function { is_async: bool },
    Lambda,
    Comprehension { is_async: bool, is_generator: bool },
}

/// A scope in which the walk is.
struct CodeBlock<'a> {
    kind: BlockKind,
    loops: u32,
    globals: HashMap<&'a str, TextRange>,
    parameters: HashSet<&'a str>,
}

impl CodeBlock<'_> {
    fn new(kind: BlockKind) -> Self {
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
    places: Vec<CodeBlock<'a>>,
    future_annotations: bool,
    found: RefCell<Vec<Finding>>,
}

impl Context<'_> {
    fn kind(&self) -> BlockKind {
        self.places.last().map_or(BlockKind::Module, |place| place.kind)
    }

    /// The innermost place that is no comprehension.
    fn around_comprehensions(&self) -> BlockKind {
        let mut kinds = self.places.iter().rev().map(|place| place.kind);
        kinds
            .find(|kind| !matches!(kind, BlockKind::Comprehension { .. }))
            .unwrap_or(BlockKind::Module)
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

    /// Findings by the scopes.
    fn has_nonlocal_binding(&self, _name: &str) -> bool {
        true
    }

    /// The driver compiles a module so that it may await at its top (`PyCF_ALLOW_TOP_LEVEL_AWAIT`).
    fn in_async_context(&self) -> bool {
        for place in self.places.iter().rev() {
            match place.kind {
                BlockKind::Function { is_async } => return is_async,
                BlockKind::Module => return true,
                BlockKind::Lambda | BlockKind::Class => return false,
                BlockKind::Comprehension {
                    is_generator: true, ..
                } => return true,
                BlockKind::Comprehension { .. } => {}
            }
        }
        false
    }

    fn in_await_allowed_context(&self) -> bool {
        matches!(
            self.around_comprehensions(),
            BlockKind::Module | BlockKind::Function { .. } | BlockKind::Lambda
        )
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.kind(), BlockKind::Function { .. } | BlockKind::Lambda)
    }

    fn in_sync_comprehension(&self) -> bool {
        let places = self.places.iter().rev().map(|place| place.kind);
        places
            .take_while(|kind| matches!(kind, BlockKind::Comprehension { .. }))
            .any(|kind| {
                kind == BlockKind::Comprehension {
                    is_async: false,
                    is_generator: false,
                }
            })
    }

    fn in_class_body_comprehension(&self) -> bool {
        self.around_comprehensions() == BlockKind::Class
    }

    fn in_module_scope(&self) -> bool {
        self.kind() == BlockKind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.kind(), BlockKind::Function { .. })
    }

    fn in_generator_context(&self) -> bool {
        matches!(
            self.kind(),
            BlockKind::Comprehension {
                is_generator: true,
                ..
            }
        )
    }

    fn in_notebook(&self) -> bool {
        false
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        // Findings as `await` outside of an asynchronous function already.
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
