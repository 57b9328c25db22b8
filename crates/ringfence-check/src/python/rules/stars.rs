//! Modules that a star import brings: `sys` after `from json.tool import *`, which imports it.

use super::{imports::Allowed, walk::Walk};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

impl<'a> Walk<'a, '_, '_> {
    /// A name that denotes something by its way from a module.
    pub(super) fn brought_by_star(&mut self, expr: &'a Expr, path: &str) {
        if !self.imports.are_restricted() || self.imports.allow(path) != Allowed::No {
            return;
        }
        let read = self.scopes.use_at(expr.range());
        if read.is_some_and(|read| self.meanings.is_of_star(read)) {
            self.reached(expr.range(), path);
        }
    }
}
