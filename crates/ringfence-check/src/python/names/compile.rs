//! The context that the compiler's checks need at the current position of the walk.

use super::{Binding, Declared, Kind, MODULE, Mode, ScopeKind, bind::Binder};
use crate::python::syntax::finding;
use ruff_python_ast::PythonVersion;
use ruff_python_parser::semantic_errors::{
    LazyImportContext, SemanticSyntaxContext, SemanticSyntaxError, SemanticSyntaxErrorKind,
    YieldOutsideFunctionKind,
};
use ruff_text_size::TextRange;

impl Binder<'_> {
    /// Returns the kinds of the scopes around, from the innermost to the module, without type parameters.
    fn kinds(&self) -> impl Iterator<Item = ScopeKind> {
        let around = self.names.around(self.at.scope).chain([MODULE]);
        let kinds = around.map(|at| self.names.scopes[at].kind);
        kinds.filter(|kind| *kind != ScopeKind::TypeParameters)
    }

    fn kind(&self) -> ScopeKind {
        self.kinds().next().unwrap_or(ScopeKind::Module)
    }

    fn around_comprehensions(&self) -> ScopeKind {
        let is_other = |kind: &ScopeKind| !matches!(kind, ScopeKind::Comprehension(_));
        self.kinds().find(is_other).unwrap_or(ScopeKind::Module)
    }
}

impl SemanticSyntaxContext for Binder<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        self.future_annotations
    }

    fn lazy_import_context(&self) -> Option<LazyImportContext> {
        None
    }

    fn python_version(&self) -> PythonVersion {
        self.version
    }

    fn source(&self) -> &str {
        self.code
    }

    fn global(&self, name: &str) -> Option<TextRange> {
        match self.names.scopes[self.at.scope].declared.get(name) {
            Some((Declared::Global, range)) => Some(*range),
            _ => None,
        }
    }

    /// A missing binding is found at the end of the walk.
    fn has_nonlocal_binding(&self, _name: &str) -> bool {
        true
    }

    /// The driver compiles a module so that its top level may await (`PyCF_ALLOW_TOP_LEVEL_AWAIT`).
    fn in_async_context(&self) -> bool {
        let mut decided = self.kinds().filter_map(|kind| match kind {
            ScopeKind::Function(is_async) => Some(is_async),
            ScopeKind::Module | ScopeKind::Comprehension(Mode::Generator) => Some(true),
            ScopeKind::Lambda | ScopeKind::Class => Some(false),
            ScopeKind::Comprehension(_) | ScopeKind::TypeParameters => None,
        });
        decided.next().unwrap_or(false)
    }

    fn in_await_allowed_context(&self) -> bool {
        self.around_comprehensions() != ScopeKind::Class
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.kind(), ScopeKind::Function(_) | ScopeKind::Lambda)
    }

    fn in_sync_comprehension(&self) -> bool {
        let is_comprehension = |kind: &ScopeKind| matches!(kind, ScopeKind::Comprehension(_));
        let mut comprehensions = self.kinds().take_while(is_comprehension);
        comprehensions.any(|kind| kind == ScopeKind::Comprehension(Mode::Sync))
    }

    fn in_class_body_comprehension(&self) -> bool {
        self.around_comprehensions() == ScopeKind::Class
    }

    fn in_module_scope(&self) -> bool {
        self.kind() == ScopeKind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.kind(), ScopeKind::Function(_))
    }

    fn in_generator_context(&self) -> bool {
        matches!(self.kind(), ScopeKind::Comprehension(Mode::Generator))
    }

    fn in_notebook(&self) -> bool {
        false
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        // Another finding already reports `await` outside of an asynchronous function.
        if error.kind != SemanticSyntaxErrorKind::YieldOutsideFunction(YieldOutsideFunctionKind::Await) {
            let refused = finding(error.range, error.to_string());
            self.refused.borrow_mut().push(refused);
        }
    }

    fn in_loop_context(&self) -> bool {
        self.at.loops > 0
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        let is_parameter = |binding: &Binding<'_>| matches!(binding.kinds.first(), Some(Kind::Parameter(_)));
        let id = self.names.index.get(&(self.at.scope, name));
        id.is_some_and(|id| is_parameter(&self.names.bindings[*id]))
    }
}
