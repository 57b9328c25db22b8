//! `__match_args__`: the attributes that a pattern reads by their places, `case A(x)`. As hidden texts they
//! are a way to any attribute.

use super::{REFLECTION, Weight, walk::Walk};
use crate::python::meaning::Meaning;
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

const NAME: &str = "__match_args__";

impl<'a> Walk<'a, '_, '_> {
    /// A statement that may bind it.
    pub(super) fn match_args(&mut self, stmt: &'a Stmt) {
        if self.strict.own.is_none() {
            return;
        }
        match stmt {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    self.match_args_set(target, &assign.value);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.match_args_set(&assign.target, value);
                }
            }
            Stmt::FunctionDef(function) => {
                self.match_args_bound(function.name.as_str(), function.name.range())
            }
            Stmt::ClassDef(class) => self.match_args_bound(class.name.as_str(), class.name.range()),
            _ => {}
        }
    }

    fn match_args_set(&mut self, target: &'a Expr, value: &'a Expr) {
        if let Expr::Name(name) = target
            && name.id.as_str() == NAME
            && self.are_plain_names(value)
        {
            self.strict.plain_match_args.insert(name.range);
        }
    }

    /// A name that is bound, in whatever way.
    pub(super) fn match_args_bound(&mut self, name: &str, range: TextRange) {
        if name == NAME && self.strict.own.is_some() && !self.strict.plain_match_args.contains(&range) {
            let what = format!("`{NAME}` is no tuple of names that stand there as they are");
            self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
        }
    }

    /// As a text, by which it is set in the names of a class.
    pub(super) fn match_args_text(&mut self, text: &str, range: TextRange) {
        if text == NAME {
            let what = format!("`'{NAME}'` sets what a pattern reads");
            self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
        }
    }

    fn are_plain_names(&self, value: &'a Expr) -> bool {
        let exprs: &[Expr] = match self.value_of(value) {
            Expr::Tuple(tuple) => &tuple.elts,
            Expr::List(list) => &list.elts,
            _ => return false,
        };
        exprs.iter().all(|expr| match self.meanings.of(expr) {
            Meaning::Text(name) => !name.starts_with('_'),
            _ => false,
        })
    }

    /// `case A(x)`, where a class may have been made so that its positional attributes are not visible.
    pub(super) fn matched(&mut self, pattern: &'a ast::PatternMatchClass) {
        self.matched_format(pattern);
        let Some(made) = self.strict.own.as_ref().and_then(|own| own.makes_classes) else {
            return;
        };
        let is_plain = match self.meanings.of(&pattern.cls) {
            Meaning::Builtin(_) => true,
            Meaning::Path(path) => !path.contains('('),
            _ => false,
        };
        if !pattern.arguments.patterns.is_empty() && !is_plain {
            let what = format!(
                "`{}` reads attributes by their places, and `{}` may give it any",
                self.quote(pattern.range),
                self.quote(made)
            );
            self.say(&REFLECTION, Weight::STRICT_ERROR, pattern.range, what);
        }
    }
}
