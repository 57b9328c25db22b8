//! Imports that are missing. An import is added only where a name is bound nowhere in the program and nothing can bind
//! it out of sight, where all uses of the name agree on what it is, and where the rules allow the module; and then
//! nothing but the import changes. A program that works without the import must work with it: where an error about a
//! name may be caught nothing is added, and a module that may not be installed is added only for a use outside of all
//! functions and branches. Names that stay undefined are told.

mod place;

use super::{
    names::{Kind, NameRead, Names, Resolution, Watch},
    profile::is_standard,
    resolve::{Meaning, Meanings},
    spine::spine_of,
    well_known::{self, ATTRIBUTES_MAX, Usage},
};
use crate::{
    CodeQuestion, Patch,
    registry::python::UNDEFINED_NAME,
    rule::{Finding, Fix},
};
use ringfence_types::Severity;
use ruff_python_ast::{Expr, ModModule};
use ruff_python_parser::Parsed;
use ruff_text_size::TextRange;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

const PATCHES_MAX: usize = 100;
/// The rest is said by the first of them.
const NAMES_MAX: usize = 200;
/// More uses of one name tell nothing new.
const USES_MAX: usize = 1000;
/// Errors about names are these.
const CATCHING: &[&str] = &["NameError", "Exception", "BaseException"];

/// What is missing, and how it can be had.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) findings: Vec<Finding>,
    pub(super) fix: Option<Fix>,
}

/// A name that the program does not have.
#[derive(Debug, Default)]
struct Wanted<'a> {
    uses: Vec<Usage<'a>>,
    /// The first place that runs as soon as the program does.
    at_once: Option<TextRange>,
    in_function: Option<TextRange>,
    /// Its absence may go unnoticed: `try: name() except Exception: ...`.
    watched: bool,
    /// Some use is evaluated whenever the program runs.
    certain: bool,
}

/// Looks for names that a program without syntax errors does not have.
pub(super) fn look(
    code: &str,
    parsed: &Parsed<ModModule>,
    names: &Names<'_>,
    asked: &CodeQuestion,
) -> Missing {
    let is_bound_out_of_sight = !names.stars.is_empty() || names.binds_by_text;
    if is_bound_out_of_sight || names.expects_name_errors || names.unresolved().next().is_none() {
        return Missing::default();
    }
    let bound: HashSet<&str> = names.bound().collect();
    let mut wanted = wanted(names);
    let known: BTreeMap<&str, String> = wanted
        .iter()
        .filter_map(|(name, wanted)| Some((*name, import_of(name, wanted, asked)?)))
        .collect();
    let safe = known.iter().filter(|(name, statement)| {
        asked.auto_fix && !bound.contains(*name) && is_safe(&wanted[*name], statement, asked)
    });
    let patch = |(name, statement): (&&str, &String)| Patch {
        name: (*name).to_owned(),
        statement: statement.clone(),
    };
    let mut patches: Vec<Patch> = safe.map(patch).take(PATCHES_MAX).collect();
    patches.sort_by_key(|patch| (patch.statement.starts_with("from"), patch.statement.clone()));
    let statements: Vec<&str> = patches.iter().map(|patch| patch.statement.as_str()).collect();
    let fixed = match statements.is_empty() {
        true => None,
        false => place::insert(code, parsed, &statements),
    };
    let fix = fixed.map(|code| Fix { patches, code });
    let fixed = fix.as_ref().map_or(&[][..], |fix| fix.patches.as_slice());
    wanted.retain(|name, _| fixed.iter().all(|patch| patch.name != *name));
    // In a session an earlier call may have defined the name.
    let told = wanted.iter().filter(|_| !asked.is_fragment);
    let mut findings: Vec<Finding> = told
        .filter_map(|(name, wanted)| finding(name, wanted, known.get(name), asked))
        .collect();
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings.truncate(NAMES_MAX);
    Missing { findings, fix }
}

fn wanted<'a>(names: &Names<'a>) -> BTreeMap<&'a str, Wanted<'a>> {
    let watches = catching(names);
    // What is in a function may be called where an error about a name may be caught.
    let mut handlers = names.watches.iter().zip(&watches[1..]);
    let is_any_watched =
        handlers.any(|((watch, _), catches)| *catches && !matches!(watch, Watch::Manager(_)));
    let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
    for read in names.unresolved() {
        let entry = wanted.entry(read.name).or_default();
        let in_function = names.is_in_function(read.scope);
        let first = match in_function {
            true => &mut entry.in_function,
            false => &mut entry.at_once,
        };
        *first = first.or(Some(read.range));
        entry.watched |= watches[read.at.watch] || in_function && is_any_watched;
        entry.certain |= !read.at.conditional;
        if entry.uses.len() < USES_MAX {
            entry.uses.push(usage(read));
        }
    }
    wanted
}

fn usage<'a>(read: &NameRead<'a>) -> Usage<'a> {
    let spine = spine_of(read.whole);
    let outer = spine.iter().skip(1);
    let names = outer.map_while(|part| Some(part.as_attribute_expr()?.attr.as_str()));
    match spine.get(1) {
        Some(Expr::Attribute(_)) => Usage::Attributes(names.take(ATTRIBUTES_MAX).collect()),
        Some(Expr::Call(_)) => Usage::Called,
        None if read.at.decorates => Usage::Called,
        _ => Usage::Bare,
    }
}

/// Of each watch, whether it may catch an error about a name; the first stands for no watch.
fn catching<'a>(names: &Names<'a>) -> Vec<bool> {
    let resolver = Meanings::new(names);
    let may_catch = |types: &'a [Expr]| types.iter().any(|kind| may_catch(kind, names, &resolver));
    let mut catching = vec![false];
    for (watch, around) in &names.watches {
        let catches = match watch {
            Watch::Return => true,
            Watch::Handler(types) => types.is_empty() || may_catch(types),
            Watch::Manager(manager) => matches!(own_kind(manager, names), Some(Kind::Class | Kind::Function)),
        };
        catching.push(catches || catching[*around]);
    }
    catching
}

/// Whether a handler of this type may catch an error about a name. What is not known may.
fn may_catch<'a>(kind: &'a Expr, names: &Names<'a>, resolver: &Meanings<'a, '_>) -> bool {
    let spine = spine_of(kind);
    let root = spine[0].as_name_expr().and_then(|root| names.read_at(root.range));
    let Some(read) = root.filter(|_| spine[1..].iter().all(|part| part.is_attribute_expr())) else {
        return true;
    };
    match resolver.of(kind) {
        Meaning::Builtin(name) => CATCHING.contains(&name),
        Meaning::Path(path) => {
            let (module, name) = path.rsplit_once('.').unwrap_or_default();
            let root = module.split('.').next().unwrap_or_default();
            !is_standard(root) || CATCHING.contains(&name)
        }
        // To ask for it fails by itself, and no error about a name is one of the program's own kinds.
        _ => {
            let is_own = matches!(own_kind(kind, names), Some(Kind::Class));
            read.resolution != Resolution::Unresolved && !is_own
        }
    }
}

fn own_kind<'a>(expr: &Expr, names: &Names<'a>) -> Option<Kind<'a>> {
    let binding = names.binding_at(expr.as_name_expr()?.range)?;
    binding.only_kind().copied()
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

/// Whether a program that works without the import works with it.
fn is_safe(wanted: &Wanted<'_>, statement: &str, asked: &CodeQuestion) -> bool {
    let is_local = well_known::imported(statement).into_iter().any(|(module, _)| {
        let (root, local) = (module.split('.').next().unwrap_or_default(), &asked.local_modules);
        local.contains(root) || local.contains(module)
    });
    !is_local
        && !wanted.watched
        && allows(asked, statement)
        && (wanted.certain || well_known::is_standard(statement))
}

/// One for each name: where it is read as soon as the program runs, or else in a function, which may never be called.
fn finding(
    name: &str,
    wanted: &Wanted<'_>,
    statement: Option<&String>,
    asked: &CodeQuestion,
) -> Option<Finding> {
    let places = match wanted.uses.len() {
        0 | 1 => String::new(),
        count => format!(", which is read in {count} places,"),
    };
    let hint = statement.map(|statement| match allows(asked, statement) {
        true => format!("Add `{statement}`."),
        false => format!("`{statement}` would define it, but the profile does not have that module."),
    });
    Some(Finding {
        range: wanted.at_once.or(wanted.in_function)?.to_std_range(),
        rule: &UNDEFINED_NAME,
        severity: match wanted.at_once {
            Some(_) => Severity::Warning,
            None => Severity::Info,
        },
        what: format!("`{name}`{places} is not defined"),
        hint,
    })
}

#[cfg(test)]
mod tests;
