//! Adds missing imports. An import is added only if the name is bound nowhere and no code can bind it invisibly, if all
//! its uses agree on the import, and if the rules allow the module; no other code changes. A program that works without
//! the import must also work with it: none is added where an error about the name may be caught, and for a module that
//! may not be installed only with a use outside of all functions and branches. Names that stay undefined are reported.

mod place;

use super::{
    names::{Catcher, Kind, NameRead, Names, Resolution},
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
const NAMES_MAX: usize = 200;
/// Maximum number of uses of one name considered; more add no information.
const USES_MAX: usize = 1000;
const NAME_ERROR_TYPES: &[&str] = &["NameError", "Exception", "BaseException"];

#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) findings: Vec<Finding>,
    pub(super) fix: Option<Fix>,
}

#[derive(Debug, Default)]
struct UndefinedName<'a> {
    uses: Vec<Usage<'a>>,
    /// The first use outside of functions.
    immediate: Option<TextRange>,
    in_function: Option<TextRange>,
    /// The error about the name may be caught: `try: name() except Exception: ...`.
    may_be_caught: bool,
    /// At least one use is evaluated whenever the program runs.
    certain: bool,
}

/// Finds names that a program without syntax errors does not define.
pub(super) fn find_missing(
    code: &str,
    parsed: &Parsed<ModModule>,
    names: &Names<'_>,
    question: &CodeQuestion,
) -> Missing {
    let has_invisible_bindings = !names.stars.is_empty() || names.has_dynamic_bindings;
    if has_invisible_bindings || names.reads_name_error || names.unresolved().next().is_none() {
        return Missing::default();
    }
    let bound: HashSet<&str> = names.bound().collect();
    let mut undefined = undefined_names(names);
    let known: BTreeMap<&str, String> = undefined
        .iter()
        .filter_map(|(name, undefined)| Some((*name, import_of(name, undefined, question)?)))
        .collect();
    let safe = known.iter().filter(|(name, statement)| {
        question.auto_fix && !bound.contains(*name) && is_safe(&undefined[*name], statement, question)
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
    undefined.retain(|name, _| fixed.iter().all(|patch| patch.name != *name));
    // In a session an earlier call may have defined the name.
    let reported = undefined.iter().filter(|_| !question.is_fragment);
    let mut findings: Vec<Finding> = reported
        .filter_map(|(name, undefined)| finding(name, undefined, known.get(name), question))
        .collect();
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings.truncate(NAMES_MAX);
    Missing { findings, fix }
}

fn undefined_names<'a>(names: &Names<'a>) -> BTreeMap<&'a str, UndefinedName<'a>> {
    let catching = catching(names);
    // A function may be called where an error about a name may be caught.
    let mut handlers = names.catchers.iter().zip(&catching[1..]);
    let has_catching_handler =
        handlers.any(|((catcher, _), catches)| *catches && !matches!(catcher, Catcher::Manager(_)));
    let mut undefined: BTreeMap<&str, UndefinedName<'_>> = BTreeMap::new();
    for read in names.unresolved() {
        let entry = undefined.entry(read.name).or_default();
        let in_function = names.is_in_function(read.scope);
        let first = match in_function {
            true => &mut entry.in_function,
            false => &mut entry.immediate,
        };
        *first = first.or(Some(read.range));
        entry.may_be_caught |= catching[read.context.catcher] || in_function && has_catching_handler;
        entry.certain |= !read.context.conditional;
        if entry.uses.len() < USES_MAX {
            entry.uses.push(usage(read));
        }
    }
    undefined
}

fn usage<'a>(read: &NameRead<'a>) -> Usage<'a> {
    let spine = spine_of(read.whole);
    let outer = spine.iter().skip(1);
    let names = outer.map_while(|part| Some(part.as_attribute_expr()?.attr.as_str()));
    match spine.get(1) {
        Some(Expr::Attribute(_)) => Usage::Attributes(names.take(ATTRIBUTES_MAX).collect()),
        Some(Expr::Call(_)) => Usage::Called,
        None if read.context.is_decorator => Usage::Called,
        _ => Usage::Bare,
    }
}

/// For each catcher, true if it or one around it may catch an error about a name. The first element stands for none.
fn catching<'a>(names: &Names<'a>) -> Vec<bool> {
    let resolver = Meanings::new(names);
    let may_catch = |types: &'a [Expr]| types.iter().any(|kind| may_catch(kind, names, &resolver));
    let mut catching = vec![false];
    for (catcher, around) in &names.catchers {
        let catches = match catcher {
            Catcher::Return => true,
            Catcher::Handler(types) => types.is_empty() || may_catch(types),
            Catcher::Manager(expr) => matches!(own_kind(expr, names), Some(Kind::Class | Kind::Function)),
        };
        catching.push(catches || catching[*around]);
    }
    catching
}

/// True if a handler of this type may catch an error about a name, or if the type is unknown.
fn may_catch<'a>(kind: &'a Expr, names: &Names<'a>, resolver: &Meanings<'a, '_>) -> bool {
    let spine = spine_of(kind);
    let root = spine[0].as_name_expr().and_then(|root| names.read_at(root.range));
    let Some(read) = root.filter(|_| spine[1..].iter().all(|part| part.is_attribute_expr())) else {
        return true;
    };
    match resolver.of(kind) {
        Meaning::Builtin(name) => NAME_ERROR_TYPES.contains(&name),
        Meaning::Path(path) => {
            let (module, name) = path.rsplit_once('.').unwrap_or_default();
            let root = module.split('.').next().unwrap_or_default();
            !is_standard(root) || NAME_ERROR_TYPES.contains(&name)
        }
        // An undefined type fails by itself, and an error about a name is of no class of the program's own.
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

/// Returns the import for a name, or a narrower one if the rules allow only that.
fn import_of(name: &str, undefined: &UndefinedName<'_>, question: &CodeQuestion) -> Option<String> {
    let statement = well_known::statement(name, &undefined.uses, &question.known_imports)?;
    match well_known::narrower(name, &undefined.uses) {
        Some(narrower) if !allows(question, &statement) && allows(question, &narrower) => Some(narrower),
        _ => Some(statement),
    }
}

fn allows(question: &CodeQuestion, statement: &str) -> bool {
    let imports = question.rules.imports.as_ref();
    imports.is_none_or(|allowed| well_known::is_allowed(statement, allowed))
}

/// True if a program that works without the import also works with it.
fn is_safe(undefined: &UndefinedName<'_>, statement: &str, question: &CodeQuestion) -> bool {
    let local = &question.local_modules;
    let is_local = well_known::imported(statement).into_iter().any(|(module, _)| {
        local.contains(module.split('.').next().unwrap_or_default()) || local.contains(module)
    });
    !is_local
        && !undefined.may_be_caught
        && allows(question, statement)
        && (undefined.certain || well_known::is_standard(statement))
}

/// Returns the finding at a name's first use outside of functions, or else in a function, which may never be called.
fn finding(
    name: &str,
    undefined: &UndefinedName<'_>,
    statement: Option<&String>,
    question: &CodeQuestion,
) -> Option<Finding> {
    let places = match undefined.uses.len() {
        0 | 1 => String::new(),
        count => format!(", which is read in {count} places,"),
    };
    let hint = statement.map(|statement| match allows(question, statement) {
        true => format!("Add `{statement}`."),
        false => format!("`{statement}` would define it, but the profile does not have that module."),
    });
    Some(Finding {
        range: undefined.immediate.or(undefined.in_function)?.to_std_range(),
        rule: &UNDEFINED_NAME,
        severity: match undefined.immediate {
            Some(_) => Severity::Warning,
            None => Severity::Info,
        },
        what: format!("`{name}`{places} is not defined"),
        hint,
    })
}

#[cfg(test)]
mod tests;
