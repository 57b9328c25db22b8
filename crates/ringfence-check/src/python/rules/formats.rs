//! `str.format` that is handed on instead of called: what it formats is not visible.

use super::{
    FORMAT_ATTRIBUTE, Weight,
    calls::is_text_literal,
    walk::{Before, Walk},
};
use crate::python::meaning::Meaning;
use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::{Ranged, TextRange};

fn formats(name: &str) -> bool {
    matches!(name, "format" | "format_map")
}

impl<'a> Walk<'a, '_, '_> {
    /// `text.format` without a call.
    pub(super) fn format_taken(
        &mut self,
        attribute: &'a ast::ExprAttribute,
        before: Before<'a, '_>,
        next: Option<&'a Expr>,
    ) {
        let name = attribute.attr.as_str();
        if !formats(name) || !attribute.ctx.is_load() || matches!(next, Some(Expr::Call(_))) {
            return;
        }
        match before.meaning {
            Meaning::Text(text) if !is_text_literal(before.expr) => {
                self.format(text, attribute.range);
            }
            Meaning::Unknown if name == "format_map" || self.is_text(before) => {
                self.taken(attribute.range);
            }
            _ => {}
        }
    }

    fn is_text(&self, before: Before<'a, '_>) -> bool {
        before.is_super()
            || self.is_class_of_texts(before.expr)
            || self.makes_a_text(before.expr, before.meaning)
    }

    /// A class of the program's own that is made of `str`.
    pub(super) fn is_class_of_texts(&self, expr: &Expr) -> bool {
        let Expr::Name(name) = expr else { return false };
        let own = self.strict.own.as_ref();
        own.is_some_and(|own| own.classes_of_texts.contains(name.id.as_str()))
    }

    /// `case str(format=f)`.
    pub(super) fn matched_format(&mut self, pattern: &'a ast::PatternMatchClass) {
        let read = pattern
            .arguments
            .keywords
            .iter()
            .find(|keyword| formats(keyword.attr.as_str()));
        let Some(read) = read else { return };
        let of_any = matches!(self.meanings.of(&pattern.cls), Meaning::Builtin("str" | "object"));
        if of_any || self.is_class_of_texts(&pattern.cls) {
            self.taken(read.attr.range());
        }
    }

    /// `methodcaller('format', x)`.
    pub(super) fn format_by_name(&mut self, function: &str, name: &str, range: TextRange) {
        let weight = match (function, name) {
            ("methodcaller", "format" | "format_map") | ("attrgetter", "format_map") => Weight::STRICT_ERROR,
            ("attrgetter", "format") => Weight::STRICT_WARNING,
            _ => return,
        };
        self.unknown_format(range, weight);
    }

    fn taken(&mut self, range: TextRange) {
        let what = format!(
            "`{}` is handed on, and what it formats may read any attribute",
            self.quote(range)
        );
        self.say(&FORMAT_ATTRIBUTE, Weight::STRICT_ERROR, range, what);
    }
}
