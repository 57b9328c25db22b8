//! One walk over the tree, in which each expression is held against the rules with what it denotes.

use super::{
    BUILTINS_WRITE, CREDENTIAL_PATH, FORMAT_ATTRIBUTE, INTRICATE, OBFUSCATED_NAME, PROFILE_MODULE_ATTRIBUTE,
    REFLECTION, Weight, attributes,
    calls::holds_modules,
    imports::{Allowed, Imports},
    lookalikes, texts,
    walk::{Before, COMMAND_BYTES_MAX, Strict, Walk},
};
use crate::{
    CodeQuestion,
    python::{
        dangerous_names,
        findings::Findings,
        meaning::{Meaning, Meanings},
        scope::{Scopes, name_of_pattern},
        spine::{spine_of, walk_right},
    },
};
use ruff_python_ast::{
    self as ast, Alias, Arguments, Expr, ExprContext, Identifier, Keyword, ModModule, Operator, Parameter,
    Pattern, PatternKeyword, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};
use std::collections::HashSet;

/// Names in letters that look alike, of one text.
const UNREADABLE_MAX: usize = 20;

/// What the rules find in a module whose scopes are known, beside what was told before.
pub(crate) fn check<'a>(
    code: &'a str,
    module: &'a ModModule,
    scopes: &Scopes<'a>,
    asked: &CodeQuestion,
    told: Findings,
) -> Findings {
    let mut walk = Walk {
        code,
        plain: code.is_ascii(),
        profile: asked.rules.profile,
        imports: Imports::of(asked),
        scopes,
        meanings: Meanings::of_module(scopes, code.len()),
        told,
        in_call: 0,
        unreadable: HashSet::new(),
        command_bytes: COMMAND_BYTES_MAX,
        strict: Strict::default(),
    };
    walk.strict = Strict::of(module, &walk.meanings, asked);
    walk.visit_body(&module.body);
    walk.strict_end();
    if walk.meanings.has_given_up() {
        let what = "constants are put together in too many steps".to_owned();
        walk.say(&INTRICATE, Weight::SUSPECT, TextRange::default(), what);
    }
    walk.told
}

impl<'a> Walk<'a, '_, '_> {
    fn name(&mut self, name: &'a ast::ExprName) {
        self.identifier(name.id.as_str(), name.range);
        self.strict_name(name);
        if name.ctx != ExprContext::Load {
            if name.id.as_str() == "__builtins__" {
                let what = "`__builtins__` is set".to_owned();
                self.say(&BUILTINS_WRITE, Weight::GRAVE, name.range, what);
            }
            return;
        }
        if name.id.as_str() == "__builtins__" {
            let what = "`__builtins__` holds everything that the interpreter has by itself".to_owned();
            self.say(&REFLECTION, Weight::GRAVE, name.range, what);
        }
    }

    /// A name that is read, with what it denotes and what is done with it.
    fn name_denotes(&mut self, expr: &'a Expr, meaning: &Meaning<'a>, next: Option<&'a Expr>) {
        let call = called_with(next);
        match meaning {
            Meaning::Builtin(name) if call.is_some() && is_judged_by_call(name) => {}
            Meaning::Builtin(name) => {
                if let Some(group) = dangerous_names::find_builtin(name) {
                    self.say_group(group, expr.range(), name);
                }
            }
            Meaning::Path(path) if call.is_some() && is_judged_by_call(path) => {}
            Meaning::Path(path) => {
                if let Some(group) = dangerous_names::find(path) {
                    self.say_group(group, expr.range(), path);
                }
                if self.imports.are_restricted()
                    && self.imports.allow(path) == Allowed::OnTheWay
                    && !matches!(next, Some(Expr::Attribute(_)))
                {
                    self.reached(expr.range(), path);
                }
                self.dispatches(path);
                self.brought_by_star(expr, path);
            }
            _ => {}
        }
    }

    /// A module that is not allowed, imported by its name.
    fn imported_by_text(&mut self, range: TextRange, path: &str) {
        let what = format!("`{}` imports `{path}`", self.quote(range));
        let finding = self.imports.refused(path, what, range);
        self.add(finding);
    }

    /// A text, wherever it stands.
    fn text(&mut self, text: &'a str, range: TextRange) {
        if let Some(said) = attributes::judge_text(text) {
            self.say(said.rule, said.weight, range, format!("`'{text}'` {}", said.does));
        }
        if let Some(name) = texts::format_attribute(text) {
            let what = format!("a format string reads the attribute `{name}`");
            self.say(&FORMAT_ATTRIBUTE, Weight::GRAVE, range, what);
        }
        self.strict_text(text, range);
        if self.in_call > 0 {
            self.secret_place(text, range);
        }
    }

    fn secret_place(&mut self, text: &str, range: TextRange) {
        if let Some(place) = texts::secret_place(text) {
            let what = format!("`{place}` is a place where secrets are kept");
            self.say(&CREDENTIAL_PATH, Weight::WARNED, range, what);
        }
    }

    /// A name as it is written: is it what it looks like.
    fn identifier(&mut self, name: &'a str, range: TextRange) {
        if !self.plain {
            let written = self.code.get(range.start().to_usize()..range.end().to_usize());
            let disguised =
                |written: &&str| *written != name && name.is_ascii() && !written.contains(['.', '\\']);
            if let Some(written) = written.filter(disguised) {
                let what = format!("`{written}` is `{name}` to the interpreter");
                self.say(&OBFUSCATED_NAME, Weight::GRAVE, range, what);
            } else if !name.is_ascii() && self.unreadable.len() < UNREADABLE_MAX {
                self.lookalike(name, range);
            }
        }
        if texts::is_unreadable(name)
            && self.unreadable.len() < UNREADABLE_MAX
            && self.unreadable.insert(name)
        {
            let what = format!("the letters of `{name}` cannot be told apart");
            self.say(&OBFUSCATED_NAME, Weight::WARNED, range, what);
        }
    }

    fn lookalike(&mut self, name: &'a str, range: TextRange) {
        if let Some(plain) = lookalikes::reads_as(name)
            && self.unreadable.insert(name)
        {
            let what = format!("`{name}` has letters of another alphabet and reads as `{plain}`");
            self.say(&OBFUSCATED_NAME, Weight::GRAVE, range, what);
        }
    }

    fn attribute(
        &mut self,
        attribute: &'a ast::ExprAttribute,
        before: Before<'a, '_>,
        next: Option<&'a Expr>,
    ) {
        let name = attribute.attr.as_str();
        self.identifier(name, attribute.attr.range());
        let for_name = |next: &Expr| matches!(next, Expr::Attribute(next) if matches!(next.attr.as_str(), "__name__" | "__qualname__"));
        let of = if before.is_super() {
            attributes::Of::Super
        } else if next.is_some_and(for_name) {
            attributes::Of::ForName
        } else {
            attributes::Of::Anything
        };
        if let Some(said) = attributes::judge(name, attribute.ctx, of) {
            let what = format!("`{}` {}", attribute.attr.as_str(), said.does);
            self.say(said.rule, said.weight, attribute.attr.range(), what);
        }
        self.strict_attribute(attribute, before, next);
        if attribute.ctx != ExprContext::Load && before.meaning.as_path() == Some("builtins") {
            let what = format!(
                "`{}` changes a name of the interpreter itself",
                self.quote(attribute.range)
            );
            self.say(&BUILTINS_WRITE, Weight::GRAVE, attribute.range, what);
        }
    }

    /// A whole spine from its innermost part outwards.
    fn spine(&mut self, expr: &'a Expr) {
        let spine = spine_of(expr);
        let Some((innermost, outer)) = spine.split_first() else {
            return;
        };
        let mut meaning = self.innermost(innermost, outer.first().copied());
        let mut last: &'a Expr = innermost;
        let mut told = None;
        for (at, part) in outer.iter().copied().enumerate() {
            let next = outer.get(at + 1).copied();
            let denoted = match part {
                Expr::BinOp(_) if !matches!(next, Some(Expr::Attribute(_) | Expr::Subscript(_))) => {
                    Meaning::Unknown
                }
                Expr::BinOp(_) => self.meanings.of(part),
                _ => self.meanings.step(&meaning, part),
            };
            let before = Before {
                expr: last,
                meaning: &meaning,
            };
            let step = Step {
                part,
                before,
                denoted: &denoted,
                next,
            };
            self.part(&step, &mut told);
            meaning = denoted;
            last = part;
        }
    }

    fn innermost(&mut self, expr: &'a Expr, next: Option<&'a Expr>) -> Meaning<'a> {
        self.visit_innermost(expr);
        let needed = matches!(
            next,
            Some(Expr::Attribute(_) | Expr::Subscript(_) | Expr::Call(_))
        );
        match expr {
            Expr::Name(name) if name.ctx == ExprContext::Load => {
                let meaning = self.meanings.of_innermost(expr);
                self.name_denotes(expr, &meaning, next);
                meaning
            }
            _ if needed => self.meanings.of_innermost(expr),
            _ => Meaning::Unknown,
        }
    }

    fn visit_innermost(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Name(name) => self.name(name),
            _ => self.visit_expr(expr),
        }
    }

    fn part(&mut self, step: &Step<'a, '_>, told: &mut Option<&'static str>) {
        let Step {
            part, before, next, ..
        } = *step;
        match part {
            Expr::Attribute(attribute) => self.attribute(attribute, before, next),
            Expr::Call(call) => self.call(call, before),
            Expr::Subscript(subscript) if subscript.ctx != ExprContext::Load => {
                self.item_set(subscript, before)
            }
            Expr::Subscript(subscript) => {
                if before.meaning.as_path().is_some_and(holds_modules) {
                    self.item_computed(&subscript.slice, subscript.range);
                }
                self.typing_subscript(subscript, before.meaning);
            }
            Expr::BinOp(binary) if binary.op == Operator::Div => {
                if let Expr::StringLiteral(literal) = binary.right.as_ref() {
                    self.secret_place(literal.value.to_str(), literal.range);
                }
            }
            _ => {}
        }
        self.part_denotes(step, told);
        let arguments = u32::from(matches!(part, Expr::Call(_)));
        self.in_call += arguments;
        walk_right(self, part);
        self.in_call -= arguments;
    }

    fn part_denotes(&mut self, step: &Step<'a, '_>, told: &mut Option<&'static str>) {
        let part = step.part;
        let (path, group) = match step.denoted {
            Meaning::Builtin(name) => (*name, dangerous_names::find_builtin(name)),
            Meaning::Path(path) if !path.ends_with(')') => (&**path, dangerous_names::find(path)),
            _ => return,
        };
        let is_read = match part {
            Expr::Attribute(attribute) => attribute.ctx == ExprContext::Load,
            Expr::Subscript(subscript) => subscript.ctx == ExprContext::Load,
            _ => true,
        };
        let judged = called_with(step.next).is_some() && is_judged_by_call(path);
        if let Some(group) = group.filter(|group| is_read && !judged && *told != Some(group.rule.id)) {
            *told = Some(group.rule.id);
            self.say_group(group, part.range(), path);
        }
        if step.denoted.as_path().is_some() {
            self.dispatches(path);
            self.part_reaches(step, path, told);
        }
    }

    fn part_reaches(&mut self, step: &Step<'a, '_>, path: &str, told: &mut Option<&'static str>) {
        let Step {
            part, before, next, ..
        } = *step;
        let known = *told == Some(PROFILE_MODULE_ATTRIBUTE.id) || path.starts_with("builtins.");
        if !self.imports.are_restricted() || known || path.contains('(') {
            return;
        }
        let reached = match self.imports.allow(path) {
            Allowed::Yes => false,
            Allowed::OnTheWay => !matches!(next, Some(Expr::Attribute(_))),
            // What is not allowed was told where it was imported or reached.
            Allowed::No => match before.meaning {
                Meaning::Path(left) if !left.contains('(') => self.imports.allow(left) != Allowed::No,
                _ => true,
            },
        };
        if reached {
            *told = Some(PROFILE_MODULE_ATTRIBUTE.id);
            let by_text = match before.meaning {
                Meaning::Builtin(name) => *name == "__import__",
                Meaning::Path(path) => path.starts_with("importlib."),
                _ => false,
            };
            if by_text && part.is_call_expr() {
                self.imported_by_text(part.range(), path);
            } else {
                self.reached(part.range(), path);
            }
        }
    }

    fn item_set(&mut self, subscript: &'a ast::ExprSubscript, before: Before<'a, '_>) {
        let what = match before.meaning.as_path() {
            Some("builtins" | "builtins.__dict__") => "changes a name of the interpreter itself",
            Some("sys.modules") => "puts another module in the place of one",
            _ => return,
        };
        let what = format!("`{}` {what}", self.quote(subscript.range));
        self.say(&BUILTINS_WRITE, Weight::GRAVE, subscript.range, what);
    }
}

/// One part of a spine, with what it denotes and what is around it.
struct Step<'a, 'm> {
    part: &'a Expr,
    before: Before<'a, 'm>,
    denoted: &'m Meaning<'a>,
    next: Option<&'a Expr>,
}

fn called_with(next: Option<&Expr>) -> Option<&Arguments> {
    match next {
        Some(Expr::Call(call)) => Some(&call.arguments),
        _ => None,
    }
}

/// Functions of which the arguments decide.
#[rustfmt::skip]
const JUDGED_BY_CALL: &[&str] = &[
    "getattr", "setattr", "delattr", "hasattr", "open", "io.open", "codecs.open", "io.FileIO",
    "operator.attrgetter", "operator.methodcaller", "inspect.getattr_static", "str.format", "str.format_map",
    "functools.update_wrapper", "functools.wraps",
];

/// Of these the arguments decide; what is called is not told by itself.
fn is_judged_by_call(path: &str) -> bool {
    JUDGED_BY_CALL.contains(&path.strip_prefix("builtins.").unwrap_or(path))
}

impl<'a> Visitor<'a> for Walk<'a, '_, '_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        self.strict_statement(stmt);
        match stmt {
            // A text that stands alone is a comment.
            Stmt::Expr(alone) if alone.value.is_string_literal_expr() => return,
            Stmt::Import(import) => self.import(import),
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::FunctionDef(function) => self.identifier(function.name.as_str(), function.name.range()),
            Stmt::ClassDef(class) => self.identifier(class.name.as_str(), class.name.range()),
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_annotation(&mut self, expr: &'a Expr) {
        self.annotation(expr);
        visitor::walk_annotation(self, expr);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => self.spine(expr),
            Expr::Name(_) => {
                self.innermost(expr, None);
            }
            Expr::StringLiteral(literal) => self.text(literal.value.to_str(), literal.range),
            _ => visitor::walk_expr(self, expr),
        }
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
            self.identifier(name.as_str(), name.range());
        }
        visitor::walk_pattern(self, pattern);
    }

    fn visit_pattern_keyword(&mut self, keyword: &'a PatternKeyword) {
        self.read_by_name(&keyword.attr);
        self.strict_keyword_of_pattern(keyword);
        visitor::walk_pattern_keyword(self, keyword);
    }

    fn visit_alias(&mut self, alias: &'a Alias) {
        self.identifier(alias.name.as_str(), alias.name.range());
        if let Some(name) = &alias.asname {
            self.identifier(name.as_str(), name.range());
            self.match_args_bound(name.as_str(), name.range());
        }
    }
}

impl<'a> Walk<'a, '_, '_> {
    /// An attribute that is read without a dot: in a pattern, or imported.
    fn read_by_name(&mut self, name: &'a Identifier) {
        self.identifier(name.as_str(), name.range());
        if let Some(said) = attributes::judge(name.as_str(), ExprContext::Load, attributes::Of::Anything) {
            let what = format!("`{}` {}", name.as_str(), said.does);
            self.say(said.rule, said.weight, name.range(), what);
        }
    }

    fn import(&mut self, import: &'a ast::StmtImport) {
        for alias in &import.names {
            let module = alias.name.as_str();
            self.private_module(module, alias.range);
            if self.imports.allow(module) != Allowed::Yes {
                let finding = self
                    .imports
                    .refused(module, format!("`{module}` is imported"), alias.range);
                self.add(finding);
            }
        }
    }

    fn import_from(&mut self, import: &'a ast::StmtImportFrom) {
        let module = import.module.as_ref().map_or("", Identifier::as_str);
        if import.level > 0 {
            let local = import.names.iter().all(|alias| match module {
                "" => self.imports.is_local(alias.name.as_str()),
                _ => self.imports.is_local(module),
            });
            if !local {
                let written = self.quote(import.range);
                self.add(Imports::relative(&written, import));
            }
            return;
        }
        let allowed = self.imports.allow(module);
        if allowed == Allowed::No {
            let finding = self
                .imports
                .refused(module, format!("`{module}` is imported"), import.range);
            self.add(finding);
        }
        for alias in &import.names {
            self.import_name(module, alias, allowed);
        }
    }

    fn import_name(&mut self, module: &'a str, alias: &'a Alias, allowed: Allowed) {
        let name = alias.name.as_str();
        if module != "__future__" {
            self.read_by_name(&alias.name);
            self.private_import(module, &alias.name);
        }
        if name == "*" {
            if let Some((group, known)) = dangerous_names::in_module(module) {
                let what = format!(
                    "everything of `{module}` is imported, and `{known}` {}",
                    group.does
                );
                self.say(group.rule, group.weight, alias.range, what);
            }
            if allowed == Allowed::OnTheWay {
                let what = format!("everything of `{module}` is imported");
                let finding = self.imports.refused(module, what, alias.range);
                self.add(finding);
            }
            return;
        }
        if allowed == Allowed::No {
            return;
        }
        let whole = format!("{module}.{name}");
        let denoted = self.meanings.attribute(&Meaning::path(module), name);
        let denoted = denoted.as_path().unwrap_or(&whole);
        if self.imports.allow(denoted) == Allowed::Yes || denoted.starts_with("builtins.") {
            return;
        }
        let finding = if denoted == whole {
            self.imports
                .refused(denoted, format!("`{whole}` is imported"), alias.range)
        } else {
            let what = format!("`{name}` of `{module}` is `{denoted}`, which is not allowed");
            self.imports.refused_attribute(denoted, what, alias.range)
        };
        self.add(finding);
    }
}
