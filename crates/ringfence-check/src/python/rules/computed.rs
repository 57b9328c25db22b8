//! Strings that are computed from constants alone: `'so'[::-1]`, `'o' + 's'`, `b'b3M='.decode()`. They are not
//! evaluated here; such a string in place of a name or a path is hidden, and is refused where the plain one would be.

use super::Walk;
use crate::lists::LISTS;
use crate::python::{
    names::{Kind, Resolution},
    spine::{spine_of, walk_right},
};
use ruff_python_ast::{
    Expr, ExprName, StringLiteral,
    visitor::{self, Visitor},
};

/// Maximum number of parts of an expression examined.
const PARTS_MAX: u32 = 1000;
const DECODERS: &[&str] = &["base64", "binascii", "codecs", "zlib"];

impl<'a> Walk<'a, '_, '_> {
    /// True if a string is computed, and everything needed for it is in the program.
    pub(super) fn is_computed(&self, expr: &'a Expr) -> bool {
        let mut computed = Computed {
            walk: self,
            parts: PARTS_MAX,
            has_text: false,
            is_constant: true,
        };
        computed.visit_expr(expr);
        computed.is_constant && computed.has_text && computed.parts < PARTS_MAX - 1
    }
}

struct Computed<'w, 'a, 's, 'q> {
    walk: &'w Walk<'a, 's, 'q>,
    parts: u32,
    has_text: bool,
    is_constant: bool,
}

impl<'a> Computed<'_, 'a, '_, '_> {
    fn name(&mut self, name: &'a ExprName) {
        let names = self.walk.names;
        let word = name.id.as_str();
        self.has_text |= matches!(word, "chr" | "bytes" | "bytearray");
        let Some(read) = names.read_at(name.range) else {
            return;
        };
        let binding = names.binding_at(name.range);
        self.is_constant &= match (read.resolution, binding.and_then(|binding| binding.only_kind())) {
            (Resolution::Builtin, _) => LISTS.computing.contains(&word),
            (_, Some(Kind::Value(value))) => return self.visit_expr(value),
            (_, Some(Kind::Import(module, _))) => DECODERS.contains(module),
            _ => binding.is_some_and(|binding| names.is_of_comprehension(binding)),
        };
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

    fn visit_string_literal(&mut self, _: &'a StringLiteral) {
        self.has_text = true;
    }
}
