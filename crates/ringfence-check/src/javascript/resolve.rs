//! What an expression is, as far as that is plain: a text, or a thing of the language or of Node.js by its path
//! (`eval`, `node:child_process.exec`), whatever names lead to it. Scopes, declarations and assignments are those of
//! `oxc_semantic`.

use super::names::{global, is_plain, joined, module};
use crate::unknown::UNKNOWN;
use oxc_ast::{
    AstKind,
    ast::{
        Argument, BinaryExpression, BinaryOperator, BindingPattern, CallExpression, ComputedMemberExpression,
        Expression, FormalParameter, IdentifierReference, MemberExpression, ObjectExpression, PropertyKey,
        Statement, StaticMemberExpression, TSModuleReference, TemplateLiteral,
    },
};
use oxc_semantic::{NodeId, Semantic, SymbolId};
use oxc_span::GetSpan;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

const DEPTH_MAX: u32 = 48;
/// Expressions that are looked at for one.
const STEPS_MAX: u32 = 400;
const TEXT_BYTES_MAX: usize = 4096;
/// Longer texts and lists of names are made again each time.
const KEPT_MAX: usize = 128;
const LIST_MAX: usize = 1024;
/// Assignments of a name that are followed.
const VALUES_MAX: usize = 4;

/// What an expression is.
#[derive(Clone)]
pub(super) enum Known<'a> {
    Unknown,
    /// Perhaps with [`UNKNOWN`] in it.
    Text(Rc<str>),
    List(Rc<[Known<'a>]>),
    /// A text that is computed from constants, which nothing computes here: `atob('…')`.
    Computed,
    /// A thing that every program can reach: `process.env`, `node:fs.rmSync`.
    Path(Rc<str>),
    /// A function of the program.
    Function,
    Object(&'a ObjectExpression<'a>),
    /// Of something that is not a function: its `constructor` makes functions.
    Class,
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

    /// A text of which every letter is known.
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

    fn of_list(items: impl Iterator<Item = Self>) -> Self {
        Self::List(items.take(LIST_MAX).collect())
    }

    /// Two values, of which it is one: what can be reached by either.
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

    fn push_to(&self, told: &mut String) {
        match self {
            Self::Text(text) => told.push_str(text),
            // Where the program stands is below the workspace.
            Self::Path(path) if matches!(&**path, "__dirname" | "import.meta.dirname") => told.push('.'),
            Self::Path(path) if &**path == "process.env.HOME" => told.push('~'),
            _ => told.push(UNKNOWN),
        }
    }
}

pub(super) struct Resolver<'p, 'a> {
    semantic: &'p Semantic<'a>,
    /// Of names; none: it is being found out, so that the name is defined by itself.
    values: RefCell<HashMap<SymbolId, Option<Known<'a>>>>,
    depth: Cell<u32>,
    steps: Cell<u32>,
}

impl<'p, 'a> Resolver<'p, 'a> {
    pub(super) fn of(semantic: &'p Semantic<'a>) -> Self {
        Self {
            semantic,
            values: RefCell::default(),
            depth: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    pub(super) fn know(&self, expression: &'a Expression<'a>) -> Known<'a> {
        self.steps.set(0);
        self.expression(expression)
    }

    /// Of nodes that no expression is around.
    pub(super) fn know_node(&self, node: AstKind<'a>) -> Known<'a> {
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
        self.steps.set(self.steps.get() + 1);
        if self.depth.get() >= DEPTH_MAX || self.steps.get() >= STEPS_MAX {
            self.steps.set(STEPS_MAX);
            return Known::Unknown;
        }
        self.depth.set(self.depth.get() + 1);
        let known = self.by_kind(expression.get_inner_expression());
        self.depth.set(self.depth.get() - 1);
        known
    }

    fn by_kind(&self, expression: &'a Expression<'a>) -> Known<'a> {
        match expression {
            Expression::Identifier(name) => self.name(name),
            Expression::StringLiteral(text) => Known::of_text(&text.value),
            Expression::TemplateLiteral(template) => self.template(template),
            Expression::SequenceExpression(all) => all
                .expressions
                .last()
                .map_or(Known::Unknown, |last| self.expression(last)),
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
            Expression::ArrayExpression(list) => Known::of_list(list.elements.iter().map(|element| {
                element
                    .as_expression()
                    .map_or(Known::Unknown, |element| self.expression(element))
            })),
            Expression::ObjectExpression(object) => Known::Object(object),
            Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_) => Known::Function,
            Expression::ClassExpression(_) => Known::Class,
            Expression::CallExpression(call) => self.result(call),
            Expression::ImportExpression(import) => self.module(&import.source),
            Expression::ImportMeta(_) => Known::of_path("import.meta"),
            Expression::ChainExpression(chain) => match chain.expression.as_member_expression() {
                Some(member) => self.member(member),
                None => Known::Unknown,
            },
            other => other
                .as_member_expression()
                .map_or(Known::Unknown, |member| self.member(member)),
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
        if parts.iter().all(|part| part.text().is_none()) {
            return Known::Unknown;
        }
        let mut told = String::new();
        parts.iter().for_each(|part| part.push_to(&mut told));
        Known::of_text(&told)
    }

    fn template(&self, template: &'a TemplateLiteral<'a>) -> Known<'a> {
        let mut told = String::new();
        for (index, quasi) in template.quasis.iter().enumerate() {
            told.push_str(quasi.value.cooked.as_deref().unwrap_or_default());
            match template.expressions.get(index).map(|hole| self.expression(hole)) {
                Some(Known::Computed) => return Known::Computed,
                Some(hole) => hole.push_to(&mut told),
                None => {}
            }
            if told.len() > TEXT_BYTES_MAX {
                return Known::Unknown;
            }
        }
        Known::of_text(&told)
    }

    /// What a name means; none: it is global.
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
        // What is too deep from here may be found from elsewhere.
        match is_long || self.steps.get() >= STEPS_MAX {
            true => drop(self.values.borrow_mut().remove(&symbol)),
            false => drop(self.values.borrow_mut().insert(symbol, Some(known.clone()))),
        }
        known
    }

    fn value(&self, symbol: SymbolId) -> Known<'a> {
        let scoping = self.semantic.scoping();
        let declared = scoping
            .symbol_declarations(symbol)
            .take(VALUES_MAX)
            .filter_map(|node| self.declared(node, symbol));
        let references = self.semantic.symbol_references(symbol);
        let assigned = references
            .filter(|reference| reference.is_write())
            .take(VALUES_MAX)
            .map(
                |reference| match self.semantic.nodes().parent_kind(reference.node_id()) {
                    AstKind::AssignmentExpression(assigned) if assigned.operator.is_assign() => {
                        self.expression(&assigned.right)
                    }
                    _ => Known::Unknown,
                },
            );
        declared
            .chain(assigned)
            .reduce(Known::or)
            .unwrap_or(Known::Unknown)
    }

    /// Has a name one value, from its declaration on.
    pub(super) fn is_constant(&self, symbol: SymbolId) -> bool {
        let scoping = self.semantic.scoping();
        !scoping.symbol_is_mutated(symbol) && scoping.symbol_redeclarations(symbol).is_empty()
    }

    /// The value that a declaration gives; none: it gives no value.
    fn declared(&self, node: NodeId, symbol: SymbolId) -> Option<Known<'a>> {
        let nodes = self.semantic.nodes();
        Some(match nodes.kind(node) {
            AstKind::VariableDeclarator(declared) => {
                let init = declared.init.as_ref();
                match init {
                    Some(init) => self.part(&declared.id, self.expression(init), symbol),
                    None if self.is_loop(nodes.parent_id(node)) => Known::Unknown,
                    None => return None,
                }
            }
            AstKind::FormalParameter(parameter) => match self.argument(node, parameter) {
                Some(argument) => self.part(&parameter.pattern, self.expression(argument), symbol),
                None => Known::Unknown,
            },
            AstKind::Function(_) => Known::Function,
            AstKind::ImportSpecifier(import) => match nodes.parent_kind(node) {
                AstKind::ImportDeclaration(all) => {
                    let module = Known::of_path(&module(&all.source.value));
                    self.member_of(&module, &import.imported.name())
                }
                _ => Known::Unknown,
            },
            AstKind::ImportDefaultSpecifier(_) | AstKind::ImportNamespaceSpecifier(_) => {
                match nodes.parent_kind(node) {
                    AstKind::ImportDeclaration(all) => Known::of_path(&module(&all.source.value)),
                    _ => Known::Unknown,
                }
            }
            AstKind::TSImportEqualsDeclaration(import) => match &import.module_reference {
                TSModuleReference::ExternalModuleReference(module_reference) => {
                    Known::of_path(&module(&module_reference.expression.value))
                }
                _ => Known::Unknown,
            },
            _ => Known::Unknown,
        })
    }

    fn is_loop(&self, declaration: NodeId) -> bool {
        matches!(
            self.semantic.nodes().parent_kind(declaration),
            AstKind::ForOfStatement(_) | AstKind::ForInStatement(_)
        )
    }

    /// `(function (a, b) { … })(value, value)`
    fn argument(&self, node: NodeId, parameter: &FormalParameter<'a>) -> Option<&'a Expression<'a>> {
        let nodes = self.semantic.nodes();
        let AstKind::FormalParameters(parameters) = nodes.parent_kind(node) else {
            return None;
        };
        let index = parameters
            .items
            .iter()
            .position(|one| one.span == parameter.span)?;
        let mut function = nodes.parent_id(nodes.parent_id(node));
        while let AstKind::ParenthesizedExpression(_) = nodes.parent_kind(function) {
            function = nodes.parent_id(function);
        }
        match nodes.parent_kind(function) {
            AstKind::CallExpression(call) if call.callee.span() == nodes.kind(function).span() => {
                call.arguments.get(index)?.as_expression()
            }
            _ => None,
        }
    }

    /// The part of a value that a pattern gives to a name.
    fn part(&self, pattern: &'a BindingPattern<'a>, value: Known<'a>, symbol: SymbolId) -> Known<'a> {
        let place = self.semantic.scoping().symbol_span(symbol);
        let holds = |part: &BindingPattern<'a>| part.span().contains_inclusive(place);
        match pattern {
            BindingPattern::BindingIdentifier(_) => value,
            BindingPattern::AssignmentPattern(with_default) => self.part(&with_default.left, value, symbol),
            BindingPattern::ObjectPattern(object) => {
                let property = object.properties.iter().find(|property| holds(&property.value));
                property.map_or(Known::Unknown, |property| {
                    let inner = match self.key(&property.key) {
                        Some(name) => self.member_of(&value, &name),
                        None => Known::Unknown,
                    };
                    self.part(&property.value, inner, symbol)
                })
            }
            BindingPattern::ArrayPattern(list) => {
                let index = list
                    .elements
                    .iter()
                    .position(|part| part.as_ref().is_some_and(holds));
                let item = match (index, &value) {
                    (Some(index), Known::List(all)) => all.get(index).cloned(),
                    _ => None,
                };
                match (item, index.and_then(|index| list.elements.get(index)?.as_ref())) {
                    (Some(item), Some(inner)) => self.part(inner, item, symbol),
                    _ => Known::Unknown,
                }
            }
        }
    }

    /// The name that a key stands for.
    fn key(&self, key: &'a PropertyKey<'a>) -> Option<Rc<str>> {
        match key.as_expression() {
            Some(expression) => self.expression(expression).constant().map(Rc::from),
            None => key.static_name().map(|name| Rc::from(name.as_ref())),
        }
    }

    fn member(&self, member: &'a MemberExpression<'a>) -> Known<'a> {
        match member {
            MemberExpression::StaticMemberExpression(member) => self.static_member(member),
            MemberExpression::ComputedMemberExpression(member) => self.computed_member(member),
            MemberExpression::PrivateFieldExpression(_) => Known::Unknown,
        }
    }

    /// The name of the property that is reached for.
    pub(super) fn property(&self, member: &'a MemberExpression<'a>) -> Option<Rc<str>> {
        match member {
            MemberExpression::ComputedMemberExpression(member) => {
                self.know(&member.expression).constant().map(Rc::from)
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
        match self.expression(&member.expression).constant() {
            Some(name) => self.member_of(&object, name),
            None => Known::Unknown,
        }
    }

    fn member_of(&self, object: &Known<'a>, name: &str) -> Known<'a> {
        match (object, name) {
            (Known::Path(path), name) => Known::Path(joined(path, name)),
            (Known::Object(object), name) => match self.option_of(object, name) {
                Some(value) => self.expression(value),
                None if name == "constructor" => Known::of_path("Object"),
                None => Known::Unknown,
            },
            (Known::Function | Known::Class, "constructor") => Known::of_path("Function"),
            (Known::Text(_), "constructor") => Known::of_path("String"),
            (Known::List(_), "constructor") => Known::of_path("Array"),
            (Known::Function, "__proto__") => Known::of_path("Function.prototype"),
            (_, "constructor") => Known::Class,
            _ => Known::Unknown,
        }
    }

    fn option_of(&self, object: &'a ObjectExpression<'a>, name: &str) -> Option<&'a Expression<'a>> {
        let mut properties = object
            .properties
            .iter()
            .take(KEPT_MAX)
            .filter_map(|one| one.as_property());
        properties
            .find(|one| self.key(&one.key).as_deref() == Some(name))
            .map(|one| &one.value)
    }

    /// The value of an option in an object literal.
    pub(super) fn option(&self, object: &'a Expression<'a>, name: &str) -> Option<&'a Expression<'a>> {
        match self.know(object) {
            Known::Object(object) => self.option_of(object, name),
            _ => None,
        }
    }

    fn module(&self, name: &'a Expression<'a>) -> Known<'a> {
        match self.expression(name).constant() {
            Some(name) => Known::of_path(&module(name)),
            None => Known::Unknown,
        }
    }

    /// Is an argument something that the program itself says.
    fn is_written_out(&self, argument: &'a Argument<'a>) -> bool {
        let expression = match argument {
            Argument::SpreadElement(spread) => &spread.argument,
            argument => match argument.as_expression() {
                Some(expression) => expression,
                None => return false,
            },
        };
        match self.expression(expression) {
            Known::Text(text) => !text.contains(UNKNOWN),
            Known::List(_) | Known::Computed => true,
            Known::Path(path) => DECODERS.contains(&&*path),
            _ => expression.is_literal(),
        }
    }

    fn result(&self, call: &'a CallExpression<'a>) -> Known<'a> {
        if returns_this(&call.callee) {
            return Known::of_path("globalThis");
        }
        let mut arguments = call.arguments.iter().map(|argument| {
            argument
                .as_expression()
                .map_or(Known::Unknown, |argument| self.expression(argument))
        });
        let mut next = || arguments.next().unwrap_or(Known::Unknown);
        let is_constant = || {
            call.arguments
                .iter()
                .all(|argument| self.is_written_out(argument))
        };
        if let Some(member) = call.callee.get_inner_expression().as_member_expression()
            && let Some(method) = member.static_property_name()
        {
            match (self.expression(member.object()), method) {
                (Known::Text(text), "split") => return split(&text, &next()),
                (Known::List(all), "reverse") => return Known::of_list(all.iter().rev().cloned()),
                (Known::List(all), "join") => return join(all.iter().cloned(), next().constant()),
                (Known::Text(_) | Known::List(_) | Known::Computed, method)
                    if CHANGES.contains(&method) && is_constant() =>
                {
                    return Known::Computed;
                }
                _ => {}
            }
        }
        let callee = self.expression(&call.callee);
        let Some(path) = callee.path() else {
            return Known::Unknown;
        };
        match path {
            "require" | "process.getBuiltinModule" | "node:module._load" => match next().constant() {
                Some(name) => Known::of_path(&module(name)),
                None => Known::Unknown,
            },
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
            "Reflect.get" => match (next(), next().constant()) {
                (object, Some(name)) => self.member_of(&object, name),
                _ => Known::Unknown,
            },
            "node:path.join" | "node:path.resolve" | "node:path/posix.join" => join(arguments, Some("/")),
            path if DECODERS.contains(&path) && is_constant() => Known::Computed,
            "node:os.homedir" => Known::of_text("~"),
            "node:os.tmpdir" => Known::of_text("/tmp"),
            path => path.strip_suffix(".bind").map_or(Known::Unknown, Known::of_path),
        }
    }
}

/// Methods that make a text of a text or a list.
#[rustfmt::skip]
const CHANGES: &[&str] = &[
    "at", "charAt", "concat", "join", "map", "padEnd", "padStart", "repeat", "replace", "replaceAll", "reverse", "slice", "split",
    "substr", "substring", "toLowerCase", "toString", "toUpperCase", "trim",
];
/// Functions that make a text of what is encoded.
#[rustfmt::skip]
pub(super) const DECODERS: &[&str] = &[
    "Buffer.from", "String.fromCharCode", "String.fromCodePoint", "atob", "decodeURI", "decodeURIComponent",
    "node:buffer.Buffer.from", "unescape",
];

fn split<'a>(text: &str, separator: &Known<'a>) -> Known<'a> {
    match separator.constant() {
        Some("") => Known::of_list(
            text.chars()
                .map(|letter| Known::of_text(letter.encode_utf8(&mut [0; 4]))),
        ),
        Some(separator) => Known::of_list(text.split(separator).map(Known::of_text)),
        None => Known::Unknown,
    }
}

/// The parts as one text; of a path, no separator follows another.
fn join<'a>(parts: impl Iterator<Item = Known<'a>>, between: Option<&str>) -> Known<'a> {
    let mut told = String::new();
    for (index, part) in parts.enumerate() {
        let between = between.unwrap_or(",");
        if index > 0 && !(between == "/" && told.ends_with('/')) {
            told.push_str(between);
        }
        part.push_to(&mut told);
        if told.len() > TEXT_BYTES_MAX {
            return Known::Unknown;
        }
    }
    Known::of_text(&told)
}

/// `(function () { return this })()`
fn returns_this(callee: &Expression<'_>) -> bool {
    let Expression::FunctionExpression(function) = callee.get_inner_expression() else {
        return false;
    };
    let first = function.body.as_ref().and_then(|body| body.statements.first());
    matches!(first, Some(Statement::ReturnStatement(told))
        if matches!(told.argument, Some(Expression::ThisExpression(_))))
}
