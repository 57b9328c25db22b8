//! The tree of a program in one list, in the order of the text: a node, then what is in it. tree-sitter's own nodes know their
//! children only by counting; rules go up and down all the time. Types of TypeScript are left out: they do nothing.

use crate::tree;
use std::{ops::Range, sync::OnceLock, time::Duration};
use tree_sitter::{Language, Tree};

/// Of 1 MiB there are at most twice as many.
const NODES_MAX: usize = 2_000_000;
const PARSING_MAX: Duration = Duration::from_secs(2);

/// Which grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    JavaScript,
    TypeScript,
    Tsx,
}

/// What rules ask for; everything else is [`Kind::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Other,
    /// Left out with everything in it.
    Type,
    /// Left out.
    Sign,
    Identifier,
    PropertyName,
    ShorthandProperty,
    ShorthandPattern,
    Text,
    Template,
    TemplateHole,
    Number,
    Literal,
    /// `import.meta`
    Meta,
    Object,
    Array,
    Pair,
    PairPattern,
    ObjectPattern,
    ArrayPattern,
    DefaultPattern,
    RestPattern,
    Spread,
    Computed,
    Member,
    Subscript,
    Call,
    New,
    Await,
    Parenthesized,
    Sequence,
    Binary,
    Unary,
    Update,
    Assignment,
    Augmented,
    Ternary,
    FunctionDeclaration,
    FunctionExpression,
    Arrow,
    Method,
    ClassDeclaration,
    ClassExpression,
    Parameters,
    TypedParameter,
    Arguments,
    Block,
    SwitchBody,
    Case,
    If,
    For,
    ForIn,
    While,
    Catch,
    Return,
    VarDeclaration,
    LexicalDeclaration,
    Declarator,
    ImportCall,
    ImportStatement,
    ImportClause,
    ImportSpecifier,
    NamespaceImport,
    ImportRequire,
    Export,
    This,
    Jsx,
    /// `x as T`, `x!`
    Typed,
    Namespace,
    And,
    Or,
    Nullish,
    Plus,
    Typeof,
    Delete,
    /// `&&=`, `||=`, `??=`
    Decides,
}

/// The role of a node in the one that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    None,
    Name,
    Value,
    Left,
    Right,
    Object,
    Property,
    Index,
    Function,
    Arguments,
    Parameters,
    Parameter,
    Body,
    Key,
    Source,
    Operator,
    Argument,
    Alias,
    Pattern,
    Keyword,
    Consequence,
    Alternative,
}

pub(super) type Id = u32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) field: Field,
    pub(super) parent: Id,
    /// The first node after it that is not in it.
    pub(super) after: Id,
    start: u32,
    end: u32,
}

pub(super) struct Program<'a> {
    pub(super) code: &'a str,
    pub(super) nodes: Vec<Node>,
}

/// What reading leads to.
pub(super) struct Reading<'a> {
    pub(super) program: Program<'a>,
    pub(super) faults: Vec<tree::Fault>,
    pub(super) cut: Cut,
}

/// None: it took too long.
pub(super) fn read(code: &str, grammar: Grammar) -> Option<Reading<'_>> {
    let table = Table::of(grammar);
    let tree = tree::parse(&table.language, code, PARSING_MAX)?;
    let faults = tree::faults(&tree);
    let (nodes, cut) = table.flatten(&tree, code.len());
    let program = Program { code, nodes };
    Some(Reading { program, faults, cut })
}

struct Table {
    language: Language,
    kinds: Vec<Kind>,
    fields: Vec<Field>,
}

impl Table {
    fn of(grammar: Grammar) -> &'static Self {
        static TABLES: [OnceLock<Table>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        let (table, language) = match grammar {
            Grammar::JavaScript => (&TABLES[0], tree_sitter_javascript::LANGUAGE),
            Grammar::TypeScript => (&TABLES[1], tree_sitter_typescript::LANGUAGE_TYPESCRIPT),
            Grammar::Tsx => (&TABLES[2], tree_sitter_typescript::LANGUAGE_TSX),
        };
        table.get_or_init(|| Self::new(language.into()))
    }

    fn new(language: Language) -> Self {
        let kind = |id: usize| {
            let id = u16::try_from(id).unwrap_or(u16::MAX);
            let name = language.node_kind_for_id(id).unwrap_or_default();
            match language.node_kind_is_named(id) {
                true => named_kind(name),
                false => sign_kind(name),
            }
        };
        let field = |id: usize| {
            let id = u16::try_from(id).unwrap_or(u16::MAX);
            field_of(language.field_name_for_id(id).unwrap_or_default())
        };
        Self {
            kinds: (0..language.node_kind_count()).map(kind).collect(),
            fields: (0..=language.field_count()).map(field).collect(),
            language,
        }
    }

    fn flatten(&self, tree: &Tree, bytes: usize) -> (Vec<Node>, Cut) {
        let mut nodes: Vec<Node> = Vec::with_capacity((bytes / 4).min(NODES_MAX));
        // Nodes that the cursor is in.
        let mut open: Vec<Id> = Vec::new();
        let mut cursor = tree.walk();
        let length = |nodes: &[Node]| Id::try_from(nodes.len()).unwrap_or(Id::MAX);
        let cut = 'walk: loop {
            let node = cursor.node();
            let kind = self
                .kinds
                .get(usize::from(node.kind_id()))
                .copied()
                .unwrap_or(Kind::Other);
            if !matches!(kind, Kind::Type | Kind::Sign) {
                if nodes.len() >= NODES_MAX {
                    break Cut::Yes;
                }
                let id = length(&nodes);
                let field = cursor.field_id().map_or(0, |field| usize::from(field.get()));
                nodes.push(Node {
                    kind,
                    field: self.fields.get(field).copied().unwrap_or(Field::None),
                    parent: open.last().copied().unwrap_or(0),
                    after: id + 1,
                    start: u32::try_from(node.start_byte()).unwrap_or(u32::MAX),
                    end: u32::try_from(node.end_byte()).unwrap_or(u32::MAX),
                });
                if kind != Kind::Text && cursor.goto_first_child() {
                    open.push(id);
                    continue;
                }
            }
            while !cursor.goto_next_sibling() {
                let Some(id) = open.pop() else {
                    break 'walk Cut::No;
                };
                nodes[id as usize].after = length(&nodes);
                cursor.goto_parent();
            }
        };
        for id in open {
            nodes[id as usize].after = length(&nodes);
        }
        (nodes, cut)
    }
}

/// Is there more than was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Yes,
    No,
}

impl<'a> Program<'a> {
    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn kind(&self, id: Id) -> Kind {
        self.node(id).kind
    }

    pub(super) fn ids(&self) -> Range<Id> {
        0..Id::try_from(self.nodes.len()).unwrap_or(Id::MAX)
    }

    /// Of nodes within each other.
    pub(super) fn depth(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            depths.push(depths.get(node.parent as usize).map_or(0, |depth| depth + 1));
        }
        depths.into_iter().max().unwrap_or(0)
    }

    pub(super) fn range(&self, id: Id) -> Range<usize> {
        let node = self.node(id);
        node.start as usize..node.end as usize
    }

    pub(super) fn text(&self, id: Id) -> &'a str {
        self.code.get(self.range(id)).unwrap_or_default()
    }

    pub(super) fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        let after = self.node(id).after;
        let mut next = id + 1;
        std::iter::from_fn(move || {
            let child = next;
            (child < after).then(|| {
                next = self.node(child).after;
                child
            })
        })
    }

    pub(super) fn child(&self, id: Id, field: Field) -> Option<Id> {
        self.children(id).find(|child| self.node(*child).field == field)
    }

    /// The arguments of a call, in order; a template is none.
    pub(super) fn arguments(&self, call: Id) -> Vec<Id> {
        match self.child(call, Field::Arguments) {
            Some(list) if self.kind(list) == Kind::Arguments => self
                .children(list)
                .filter(|id| self.kind(*id) != Kind::Other)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The expression without parentheses and types around it.
    pub(super) fn bare(&self, id: Id) -> Id {
        let mut id = id;
        while let Kind::Parenthesized | Kind::Typed = self.kind(id) {
            match self.children(id).next() {
                Some(inner) => id = inner,
                None => break,
            }
        }
        id
    }
}

fn sign_kind(name: &str) -> Kind {
    match name {
        "&&" => Kind::And,
        "||" => Kind::Or,
        "??" => Kind::Nullish,
        "+" => Kind::Plus,
        "typeof" => Kind::Typeof,
        "delete" => Kind::Delete,
        "&&=" | "||=" | "??=" => Kind::Decides,
        _ => Kind::Sign,
    }
}

fn named_kind(name: &str) -> Kind {
    match name {
        "comment" | "optional_chain" | "escape_sequence" | "string_fragment" | "hash_bang_line" => Kind::Sign,
        "identifier" | "undefined" | "type_identifier" => Kind::Identifier,
        "property_identifier" | "private_property_identifier" | "statement_identifier" => Kind::PropertyName,
        "shorthand_property_identifier" => Kind::ShorthandProperty,
        "shorthand_property_identifier_pattern" => Kind::ShorthandPattern,
        "string" => Kind::Text,
        "template_string" => Kind::Template,
        "template_substitution" => Kind::TemplateHole,
        "number" => Kind::Number,
        "regex" | "true" | "false" | "null" | "super" => Kind::Literal,
        "meta_property" => Kind::Meta,
        "object" => Kind::Object,
        "array" => Kind::Array,
        "pair" => Kind::Pair,
        "pair_pattern" => Kind::PairPattern,
        "object_pattern" => Kind::ObjectPattern,
        "array_pattern" => Kind::ArrayPattern,
        "assignment_pattern" | "object_assignment_pattern" => Kind::DefaultPattern,
        "rest_pattern" => Kind::RestPattern,
        "spread_element" => Kind::Spread,
        "computed_property_name" => Kind::Computed,
        "member_expression" => Kind::Member,
        "subscript_expression" => Kind::Subscript,
        "call_expression" => Kind::Call,
        "new_expression" => Kind::New,
        "await_expression" => Kind::Await,
        "parenthesized_expression" => Kind::Parenthesized,
        "sequence_expression" => Kind::Sequence,
        "binary_expression" => Kind::Binary,
        "unary_expression" => Kind::Unary,
        "update_expression" => Kind::Update,
        "assignment_expression" => Kind::Assignment,
        "augmented_assignment_expression" => Kind::Augmented,
        "ternary_expression" => Kind::Ternary,
        "this" => Kind::This,
        "jsx_element" | "jsx_self_closing_element" => Kind::Jsx,
        "as_expression"
        | "satisfies_expression"
        | "non_null_expression"
        | "type_assertion"
        | "instantiation_expression" => Kind::Typed,
        name => statement_kind(name),
    }
}

fn statement_kind(name: &str) -> Kind {
    match name {
        "function_declaration" | "generator_function_declaration" => Kind::FunctionDeclaration,
        "function_expression" | "generator_function" => Kind::FunctionExpression,
        "arrow_function" => Kind::Arrow,
        "method_definition" => Kind::Method,
        "class_declaration" | "abstract_class_declaration" => Kind::ClassDeclaration,
        "class" => Kind::ClassExpression,
        "formal_parameters" => Kind::Parameters,
        "required_parameter" | "optional_parameter" => Kind::TypedParameter,
        "arguments" => Kind::Arguments,
        "statement_block" | "class_static_block" => Kind::Block,
        "switch_body" => Kind::SwitchBody,
        "switch_case" => Kind::Case,
        "if_statement" => Kind::If,
        "for_statement" => Kind::For,
        "for_in_statement" => Kind::ForIn,
        "while_statement" | "do_statement" => Kind::While,
        "catch_clause" => Kind::Catch,
        "return_statement" => Kind::Return,
        "variable_declaration" => Kind::VarDeclaration,
        "lexical_declaration" | "using_declaration" => Kind::LexicalDeclaration,
        "variable_declarator" => Kind::Declarator,
        "import" => Kind::ImportCall,
        "import_statement" => Kind::ImportStatement,
        "import_clause" => Kind::ImportClause,
        "import_specifier" => Kind::ImportSpecifier,
        "namespace_import" => Kind::NamespaceImport,
        "import_require_clause" => Kind::ImportRequire,
        "export_statement" => Kind::Export,
        "internal_module" | "enum_declaration" => Kind::Namespace,
        "type_annotation"
        | "type_arguments"
        | "type_parameters"
        | "interface_declaration"
        | "type_alias_declaration"
        | "implements_clause"
        | "ambient_declaration"
        | "function_signature"
        | "method_signature"
        | "abstract_method_signature"
        | "index_signature"
        | "accessibility_modifier"
        | "override_modifier"
        | "asserts_annotation"
        | "type_predicate_annotation"
        | "predefined_type"
        | "generic_type"
        | "union_type"
        | "intersection_type"
        | "array_type"
        | "object_type"
        | "literal_type"
        | "type_query"
        | "tuple_type"
        | "function_type"
        | "constructor_type"
        | "conditional_type"
        | "lookup_type"
        | "index_type_query"
        | "nested_type_identifier"
        | "parenthesized_type"
        | "readonly_type"
        | "template_literal_type"
        | "this_type"
        | "existential_type"
        | "flow_maybe_type"
        | "infer_type" => Kind::Type,
        _ => Kind::Other,
    }
}

fn field_of(name: &str) -> Field {
    match name {
        "name" => Field::Name,
        "value" => Field::Value,
        "left" => Field::Left,
        "right" => Field::Right,
        "object" => Field::Object,
        "property" => Field::Property,
        "index" => Field::Index,
        "function" | "constructor" => Field::Function,
        "arguments" => Field::Arguments,
        "parameters" => Field::Parameters,
        "parameter" => Field::Parameter,
        "body" => Field::Body,
        "key" => Field::Key,
        "source" => Field::Source,
        "operator" => Field::Operator,
        "argument" => Field::Argument,
        "alias" => Field::Alias,
        "pattern" => Field::Pattern,
        "kind" => Field::Keyword,
        "consequence" => Field::Consequence,
        "alternative" => Field::Alternative,
        _ => Field::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(code: &str, grammar: Grammar) -> String {
        let program = read(code, grammar).unwrap().program;
        let mut told = String::new();
        for id in program.ids() {
            let node = program.node(id);
            assert!(node.after > id && node.after as usize <= program.nodes.len());
            assert!(id == 0 || node.parent < id);
            let inside: Vec<String> = program.children(id).map(|child| child.to_string()).collect();
            told.push_str(&format!("{:?}[{}] ", node.kind, inside.join(",")));
        }
        told.trim_end().to_owned()
    }

    #[test]
    fn a_tree_is_a_list_with_ends() {
        assert_eq!(
            outline("f(1, a.b); g", Grammar::JavaScript),
            "Other[1,9] Other[2] Call[3,4] Identifier[] Arguments[5,6] Number[] Member[7,8] Identifier[] PropertyName[] \
             Other[10] Identifier[]"
        );
        assert_eq!(
            outline("let a: {b: c} = d as E<f>", Grammar::TypeScript),
            "Other[1] LexicalDeclaration[2] Declarator[3,4] Identifier[] Typed[5] Identifier[]"
        );
    }

    #[test]
    fn a_deep_tree_is_a_list_too() {
        let code = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let reading = read(&code, Grammar::JavaScript).unwrap();
        assert_eq!(reading.program.nodes.len(), 50_002);
        assert_eq!(reading.cut, Cut::No);
    }
}
