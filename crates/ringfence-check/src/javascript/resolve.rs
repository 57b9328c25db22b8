//! Resolves constant expressions to a text or to the path of an object of the language or of Node.js (`eval`,
//! `node:child_process.exec`), through any aliases. Scopes, declarations and assignments are those of `oxc_semantic`.

use super::names::{global, is_plain, joined, module};
use crate::{lists::LISTS, unknown::UNKNOWN};
use oxc_ast::{
    AstKind,
    ast::{
        Argument, BinaryExpression, BinaryOperator, BindingPattern, CallExpression, ComputedMemberExpression,
        Expression, IdentifierReference, MemberExpression, ObjectExpression, PropertyKey, Statement,
        StaticMemberExpression, TSModuleReference, TemplateLiteral,
    },
};
use oxc_semantic::{NodeId, Semantic, SymbolId};
use oxc_span::GetSpan;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

/// Maximum number of expressions visited to resolve one.
const STEPS_MAX: u32 = 400;
const TEXT_BYTES_MAX: usize = 4096;
/// Longer texts and lists are not cached for a name, but computed again each time.
const KEPT_MAX: usize = 128;
const LIST_MAX: usize = 1024;
/// Maximum number of declarations, and of assignments, of a name that are followed.
const VALUES_MAX: usize = 4;

#[derive(Clone)]
pub(super) enum Known<'a> {
    Unknown,
    /// A text, perhaps with [`UNKNOWN`] in it.
    Text(Rc<str>),
    List(Rc<[Known<'a>]>),
    /// A text computed from constants that is not evaluated here: `atob('…')`.
    Computed,
    /// An object that every program can reach: `process.env`, `node:fs.rmSync`.
    Path(Rc<str>),
    /// A function or a class of the program.
    Function,
    Object(&'a ObjectExpression<'a>),
}

impl<'a> Known<'a> {
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text, if all of it is known.
    pub(super) fn constant(&self) -> Option<&str> {
        self.text().filter(|text| !text.contains(UNKNOWN))
    }

    fn of_path(path: &str) -> Self {
        Self::Path(Rc::from(path))
    }

    fn of_text(text: &str) -> Self {
        match text.len() > TEXT_BYTES_MAX {
            true => Self::Unknown,
            false => Self::Text(Rc::from(text)),
        }
    }

    fn of_module(name: Option<&str>) -> Self {
        name.map_or(Self::Unknown, |name| Self::of_path(&module(name)))
    }

    /// Merges two possible values of one expression; a path wins over other values.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) if one == other => Self::Text(one),
            (Self::Path(path), Self::Path(other)) if is_plain(&path) => Self::Path(other),
            (Self::Path(path), _) | (_, Self::Path(path)) => Self::Path(path),
            (Self::Computed, _) | (_, Self::Computed) => Self::Computed,
            (Self::Function, Self::Function) => Self::Function,
            _ => Self::Unknown,
        }
    }

    fn push_to(&self, whole: &mut String) {
        match self {
            Self::Text(text) => whole.push_str(text),
            // The program's own directory is within the workspace.
            Self::Path(path) if matches!(&**path, "__dirname" | "import.meta.dirname") => whole.push('.'),
            Self::Path(path) if &**path == "process.env.HOME" => whole.push('~'),
            _ => whole.push(UNKNOWN),
        }
    }

    fn split(text: &str, separator: Option<Self>) -> Self {
        match separator.as_ref().and_then(Self::constant) {
            Some("") => {
                let letters = text.chars().take(LIST_MAX);
                Self::List(letters.map(|letter| Self::of_text(&letter.to_string())).collect())
            }
            Some(separator) => Self::List(text.split(separator).take(LIST_MAX).map(Self::of_text).collect()),
            None => Self::Unknown,
        }
    }

    /// Joins the parts into one text; with the separator `/`, none is added after another.
    fn join(parts: impl Iterator<Item = Self>, between: &str) -> Self {
        let mut whole = String::new();
        for (index, part) in parts.enumerate() {
            if index > 0 && !(between == "/" && whole.ends_with('/')) {
                whole.push_str(between);
            }
            part.push_to(&mut whole);
            if whole.len() > TEXT_BYTES_MAX {
                return Self::Unknown;
            }
        }
        Self::of_text(&whole)
    }
}

pub(super) struct Resolver<'p, 'a> {
    semantic: &'p Semantic<'a>,
    /// Values of names; `None` while one is being resolved, which stops a name that is defined by itself.
    values: RefCell<HashMap<SymbolId, Option<Known<'a>>>>,
    steps: Cell<u32>,
}

impl<'p, 'a> Resolver<'p, 'a> {
    pub(super) fn of(semantic: &'p Semantic<'a>) -> Self {
        Self {
            semantic,
            values: RefCell::default(),
            steps: Cell::new(0),
        }
    }

    pub(super) fn resolve(&self, expression: &'a Expression<'a>) -> Known<'a> {
        self.steps.set(0);
        self.expression(expression)
    }

    /// Resolves a node that is not wrapped in an [`Expression`].
    pub(super) fn resolve_node(&self, node: AstKind<'a>) -> Known<'a> {
        self.steps.set(0);
        match node {
            AstKind::IdentifierReference(name) => self.name(name),
            AstKind::StaticMemberExpression(member) => self.static_member(member),
            AstKind::ComputedMemberExpression(member) => self.computed_member(member),
            AstKind::StringLiteral(text) => Known::of_text(&text.value),
            AstKind::TemplateLiteral(template) => self.template(template),
            AstKind::BinaryExpression(sum) => self.binary(sum),
            _ => Known::Unknown,
        }
    }

    fn expression(&self, expression: &'a Expression<'a>) -> Known<'a> {
        if self.steps.get() >= STEPS_MAX {
            return Known::Unknown;
        }
        self.steps.set(self.steps.get() + 1);
        self.by_kind(expression.get_inner_expression())
    }

    fn optional(&self, expression: Option<&'a Expression<'a>>) -> Known<'a> {
        expression.map_or(Known::Unknown, |expression| self.expression(expression))
    }

    fn by_kind(&self, expression: &'a Expression<'a>) -> Known<'a> {
        match expression {
            Expression::Identifier(name) => self.name(name),
            Expression::StringLiteral(text) => Known::of_text(&text.value),
            Expression::TemplateLiteral(template) => self.template(template),
            Expression::SequenceExpression(all) => self.optional(all.expressions.last()),
            Expression::AwaitExpression(awaited) => self.expression(&awaited.argument),
            Expression::AssignmentExpression(assigned) => self.expression(&assigned.right),
            Expression::BinaryExpression(sum) => self.binary(sum),
            Expression::LogicalExpression(both) if both.operator.is_and() => self.expression(&both.right),
            Expression::LogicalExpression(both) => {
                self.expression(&both.left).or(self.expression(&both.right))
            }
            Expression::ConditionalExpression(either) => self
                .expression(&either.consequent)
                .or(self.expression(&either.alternate)),
            Expression::ArrayExpression(list) => {
                let items = list.elements.iter().take(LIST_MAX);
                Known::List(items.map(|item| self.optional(item.as_expression())).collect())
            }
            Expression::ObjectExpression(object) => Known::Object(object),
            Expression::FunctionExpression(_)
            | Expression::ArrowFunctionExpression(_)
            | Expression::ClassExpression(_) => Known::Function,
            Expression::CallExpression(call) => self.result(call),
            Expression::ImportExpression(import) => {
                Known::of_module(self.expression(&import.source).constant())
            }
            Expression::ImportMeta(_) => Known::of_path("import.meta"),
            other => match other.get_member_expr() {
                Some(MemberExpression::StaticMemberExpression(member)) => self.static_member(member),
                Some(MemberExpression::ComputedMemberExpression(member)) => self.computed_member(member),
                _ => Known::Unknown,
            },
        }
    }

    fn binary(&self, sum: &'a BinaryExpression<'a>) -> Known<'a> {
        if sum.operator != BinaryOperator::Addition {
            return Known::Unknown;
        }
        let parts = [&sum.left, &sum.right].map(|part| self.expression(part));
        if parts.iter().any(|part| matches!(part, Known::Computed)) {
            return Known::Computed;
        }
        match parts.iter().all(|part| part.text().is_none()) {
            true => Known::Unknown,
            false => Known::join(parts.into_iter(), ""),
        }
    }

    fn template(&self, template: &'a TemplateLiteral<'a>) -> Known<'a> {
        let mut parts = Vec::new();
        for (index, quasi) in template.quasis.iter().enumerate() {
            let cooked = quasi.value.cooked.as_deref().unwrap_or_default();
            parts.push(Known::Text(Rc::from(cooked)));
            match template.expressions.get(index).map(|hole| self.expression(hole)) {
                Some(Known::Computed) => return Known::Computed,
                hole => parts.extend(hole),
            }
        }
        Known::join(parts.into_iter(), "")
    }

    /// The symbol of a name; `None` if the name is global.
    pub(super) fn symbol(&self, name: &IdentifierReference<'a>) -> Option<SymbolId> {
        let reference = name.reference_id.get()?;
        self.semantic.scoping().get_reference(reference).symbol_id()
    }

    fn name(&self, name: &IdentifierReference<'a>) -> Known<'a> {
        let Some(symbol) = self.symbol(name) else {
            return match name.name.as_str() {
                "undefined" | "NaN" | "Infinity" => Known::Unknown,
                name => Known::of_path(global(name)),
            };
        };
        if let Some(known) = self.values.borrow().get(&symbol) {
            return known.clone().unwrap_or(Known::Unknown);
        }
        self.values.borrow_mut().insert(symbol, None);
        let known = self.value(symbol);
        let is_long = match &known {
            Known::Text(text) => text.len() > KEPT_MAX,
            Known::List(all) => all.len() > KEPT_MAX,
            _ => false,
        };
        let mut values = self.values.borrow_mut();
        // A value out of reach from here may be resolved from elsewhere.
        match is_long || self.steps.get() >= STEPS_MAX {
            true => values.remove(&symbol),
            false => values.insert(symbol, Some(known.clone())),
        };
        known
    }

    fn value(&self, symbol: SymbolId) -> Known<'a> {
        let scoping = self.semantic.scoping();
        let declarations = scoping.symbol_declarations(symbol).take(VALUES_MAX);
        let declared = declarations.filter_map(|node| self.declared(node, symbol));
        // Names that are never assigned may have many references.
        let is_mutated = scoping.symbol_is_mutated(symbol);
        let references = is_mutated.then(|| self.semantic.symbol_references(symbol));
        let references = references.into_iter().flatten();
        let writes = references.filter(|one| one.is_write()).take(VALUES_MAX);
        let nodes = self.semantic.nodes();
        let assigned = writes.map(|write| match nodes.parent_kind(write.node_id()) {
            AstKind::AssignmentExpression(all) if all.operator.is_assign() => self.expression(&all.right),
            _ => Known::Unknown,
        });
        let mut values = declared.chain(assigned);
        let first = values.next().unwrap_or(Known::Unknown);
        values.fold(first, Known::or)
    }

    /// True if a name is declared once and never reassigned.
    pub(super) fn is_constant(&self, symbol: SymbolId) -> bool {
        let scoping = self.semantic.scoping();
        !scoping.symbol_is_mutated(symbol) && scoping.symbol_redeclarations(symbol).is_empty()
    }

    /// The value that a declaration assigns; `None` if it assigns none.
    fn declared(&self, node: NodeId, symbol: SymbolId) -> Option<Known<'a>> {
        let nodes = self.semantic.nodes();
        let imported = || Known::of_module(source(nodes.parent_kind(node)));
        Some(match nodes.kind(node) {
            AstKind::VariableDeclarator(declared) => match &declared.init {
                Some(init) => self.part(&declared.id, self.expression(init), symbol),
                None => match nodes.parent_kind(nodes.parent_id(node)) {
                    AstKind::ForOfStatement(_) | AstKind::ForInStatement(_) => Known::Unknown,
                    _ => return None,
                },
            },
            AstKind::Function(_) => Known::Function,
            AstKind::ImportSpecifier(import) => self.member_of(&imported(), &import.imported.name()),
            AstKind::ImportDefaultSpecifier(_) | AstKind::ImportNamespaceSpecifier(_) => imported(),
            kind => Known::of_module(source(kind)),
        })
    }

    /// The part of a value that a destructuring pattern binds to a name.
    fn part(&self, pattern: &'a BindingPattern<'a>, value: Known<'a>, symbol: SymbolId) -> Known<'a> {
        match pattern {
            BindingPattern::BindingIdentifier(_) => value,
            BindingPattern::AssignmentPattern(with_default) => self.part(&with_default.left, value, symbol),
            BindingPattern::ObjectPattern(object) => {
                let place = self.semantic.scoping().symbol_span(symbol);
                let mut properties = object.properties.iter();
                let property = properties.find(|one| one.value.span().contains_inclusive(place));
                property.map_or(Known::Unknown, |property| {
                    let inner = self.member_named(&value, &self.key(&property.key));
                    self.part(&property.value, inner, symbol)
                })
            }
            BindingPattern::ArrayPattern(_) => Known::Unknown,
        }
    }

    fn key(&self, key: &'a PropertyKey<'a>) -> Known<'a> {
        match key.as_expression() {
            Some(expression) => self.expression(expression),
            None => key
                .static_name()
                .map_or(Known::Unknown, |name| Known::Text(Rc::from(&*name))),
        }
    }

    pub(super) fn property(&self, member: &'a MemberExpression<'a>) -> Option<Rc<str>> {
        match member {
            MemberExpression::ComputedMemberExpression(member) => {
                self.resolve(&member.expression).constant().map(Rc::from)
            }
            member => member.static_property_name().map(Rc::from),
        }
    }

    fn static_member(&self, member: &'a StaticMemberExpression<'a>) -> Known<'a> {
        self.member_of(&self.expression(&member.object), &member.property.name)
    }

    fn computed_member(&self, member: &'a ComputedMemberExpression<'a>) -> Known<'a> {
        let object = self.expression(&member.object);
        if let (Known::List(all), Expression::NumericLiteral(index)) = (&object, &member.expression) {
            return all.get(index.value as usize).cloned().unwrap_or(Known::Unknown);
        }
        self.member_named(&object, &self.expression(&member.expression))
    }

    fn member_named(&self, object: &Known<'a>, name: &Known<'a>) -> Known<'a> {
        name.constant()
            .map_or(Known::Unknown, |name| self.member_of(object, name))
    }

    fn member_of(&self, object: &Known<'a>, name: &str) -> Known<'a> {
        match (object, name) {
            (Known::Path(path), name) => Known::Path(joined(path, name)),
            (Known::Function, "constructor") => Known::of_path("Function"),
            (Known::Function, "__proto__") => Known::of_path("Function.prototype"),
            (Known::Object(object), name) if self.option_of(object, name).is_some() => {
                self.optional(self.option_of(object, name))
            }
            // The `constructor` of any value is a function, whose own `constructor` is `Function`.
            (_, "constructor") => Known::Function,
            _ => Known::Unknown,
        }
    }

    fn option_of(&self, object: &'a ObjectExpression<'a>, name: &str) -> Option<&'a Expression<'a>> {
        let first = object.properties.iter().take(KEPT_MAX);
        let properties = first.filter_map(|one| one.as_property());
        let mut named = properties.filter(|one| self.key(&one.key).constant() == Some(name));
        named.next().map(|one| &one.value)
    }

    pub(super) fn option(&self, object: &'a Expression<'a>, name: &str) -> Option<&'a Expression<'a>> {
        match self.resolve(object) {
            Known::Object(object) => self.option_of(object, name),
            _ => None,
        }
    }

    /// True if an argument is a constant of the program itself.
    fn is_written_out(&self, argument: &'a Argument<'a>) -> bool {
        let expression = match argument {
            Argument::SpreadElement(spread) => &spread.argument,
            argument => argument.to_expression(),
        };
        match self.expression(expression) {
            Known::Text(text) => !text.contains(UNKNOWN),
            Known::List(_) | Known::Computed => true,
            Known::Path(path) => LISTS.decoders.contains(&&*path),
            _ => expression.is_literal(),
        }
    }

    fn result(&self, call: &'a CallExpression<'a>) -> Known<'a> {
        if returns_this(&call.callee) {
            return Known::of_path("globalThis");
        }
        let of = |argument: &'a Argument<'a>| self.optional(argument.as_expression());
        let mut arguments = call.arguments.iter().map(of);
        let is_constant = || call.arguments.iter().all(|one| self.is_written_out(one));
        if let Some(member) = call.callee.get_inner_expression().as_member_expression()
            && let Some(method) = member.static_property_name()
        {
            match (self.expression(member.object()), method) {
                (Known::Text(text), "split") => return Known::split(&text, arguments.next()),
                (Known::List(all), "reverse") => return Known::List(all.iter().rev().cloned().collect()),
                (Known::List(all), "join") => {
                    let between = arguments.next();
                    let between = between.as_ref().and_then(Known::constant).unwrap_or(",");
                    return Known::join(all.iter().cloned(), between);
                }
                (Known::Text(_) | Known::List(_) | Known::Computed, method)
                    if LISTS.text_methods.contains(&method) && is_constant() =>
                {
                    return Known::Computed;
                }
                _ => {}
            }
        }
        let callee = self.expression(&call.callee);
        let mut next = || arguments.next().unwrap_or(Known::Unknown);
        match callee.path().unwrap_or_default() {
            "" => Known::Unknown,
            "require" | "process.getBuiltinModule" | "node:module._load" => {
                Known::of_module(next().constant())
            }
            "node:module.createRequire" | "node:module.createRequireFromPath" => Known::of_path("require"),
            "node:util.promisify"
            | "node:util.callbackify"
            | "Object.freeze"
            | "Promise.resolve"
            | "String" => next(),
            "Object.getPrototypeOf" | "Reflect.getPrototypeOf" => match next() {
                Known::Function => Known::of_path("Function.prototype"),
                _ => Known::Unknown,
            },
            "Reflect.get" => self.member_named(&next(), &next()),
            "node:path.join" | "node:path.resolve" | "node:path/posix.join" => Known::join(arguments, "/"),
            path if LISTS.decoders.contains(&path) && is_constant() => Known::Computed,
            "node:os.homedir" => Known::of_text("~"),
            "node:os.tmpdir" => Known::of_text("/tmp"),
            path => path.strip_suffix(".bind").map_or(Known::Unknown, Known::of_path),
        }
    }
}

pub(super) fn source(kind: AstKind<'_>) -> Option<&str> {
    match kind {
        AstKind::ImportDeclaration(import) => Some(&import.source.value),
        AstKind::ExportFromDeclaration(export) => Some(&export.source.value),
        AstKind::ExportAllDeclaration(export) => Some(&export.source.value),
        AstKind::TSImportEqualsDeclaration(import) => match &import.module_reference {
            TSModuleReference::ExternalModuleReference(module) => Some(&module.expression.value),
            _ => None,
        },
        _ => None,
    }
}

/// `(function () { return this })()`
fn returns_this(callee: &Expression<'_>) -> bool {
    let Expression::FunctionExpression(function) = callee.get_inner_expression() else {
        return false;
    };
    let first = function.body.as_ref().and_then(|body| body.statements.first());
    matches!(first, Some(Statement::ReturnStatement(returned))
        if matches!(returned.argument, Some(Expression::ThisExpression(_))))
}
