//! Texts in the place of types. What reads types evaluates them: `functools.singledispatch` does so for a function that
//! is registered by its annotations. So a text there holds what types are made of, and nothing that does anything.

use super::{DYNAMIC_EXECUTION, REFLECTION, Weight, walk::Walk};
use crate::python::{
    meaning::Meaning,
    nesting,
    scope::{Kind, Resolution},
};
use ruff_python_ast::{self as ast, Arguments, Expr, Operator};
use ruff_python_parser::parse_expression;
use ruff_text_size::{Ranged, TextRange};

/// No type is longer.
const TEXT_BYTES_MAX: usize = 4096;

impl<'a> Walk<'a, '_, '_> {
    /// A type as it is written: of a parameter, a variable, or what a function returns.
    pub(super) fn annotation(&mut self, expr: &'a Expr) {
        if self.strict.own.is_none() {
            return;
        }
        let mut expr = expr;
        // `A | B | C` may be long.
        while let Expr::BinOp(either) = expr
            && either.op == Operator::BitOr
        {
            self.annotation(&either.right);
            expr = &either.left;
        }
        match expr {
            Expr::Tuple(tuple) => self.annotations_of(&tuple.elts),
            Expr::List(list) => self.annotations_of(&list.elts),
            Expr::Starred(starred) => self.annotation(&starred.value),
            Expr::Subscript(subscript) => {
                let of = self.meanings.of(&subscript.value);
                match of {
                    Meaning::Text(_) => self.text_of_a_type(expr),
                    of => self.type_arguments(subscript, &of),
                }
            }
            Expr::StringLiteral(_)
            | Expr::FString(_)
            | Expr::BinOp(_)
            | Expr::Call(_)
            | Expr::Name(_)
            | Expr::Attribute(_) => self.text_of_a_type(expr),
            _ => {}
        }
    }

    fn annotations_of(&mut self, exprs: &'a [Expr]) {
        for expr in exprs {
            self.annotation(expr);
        }
    }

    fn type_arguments(&mut self, subscript: &'a ast::ExprSubscript, of: &Meaning<'a>) {
        match of.as_path() {
            Some(path) if is_literal(path) => {}
            Some("typing.Annotated" | "typing_extensions.Annotated") => {
                let first = match subscript.slice.as_ref() {
                    Expr::Tuple(tuple) => tuple.elts.first(),
                    slice => Some(slice),
                };
                if let Some(first) = first {
                    self.annotation(first);
                }
            }
            _ => self.annotation(&subscript.slice),
        }
    }

    /// `Optional['Node']`, wherever it stands.
    pub(super) fn typing_subscript(&mut self, subscript: &'a ast::ExprSubscript, of: &Meaning<'a>) {
        if self.strict.own.is_none() {
            return;
        }
        let is_generic = match of {
            Meaning::Builtin(name) => {
                matches!(*name, "list" | "dict" | "tuple" | "set" | "frozenset" | "type")
            }
            Meaning::Path(path) => {
                ["typing.", "typing_extensions.", "collections."]
                    .iter()
                    .any(|module| path.starts_with(module))
                    && !path.contains('(')
            }
            _ => false,
        };
        if is_generic {
            self.type_arguments(subscript, of);
        }
    }

    /// `typing.NamedTuple('P', [('x', 'Node')])`, `cast('Node', x)`.
    pub(super) fn types_given(&mut self, path: &str, arguments: &'a Arguments) {
        let at = |at: usize| arguments.args.get(at);
        let name = path.strip_prefix("typing.").unwrap_or(path);
        if matches!(name, "NamedTuple" | "TypedDict" | "TypeVar") {
            for keyword in &arguments.keywords {
                self.annotation(&keyword.value);
            }
        }
        match (name, at(0), at(1)) {
            ("cast", Some(given), _) | ("NewType", _, Some(given)) => self.annotation(given),
            ("TypeVar", ..) => self.annotations_of(arguments.args.get(1..).unwrap_or_default()),
            ("NamedTuple" | "TypedDict", _, Some(fields)) => self.fields(fields),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &'a Expr) {
        let pairs: &[Expr] = match fields {
            Expr::Dict(dict) => {
                for item in &dict.items {
                    self.annotation(&item.value);
                }
                &[]
            }
            Expr::List(list) => &list.elts,
            Expr::Tuple(tuple) => &tuple.elts,
            _ => &[],
        };
        for pair in pairs {
            if let Expr::Tuple(pair) = pair
                && let Some(given) = pair.elts.get(1)
            {
                self.annotation(given);
            }
        }
    }

    fn text_of_a_type(&mut self, expr: &'a Expr) {
        let range = expr.range();
        match self.meanings.of(expr) {
            Meaning::Text(text) => {
                if self.strict.annotations.seen.insert(range)
                    && let Some(beyond) = beyond_a_type(&text)
                {
                    let what = format!("the text of a type holds {beyond}, and reading the type runs it");
                    self.say(&DYNAMIC_EXECUTION, Weight::STRICT_ERROR, range, what);
                }
            }
            meaning
                if (self.makes_a_text(expr, &meaning) || self.is_computed(expr))
                    && self.strict.annotations.seen.insert(range) =>
            {
                let what = "a type is a text that is put together, and reading the type runs it".to_owned();
                self.say(&DYNAMIC_EXECUTION, Weight::STRICT_ERROR, range, what);
            }
            _ => {}
        }
    }

    /// Does an expression that is no constant visibly give a text.
    pub(super) fn makes_a_text(&self, expr: &'a Expr, meaning: &Meaning<'a>) -> bool {
        match expr {
            Expr::FString(_) => *meaning == Meaning::Unknown,
            Expr::BinOp(binary) => {
                let of = |side: &'a Expr| match side {
                    Expr::StringLiteral(_) | Expr::FString(_) => true,
                    Expr::BinOp(_) => false,
                    side => matches!(self.meanings.of(side), Meaning::Text(_)),
                };
                of(&binary.left) || of(&binary.right)
            }
            Expr::Call(call) => match self.meanings.of(&call.func) {
                Meaning::Method(..) => true,
                Meaning::Builtin(name) => {
                    matches!(name, "str" | "chr" | "format" | "repr" | "ascii" | "input")
                }
                Meaning::Path(path) => path.starts_with("builtins.str."),
                _ => false,
            },
            _ => false,
        }
    }

    /// `@f.register` before a function: its annotations are evaluated there and then.
    pub(super) fn registered(&mut self, function: &'a ast::StmtFunctionDef) {
        let registers = |decorator: &ast::Decorator| matches!(&decorator.expression, Expr::Attribute(attribute) if attribute.attr.as_str() == "register");
        if self.strict.own.is_none() || !function.decorator_list.iter().any(registers) {
            return;
        }
        let of_parameters = function
            .parameters
            .iter()
            .filter_map(ast::AnyParameterRef::annotation);
        let types: Vec<&'a Expr> = of_parameters.chain(function.returns.as_deref()).collect();
        for expr in types {
            if !self.is_written_out(expr) {
                let what = format!(
                    "`{}` is no type that stands there as it is, and `register` evaluates texts",
                    self.quote(expr.range())
                );
                self.say(&DYNAMIC_EXECUTION, Weight::STRICT_ERROR, expr.range(), what);
            }
        }
    }

    /// Is it seen that an annotation is no text that was put together.
    fn is_written_out(&self, expr: &'a Expr) -> bool {
        match expr {
            Expr::Name(name) => self.is_name_of_a_type(name),
            Expr::Attribute(_) => matches!(self.meanings.of(expr), Meaning::Path(_)),
            expr => self.is_shaped_as_a_type(expr),
        }
    }

    fn is_shaped_as_a_type(&self, expr: &'a Expr) -> bool {
        match expr {
            Expr::Call(call) => match self.meanings.of(&call.func) {
                Meaning::Path(path) => !path.starts_with("builtins."),
                Meaning::Builtin(name) => name == "type",
                _ => false,
            },
            Expr::BinOp(either) => either.op == Operator::BitOr,
            Expr::Name(_) | Expr::Attribute(_) => self.meanings.of(expr) != Meaning::Unknown,
            Expr::Subscript(_) => !self.is_computed(expr),
            Expr::StringLiteral(_) | Expr::NoneLiteral(_) => true,
            _ => false,
        }
    }

    fn is_name_of_a_type(&self, name: &'a ast::ExprName) -> bool {
        let Some(read) = self.scopes.use_at(name.range) else {
            return false;
        };
        let binding = match read.resolution {
            Resolution::Binding(id) => self.scopes.binding(id),
            _ => return true,
        };
        let is_type = |kind: &Kind<'a>| match kind {
            Kind::Class | Kind::Import { .. } | Kind::From { .. } => true,
            Kind::Value(value) => self.is_shaped_as_a_type(value),
            Kind::Function | Kind::Parameter(_) | Kind::Other => false,
        };
        binding.is_some_and(|binding| binding.kinds.iter().all(is_type))
    }

    /// A thing by its way from a module.
    pub(super) fn dispatches(&mut self, path: &str) {
        self.strict.annotations.dispatches |= matches!(
            path,
            "functools.singledispatch" | "functools.singledispatchmethod"
        );
    }

    /// `f.__annotations__`.
    pub(super) fn annotations_reached(&mut self, name: &str, range: TextRange) {
        if name == "__annotations__" && self.strict.own.is_some() {
            self.strict.annotations.reached.push(range);
        }
    }

    /// At the end of the walk.
    pub(super) fn annotations_changed(&mut self) {
        if !self.strict.annotations.dispatches {
            return;
        }
        for range in std::mem::take(&mut self.strict.annotations.reached) {
            let what =
                "`__annotations__` may be filled with texts, which `singledispatch` evaluates".to_owned();
            self.say(&REFLECTION, Weight::STRICT_ERROR, range, what);
        }
    }
}

fn is_literal(path: &str) -> bool {
    matches!(path, "typing.Literal" | "typing_extensions.Literal")
}

/// Words that a type has no use for.
#[rustfmt::skip]
const OF_EXPRESSIONS: &[&str] = &["and", "await", "else", "for", "if", "in", "is", "lambda", "not", "or", "yield"];

/// What a text in the place of a type holds besides names, dotted names, subscripts, constants and `|`. What is not an
/// expression is never evaluated.
fn beyond_a_type(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_private = text.contains("__") || text.contains("._");
    let beyond = if is_private {
        "a name of the interpreter's own, or a private one"
    } else if text.contains(['(', '=', '{', '@', '\\']) {
        "a call, or more than a type needs"
    } else if words.any(|word| OF_EXPRESSIONS.contains(&word)) {
        "an expression"
    } else {
        return None;
    };
    let is_read = |text: &str| parse_expression(text).is_ok();
    let is_expression = text.len() > TEXT_BYTES_MAX
        || nesting::look(text).is_err()
        || is_read(&format!("(\n{text}\n)"))
        || is_read(&format!("({text},)"));
    // What looks like code all the same may be an expression to another parser.
    (is_expression || is_private && text.contains(['(', '['])).then_some(beyond)
}
