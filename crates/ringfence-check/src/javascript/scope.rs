//! Which declaration a name means. Two passes over the list of nodes: the first collects what each scope declares, because a name
//! may be used before it is declared; the second keeps, for each name, the declarations that are in force.

use super::syntax::{Field, Id, Kind, Program};
use std::{borrow::Cow, collections::HashMap};

/// No declaration: a global name.
pub(super) const GLOBAL: u32 = u32::MAX;
/// `{a: {b: {c}}}`; deeper ones are not followed.
const KEYS_MAX: usize = 4;
/// Assignments that are followed.
const VALUES_MAX: usize = 4;

/// Where a name has its value from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Unknown,
    /// Expressions that are assigned to it.
    Values(Vec<Id>),
    /// A part of an expression: `const {a: [b]} = expression`.
    Part(Id, Vec<Key>),
    /// `import name from source` or `import * as name`; with the name there, if it is one of several.
    Import(Id, Option<Id>),
    /// A function, whose node it is.
    Function(Id),
}

#[derive(Clone, Debug)]
pub(super) enum Key {
    /// A node that names it: a property name, a text, or a computed expression.
    Name(Id),
    Index(usize),
}

#[derive(Debug)]
pub(super) struct Binding {
    name: u32,
    pub(super) origin: Origin,
    /// Something is done to it that is not followed.
    changed: bool,
}

pub(super) struct Scopes<'a> {
    pub(super) bindings: Vec<Binding>,
    /// By node: the binding that an identifier means, or [`GLOBAL`].
    meant: Vec<u32>,
    names: HashMap<Cow<'a, str>, u32>,
}

struct Scope {
    /// Whether `var` stays in it.
    holds_var: bool,
    bindings: Vec<u32>,
}

impl<'a> Scopes<'a> {
    pub(super) fn of(program: &Program<'a>) -> Self {
        let mut scopes = Self {
            bindings: Vec::new(),
            meant: Vec::new(),
            names: HashMap::new(),
        };
        let declared = scopes.declare_all(program);
        scopes.resolve_all(program, &declared);
        scopes
    }

    /// None: the name is global.
    pub(super) fn binding(&self, identifier: Id) -> Option<(u32, &Binding)> {
        let index = self.meant.get(identifier as usize).copied().unwrap_or(GLOBAL);
        self.bindings.get(index as usize).map(|binding| (index, binding))
    }

    /// Has it one value, from its declaration on.
    pub(super) fn is_constant(&self, identifier: Id) -> bool {
        self.binding(identifier).is_some_and(|(_, binding)| {
            !binding.changed && !matches!(&binding.origin, Origin::Values(values) if values.len() != 1)
        })
    }

    fn intern(&mut self, program: &Program<'a>, id: Id) -> u32 {
        let name = name_of(program.text(id));
        let next = u32::try_from(self.names.len()).unwrap_or(GLOBAL);
        *self.names.entry(name).or_insert(next)
    }

    fn declare_all(&mut self, program: &Program<'a>) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut open: Vec<(usize, Id)> = Vec::new();
        for id in program.ids() {
            while open.last().is_some_and(|(_, after)| *after <= id) {
                open.pop();
            }
            let kind = program.kind(id);
            // The name of a function or class is known where that stands.
            if let Kind::FunctionDeclaration | Kind::ClassDeclaration | Kind::Namespace = kind
                && let Some(name) = program.child(id, Field::Name)
            {
                let origin = match kind {
                    Kind::FunctionDeclaration => Origin::Function(id),
                    _ => Origin::Unknown,
                };
                let scope = open.last().map_or(0, |(scope, _)| *scope);
                self.declare(program, name, origin, &mut scopes, scope);
            }
            if opens_scope(kind) || id == 0 {
                open.push((scopes.len(), program.node(id).after));
                scopes.push(Scope {
                    holds_var: is_function(kind) || id == 0 || kind == Kind::Namespace,
                    bindings: Vec::new(),
                });
            }
            let scope = open.last().map_or(0, |(scope, _)| *scope);
            match kind {
                Kind::Declarator => {
                    let value = program.child(id, Field::Value);
                    let origin =
                        value.map_or(Origin::Values(Vec::new()), |value| Origin::Values(vec![value]));
                    let scope = match program.kind(program.node(id).parent) {
                        Kind::VarDeclaration => function_scope(&open, &scopes),
                        _ => scope,
                    };
                    if let Some(pattern) = program.child(id, Field::Name) {
                        self.declare(program, pattern, origin, &mut scopes, scope);
                    }
                }
                Kind::ForIn => self.declare_loop(program, id, &mut scopes, scope),
                Kind::Catch => {
                    if let Some(pattern) = program.child(id, Field::Parameter) {
                        self.declare(program, pattern, Origin::Unknown, &mut scopes, scope);
                    }
                }
                Kind::FunctionExpression | Kind::FunctionDeclaration | Kind::Arrow | Kind::Method => {
                    self.declare_parameters(program, id, &mut scopes, scope);
                }
                Kind::ImportStatement => self.declare_imports(program, id, &mut scopes, scope),
                _ => {}
            }
        }
        scopes
    }

    fn declare_loop(&mut self, program: &Program<'a>, id: Id, scopes: &mut [Scope], scope: usize) {
        // Without `const`, `let` or `var` it is an assignment.
        let declares = program.range(id).start;
        let left = program.child(id, Field::Left);
        let Some(left) = left else { return };
        let before = program
            .code
            .get(declares..program.range(left).start)
            .unwrap_or_default();
        if before.contains("const")
            || before.contains("let")
            || before.contains("var")
            || before.contains("using")
        {
            self.declare(program, left, Origin::Unknown, scopes, scope);
        }
    }

    fn declare_parameters(&mut self, program: &Program<'a>, id: Id, scopes: &mut [Scope], scope: usize) {
        if program.kind(id) == Kind::FunctionExpression
            && let Some(name) = program.child(id, Field::Name)
        {
            self.declare(program, name, Origin::Function(id), scopes, scope);
        }
        // `(function (a) { … })(value)`
        let values = called_at_once(program, id)
            .map(|call| program.arguments(call))
            .unwrap_or_default();
        let origin = |index: usize| match values.get(index) {
            Some(value) if program.kind(*value) != Kind::Spread => Origin::Values(vec![*value]),
            _ => Origin::Unknown,
        };
        if let Some(single) = program.child(id, Field::Parameter) {
            self.declare(program, single, origin(0), scopes, scope);
        }
        let Some(list) = program.child(id, Field::Parameters) else {
            return;
        };
        for (index, parameter) in program.children(list).enumerate() {
            let pattern = match program.kind(parameter) {
                Kind::TypedParameter => program.child(parameter, Field::Pattern),
                _ => Some(parameter),
            };
            if let Some(pattern) = pattern {
                self.declare(program, pattern, origin(index), scopes, scope);
            }
        }
    }

    fn declare_imports(&mut self, program: &Program<'a>, id: Id, scopes: &mut [Scope], scope: usize) {
        let mut source = program.child(id, Field::Source);
        let mut node = id + 1;
        while node < program.node(id).after {
            match program.kind(node) {
                Kind::ImportRequire => source = program.child(node, Field::Source),
                Kind::ImportSpecifier => {
                    let name = program.child(node, Field::Name);
                    let local = program.child(node, Field::Alias).or(name);
                    if let (Some(source), Some(local)) = (source, local) {
                        self.declare(program, local, Origin::Import(source, name), scopes, scope);
                    }
                    node = program.node(node).after;
                    continue;
                }
                Kind::Identifier => {
                    let source = source.or_else(|| program.child(program.node(node).parent, Field::Source));
                    if let Some(source) = source {
                        self.declare(program, node, Origin::Import(source, None), scopes, scope);
                    }
                }
                _ => {}
            }
            node += 1;
        }
    }

    /// Every name in a pattern.
    fn declare(
        &mut self,
        program: &Program<'a>,
        pattern: Id,
        origin: Origin,
        scopes: &mut [Scope],
        scope: usize,
    ) {
        let after = program.node(pattern).after;
        let mut id = pattern;
        while id < after {
            let kind = program.kind(id);
            match kind {
                Kind::Identifier | Kind::ShorthandPattern => {
                    let origin = match (&origin, id == pattern) {
                        (origin, true) => origin.clone(),
                        (Origin::Values(values), false) => part(program, values, pattern, id),
                        _ => Origin::Unknown,
                    };
                    let name = self.intern(program, id);
                    self.add(name, origin, &mut scopes[scope]);
                    id += 1;
                }
                // A default is no declaration.
                Kind::DefaultPattern => id = program.child(id, Field::Left).unwrap_or(program.node(id).after),
                Kind::PairPattern => id = program.child(id, Field::Value).unwrap_or(program.node(id).after),
                _ if id == pattern
                    || matches!(kind, Kind::ObjectPattern | Kind::ArrayPattern | Kind::RestPattern) =>
                {
                    id += 1
                }
                _ => id = program.node(id).after,
            }
            // What follows a name within a default is left out.
            while id < after
                && program.kind(program.node(id).parent) == Kind::DefaultPattern
                && program.node(id).field == Field::Right
            {
                id = program.node(id).after;
            }
        }
    }

    fn add(&mut self, name: u32, origin: Origin, scope: &mut Scope) {
        // `var a; var a;` is one; scopes have few names, or are programs whose names are seldom declared twice.
        let known = scope
            .bindings
            .iter()
            .rev()
            .take(64)
            .find(|index| self.bindings[**index as usize].name == name);
        if let Some(index) = known {
            let binding = &mut self.bindings[*index as usize];
            match (&mut binding.origin, origin) {
                (Origin::Values(values), Origin::Values(more)) => values.extend(more),
                (_, Origin::Values(more)) if more.is_empty() => {}
                (_, Origin::Unknown) => binding.changed = true,
                (known, origin) => *known = origin,
            }
            return;
        }
        scope
            .bindings
            .push(u32::try_from(self.bindings.len()).unwrap_or(GLOBAL));
        self.bindings.push(Binding {
            name,
            origin,
            changed: false,
        });
    }

    fn resolve_all(&mut self, program: &Program<'a>, declared: &[Scope]) {
        self.meant = vec![GLOBAL; program.nodes.len()];
        // By name: the bindings in force, the innermost last.
        let mut in_force: Vec<Vec<u32>> = vec![Vec::new(); self.names.len()];
        let mut open: Vec<(usize, Id)> = Vec::new();
        let mut next = 0;
        for id in program.ids() {
            while let Some((scope, after)) = open.last().copied()
                && after <= id
            {
                for binding in &declared[scope].bindings {
                    in_force[self.bindings[*binding as usize].name as usize].pop();
                }
                open.pop();
            }
            let kind = program.kind(id);
            if opens_scope(kind) || id == 0 {
                for binding in &declared[next].bindings {
                    in_force[self.bindings[*binding as usize].name as usize].push(*binding);
                }
                open.push((next, program.node(id).after));
                next += 1;
            }
            if let Kind::Identifier | Kind::ShorthandProperty | Kind::ShorthandPattern = kind {
                let name = self.names.get(name_of(program.text(id)).as_ref());
                let meant = name.and_then(|name| in_force[*name as usize].last().copied());
                self.meant[id as usize] = meant.unwrap_or(GLOBAL);
                if let Some(meant) = meant {
                    self.note_change(program, id, meant);
                }
            }
        }
    }

    /// An identifier that is assigned to.
    fn note_change(&mut self, program: &Program<'a>, id: Id, binding: u32) {
        let node = program.node(id);
        let parent = program.kind(node.parent);
        let binding = &mut self.bindings[binding as usize];
        match (parent, node.field) {
            (Kind::Assignment, Field::Left) => {
                match (&mut binding.origin, program.child(node.parent, Field::Right)) {
                    (Origin::Values(values), Some(right)) if values.len() < VALUES_MAX => values.push(right),
                    _ => binding.changed = true,
                }
            }
            (Kind::Augmented, Field::Left) | (Kind::Update, Field::Argument) => binding.changed = true,
            (Kind::ForIn, Field::Left) => binding.changed = true,
            (Kind::ArrayPattern | Kind::ObjectPattern | Kind::PairPattern | Kind::DefaultPattern, _) => {
                // A pattern that declares is met here, too; only one that assigns changes.
                let mut up = node.parent;
                for _ in 0..KEYS_MAX * 2 {
                    match program.kind(up) {
                        Kind::ArrayPattern
                        | Kind::ObjectPattern
                        | Kind::PairPattern
                        | Kind::DefaultPattern
                        | Kind::RestPattern => {
                            up = program.node(up).parent;
                        }
                        Kind::Assignment => return binding.changed = true,
                        _ => return,
                    }
                }
            }
            _ => {}
        }
    }
}

/// By which keys a name in a pattern takes its part of the value.
fn part(program: &Program<'_>, values: &[Id], pattern: Id, name: Id) -> Origin {
    let [value] = values else {
        return Origin::Unknown;
    };
    let mut keys = Vec::new();
    let mut id = name;
    while id != pattern {
        let node = program.node(id);
        let parent = node.parent;
        match program.kind(parent) {
            Kind::PairPattern => keys.extend(program.child(parent, Field::Key).map(Key::Name)),
            Kind::ObjectPattern if program.kind(id) == Kind::ShorthandPattern => keys.push(Key::Name(id)),
            Kind::ObjectPattern if program.kind(id) == Kind::DefaultPattern => {
                let left = program.child(id, Field::Left);
                keys.extend(
                    left.filter(|left| program.kind(*left) == Kind::ShorthandPattern)
                        .map(Key::Name),
                );
            }
            Kind::ArrayPattern => {
                // Empty places are not in the list, so that only the first is certain.
                let index = program.children(parent).position(|child| child == id);
                keys.extend(index.map(Key::Index));
            }
            Kind::ObjectPattern | Kind::DefaultPattern => {}
            _ => return Origin::Unknown,
        }
        if keys.len() > KEYS_MAX {
            return Origin::Unknown;
        }
        id = parent;
    }
    keys.reverse();
    Origin::Part(*value, keys)
}

/// The call whose function this is, if it is called where it is written.
fn called_at_once(program: &Program<'_>, function: Id) -> Option<Id> {
    let mut id = function;
    while let Kind::Parenthesized = program.kind(program.node(id).parent) {
        id = program.node(id).parent;
    }
    let parent = program.node(id).parent;
    (program.kind(parent) == Kind::Call && program.node(id).field == Field::Function).then_some(parent)
}

fn function_scope(open: &[(usize, Id)], scopes: &[Scope]) -> usize {
    let holds = open.iter().rev().find(|(scope, _)| scopes[*scope].holds_var);
    holds.map_or(0, |(scope, _)| *scope)
}

pub(super) fn is_function(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FunctionDeclaration | Kind::FunctionExpression | Kind::Arrow | Kind::Method
    )
}

fn opens_scope(kind: Kind) -> bool {
    is_function(kind)
        || matches!(
            kind,
            Kind::Block
                | Kind::For
                | Kind::ForIn
                | Kind::Catch
                | Kind::SwitchBody
                | Kind::Namespace
                | Kind::ClassExpression
        )
}

/// `\u0065val` is `eval`.
pub(super) fn name_of(text: &str) -> Cow<'_, str> {
    match text.contains('\\') {
        true => Cow::Owned(super::text::unescaped(text)),
        false => Cow::Borrowed(text),
    }
}
