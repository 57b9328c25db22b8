//! Texts that are computed from constants alone: `'so'[::-1]`, `b'b3M='.decode()`, `f'{first}s'`. Nothing computes them
//! here; who writes such a text where a name or a path is asked for hides it, and is refused where the plain one would
//! be.

use super::walk::Walk;
use crate::python::{
    scope::{Kind, Resolution},
    spine::{spine_of, walk_right},
};
use ruff_python_ast::{
    Expr,
    visitor::{self, Visitor},
};

/// Parts of an expression that are looked at.
const PARTS_MAX: u32 = 1000;
/// Functions that only compute.
#[rustfmt::skip]
const COMPUTE: &[&str] = &[
    "ascii", "bytearray", "bytes", "chr", "enumerate", "filter", "format", "hex", "int", "len", "list", "map", "max", "min",
    "oct", "ord", "range", "repr", "reversed", "round", "slice", "sorted", "str", "sum", "tuple", "zip",
];
/// The same of modules.
const DECODERS: &[&str] = &["base64", "binascii", "codecs", "zlib"];

impl<'a> Walk<'a, '_, '_> {
    /// Is a text computed, and nothing needed for it that the program does not say itself.
    pub(super) fn is_computed(&self, expr: &'a Expr) -> bool {
        let mut look = Computed {
            walk: self,
            parts: PARTS_MAX,
            has_text: false,
            is_constant: true,
        };
        look.visit_expr(expr);
        look.is_constant && look.has_text && look.parts < PARTS_MAX - 1
    }
}

struct Computed<'w, 'a, 's, 'q> {
    walk: &'w Walk<'a, 's, 'q>,
    parts: u32,
    has_text: bool,
    is_constant: bool,
}

impl<'a> Computed<'_, 'a, '_, '_> {
    fn name(&mut self, name: &'a ruff_python_ast::ExprName) {
        let scopes = self.walk.scopes;
        let known = scopes.use_at(name.range).map(|read| read.resolution);
        let word = name.id.as_str();
        self.has_text |= matches!(word, "chr" | "bytes" | "bytearray");
        match known {
            Some(Resolution::Builtin) => self.is_constant &= COMPUTE.contains(&word),
            Some(Resolution::Binding(id)) if scopes.is_of_comprehension(id) => {}
            Some(Resolution::Binding(id)) => match scopes.binding(id).and_then(|binding| binding.only_kind())
            {
                Some(Kind::Value(value)) => self.visit_expr(value),
                Some(Kind::Import { module } | Kind::From { module, .. }) => {
                    self.is_constant &= DECODERS.contains(module);
                }
                _ => self.is_constant = false,
            },
            // Where it is bound.
            None => {}
            Some(Resolution::Unresolved) => self.is_constant = false,
        }
    }
}

impl<'a> Visitor<'a> for Computed<'_, 'a, '_, '_> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        for part in spine_of(expr).iter().copied() {
            self.parts = self.parts.saturating_sub(1);
            self.is_constant &= self.parts > 0;
            if !self.is_constant {
                return;
            }
            match part {
                Expr::Attribute(_) => {}
                // `list['Node']` is a type.
                Expr::Subscript(subscript) if subscript.value.is_name_expr() && !self.has_text => {
                    self.is_constant = false;
                }
                Expr::BinOp(_) | Expr::Call(_) | Expr::Subscript(_) => walk_right(self, part),
                Expr::Name(name) => self.name(name),
                Expr::StringLiteral(_) | Expr::BytesLiteral(_) => self.has_text = true,
                Expr::Lambda(_) | Expr::Await(_) | Expr::Yield(_) | Expr::YieldFrom(_) => {
                    self.is_constant = false
                }
                other => visitor::walk_expr(self, other),
            }
        }
    }

    fn visit_string_literal(&mut self, _: &'a ruff_python_ast::StringLiteral) {
        self.has_text = true;
    }
}
