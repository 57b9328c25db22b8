//! Visits each node of a program once: calls, functions passed on, assignments, and literal texts.

use super::{
    effects::{Effect, effect},
    names::{is_shared_class, module},
    resolve::{Known, Resolver, source},
    rules,
};
use crate::{
    credentials::{self, Secret},
    domains,
    rule::{Checked, Finding, Rule},
    unknown::{UNKNOWN, shown},
};
use oxc_ast::{
    AstKind,
    ast::{AssignmentExpression, BindingPattern, Expression},
};
use oxc_semantic::{AstNode, NodeId, Semantic};
use oxc_span::{GetSpan, Span};
use regex::Regex;
use ringfence_types::{
    Analysis,
    Severity::{self, Info},
};
use std::{cmp::Reverse, collections::HashSet, ops::Range, sync::LazyLock};

/// Number of names like `_0x3f2a` from which on a program counts as obfuscated by a tool.
const HEX_NAMES_MIN: usize = 6;
/// Number of letters written as escapes, in one literal, from which on it counts as obfuscated.
const HIDDEN_LETTERS_MIN: usize = 12;

pub(super) struct Visit<'p, 'a> {
    semantic: &'p Semantic<'a>,
    pub(super) resolver: Resolver<'p, 'a>,
    pub(super) checked: Checked,
    hex_names: HashSet<&'a str>,
    hex_name: Span,
    /// Calls that decode texts, in reverse order of the text.
    pub(super) decoders: Vec<Span>,
    /// A call that makes a connection, and one that starts a shell without a command.
    pub(super) connection: Option<Span>,
    pub(super) shell: Option<Span>,
}

pub(super) fn visit(semantic: &Semantic<'_>) -> Checked {
    let mut visit = Visit {
        semantic,
        resolver: Resolver::of(semantic),
        checked: Checked::default(),
        hex_names: HashSet::new(),
        hex_name: Span::default(),
        decoders: Vec::new(),
        connection: None,
        shell: None,
    };
    let nodes: Vec<&AstNode<'_>> = semantic.nodes().iter().collect();
    // Inner nodes come first: of two findings at one place theirs is the plainer one.
    for node in nodes.into_iter().rev() {
        visit.node(node.id(), node.kind());
        count(node.kind(), &mut visit.checked.analysis);
    }
    visit.finish();
    let mut checked = visit.checked;
    // `require('x').y()` begins where `require('x')` does; the more severe finding is kept, or else the plainer one.
    let findings = &mut checked.findings;
    findings.sort_by_key(|found| (found.range.start, found.rule.id, Reverse(found.severity)));
    findings.dedup_by_key(|found| (found.range.start, found.rule.id));
    checked
}

impl<'a> Visit<'_, 'a> {
    pub(super) fn add(&mut self, span: Span, rule: &'static Rule, what: impl Into<String>) {
        self.add_as(span, rule, rule.severity, what);
    }

    pub(super) fn add_as(
        &mut self,
        span: Span,
        rule: &'static Rule,
        severity: Severity,
        what: impl Into<String>,
    ) {
        let finding = Finding::new(rule, range(span), what).with_severity(severity);
        self.checked.findings.push(finding);
    }

    pub(super) fn written(&self, span: Span) -> &'a str {
        self.semantic.source_text().get(range(span)).unwrap_or_default()
    }

    fn node(&mut self, id: NodeId, kind: AstKind<'a>) {
        match kind {
            AstKind::CallExpression(call) => self.call(call.span, &call.callee, &call.arguments),
            AstKind::NewExpression(new) => self.call(new.span, &new.callee, &new.arguments),
            AstKind::TaggedTemplateExpression(tagged) => self.call(tagged.span, &tagged.tag, &[]),
            AstKind::ImportExpression(import) => self.loaded(import.span, "import", Some(&import.source)),
            AstKind::IdentifierReference(name) => {
                self.identifier(name.span, &name.name);
                // Of global names, `passed_on` reports only `eval`.
                if self.resolver.symbol(name).is_some() || name.name == "eval" {
                    self.passed_on(id, kind);
                }
            }
            AstKind::BindingIdentifier(name) => self.identifier(name.span, &name.name),
            AstKind::IdentifierName(name) => self.escaped_name(name.span, &name.name),
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_) => {
                self.passed_on(id, kind)
            }
            AstKind::AssignmentExpression(assigned) => self.assignment(assigned),
            AstKind::StringLiteral(_) | AstKind::TemplateLiteral(_) => self.literal(kind),
            AstKind::BinaryExpression(_) => {
                let around = self.semantic.nodes().parent_kind(id);
                if !matches!(around, AstKind::BinaryExpression(_))
                    && let Known::Text(text) = self.resolver.resolve_node(kind)
                {
                    self.text(kind.span(), &text);
                }
            }
            AstKind::ObjectProperty(pair) => {
                if let Some("host" | "hostname") = pair.key.static_name().as_deref() {
                    self.add_host(&pair.value);
                }
            }
            kind => {
                if let Some(source) = source(kind) {
                    self.imported(kind.span(), source);
                }
            }
        }
    }

    fn identifier(&mut self, span: Span, name: &'a str) {
        self.escaped_name(span, name);
        let digits = name.strip_prefix("_0x").or_else(|| name.strip_prefix("a0_0x"));
        if digits.is_some_and(|digits| digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_hexdigit())) {
            self.hex_names.insert(name);
            self.hex_name = span;
        }
    }

    fn escaped_name(&mut self, span: Span, name: &str) {
        let written = self.written(span);
        if written.contains('\\') && name.is_ascii() {
            self.add(span, &rules::OBFUSCATION, format!("`{written}` is `{name}`"));
        }
    }

    /// Records the host of a connection, if it is known.
    pub(super) fn add_host(&mut self, host: &'a Expression<'a>) {
        if let Known::Text(text) = self.resolver.resolve(host) {
            domains::of_address(&text, &mut self.checked.hosts);
        }
    }

    pub(super) fn imported(&mut self, span: Span, name: &str) {
        self.checked.imports.insert(name.to_owned());
        if name.ends_with(".node") {
            self.add(span, &rules::NATIVE, format!("`{name}` is native code"));
        }
        if name.starts_with("data:") || name.starts_with("blob:") {
            self.add(span, &rules::DYNAMIC_EXECUTION, "a text is loaded as a module");
        }
        if let Effect::Tell(rule, severity, what) = effect(&format!("{}.<loaded>", module(name))) {
            self.add_as(span, rule, severity, format!("`{name}` {what}"));
        }
    }

    /// Reports a dangerous function that is passed on as a value.
    fn passed_on(&mut self, id: NodeId, kind: AstKind<'a>) {
        if self.is_reported_elsewhere(id) {
            return;
        }
        let known = self.resolver.resolve_node(kind);
        let Some(path) = known.path() else {
            return;
        };
        let rule = match effect(path) {
            Effect::Execute if path == "eval" || path.starts_with("node:vm.") => &rules::DYNAMIC_EXECUTION,
            Effect::Start => &rules::CHILD_PROCESS,
            Effect::Tell(rule, ..) if rule.id == rules::NATIVE.id && path.starts_with("process.") => rule,
            _ => return,
        };
        let what = format!("`{}` is passed on", path.trim_start_matches("node:"));
        self.add(kind.span(), rule, what);
    }

    /// True if reported elsewhere (callee, part of a longer path, value of a constant), assigned, or in a `typeof`.
    fn is_reported_elsewhere(&self, id: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        let mut at = id;
        while let AstKind::ParenthesizedExpression(_)
        | AstKind::SequenceExpression(_)
        | AstKind::ChainExpression(_)
        | AstKind::TSAsExpression(_)
        | AstKind::TSSatisfiesExpression(_)
        | AstKind::TSNonNullExpression(_)
        | AstKind::TSTypeAssertion(_) = nodes.parent_kind(at)
        {
            at = nodes.parent_id(at);
        }
        let is = |part: Span| part == nodes.kind(at).span();
        match nodes.parent_kind(at) {
            AstKind::CallExpression(call) => is(call.callee.span()),
            AstKind::NewExpression(new) => is(new.callee.span()),
            AstKind::TaggedTemplateExpression(tagged) => is(tagged.tag.span()),
            AstKind::StaticMemberExpression(member) if at == id => is(member.object.span()),
            AstKind::ComputedMemberExpression(member) if at == id => is(member.object.span()),
            AstKind::VariableDeclarator(declared) if at == id => match &declared.id {
                BindingPattern::BindingIdentifier(name) => self.resolver.is_constant(name.symbol_id()),
                _ => true,
            },
            AstKind::AssignmentExpression(assigned) if at == id => is(assigned.left.span()),
            AstKind::UnaryExpression(unary) if at == id => unary.operator.is_typeof(),
            _ => false,
        }
    }

    fn assignment(&mut self, assigned: &'a AssignmentExpression<'a>) {
        let Some(member) = assigned.left.as_member_expression() else {
            return;
        };
        let rule = &rules::PROTOTYPE_POLLUTION;
        if let Some(shared) = self.shared_prototype(member.object()) {
            self.add(assigned.span, rule, format!("`{shared}` is changed"));
        } else if self.resolver.property(member).as_deref() == Some("__proto__") {
            self.add_as(assigned.span, rule, Info, "`__proto__` is set");
        }
    }

    /// Matches `x.__proto__`, `x.constructor.prototype`, `Object.prototype`, `Array.prototype`.
    pub(super) fn shared_prototype(&self, expression: &'a Expression<'a>) -> Option<String> {
        let expression = expression.get_inner_expression();
        let is_shared = |class| self.resolver.resolve(class).path().is_some_and(is_shared_class);
        let Some(member) = expression.as_member_expression() else {
            let known = self.resolver.resolve(expression);
            let class = known.path()?.strip_suffix(".prototype")?;
            return is_shared_class(class).then(|| format!("{class}.prototype"));
        };
        let object = member.object().get_inner_expression();
        let shared = match self.resolver.property(member)?.as_ref() {
            "__proto__" => true,
            "prototype" => {
                let inner = object.as_member_expression();
                let inner = inner.and_then(|inner| self.resolver.property(inner));
                inner.as_deref() == Some("constructor") || is_shared(object)
            }
            _ => false,
        };
        shared.then(|| shown(self.written(expression.span())))
    }

    fn literal(&mut self, kind: AstKind<'a>) {
        let written = self.written(kind.span());
        if hidden_letters(written) >= HIDDEN_LETTERS_MIN {
            self.add(kind.span(), &rules::OBFUSCATION, "letters are written as numbers");
        }
        if written.len() < 6 {
            return;
        }
        match self.resolver.resolve_node(kind) {
            Known::Text(text) => self.text(kind.span(), &text),
            // Longer than the resolver keeps.
            _ => domains::of(written, &mut self.checked.hosts),
        }
    }

    fn text(&mut self, span: Span, text: &str) {
        domains::of(text, &mut self.checked.hosts);
        if credentials::secret_at(&text.replace(UNKNOWN, "~")) == Some(Secret::Certain) {
            let what = format!("`{}` is named", shown(text));
            self.add(span, &rules::CREDENTIAL_PATH, what);
        }
    }

    /// Adds findings about the program as a whole.
    fn finish(&mut self) {
        if self.hex_names.len() >= HEX_NAMES_MIN {
            let what = format!("{} names are numbers", self.hex_names.len());
            self.add(self.hex_name, &rules::OBFUSCATION, what);
        }
        if let (Some(_), Some(shell)) = (self.connection, self.shell) {
            let what = "a shell is started beside a connection";
            self.add(shell, &rules::REVERSE_SHELL, what);
        }
    }
}

pub(super) fn range(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

fn count(kind: AstKind<'_>, analysis: &mut Analysis) {
    match kind {
        AstKind::Function(function) => analysis.functions += u32::from(function.body.is_some()),
        AstKind::ArrowFunctionExpression(_) => analysis.functions += 1,
        AstKind::Class(class) => analysis.classes += u32::from(!class.declare),
        AstKind::IfStatement(_)
        | AstKind::ConditionalExpression(_)
        | AstKind::CatchClause(_)
        | AstKind::LogicalExpression(_) => analysis.cyclomatic_complexity += 1,
        AstKind::SwitchCase(case) => analysis.cyclomatic_complexity += u32::from(case.test.is_some()),
        AstKind::AssignmentExpression(assigned) => {
            analysis.cyclomatic_complexity += u32::from(assigned.operator.is_logical());
        }
        kind => analysis.cyclomatic_complexity += u32::from(kind.is_iteration_statement()),
    }
}

/// Counts printable ASCII letters of a literal that are written as escapes.
fn hidden_letters(literal: &str) -> usize {
    static ESCAPES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\\(?:x|u00)(?:2[1-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e])").ok());
    if !literal.contains('\\') {
        return 0;
    }
    let found = ESCAPES.iter().flat_map(|sign| sign.find_iter(literal));
    found.count()
}
