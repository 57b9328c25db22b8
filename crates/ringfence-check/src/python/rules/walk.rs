//! What the walk over a module knows, and how its rules report.

use super::{REFLECTION, REFLECTION_NOTED, Weight, imports::Imports, own::OwnNames};
use crate::{
    python::{
        dangerous_names::Group,
        findings::Findings,
        meaning::{Meaning, Meanings},
        scope::{Kind, Resolution, Scopes},
    },
    rule::{Finding, Rule},
};
use ringfence_types::Profile;
use ringfence_types::Severity;
use ruff_python_ast::Expr;
use ruff_text_size::TextRange;
use std::collections::HashSet;

/// Of the text of a finding.
const QUOTE_CHARS_MAX: usize = 80;
/// Of one program, so many bytes of commands are read.
pub(super) const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// The state of the walk.
pub(super) struct Walk<'a, 's, 'q> {
    pub(super) code: &'a str,
    /// No letter outside of ASCII.
    pub(super) plain: bool,
    pub(super) profile: Profile,
    pub(super) imports: Imports<'q>,
    pub(super) scopes: &'s Scopes<'a>,
    pub(super) meanings: Meanings<'a, 's>,
    pub(super) told: Findings,
    /// Calls in whose arguments the walk is.
    pub(super) in_call: u32,
    pub(super) unreadable: HashSet<&'a str>,
    /// Bytes of commands that may still be read.
    pub(super) command_bytes: usize,
    pub(super) strict: Strict<'a>,
}

/// What the walk keeps of types.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// Texts that were looked at.
    pub(super) seen: HashSet<TextRange>,
    /// `singledispatch` is used.
    pub(super) dispatches: bool,
    /// Where all annotations of something are reached, by which they may be changed.
    pub(super) reached: Vec<TextRange>,
}

/// What the walk keeps for it.
#[derive(Debug, Default)]
pub(super) struct Strict<'a> {
    /// None: the profile is another one.
    pub(super) own: Option<OwnNames<'a>>,
    pub(super) annotations: Annotations,
    /// Names `__match_args__` that are bound to constants.
    pub(super) plain_match_args: HashSet<TextRange>,
}

impl<'a> Walk<'a, '_, '_> {
    /// Adds a finding, if it is one under the profile.
    pub(super) fn say(&mut self, rule: &'static Rule, weight: Weight, range: TextRange, what: String) {
        if let Some(severity) = weight.under(self.profile) {
            let noted = rule.id == REFLECTION.id && severity == Severity::Info;
            let rule = if noted { &REFLECTION_NOTED } else { rule };
            self.add(Finding {
                severity,
                ..Finding::new(rule, range.to_std_range(), what)
            });
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.told.add(finding);
    }

    /// As it is written, in one line.
    pub(super) fn quote(&self, range: TextRange) -> String {
        let text = self
            .code
            .get(range.start().to_usize()..range.end().to_usize())
            .unwrap_or_default();
        let words = text.split_whitespace();
        let mut quoted = String::new();
        for word in words {
            if !quoted.is_empty() {
                quoted.push(' ');
            }
            quoted.extend(word.chars().take(QUOTE_CHARS_MAX));
            if quoted.chars().count() >= QUOTE_CHARS_MAX {
                quoted = quoted.chars().take(QUOTE_CHARS_MAX).collect();
                quoted.push('…');
                break;
            }
        }
        quoted
    }

    /// "`s` is `os.system`", or "`os.system`" where that is what is written.
    pub(super) fn named(&self, range: TextRange, path: &str) -> String {
        let written = self.quote(range);
        let known = path.strip_prefix("builtins.").unwrap_or(path);
        if written == known || written == path {
            format!("`{written}`")
        } else {
            format!("`{written}` is `{known}`, which")
        }
    }

    pub(super) fn say_group(&mut self, group: &'static Group, range: TextRange, path: &str) {
        let named = self.named(range, path);
        self.say(group.rule, group.weight, range, format!("{named} {}", group.does));
    }

    /// A module that is not allowed, reached without importing it.
    pub(super) fn reached(&mut self, range: TextRange, path: &str) {
        let written = self.quote(range);
        let what = if written == path {
            format!("`{path}` is reached as an attribute")
        } else {
            format!("`{written}` is `{path}`, which is not allowed")
        };
        let finding = self.imports.refused_attribute(path, what, range);
        self.add(finding);
    }

    /// The one value that a name has, if it has one.
    pub(super) fn value_of(&self, expr: &'a Expr) -> &'a Expr {
        let Expr::Name(name) = expr else {
            return expr;
        };
        let binding = self
            .scopes
            .use_at(name.range)
            .and_then(|read| match read.resolution {
                Resolution::Binding(id) => self.scopes.binding(id),
                _ => None,
            });
        match binding.and_then(|binding| binding.only_kind()) {
            Some(Kind::Value(value)) => value,
            _ => expr,
        }
    }
}

/// What stands left of a part of a spine.
#[derive(Clone, Copy)]
pub(super) struct Before<'a, 'm> {
    pub(super) expr: &'a Expr,
    pub(super) meaning: &'m Meaning<'a>,
}

impl Before<'_, '_> {
    pub(super) fn is_super(&self) -> bool {
        let Expr::Call(call) = self.expr else {
            return false;
        };
        matches!(call.func.as_ref(), Expr::Name(name) if name.id.as_str() == "super")
    }
}
