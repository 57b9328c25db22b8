//! Strings in place of types. Code that reads types evaluates them: `functools.singledispatch` does so for a function
//! that is registered by its annotations. So such a string must be a literal with nothing but the syntax of types.

use super::Walk;
use crate::{
    python::{names::Kind, nesting, resolve::Meaning, weight::Weight},
    registry::python::DYNAMIC_EXECUTION,
};
use ruff_python_ast::{self as ast, Arguments, Expr, Operator};
use ruff_python_parser::parse_expression;
use ruff_text_size::Ranged;

const TEXT_BYTES_MAX: usize = 4096;
/// Keywords that do not occur in a type.
#[rustfmt::skip]
const OF_EXPRESSIONS: &[&str] = &["and", "await", "else", "for", "if", "in", "is", "lambda", "not", "or", "yield"];
const GIVE_TEXTS: &[&str] = &["str", "chr", "format", "repr", "ascii", "input"];

impl<'a> Walk<'a, '_, '_> {
    /// Checks an annotation: the type of a parameter, of a variable or of a return value.
    pub(super) fn annotation(&mut self, expr: &'a Expr) {
        if !self.is_strict() {
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
            Expr::Tuple(tuple) => self.annotations(&tuple.elts),
            Expr::List(list) => self.annotations(&list.elts),
            Expr::Dict(dict) => dict.items.iter().for_each(|item| self.annotation(&item.value)),
            Expr::Starred(starred) => self.annotation(&starred.value),
            Expr::Subscript(subscript) => match self.resolver.of(&subscript.value) {
                Meaning::Text(_) => self.text_of_a_type(expr),
                of => self.type_arguments(subscript, &of),
            },
            _ => self.text_of_a_type(expr),
        }
    }

    fn annotations(&mut self, exprs: &'a [Expr]) {
        exprs.iter().for_each(|expr| self.annotation(expr));
    }

    fn type_arguments(&mut self, subscript: &'a ast::ExprSubscript, of: &Meaning<'a>) {
        match (of.as_path(), subscript.slice.as_ref()) {
            (Some("typing.Literal" | "typing_extensions.Literal"), _) => {}
            (Some("typing.Annotated" | "typing_extensions.Annotated"), Expr::Tuple(tuple)) => {
                self.annotations(tuple.elts.get(..1).unwrap_or_default());
            }
            (_, slice) => self.annotation(slice),
        }
    }

    /// Checks `Optional['Node']` in any place.
    pub(super) fn typing_subscript(&mut self, subscript: &'a ast::ExprSubscript, of: &Meaning<'a>) {
        let modules = ["typing.", "typing_extensions.", "collections."];
        let is_generic = match of {
            Meaning::Builtin(name) => ["list", "dict", "tuple", "set", "frozenset", "type"].contains(name),
            Meaning::Path(path) => {
                modules.iter().any(|module| path.starts_with(module)) && !path.contains('(')
            }
            _ => false,
        };
        if is_generic && self.is_strict() {
            self.type_arguments(subscript, of);
        }
    }

    /// Checks the types in `typing.NamedTuple('P', [('x', 'Node')])` and `cast('Node', x)`.
    pub(super) fn check_typing_call(&mut self, path: &str, arguments: &'a Arguments) {
        let given = match path {
            "typing.cast" => 1,
            "typing.NewType" | "typing.NamedTuple" | "typing.TypedDict" | "typing.TypeVar" => {
                arguments.args.len()
            }
            _ => return,
        };
        self.annotations(arguments.args.get(..given).unwrap_or_default());
        for keyword in &arguments.keywords {
            self.annotation(&keyword.value);
        }
    }

    fn text_of_a_type(&mut self, expr: &'a Expr) {
        let beyond = match self.resolver.of(expr) {
            Meaning::Text(text) => beyond_a_type(text),
            _ if self.is_text(expr) || self.is_computed(expr) => Some("pieces that are put together"),
            _ => None,
        };
        if let Some(beyond) = beyond {
            let what = format!("the text of a type holds {beyond}, and reading the type runs it");
            self.report(&DYNAMIC_EXECUTION, Weight::StrictError, expr.range(), what);
        }
    }

    /// True if an expression visibly results in a string and is not a literal.
    pub(super) fn is_text(&self, expr: &'a Expr) -> bool {
        let is_literal = |expr: &Expr| expr.is_string_literal_expr() || expr.is_f_string_expr();
        match expr {
            Expr::FString(_) => true,
            Expr::BinOp(binary) => is_literal(&binary.left) || is_literal(&binary.right),
            Expr::Call(call) => match (self.resolver.of(&call.func), call.func.as_ref()) {
                (Meaning::Builtin(name), _) => GIVE_TEXTS.contains(&name),
                (Meaning::Path(path), _) => path.starts_with("builtins.str."),
                (_, Expr::Attribute(attribute)) => {
                    is_literal(&attribute.value)
                        || matches!(self.resolver.of(&attribute.value), Meaning::Text(_))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Checks the annotations of a function after `@f.register`, which evaluates them at once.
    pub(super) fn check_register(&mut self, function: &'a ast::StmtFunctionDef) {
        let registers = |decorator: &ast::Decorator| matches!(&decorator.expression, Expr::Attribute(attribute) if attribute.attr.as_str() == "register");
        if !self.is_strict() || !function.decorator_list.iter().any(registers) {
            return;
        }
        let parameters = function.parameters.iter();
        let of_parameters = parameters.filter_map(ast::AnyParameterRef::annotation);
        for expr in of_parameters.chain(function.returns.as_deref()) {
            if !self.is_type(expr) {
                let written = self.quote(expr.range());
                let what =
                    format!("`{written}` is no type that is written out, and `register` evaluates texts");
                self.report(&DYNAMIC_EXECUTION, Weight::StrictError, expr.range(), what);
            }
        }
    }

    /// True if an annotation is visibly not a computed string.
    fn is_type(&self, expr: &'a Expr) -> bool {
        let is_type = |kind: &Kind<'a>| match kind {
            Kind::Class | Kind::Import(..) => true,
            Kind::Value(value) if value.is_name_expr() => self.resolver.of(value) != Meaning::Unknown,
            Kind::Value(value) => self.is_type(value),
            Kind::Function | Kind::Parameter(_) | Kind::Other => false,
        };
        match expr {
            Expr::Name(_) => self
                .binding(expr)
                .is_none_or(|binding| binding.kinds.iter().all(is_type)),
            Expr::Attribute(_) => self.resolver.of(expr).as_path().is_some(),
            Expr::Call(call) => match self.resolver.of(&call.func) {
                Meaning::Path(path) => !path.starts_with("builtins."),
                meaning => meaning == Meaning::Builtin("type"),
            },
            Expr::BinOp(either) => either.op == Operator::BitOr,
            Expr::Subscript(_) => !self.is_computed(expr),
            Expr::StringLiteral(_) | Expr::NoneLiteral(_) => true,
            _ => false,
        }
    }
}

/// Describes the contents of a string in place of a type that are not names, dotted names, subscripts, constants or
/// `|`. A string that is not an expression is never evaluated.
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
        || nesting::height_bound(text).is_none()
        || is_read(&format!("(\n{text}\n)"))
        || is_read(&format!("({text},)"));
    // A string that looks like code may still be an expression to another parser.
    (is_expression || is_private && text.contains(['(', '['])).then_some(beyond)
}
