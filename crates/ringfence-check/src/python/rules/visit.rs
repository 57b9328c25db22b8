//! Where the walk goes, and what is asked at each place.

use super::{Step, Walk, attributes, attributes::Of, calls::holds_modules, is_super};
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
    /// A whole spine from its innermost part outwards.
    fn spine(&mut self, expr: &'a Expr) {
        let spine = spine_of(expr);
        if let Expr::BinOp(operation) = expr
            && operation.op == Operator::Add
        {
            self.metrics.sum(operation);
        }
        let next = |at: usize| spine.get(at + 1).copied();
        let mut of = self.innermost(spine[0], next(0));
        let mut told = None;
        for (at, part) in spine.iter().copied().enumerate().skip(1) {
            let denoted = self.resolver.step(&of, part);
            let step = Step {
                part,
                denoted: &denoted,
                left: spine[at - 1],
                of: &of,
                next: next(at),
            };
            self.part(&step, &mut told);
            of = denoted;
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
            self.say(rule, Weight::Grave, name.range, format!("`__builtins__` {what}"));
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
            self.say_group(group, name.range, path);
        }
        if meaning.as_path().is_some() && !is_judged_by_call(path, next) {
            self.name_reaches(name, path, next);
        }
        meaning
    }

    fn part(&mut self, step: &Step<'a, '_>, told: &mut Option<&'static str>) {
        match step.part {
            Expr::Attribute(attribute) => self.attribute(attribute, step),
            Expr::Call(call) => {
                self.metrics.call(call, step.of.as_path());
                self.call(call, step);
            }
            Expr::Subscript(subscript) if subscript.ctx != ExprContext::Load => {
                let what = match step.of.as_path() {
                    Some("builtins" | "builtins.__dict__") => "changes a name of the interpreter itself",
                    Some("sys.modules") => "puts another module in the place of one",
                    _ => "",
                };
                self.changed(subscript.range, what);
            }
            Expr::Subscript(subscript) => {
                if step.of.as_path().is_some_and(holds_modules) {
                    self.item_computed(Some(&subscript.slice), subscript.range);
                }
                self.typing_subscript(subscript, step.of);
            }
            Expr::BinOp(binary) if binary.op == Operator::Div => {
                if let Expr::StringLiteral(literal) = binary.right.as_ref() {
                    self.secret_place(literal.value.to_str(), literal.range);
                }
            }
            _ => {}
        }
        self.part_denotes(step, told);
        let arguments = u32::from(step.part.is_call_expr());
        self.in_call += arguments;
        walk_right(self, step.part);
        self.in_call -= arguments;
    }

    fn part_denotes(&mut self, step: &Step<'a, '_>, told: &mut Option<&'static str>) {
        let (path, group) = match step.denoted {
            Meaning::Builtin(name) => (*name, table::find_builtin(name)),
            Meaning::Path(path) if !path.ends_with(')') => (&**path, table::find(path)),
            _ => return,
        };
        let context = match step.part {
            Expr::Attribute(attribute) => attribute.ctx,
            Expr::Subscript(subscript) => subscript.ctx,
            _ => ExprContext::Load,
        };
        let is_told = !context.is_load() || is_judged_by_call(path, step.next);
        if let Some(group) = group.filter(|group| !is_told && *told != Some(group.rule.id)) {
            *told = Some(group.rule.id);
            self.say_group(group, step.part.range(), path);
        }
        if step.denoted.as_path().is_some() {
            self.part_reaches(step, path, told);
        }
    }

    fn attribute(&mut self, attribute: &'a ast::ExprAttribute, step: &Step<'a, '_>) {
        let is_name = |next: &Expr| matches!(next, Expr::Attribute(next) if matches!(next.attr.as_str(), "__name__" | "__qualname__"));
        let of = match step.next {
            _ if is_super(step.left) => Of::Super,
            Some(next) if is_name(next) => Of::ForName,
            _ => Of::Anything,
        };
        self.read_by_name(&attribute.attr, attribute.ctx, of);
        self.strict_attribute(attribute, step);
        if attribute.ctx != ExprContext::Load && step.of.as_path() == Some("builtins") {
            self.changed(attribute.range, "changes a name of the interpreter itself");
        }
    }

    fn changed(&mut self, range: TextRange, what: &str) {
        if !what.is_empty() {
            let what = format!("`{}` {what}", self.quote(range));
            self.say(&BUILTINS_WRITE, Weight::Grave, range, what);
        }
    }

    /// An attribute: behind a dot, in a pattern, or imported.
    pub(super) fn read_by_name(&mut self, name: &'a Identifier, context: ExprContext, of: Of) {
        self.identifier(name.as_str(), name.range());
        if let Some(said) = attributes::judge(name.as_str(), context, of) {
            let what = format!("`{}` {}", name.as_str(), said.does);
            self.say(said.rule, said.weight, name.range(), what);
        }
    }

    /// A name that is bound, or imported.
    fn bound(&mut self, name: &'a Identifier) {
        self.identifier(name.as_str(), name.range());
        self.strict_name(name.as_str(), name.range(), ExprContext::Store);
    }

    /// A text, wherever it stands.
    fn text(&mut self, text: &'a str, range: TextRange) {
        if let Some(said) = attributes::judge_text(text) {
            let what = format!("`'{text}'` names a part of the interpreter's own structures");
            self.say(said.rule, Weight::StrictError, range, what);
        }
        self.format(text, range);
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
            // A text that stands alone is a comment.
            Stmt::Expr(alone) if alone.value.is_string_literal_expr() => return,
            Stmt::Import(import) => self.import(import),
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::FunctionDef(function) => self.bound(&function.name),
            Stmt::ClassDef(class) => self.bound(&class.name),
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
            Expr::StringLiteral(literal) => self.text(literal.value.to_str(), literal.range),
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_comprehension(&mut self, comprehension: &'a ast::Comprehension) {
        self.metrics.decide(1 + comprehension.ifs.len());
        visitor::walk_comprehension(self, comprehension);
    }

    fn visit_interpolated_string_element(&mut self, element: &'a ast::InterpolatedStringElement) {
        if let ast::InterpolatedStringElement::Literal(literal) = element {
            self.text(&literal.value, literal.range);
        }
        visitor::walk_interpolated_string_element(self, element);
    }

    fn visit_string_literal(&mut self, literal: &'a ast::StringLiteral) {
        self.text(&literal.value, literal.range);
    }

    fn visit_keyword(&mut self, keyword: &'a Keyword) {
        if let Some(name) = &keyword.arg {
            self.identifier(name.as_str(), name.range());
            self.owns(name.as_str());
        }
        visitor::walk_keyword(self, keyword);
    }

    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.identifier(parameter.name.as_str(), parameter.name.range());
        visitor::walk_parameter(self, parameter);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Pattern::MatchClass(pattern) = pattern {
            self.matched(pattern);
        }
        if let Some(name) = name_of_pattern(pattern) {
            self.bound(name);
        }
        visitor::walk_pattern(self, pattern);
    }

    fn visit_pattern_keyword(&mut self, keyword: &'a PatternKeyword) {
        self.read_by_name(&keyword.attr, ExprContext::Load, Of::Anything);
        self.private_attribute(keyword.attr.as_str(), &Meaning::Unknown, keyword.attr.range());
        visitor::walk_pattern_keyword(self, keyword);
    }

    fn visit_alias(&mut self, alias: &'a Alias) {
        self.identifier(alias.name.as_str(), alias.name.range());
        alias.asname.iter().for_each(|name| self.bound(name));
    }
}
