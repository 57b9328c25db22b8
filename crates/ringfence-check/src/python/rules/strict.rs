//! Rules of the profile `strict` alone, against access to an attribute without its name in the code. A name that is not
//! a literal, or an attribute that is not visibly the program's own, is refused.

use super::{
    Step, Walk, is_super,
    private_names::{is_from_a_library, is_of_a_basic_module, is_of_a_library, is_private, is_std_private},
};
use crate::{
    CodeQuestion,
    lists::LISTS,
    python::{
        names::Names,
        profile::{BASIC, is_standard},
        resolve::Meaning,
        weight::Weight,
    },
    registry::python::{BUILTINS_WRITE, FORMAT_ATTRIBUTE, PRIVATE_ATTRIBUTE, REFLECTION},
    rule::Rule,
};
use ruff_python_ast::{self as ast, Arguments, Expr, ExprContext, Stmt};
use ruff_text_size::{Ranged, TextRange};
use std::collections::HashSet;

/// Names of the attributes that `case A(x)` reads by position. As hidden strings they give access to any attribute.
const MATCH_ARGS: &str = "__match_args__";

/// State of the strict rules during the walk. An attribute that the program binds anywhere, as in `self._x = 1`, in the
/// body of a class or in `__slots__`, is its own; so rules that depend on that are checked at the end.
#[derive(Debug, Default)]
pub(super) struct Strict<'a> {
    own: HashSet<&'a str>,
    /// Private names of the library classes from which the program's classes inherit.
    inherited: HashSet<&'static str>,
    /// Some classes of the program are not defined in this code.
    has_external_classes: bool,
    /// Uses of private attributes and of `format`.
    used: Vec<(&'static Rule, String, TextRange)>,
    /// An expression that creates classes whose attributes this code does not show.
    class_creation: Option<TextRange>,
    /// Class patterns that read attributes by position.
    patterns: Vec<TextRange>,
    /// A `__match_args__` that is bound to literal names.
    plain_match_args: Option<TextRange>,
}

impl<'a> Strict<'a> {
    pub(super) fn of(names: &Names<'a>, question: &CodeQuestion) -> Self {
        Self {
            own: names.bound_in_classes().collect(),
            has_external_classes: question.is_fragment,
            ..Self::default()
        }
    }
}

impl<'a> Walk<'a, '_, '_> {
    /// Records that the program binds an attribute of this name.
    pub(super) fn add_own_name(&mut self, name: &'a str) {
        if name.starts_with('_') || name == "format" {
            self.strict.own.insert(name);
        }
    }

    pub(super) fn add_own_literals(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) {
        for expr in exprs {
            let name = self.resolver.text(expr);
            name.into_iter().for_each(|name| self.add_own_name(name));
        }
    }

    pub(super) fn strict_statement(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    self.check_class_variable(target, Some(&assign.value));
                }
            }
            Stmt::AnnAssign(assign) => self.check_class_variable(&assign.target, assign.value.as_deref()),
            Stmt::FunctionDef(function) => self.check_register(function),
            Stmt::ClassDef(class) => class.arguments.iter().for_each(|arguments| self.bases(arguments)),
            _ => {}
        }
    }

    /// Reads the names in `__slots__ = ('_x',)` and `__match_args__ = ('x', 'y')`.
    fn check_class_variable(&mut self, target: &'a Expr, value: Option<&'a Expr>) {
        let (Expr::Name(name), Some(value)) = (target, value) else {
            return;
        };
        let elements = self.elements(value);
        let texts = elements.unwrap_or(std::slice::from_ref(value)).iter();
        if name.id.as_str() == "__slots__" {
            self.add_own_literals(texts);
        } else if name.id.as_str() == MATCH_ARGS && elements.is_some() {
            let mut texts = texts.map(|expr| self.resolver.text(expr));
            if texts.all(|name| name.is_some_and(|name| !name.starts_with('_'))) {
                self.strict.plain_match_args = Some(name.range);
            }
        }
    }

    fn bases(&mut self, arguments: &'a Arguments) {
        for keyword in &arguments.keywords {
            let is_metaclass = matches!(keyword.arg.as_deref(), None | Some("metaclass"));
            if is_metaclass && self.resolver.of(&keyword.value) == Meaning::Unknown {
                self.strict.class_creation = Some(keyword.range);
            }
        }
        for base in &arguments.args {
            let base = base.as_subscript_expr().map_or(base, |generic| &generic.value);
            let is_dynamic = match self.resolver.of(base) {
                Meaning::Path(path) => {
                    let names = LISTS.private_of.get(&*path);
                    self.strict.inherited.extend(names.into_iter().flatten());
                    self.strict.has_external_classes |= !path.contains('(') && !is_of_a_library(&path);
                    path.ends_with("Meta") || path.ends_with("EnumType")
                }
                meaning => meaning == Meaning::Builtin("type") || base.is_call_expr(),
            };
            if is_dynamic {
                self.strict.class_creation = Some(base.range());
            }
        }
    }

    /// Reads `type('A', (), {'_x': 1})`, which creates a class with any names.
    pub(super) fn check_type_call(&mut self, arguments: &'a Arguments, range: TextRange) {
        if let Some(names) = arguments.args.get(2) {
            self.strict.class_creation = Some(range);
            let items = names.as_dict_expr().into_iter().flat_map(|dict| &dict.items);
            self.add_own_literals(items.filter_map(|item| item.key.as_ref()));
        }
    }

    pub(super) fn strict_attribute(&mut self, attribute: &'a ast::ExprAttribute, step: &Step<'a, '_>) {
        let (name, range) = (attribute.attr.as_str(), attribute.attr.range());
        let of = step.left_meaning;
        if attribute.ctx != ExprContext::Load {
            let is_foreign = of.as_path().is_some_and(is_of_a_library) || matches!(of, Meaning::Builtin(_));
            if attribute.ctx == ExprContext::Store && !is_foreign {
                self.add_own_name(name);
            }
            self.check_module_write(of, attribute.range);
        } else if matches!(name, "format" | "format_map") && !step.next.is_some_and(Expr::is_call_expr) {
            match of {
                Meaning::Text(text) => self.check_format_string(text, attribute.range),
                Meaning::Unknown => self.check_format_method(name, step.left, attribute.range),
                _ => {}
            }
        }
        self.private_attribute(name, of, range);
    }

    pub(super) fn strict_name(&mut self, name: &'a str, range: TextRange, context: ExprContext) {
        let is_read = context.is_load() && name != "__annotations__";
        if is_read || self.strict.plain_match_args == Some(range) {
            return;
        }
        let what = match name {
            MATCH_ARGS => format!("`{name}` is no tuple of names that are written out"),
            "__annotations__" | "__dict__" => {
                format!("`{name}` takes the place of a part of the interpreter's own")
            }
            _ if is_std_private(name) => {
                let what = format!("`{name}` takes the place of a private part of the standard library");
                return self.report(&PRIVATE_ATTRIBUTE, Weight::StrictError, range, what);
            }
            _ => return,
        };
        self.report(&REFLECTION, Weight::StrictError, range, what);
    }

    /// Checks a string, because it may be passed to `type` or `getattr`.
    pub(super) fn strict_text(&mut self, text: &str, range: TextRange) {
        if is_std_private(text) {
            let what = format!("`'{text}'` names a private part of the standard library");
            self.report(&PRIVATE_ATTRIBUTE, Weight::StrictError, range, what);
        }
        if text == MATCH_ARGS {
            let what = format!("`'{text}'` sets what a pattern reads");
            self.report(&REFLECTION, Weight::StrictError, range, what);
        }
    }

    /// Checks `x._name`, with what `x` denotes: private parts of a library may reach things that a program may not.
    pub(super) fn private_attribute(&mut self, name: &str, of: &Meaning<'a>, range: TextRange) {
        if !is_private(name) {
            return;
        }
        let what = match of {
            Meaning::Path(path) if is_of_a_library(path) && !self.imports.is_own(path) => {
                format!("`{name}` is a private part of `{path}`")
            }
            Meaning::Builtin(of) => format!("`{name}` is a private part of `{of}`"),
            _ if is_std_private(name) => format!("`{name}` is a private part of the standard library"),
            Meaning::Path(path) if !is_from_a_library(path) || self.imports.is_own(path) => return,
            _ => {
                let used = (&**PRIVATE_ATTRIBUTE, name.to_owned(), range);
                return self.strict.used.push(used);
            }
        };
        self.report(&PRIVATE_ATTRIBUTE, Weight::StrictError, range, what);
    }

    pub(super) fn private_module(&mut self, module: &str, range: TextRange) {
        for (at, _) in module.match_indices('.') {
            let name = module[at + 1..].split('.').next().unwrap_or_default();
            self.private_attribute(name, &Meaning::path(&module[..at]), range);
        }
    }

    /// Checks `contextlib.setattr = f`: the module's own code then uses the new value.
    pub(super) fn check_module_write(&mut self, of: &Meaning<'a>, range: TextRange) {
        let Some(path) = of.as_path() else { return };
        if is_of_a_basic_module(path) && !self.imports.is_own(path) {
            let what = format!("`{}` changes a name of `{path}`", self.quote(range));
            self.report(&BUILTINS_WRITE, Weight::StrictError, range, what);
        }
    }

    /// Checks `text.format` that is passed on or called on a class: allowed if the program has a `format` of its own.
    pub(super) fn check_format_method(&mut self, name: &str, of: &'a Expr, range: TextRange) {
        let is_text = name == "format_map" || is_super(of) || self.is_text(of);
        match is_text {
            true => self.report_unknown_format(range, Weight::StrictError),
            false => self.strict.used.push((&FORMAT_ATTRIBUTE, name.to_owned(), range)),
        }
    }

    /// Checks `case A(x)`, whose class may have been created to hide the attributes read, and `case str(format=f)`.
    pub(super) fn check_class_pattern(&mut self, pattern: &'a ast::PatternMatchClass) {
        let of = self.resolver.of(&pattern.cls);
        let is_known =
            matches!(of, Meaning::Builtin(_)) || of.as_path().is_some_and(|path| !path.contains('('));
        for keyword in &pattern.arguments.keywords {
            let (name, range) = (keyword.attr.as_str(), keyword.attr.range());
            if !matches!(name, "format" | "format_map") {
                continue;
            }
            if matches!(of, Meaning::Builtin(_)) {
                self.report_unknown_format(range, Weight::StrictError);
            } else if self.is_own_class(&pattern.cls) {
                self.check_format_method(name, &pattern.cls, range);
            }
        }
        if !is_known && !pattern.arguments.patterns.is_empty() {
            self.strict.patterns.push(pattern.range);
        }
    }

    /// Checks `functools.update_wrapper` and `wraps`, which copy attributes by name from the argument at `from`.
    pub(super) fn check_wrap(&mut self, path: &str, arguments: &'a Arguments, range: TextRange, from: usize) {
        let is_open = arguments.args.iter().any(Expr::is_starred_expr)
            || arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
        let names = [("assigned", from + 1), ("updated", from + 2)].into_iter();
        let mut lists = names.filter_map(|(name, at)| arguments.find_argument_value(name, at));
        if is_open || !lists.all(|names| self.are_usual(names)) {
            let what = format!("`{path}` copies attributes other than the usual ones");
            self.report(&REFLECTION, Weight::StrictError, range, what);
        }
        let wrapped = arguments.find_argument_value("wrapped", from);
        if let Some(Meaning::Path(module)) = wrapped.map(|wrapped| self.resolver.of(wrapped))
            && (is_standard(&module) || BASIC.contains(&&*module))
        {
            let what = format!("`{path}` copies the names of the module `{module}`");
            self.report(&REFLECTION, Weight::StrictError, range, what);
        }
    }

    fn are_usual(&self, names: &'a Expr) -> bool {
        if let Some(elements) = self.elements(names) {
            let mut texts = elements.iter().map(|name| self.resolver.text(name));
            return texts.all(|name| name.is_some_and(|name| LISTS.copied.contains(name)));
        }
        let usual = ["functools.WRAPPER_ASSIGNMENTS", "functools.WRAPPER_UPDATES"];
        let names = self.resolver.of(names);
        names.as_path().is_some_and(|path| usual.contains(&path))
    }

    /// Checks the rules that depend on the whole program.
    pub(super) fn conclude_strict(&mut self) {
        let strict = std::mem::take(&mut self.strict);
        for (rule, name, range) in strict.used {
            // `__x` of the class `A` is `_A__x` elsewhere.
            let owns = |name: &str| strict.own.contains(name);
            let own = owns(&name) || name.find("__").is_some_and(|at| owns(&name[at..]));
            if rule.id == FORMAT_ATTRIBUTE.id && !own {
                self.report_unknown_format(range, Weight::StrictError);
            } else if strict.inherited.contains(name.as_str()) || !own && !strict.has_external_classes {
                let what =
                    format!("`{name}` is a private attribute of something that is not the program's own");
                self.report(rule, Weight::StrictError, range, what);
            }
        }
        for range in strict.patterns {
            if let Some(made) = strict.class_creation {
                let (pattern, made) = (self.quote(range), self.quote(made));
                let what =
                    format!("`{pattern}` reads attributes by their places, and `{made}` may give it any");
                self.report(&REFLECTION, Weight::StrictError, range, what);
            }
        }
    }
}
