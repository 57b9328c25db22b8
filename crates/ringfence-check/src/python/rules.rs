//! One walk over the syntax tree, which checks each expression and what it denotes against the rules.

mod attributes;
mod calls;
mod computed;
mod imports;
mod lookalikes;
mod private_names;
mod reached;
mod strict;
mod texts;
mod types;
mod visit;

pub(crate) use texts::{check_direction, check_encoding};

use super::{
    metrics::Metrics,
    names::{Binding, Kind, Names},
    resolve::{Meaning, Meanings},
    table::Group,
    weight::Weight,
};
use crate::{
    CodeQuestion,
    registry::python::{INTRICATE, REFLECTION},
    rule::{Checked, Finding, Rule},
    unknown::cut,
};
use imports::Imports;
use ringfence_types::{Profile, Severity};
use ruff_python_ast::{Expr, ModModule, visitor::Visitor};
use ruff_text_size::TextRange;
use std::{collections::HashSet, sync::LazyLock};
use strict::Strict;

const QUOTE_CHARS_MAX: usize = 80;
/// Maximum number of bytes of shell commands checked in one program.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The rule `REFLECTION` for findings of severity `Info`.
static REFLECTION_NOTED: LazyLock<Rule> = LazyLock::new(|| Rule {
    severity: Severity::Info,
    why: "it is fine for objects of one's own",
    hint: "Use attributes where they are known; `isinstance` and `type(x).__name__` need no such name.",
    ..REFLECTION.clone()
});

struct Walk<'a, 's, 'q> {
    code: &'a str,
    profile: Profile,
    imports: Imports<'q>,
    names: &'s Names<'a>,
    resolver: Meanings<'a, 's>,
    findings: Vec<Finding>,
    metrics: Metrics,
    /// Number of calls around the current expression.
    in_call: u32,
    unreadable: HashSet<&'a str>,
    command_bytes: usize,
    strict: Strict<'a>,
}

/// One part of a spine, with its neighbours and what they denote.
#[derive(Clone, Copy)]
struct Step<'a, 'm> {
    part: &'a Expr,
    meaning: &'m Meaning<'a>,
    left: &'a Expr,
    left_meaning: &'m Meaning<'a>,
    next: Option<&'a Expr>,
}

pub(crate) fn check<'a>(
    code: &'a str,
    module: &'a ModModule,
    names: &Names<'a>,
    question: &CodeQuestion,
) -> Checked {
    let profile = question.rules.profile;
    let mut walk = Walk {
        code,
        profile,
        imports: Imports::of(question),
        names,
        resolver: Meanings::new(names),
        findings: Vec::new(),
        metrics: Metrics::default(),
        in_call: 0,
        unreadable: HashSet::new(),
        command_bytes: COMMAND_BYTES_MAX,
        strict: Strict::of(names, question),
    };
    walk.visit_body(&module.body);
    walk.conclude_strict();
    if walk.resolver.given_up.get() {
        let what = "names are followed in too many steps".to_owned();
        walk.report(&INTRICATE, Weight::Suspect, TextRange::default(), what);
    }
    Checked {
        findings: walk.findings,
        ..walk.metrics.conclude()
    }
}

impl<'a> Walk<'a, '_, '_> {
    /// Adds a finding if its weight is one under the profile.
    fn report(&mut self, rule: &'static Rule, weight: Weight, range: TextRange, what: String) {
        if let Some(severity) = weight.under(self.profile) {
            let noted = rule.id == REFLECTION.id && severity == Severity::Info;
            let rule = if noted { &REFLECTION_NOTED } else { rule };
            let finding = Finding::new(rule, range.to_std_range(), what);
            self.findings.push(finding.with_severity(severity));
        }
    }

    fn is_strict(&self) -> bool {
        self.profile == Profile::Strict
    }

    fn report_group(&mut self, group: &'static Group, range: TextRange, path: &str) {
        let named = self.named(range, path);
        self.report(group.rule, group.weight, range, format!("{named} {}", group.does));
    }

    /// Adds an error, regardless of the profile.
    fn refuse(&mut self, rule: &'static Rule, range: TextRange, what: String, hint: &str) {
        let finding = Finding::new(rule, range.to_std_range(), what);
        self.findings
            .push(finding.with_severity(Severity::Error).with_hint(hint));
    }

    fn written(&self, range: TextRange) -> &'a str {
        self.code.get(range.to_std_range()).unwrap_or_default()
    }

    /// Returns the source text of a range in one line, shortened.
    fn quote(&self, range: TextRange) -> String {
        let words = self.written(range).split_whitespace();
        let words: Vec<&str> = words.take(QUOTE_CHARS_MAX).collect();
        cut(&words.join(" "), QUOTE_CHARS_MAX)
    }

    /// Returns "`s` is `os.system`, which", or "`os.system`" if the code says so itself.
    fn named(&self, range: TextRange, path: &str) -> String {
        let written = self.quote(range);
        let known = path.strip_prefix("builtins.").unwrap_or(path);
        match written == known || written == path {
            true => format!("`{written}`"),
            false => format!("`{written}` is `{known}`, which"),
        }
    }

    fn binding(&self, expr: &Expr) -> Option<&Binding<'a>> {
        self.names.binding_at(expr.as_name_expr()?.range)
    }

    /// Returns the value of a name that is bound exactly once, by an assignment; otherwise the expression itself.
    fn value_of(&self, expr: &'a Expr) -> &'a Expr {
        match self.binding(expr).and_then(Binding::only_kind) {
            Some(Kind::Value(value)) => value,
            _ => expr,
        }
    }

    fn is_own_class(&self, expr: &Expr) -> bool {
        let is_class = |kind: &Kind<'a>| matches!(kind, Kind::Class);
        self.binding(expr)
            .is_some_and(|binding| binding.kinds.iter().any(is_class))
    }

    /// Returns the elements of a tuple, a list or a set, also if it is the only value of a name.
    fn elements(&self, expr: &'a Expr) -> Option<&'a [Expr]> {
        match self.value_of(expr) {
            Expr::Tuple(tuple) => Some(&tuple.elts),
            Expr::List(list) => Some(&list.elts),
            Expr::Set(set) => Some(&set.elts),
            _ => None,
        }
    }
}

fn is_super(expr: &Expr) -> bool {
    let func = expr.as_call_expr().and_then(|call| call.func.as_name_expr());
    func.is_some_and(|name| name.id == "super")
}
