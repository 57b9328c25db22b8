//! One walk over the tree, in which each expression is held against the rules with what it denotes.

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

/// Of the text of a finding.
const QUOTE_CHARS_MAX: usize = 80;
/// Of one program, so many bytes of commands are read.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The same where it is no more than worth knowing.
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
    told: Vec<Finding>,
    metrics: Metrics,
    /// Calls in whose arguments the walk is.
    in_call: u32,
    unreadable: HashSet<&'a str>,
    /// Bytes of commands that may still be read.
    command_bytes: usize,
    strict: Strict<'a>,
}

/// One part of a spine, with what is around it and what that denotes.
#[derive(Clone, Copy)]
struct Step<'a, 'm> {
    part: &'a Expr,
    denoted: &'m Meaning<'a>,
    /// What stands left of it.
    left: &'a Expr,
    of: &'m Meaning<'a>,
    next: Option<&'a Expr>,
}

/// What the rules find in a module whose names are known.
pub(crate) fn check<'a>(
    code: &'a str,
    module: &'a ModModule,
    names: &Names<'a>,
    asked: &CodeQuestion,
) -> Checked {
    let profile = asked.rules.profile;
    let mut walk = Walk {
        code,
        profile,
        imports: Imports::of(asked),
        names,
        resolver: Meanings::new(names),
        told: Vec::new(),
        metrics: Metrics::default(),
        in_call: 0,
        unreadable: HashSet::new(),
        command_bytes: COMMAND_BYTES_MAX,
        strict: Strict::of(names, asked),
    };
    walk.visit_body(&module.body);
    walk.conclude_strict();
    if walk.resolver.given_up.get() {
        let what = "names are followed in too many steps".to_owned();
        walk.say(&INTRICATE, Weight::Suspect, TextRange::default(), what);
    }
    Checked {
        findings: walk.told,
        ..walk.metrics.conclude()
    }
}

impl<'a> Walk<'a, '_, '_> {
    /// Adds a finding, if it is one under the profile.
    fn say(&mut self, rule: &'static Rule, weight: Weight, range: TextRange, what: String) {
        if let Some(severity) = weight.under(self.profile) {
            let noted = rule.id == REFLECTION.id && severity == Severity::Info;
            let rule = if noted { &REFLECTION_NOTED } else { rule };
            let finding = Finding::new(rule, range.to_std_range(), what);
            self.told.push(finding.with_severity(severity));
        }
    }

    fn is_strict(&self) -> bool {
        self.profile == Profile::Strict
    }

    fn say_group(&mut self, group: &'static Group, range: TextRange, path: &str) {
        let named = self.named(range, path);
        self.say(group.rule, group.weight, range, format!("{named} {}", group.does));
    }

    /// What is refused whatever the profile makes of its rule.
    fn refuse(&mut self, rule: &'static Rule, range: TextRange, what: String, hint: &str) {
        let finding = Finding::new(rule, range.to_std_range(), what);
        self.told
            .push(finding.with_severity(Severity::Error).with_hint(hint));
    }

    fn written(&self, range: TextRange) -> &'a str {
        self.code.get(range.to_std_range()).unwrap_or_default()
    }

    /// As it is written, in one line.
    fn quote(&self, range: TextRange) -> String {
        let words = self.written(range).split_whitespace();
        let words: Vec<&str> = words.take(QUOTE_CHARS_MAX).collect();
        cut(&words.join(" "), QUOTE_CHARS_MAX)
    }

    /// "`s` is `os.system`", or "`os.system`" where that is what is written.
    fn named(&self, range: TextRange, path: &str) -> String {
        let written = self.quote(range);
        let known = path.strip_prefix("builtins.").unwrap_or(path);
        match written == known || written == path {
            true => format!("`{written}`"),
            false => format!("`{written}` is `{known}`, which"),
        }
    }

    /// What binds a name, if the expression is one.
    fn binding(&self, expr: &Expr) -> Option<&Binding<'a>> {
        self.names.binding_at(expr.as_name_expr()?.range)
    }

    /// The one value that a name has, if it has one.
    fn value_of(&self, expr: &'a Expr) -> &'a Expr {
        match self.binding(expr).and_then(Binding::only_kind) {
            Some(Kind::Value(value)) => value,
            _ => expr,
        }
    }

    /// Whether the expression names a class of the program's own.
    fn is_own_class(&self, expr: &Expr) -> bool {
        let is_class = |kind: &Kind<'a>| matches!(kind, Kind::Class);
        self.binding(expr)
            .is_some_and(|binding| binding.kinds.iter().any(is_class))
    }

    /// The elements of a tuple, a list or a set, or of the only value of a name.
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
