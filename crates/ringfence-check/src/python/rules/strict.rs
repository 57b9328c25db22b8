//! What the profile `strict` alone asks for, gathered so that the walk calls it once in each place.

use super::{
    own::{OwnNames, Unseen},
    walk::{Before, Strict, Walk},
};
use crate::{
    CodeQuestion,
    python::meaning::{Meaning, Meanings},
};
use ringfence_types::Profile;
use ruff_python_ast::{self as ast, Expr, ModModule, PatternKeyword, Stmt};
use ruff_text_size::{Ranged, TextRange};

impl<'a> Strict<'a> {
    pub(super) fn of(module: &'a ModModule, meanings: &Meanings<'a, '_>, asked: &CodeQuestion) -> Self {
        let unseen = match asked.is_fragment {
            true => Unseen::Some,
            false => Unseen::None,
        };
        let is_strict = asked.rules.profile == Profile::Strict;
        Self {
            own: is_strict.then(|| OwnNames::of(module, meanings, unseen)),
            ..Self::default()
        }
    }
}

impl<'a> Walk<'a, '_, '_> {
    pub(super) fn strict_statement(&mut self, stmt: &'a Stmt) {
        self.match_args(stmt);
        if let Stmt::FunctionDef(function) = stmt {
            self.registered(function);
        }
    }

    pub(super) fn strict_attribute(
        &mut self,
        attribute: &'a ast::ExprAttribute,
        before: Before<'a, '_>,
        next: Option<&'a Expr>,
    ) {
        let (name, range) = (attribute.attr.as_str(), attribute.attr.range());
        self.private_attribute(name, before.meaning, range);
        self.module_changed(attribute, before.meaning);
        self.annotations_reached(name, range);
        self.format_taken(attribute, before, next);
    }

    pub(super) fn strict_name(&mut self, name: &'a ast::ExprName) {
        self.annotations_reached(name.id.as_str(), name.range);
        if !name.ctx.is_load() {
            self.match_args_bound(name.id.as_str(), name.range);
        }
    }

    pub(super) fn strict_text(&mut self, text: &str, range: TextRange) {
        self.private_text(text, range);
        self.match_args_text(text, range);
    }

    pub(super) fn strict_keyword_of_pattern(&mut self, keyword: &'a PatternKeyword) {
        let name = &keyword.attr;
        self.private_attribute(name.as_str(), &Meaning::Unknown, name.range());
    }

    pub(super) fn strict_end(&mut self) {
        self.private_names_taken();
        self.annotations_changed();
    }
}
