//! Imports that are missing. An import is added only where a name is bound nowhere in the program and nothing can bind
//! it out of sight, where all uses of the name agree on what it is, and where the rules allow the module; and then
//! nothing but the import changes. A program that works without the import must work with it: where somebody may catch
//! the error nothing is added, and a module that may not be installed is added only where the program fails without it.
//! Names that stay undefined are told.

mod place;
mod uses;
mod watch;

use super::{scope::Scopes, well_known};
use crate::{
    CodeQuestion, Patch,
    registry::python::UNDEFINED_NAME,
    rule::{Finding, Fix, LeftOut},
};
use ringfence_types::Severity;
use ruff_python_ast::ModModule;
use ruff_python_parser::Parsed;
use ruff_text_size::TextSize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};
use uses::{Uses, Wanted};

/// The most imports that are added.
const PATCHES_MAX: usize = 100;
/// The most names that are told.
const NAMES_MAX: usize = 200;

/// What is missing, and how it can be had.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) findings: Vec<Finding>,
    pub(super) left_out: LeftOut,
    pub(super) fix: Option<Fix>,
}

/// Looks for names that a program without syntax errors does not have.
pub(super) fn look(
    code: &str,
    parsed: &Parsed<ModModule>,
    scopes: &Scopes<'_>,
    asked: &CodeQuestion,
) -> Missing {
    if scopes.has_star_import() || scopes.binds_by_text() {
        return Missing::default();
    }
    let starts: HashSet<TextSize> = scopes.unresolved().map(|name| name.range.start()).collect();
    if starts.is_empty() {
        return Missing::default();
    }
    let uses = Uses::of(parsed.syntax(), scopes, starts);
    if uses.expects_name_errors || uses.binds_out_of_sight {
        return Missing::default();
    }
    let known: BTreeMap<&str, String> = uses
        .wanted
        .iter()
        .filter(|(_, wanted)| !wanted.expected_absent)
        .filter_map(|(name, wanted)| Some((*name, import_of(name, wanted, asked)?)))
        .collect();
    let fix = asked
        .auto_fix
        .then(|| fix(code, parsed, &uses, &known, asked))
        .flatten();
    let fixed = |name: &str| {
        let patches = fix.as_ref().map_or(&[][..], |fix| fix.patches.as_slice());
        patches.iter().any(|patch| patch.name == name)
    };
    // In a session an earlier call may have defined the name.
    let told = uses.wanted.iter().filter(|_| !asked.is_fragment);
    let mut findings: Vec<Finding> = told
        .filter(|(name, wanted)| !wanted.expected_absent && !fixed(name))
        .filter_map(|(name, wanted)| finding(name, wanted, known.get(name).map(String::as_str), asked))
        .collect();
    let mut left_out = LeftOut::default();
    findings.sort_by_key(|finding| Reverse(finding.severity));
    for finding in findings.drain(NAMES_MAX.min(findings.len())..) {
        left_out.add(finding.severity, 1);
    }
    Missing {
        findings,
        left_out,
        fix,
    }
}

/// The import that a name stands for, a narrower one where the rules have only that.
fn import_of(name: &str, wanted: &Wanted<'_>, asked: &CodeQuestion) -> Option<String> {
    let statement = well_known::statement(name, &wanted.uses, &asked.known_imports)?;
    match well_known::narrower(name, &wanted.uses) {
        Some(narrower) if !allows(asked, &statement) && allows(asked, &narrower) => Some(narrower),
        _ => Some(statement),
    }
}

fn allows(asked: &CodeQuestion, statement: &str) -> bool {
    let imports = asked.rules.imports.as_ref();
    imports.is_none_or(|allowed| well_known::is_allowed(statement, allowed))
}

fn fix(
    code: &str,
    parsed: &Parsed<ModModule>,
    uses: &Uses<'_>,
    known: &BTreeMap<&str, String>,
    asked: &CodeQuestion,
) -> Option<Fix> {
    let is_safe = |name: &str, statement: &str| {
        let wanted = uses.wanted.get(name);
        let watched = wanted.is_none_or(|wanted| wanted.watched);
        let certain = wanted.is_some_and(|wanted| wanted.certain);
        let local = well_known::imported(statement).iter().any(|(module, _)| {
            let root = module.split('.').next().unwrap_or_default();
            asked.local_modules.contains(root) || asked.local_modules.contains(module)
        });
        !uses.bound.contains(name)
            && !local
            && !watched
            && allows(asked, statement)
            // A program that runs without a package must not fail for want of it.
            && (certain || well_known::is_standard(statement))
    };
    let mut patches: Vec<Patch> = known
        .iter()
        .filter(|(name, statement)| is_safe(name, statement))
        .map(|(name, statement)| Patch {
            name: (*name).to_owned(),
            statement: statement.clone(),
        })
        .take(PATCHES_MAX)
        .collect();
    if patches.is_empty() {
        return None;
    }
    patches.sort_by(|a, b| (is_from(a), &a.statement).cmp(&(is_from(b), &b.statement)));
    let statements: Vec<&str> = patches.iter().map(|patch| patch.statement.as_str()).collect();
    let code = place::insert(code, parsed, &statements)?;
    Some(Fix { patches, code })
}

fn is_from(patch: &Patch) -> bool {
    patch.statement.starts_with("from")
}

/// One for each name: where it is read as soon as the program runs, or else in a function, which may never be called.
fn finding(
    name: &str,
    wanted: &Wanted<'_>,
    statement: Option<&str>,
    asked: &CodeQuestion,
) -> Option<Finding> {
    let places = match wanted.uses.len() {
        0 | 1 => String::new(),
        count => format!(", which is read in {count} places,"),
    };
    let hint = statement.map(|statement| {
        if allows(asked, statement) {
            format!("Add `{statement}`.")
        } else {
            format!("`{statement}` would define it, but the profile does not have that module.")
        }
    });
    Some(Finding {
        range: wanted.first()?.to_std_range(),
        rule: &UNDEFINED_NAME,
        severity: if wanted.at_once.is_some() {
            Severity::Warning
        } else {
            Severity::Info
        },
        what: format!("`{name}`{places} is not defined"),
        hint,
    })
}

#[cfg(test)]
mod tests;
