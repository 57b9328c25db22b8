//! Private attributes that are the program's own: the names with an underscore that it gives to an attribute somewhere,
//! as `self._x = 1`, in the body of a class, in `__slots__`. A class that is made of one of the library's does not own
//! the names that that one has.

use super::{attributes::is_dunder, private_names as private};
use crate::python::{
    meaning::{Meaning, Meanings},
    spine::{spine_of, walk_right},
};
use ruff_python_ast::{
    self as ast, Arguments, Expr, ExprContext, Identifier, ModModule, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};
use std::{borrow::Cow, collections::HashSet};

/// What a program owns.
#[derive(Debug, Default)]
pub(super) struct OwnNames<'a> {
    names: HashSet<Cow<'a, str>>,
    /// Of the library's classes from which its own are made.
    inherited: HashSet<&'static str>,
    /// Some of its classes are defined where this text does not show it.
    unseen: bool,
    /// Of those that are made of `str`.
    pub(super) classes_of_texts: HashSet<&'a str>,
    /// Where classes are made so that this text does not show what they have.
    pub(super) makes_classes: Option<TextRange>,
    /// Where it binds a name that only the library has a use for.
    pub(super) taken: Vec<(&'a str, TextRange)>,
}

impl<'a> OwnNames<'a> {
    pub(super) fn has(&self, name: &str) -> bool {
        !self.inherited.contains(name) && (self.unseen || self.names.contains(name))
    }

    /// Looks at a module. A fragment may use classes of those before it.
    pub(super) fn of(module: &'a ModModule, meanings: &Meanings<'a, '_>, unseen: Unseen) -> Self {
        let mut look = Look {
            meanings,
            own: Self {
                unseen: unseen == Unseen::Some,
                ..Self::default()
            },
            at: Body::Elsewhere,
            class: None,
        };
        look.visit_body(&module.body);
        look.own
    }
}

/// Classes of the program that this text does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    None,
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Directly in the body of a class.
    OfClass,
    Elsewhere,
}

struct Look<'a, 'm, 's> {
    meanings: &'m Meanings<'a, 's>,
    own: OwnNames<'a>,
    at: Body,
    /// The innermost class, for names with two underscores.
    class: Option<&'a str>,
}

impl<'a> Look<'a, '_, '_> {
    fn add(&mut self, name: Cow<'a, str>) {
        if !name.starts_with('_') || is_dunder(&name) {
            return;
        }
        if let Some(class) = self.class.filter(|_| name.starts_with("__")) {
            let mangled = format!("_{}{name}", class.trim_start_matches('_'));
            self.own.names.insert(Cow::Owned(mangled));
        }
        self.own.names.insert(name);
    }

    fn bind(&mut self, name: &'a str, range: TextRange) {
        if self.at == Body::OfClass {
            if private::leads_far(name) || name == "__dict__" {
                self.own.taken.push((name, range));
            }
            self.add(Cow::Borrowed(name));
        }
    }

    fn bind_identifier(&mut self, name: &'a Identifier) {
        self.bind(name.as_str(), name.range());
    }

    fn add_text(&mut self, expr: &'a Expr) {
        if let Meaning::Text(text) = self.meanings.of(expr) {
            self.add(Cow::Owned(text.to_string()));
        }
    }

    /// Of `__slots__`, or of the names of a class that is made by `type`.
    fn add_texts(&mut self, value: &'a Expr) {
        let exprs: &[Expr] = match value {
            Expr::Tuple(tuple) => &tuple.elts,
            Expr::List(list) => &list.elts,
            Expr::Set(set) => &set.elts,
            Expr::Dict(dict) => {
                for item in &dict.items {
                    if let Some(key) = &item.key {
                        self.add_text(key);
                    }
                }
                &[]
            }
            single => std::slice::from_ref(single),
        };
        for expr in exprs {
            self.add_text(expr);
        }
    }

    fn within(&mut self, at: Body, body: &'a [Stmt]) {
        let around = self.at;
        self.at = at;
        self.visit_body(body);
        self.at = around;
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        self.bind_identifier(&class.name);
        for decorator in &class.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        if let Some(arguments) = &class.arguments {
            for base in &arguments.args {
                self.base(class.name.as_str(), base);
            }
            for keyword in &arguments.keywords {
                let is_metaclass = keyword
                    .arg
                    .as_ref()
                    .is_none_or(|name| name.as_str() == "metaclass");
                if is_metaclass && self.meanings.of(&keyword.value) == Meaning::Unknown {
                    self.own.makes_classes = Some(keyword.range);
                }
            }
            self.visit_arguments(arguments);
        }
        let around = self.class.replace(class.name.as_str());
        self.within(Body::OfClass, &class.body);
        self.class = around;
    }

    fn base(&mut self, class: &'a str, base: &'a Expr) {
        let base = match base {
            Expr::Subscript(generic) => &generic.value,
            base => base,
        };
        let meaning = self.meanings.of(base);
        let is_made = match &meaning {
            Meaning::Builtin(name) => *name == "type",
            Meaning::Path(path) => path.ends_with("Meta") || path.ends_with("EnumType"),
            _ => base.is_call_expr(),
        };
        if is_made {
            self.own.makes_classes = Some(base.range());
        }
        match (meaning, base) {
            (Meaning::Path(path), _) => {
                self.own.inherited.extend(private::names_of(&path));
                self.own.unseen |= !path.contains('(') && !private::is_of_a_library(&path);
            }
            (Meaning::Builtin("str"), _) => {
                self.own.classes_of_texts.insert(class);
            }
            (_, Expr::Name(name)) if self.own.classes_of_texts.contains(name.id.as_str()) => {
                self.own.classes_of_texts.insert(class);
            }
            _ => {}
        }
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        self.bind_identifier(&function.name);
        for decorator in &function.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        self.visit_parameters(&function.parameters);
        self.within(Body::Elsewhere, &function.body);
    }

    fn attribute(&mut self, attribute: &'a ast::ExprAttribute) {
        let name = attribute.attr.as_str();
        if matches!(name, "__args__" | "__annotations__" | "get_args") {
            // It leads to references that their own method evaluates.
            self.own.inherited.insert("_evaluate");
        }
        if attribute.ctx != ExprContext::Store || !name.starts_with('_') || is_dunder(name) {
            return;
        }
        match self.meanings.of(&attribute.value) {
            Meaning::Path(path) if private::is_of_a_library(&path) => {}
            Meaning::Builtin(_) => {}
            _ => self.add(Cow::Borrowed(name)),
        }
    }

    /// `setattr(self, '_x', 1)`, `object.__setattr__(self, '_x', 1)`, `type('A', (), {'_x': 1})`,
    /// `SimpleNamespace(_x=1)`.
    fn call(&mut self, call: &'a ast::ExprCall) {
        let arguments = &call.arguments;
        for keyword in &arguments.keywords {
            if let Some(name) = &keyword.arg {
                self.add(Cow::Borrowed(name.as_str()));
            }
        }
        match call.func.as_ref() {
            Expr::Attribute(attribute) if attribute.attr.as_str() == "__setattr__" => {
                self.set_by_name(arguments, usize::from(arguments.args.len() > 2));
            }
            Expr::Name(name) if name.id.as_str() == "setattr" => self.set_by_name(arguments, 1),
            Expr::Name(name) if name.id.as_str() == "type" => {
                if let Some(names) = arguments.args.get(2) {
                    self.add_texts(names);
                    self.made(call, names);
                }
            }
            _ => {}
        }
    }

    /// `type('A', (), names)`.
    fn made(&mut self, call: &'a ast::ExprCall, names: &'a Expr) {
        let is_text = |item: &'a ast::DictItem| {
            let key = item.key.as_ref();
            key.is_some_and(
                |key| matches!(self.meanings.of(key), Meaning::Text(text) if &*text != "__match_args__"),
            )
        };
        let is_shown = matches!(names, Expr::Dict(dict) if dict.items.iter().all(is_text));
        if !is_shown {
            self.own.makes_classes = Some(call.range());
        }
    }

    fn set_by_name(&mut self, arguments: &'a Arguments, at: usize) {
        if let Some(name) = arguments.args.get(at) {
            self.add_text(name);
        }
    }

    fn slots(&mut self, targets: &'a [Expr], value: &'a Expr) {
        let is_slots = |target: &Expr| matches!(target, Expr::Name(name) if name.id.as_str() == "__slots__");
        if self.at == Body::OfClass && targets.iter().any(is_slots) {
            self.add_texts(value);
        }
    }
}

impl<'a> Visitor<'a> for Look<'a, '_, '_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::ClassDef(class) => return self.class(class),
            Stmt::FunctionDef(function) => return self.function(function),
            Stmt::Assign(assign) => self.slots(&assign.targets, &assign.value),
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.slots(std::slice::from_ref(&assign.target), value);
                }
            }
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => {
                for part in spine_of(expr).iter().copied() {
                    match part {
                        Expr::Attribute(attribute) => self.attribute(attribute),
                        Expr::Call(call) => {
                            self.call(call);
                            walk_right(self, part);
                        }
                        Expr::BinOp(_) | Expr::Subscript(_) => walk_right(self, part),
                        innermost => self.visit_expr(innermost),
                    }
                }
            }
            Expr::Name(name) if name.ctx == ExprContext::Store => self.bind(name.id.as_str(), name.range),
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_alias(&mut self, alias: &'a ast::Alias) {
        if alias.name.as_str() == "get_args" {
            self.own.inherited.insert("_evaluate");
        }
        self.bind_identifier(alias.asname.as_ref().unwrap_or(&alias.name));
    }
}
