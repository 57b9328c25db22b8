//! The walk over the syntax tree, and the checks of each node.

use super::{Step, Walk, attributes, attributes::Access, calls::holds_modules, is_super};
use crate::{
    lists::LISTS,
    python::{
        names::name_of_pattern,
        resolve::Meaning,
        spine::{spine_of, walk_right},
        table,
        weight::Weight,
    },
    registry::python::{BUILTINS_WRITE, REFLECTION},
};
use ruff_python_ast::{
    self as ast, Alias, Expr, ExprContext, Identifier, Keyword, Operator, Parameter, Pattern, PatternKeyword,
    Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

fn is_judged_by_call(path: &str, next: Option<&Expr>) -> bool {
    let name = path.strip_prefix("builtins.").unwrap_or(path);
    next.is_some_and(Expr::is_call_expr) && LISTS.judged_by_call.contains(name)
}

impl<'a> Walk<'a, '_, '_> {
    /// Walks a whole spine from its innermost part outwards.
    fn spine(&mut self, expr: &'a Expr) {
        let spine = spine_of(expr);
        if let Expr::BinOp(operation) = expr
            && operation.op == Operator::Add
        {
            self.metrics.sum(operation);
        }
        let next = |at: usize| spine.get(at + 1).copied();
        let mut left_meaning = self.innermost(spine[0], next(0));
        let mut reported = None;
        for (at, part) in spine.iter().copied().enumerate().skip(1) {
            let meaning = self.resolver.step(&left_meaning, part);
            let step = Step {
                part,
                meaning: &meaning,
                left: spine[at - 1],
                left_meaning: &left_meaning,
                next: next(at),
            };
            self.part(&step, &mut reported);
            left_meaning = meaning;
        }
    }

    fn innermost(&mut self, expr: &'a Expr, next: Option<&'a Expr>) -> Meaning<'a> {
        let Expr::Name(name) = expr else {
            self.visit_expr(expr);
            return match next {
                Some(Expr::BinOp(_)) | None => Meaning::Unknown,
                Some(_) => self.resolver.of_innermost(expr),
            };
        };
        self.identifier(name.id.as_str(), name.range);
        self.strict_name(name.id.as_str(), name.range, name.ctx);
        if name.id.as_str() == "__builtins__" {
            let (rule, what) = match name.ctx.is_load() {
                true => (&REFLECTION, "holds everything that the interpreter has by itself"),
                false => (&BUILTINS_WRITE, "is set"),
            };
            self.report(rule, Weight::Grave, name.range, format!("`__builtins__` {what}"));
        }
        if !name.ctx.is_load() {
            return Meaning::Unknown;
        }
        let meaning = self.resolver.of_innermost(expr);
        let (path, group) = match &meaning {
            Meaning::Builtin(name) => (*name, table::find_builtin(name)),
            Meaning::Path(path) => (&**path, table::find(path)),
            _ => return meaning,
        };
        if let Some(group) = group.filter(|_| !is_judged_by_call(path, next)) {
            self.report_group(group, name.range, path);
        }
        if meaning.as_path().is_some() && !is_judged_by_call(path, next) {
            self.check_name_path(name, path, next);
        }
        meaning
    }

    fn part(&mut self, step: &Step<'a, '_>, reported: &mut Option<&'static str>) {
        match step.part {
            Expr::Attribute(attribute) => self.attribute(attribute, step),
            Expr::Call(call) => {
                self.metrics.call(call, step.left_meaning.as_path());
                self.call(call, step);
            }
            Expr::Subscript(subscript) if subscript.ctx != ExprContext::Load => {
                let what = match step.left_meaning.as_path() {
                    Some("builtins" | "builtins.__dict__") => "changes a name of the interpreter itself",
                    Some("sys.modules") => "puts another module in the place of one",
                    _ => "",
                };
                self.report_change(subscript.range, what);
            }
            Expr::Subscript(subscript) => {
                if step.left_meaning.as_path().is_some_and(holds_modules) {
                    self.check_computed_item(Some(&subscript.slice), subscript.range);
                }
                self.typing_subscript(subscript, step.left_meaning);
            }
            Expr::BinOp(binary) if binary.op == Operator::Div => {
                if let Expr::StringLiteral(literal) = binary.right.as_ref() {
                    self.secret_place(literal.value.to_str(), literal.range);
                }
            }
            _ => {}
        }
        self.part_denotes(step, reported);
        let arguments = u32::from(step.part.is_call_expr());
        self.in_call += arguments;
        walk_right(self, step.part);
        self.in_call -= arguments;
    }

    fn part_denotes(&mut self, step: &Step<'a, '_>, reported: &mut Option<&'static str>) {
        let (path, group) = match step.meaning {
            Meaning::Builtin(name) => (*name, table::find_builtin(name)),
            Meaning::Path(path) if !path.ends_with(')') => (&**path, table::find(path)),
            _ => return,
        };
        let context = match step.part {
            Expr::Attribute(attribute) => attribute.ctx,
            Expr::Subscript(subscript) => subscript.ctx,
            _ => ExprContext::Load,
        };
        let is_reported = !context.is_load() || is_judged_by_call(path, step.next);
        if let Some(group) = group.filter(|group| !is_reported && *reported != Some(group.rule.id)) {
            *reported = Some(group.rule.id);
            self.report_group(group, step.part.range(), path);
        }
        if step.meaning.as_path().is_some() {
            self.check_part(step, path, reported);
        }
    }

    fn attribute(&mut self, attribute: &'a ast::ExprAttribute, step: &Step<'a, '_>) {
        let is_name = |next: &Expr| matches!(next, Expr::Attribute(next) if matches!(next.attr.as_str(), "__name__" | "__qualname__"));
        let access = match step.next {
            _ if is_super(step.left) => Access::Super,
            Some(next) if is_name(next) => Access::ForName,
            _ => Access::Other,
        };
        self.check_attribute(&attribute.attr, attribute.ctx, access);
        self.strict_attribute(attribute, step);
        if attribute.ctx != ExprContext::Load && step.left_meaning.as_path() == Some("builtins") {
            self.report_change(attribute.range, "changes a name of the interpreter itself");
        }
    }

    fn report_change(&mut self, range: TextRange, what: &str) {
        if !what.is_empty() {
            let what = format!("`{}` {what}", self.quote(range));
            self.report(&BUILTINS_WRITE, Weight::Grave, range, what);
        }
    }

    /// Checks the name of an attribute: after a dot, in a pattern, or imported.
    pub(super) fn check_attribute(&mut self, name: &'a Identifier, context: ExprContext, access: Access) {
        self.identifier(name.as_str(), name.range());
        if let Some(group) = attributes::classify(name.as_str(), context, access) {
            let what = format!("`{}` {}", name.as_str(), group.does);
            self.report(group.rule, group.weight, name.range(), what);
        }
    }

    fn check_bound_name(&mut self, name: &'a Identifier) {
        self.identifier(name.as_str(), name.range());
        self.strict_name(name.as_str(), name.range(), ExprContext::Store);
    }

    fn check_string(&mut self, text: &'a str, range: TextRange) {
        if let Some(group) = attributes::classify_text(text) {
            let what = format!("`'{text}'` names a part of the interpreter's own structures");
            self.report(group.rule, Weight::StrictError, range, what);
        }
        self.check_format_string(text, range);
        self.strict_text(text, range);
        if self.in_call > 0 {
            self.secret_place(text, range);
        }
    }
}

impl<'a> Visitor<'a> for Walk<'a, '_, '_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        self.strict_statement(stmt);
        self.metrics.statement(stmt);
        match stmt {
            // A string that is a statement is a comment.
            Stmt::Expr(alone) if alone.value.is_string_literal_expr() => return,
            Stmt::Import(import) => self.import(import),
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::FunctionDef(function) => self.check_bound_name(&function.name),
            Stmt::ClassDef(class) => self.check_bound_name(&class.name),
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_annotation(&mut self, expr: &'a Expr) {
        self.annotation(expr);
        visitor::walk_annotation(self, expr);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        self.metrics.expression(expr);
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) | Expr::Name(_) => {
                self.spine(expr);
            }
            Expr::StringLiteral(literal) => self.check_string(literal.value.to_str(), literal.range),
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_comprehension(&mut self, comprehension: &'a ast::Comprehension) {
        self.metrics.add_decisions(1 + comprehension.ifs.len());
        visitor::walk_comprehension(self, comprehension);
    }

    fn visit_interpolated_string_element(&mut self, element: &'a ast::InterpolatedStringElement) {
        if let ast::InterpolatedStringElement::Literal(literal) = element {
            self.check_string(&literal.value, literal.range);
        }
        visitor::walk_interpolated_string_element(self, element);
    }

    fn visit_string_literal(&mut self, literal: &'a ast::StringLiteral) {
        self.check_string(&literal.value, literal.range);
    }

    fn visit_keyword(&mut self, keyword: &'a Keyword) {
        if let Some(name) = &keyword.arg {
            self.identifier(name.as_str(), name.range());
            self.add_own_name(name.as_str());
        }
        visitor::walk_keyword(self, keyword);
    }

    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.identifier(parameter.name.as_str(), parameter.name.range());
        visitor::walk_parameter(self, parameter);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Pattern::MatchClass(pattern) = pattern {
            self.check_class_pattern(pattern);
        }
        if let Some(name) = name_of_pattern(pattern) {
            self.check_bound_name(name);
        }
        visitor::walk_pattern(self, pattern);
    }

    fn visit_pattern_keyword(&mut self, keyword: &'a PatternKeyword) {
        self.check_attribute(&keyword.attr, ExprContext::Load, Access::Other);
        self.private_attribute(keyword.attr.as_str(), &Meaning::Unknown, keyword.attr.range());
        visitor::walk_pattern_keyword(self, keyword);
    }

    fn visit_alias(&mut self, alias: &'a Alias) {
        self.identifier(alias.name.as_str(), alias.name.range());
        alias.asname.iter().for_each(|name| self.check_bound_name(name));
    }
}
