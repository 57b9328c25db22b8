//! Which import a name stands for that a program uses without having it. A name alone says little: `datetime.now()`
//! wants the class and `datetime.timedelta()` the module, `queue.append()` is somebody's list. So a name is decided by
//! all its uses together, and where they disagree, or fit two imports, nothing is decided.

mod table;

use ringfence_types::ModuleName;
use ruff_python_ast::Stmt;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};
use table::{
    ALIASES, CALLED, DATETIME_CLASS, MODULES, NAMES, OTHER_MODULES, OTHER_ROOTS, PACKAGES, Plain, WORDS,
    of_modules,
};

/// Of an operator's own import.
const STATEMENT_BYTES_MAX: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Usage<'a> {
    /// `name.a.b`: the attributes, at most [`ATTRIBUTES_MAX`].
    Attributes(Vec<&'a str>),
    /// `name()`, `@name`.
    Called,
    Bare,
}

/// So many attributes tell which part of a package is meant.
pub(super) const ATTRIBUTES_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Meaning {
    Module(&'static str),
    /// Of a module whose name is an ordinary word.
    Word(&'static str),
    Package(&'static str, Plain, &'static [&'static str]),
    Alias(&'static str, &'static str),
    Name(&'static str, &'static str),
    Called(&'static str, &'static str),
    DatetimeClass,
    /// `dt`: the module or the class.
    ShortDatetime,
}

/// By module, what makes a use of its name a use of the module.
static ATTRIBUTES: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut known: HashMap<&str, Vec<&str>> = HashMap::new();
    of_modules(WORDS).for_each(|(module, name)| known.entry(module).or_default().push(name));
    known
});

static TABLE: LazyLock<HashMap<&str, Vec<Meaning>>> = LazyLock::new(|| {
    let mut table: HashMap<&str, Vec<Meaning>> = HashMap::new();
    let mut add = |name, meaning| table.entry(name).or_default().push(meaning);
    for module in MODULES.iter().chain(OTHER_MODULES) {
        add(*module, Meaning::Module(module));
    }
    for module in ATTRIBUTES.keys() {
        add(*module, Meaning::Word(module));
    }
    for (package, plain, parts) in PACKAGES {
        add(*package, Meaning::Package(package, *plain, parts));
    }
    for (name, module) in ALIASES
        .split_ascii_whitespace()
        .filter_map(|pair| pair.split_once('='))
    {
        add(name, Meaning::Alias(module, name));
    }
    for (module, name) in of_modules(NAMES) {
        add(name, Meaning::Name(module, name));
    }
    for (module, name) in of_modules(CALLED) {
        add(name, Meaning::Called(module, name));
    }
    add("datetime", Meaning::DatetimeClass);
    add("dt", Meaning::ShortDatetime);
    table
});

/// The import that a name with these uses stands for, if there is exactly one. The operator's own names win.
pub(super) fn statement(name: &str, uses: &[Usage<'_>], own: &BTreeMap<String, String>) -> Option<String> {
    if let Some(statement) = own.get(name) {
        // Checked when it was set; the worker does not rely on that.
        return check_known_import(name, statement)
            .is_ok()
            .then(|| statement.trim().to_owned());
    }
    let meanings = TABLE.get(name)?;
    let mut fitting = meanings.iter().filter_map(|meaning| meaning.statement(uses));
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first)
}

/// A narrower import that does as well, for a profile that has only a part of the module: `import os.path`.
pub(super) fn narrower(name: &str, uses: &[Usage<'_>]) -> Option<String> {
    let only_path =
        |used: &Usage<'_>| matches!(used, Usage::Attributes(chain) if chain.first() == Some(&"path"));
    (name == "os" && uses.iter().all(only_path)).then(|| "import os.path".to_owned())
}

impl Meaning {
    fn statement(&self, uses: &[Usage<'_>]) -> Option<String> {
        match self {
            Self::Module(module) => is_module(uses, |_| true).then(|| format!("import {module}")),
            Self::Word(module) => {
                is_module(uses, |first| has_attribute(module, first)).then(|| format!("import {module}"))
            }
            Self::Alias(module, name) => {
                is_module(uses, |_| true).then(|| format!("import {module} as {name}"))
            }
            Self::Package(package, plain, parts) => parts_of(package, *plain, parts, uses),
            Self::Name(module, name) => Some(format!("from {module} import {name}")),
            Self::Called(module, name) => {
                let called = uses.iter().all(|used| *used == Usage::Called);
                called.then(|| format!("from {module} import {name}"))
            }
            Self::ShortDatetime => short_datetime(uses),
            Self::DatetimeClass => {
                let of_class = |used: &Usage<'_>| match used {
                    Usage::Attributes(chain) => {
                        chain.first().is_some_and(|first| DATETIME_CLASS.contains(first))
                    }
                    Usage::Called | Usage::Bare => true,
                };
                uses.iter()
                    .all(of_class)
                    .then(|| "from datetime import datetime".to_owned())
            }
        }
    }
}

fn has_attribute(module: &str, name: &str) -> bool {
    ATTRIBUTES.get(module).is_some_and(|known| known.contains(&name))
}

/// `dt.now()` wants the class and `dt.timedelta()` the module; `dt` alone may be anything.
fn short_datetime(uses: &[Usage<'_>]) -> Option<String> {
    if is_module(uses, |first| has_attribute("datetime", first)) {
        return Some("import datetime as dt".to_owned());
    }
    is_module(uses, |first| DATETIME_CLASS.contains(&first))
        .then(|| "from datetime import datetime as dt".to_owned())
}

/// A module is never called, and at least once something of it is used.
fn is_module(uses: &[Usage<'_>], known: impl Fn(&str) -> bool) -> bool {
    let mut attributes = uses.iter().filter_map(|used| match used {
        Usage::Attributes(chain) => chain.first(),
        Usage::Called | Usage::Bare => None,
    });
    let told = attributes.clone().next().is_some() && attributes.all(|first| known(first));
    told && !uses.contains(&Usage::Called)
}

/// `import urllib.parse, urllib.request`: one statement, because it binds one name.
fn parts_of(package: &str, plain: Plain, parts: &[&str], uses: &[Usage<'_>]) -> Option<String> {
    let mut needed = BTreeSet::new();
    for used in uses {
        let Usage::Attributes(chain) = used else {
            return None;
        };
        let named = |part: &&&str| {
            part.split('.').zip(chain).filter(|(a, b)| a == *b).count() == part.split('.').count()
        };
        match parts.iter().find(named) {
            Some(part) => drop(needed.insert(*part)),
            None => match plain {
                Plain::All => {}
                Plain::Only(known) if chain.first().is_some_and(|first| known.contains(first)) => {}
                Plain::Only(_) => return None,
            },
        }
    }
    if needed.is_empty() {
        return (!uses.is_empty()).then(|| format!("import {package}"));
    }
    let modules: Vec<String> = needed.iter().map(|part| format!("{package}.{part}")).collect();
    Some(format!("import {}", modules.join(", ")))
}

/// Whether an operator may say that a name stands for an import: one statement on one line that binds exactly that
/// name.
///
/// # Errors
/// In one sentence, what is wrong with it.
pub fn check_known_import(name: &str, statement: &str) -> Result<(), String> {
    let text = statement.trim();
    let is_other = |letter: char| letter.is_control() || matches!(letter, '\\' | '#' | ';');
    if text.len() > STATEMENT_BYTES_MAX || text.contains(is_other) {
        return Err(format!(
            "the import for `{name}` is not one statement on one line of at most {STATEMENT_BYTES_MAX} bytes"
        ));
    }
    let parsed = ruff_python_parser::parse_module(text);
    let alias = match parsed.as_ref().map(|parsed| parsed.suite().as_slice()) {
        Ok([Stmt::Import(import)]) => import.names.as_slice(),
        Ok([Stmt::ImportFrom(from)]) => {
            let module = from.module.as_ref().map_or("", |module| module.as_str());
            if from.level > 0 || module == "__future__" {
                return Err(format!("`{text}` means something else in each program"));
            }
            from.names.as_slice()
        }
        _ => return Err(format!("`{text}` is not exactly one import")),
    };
    let [alias] = alias else {
        return Err(format!("`{text}` binds more than `{name}`"));
    };
    let bound = match &alias.asname {
        Some(bound) => bound.as_str(),
        None if text.starts_with("from") => alias.name.as_str(),
        None => alias.name.split('.').next().unwrap_or_default(),
    };
    match bound == name && bound != "*" {
        true => Ok(()),
        false => Err(format!("`{text}` binds `{bound}`, not `{name}`")),
    }
}

/// What a statement imports: modules, each with what is taken from it.
pub(super) fn imported(statement: &str) -> Vec<(&str, Option<&str>)> {
    let from = statement
        .strip_prefix("from ")
        .and_then(|rest| rest.split_once(" import "));
    let first = |text| str::split_whitespace(text).next().unwrap_or_default();
    match from {
        Some((module, name)) => vec![(module.trim(), Some(first(name)))],
        None => {
            let modules = statement.strip_prefix("import ").unwrap_or_default().split(',');
            modules.map(|module| (first(module), None)).collect()
        }
    }
}

/// Not every interpreter has them: they are new, or are left out where there is no screen.
#[rustfmt::skip]
const NOT_EVERYWHERE: &[&str] = &[
    "Annotated", "ParamSpec", "StrEnum", "TypeAlias", "curses", "graphlib", "pairwise", "tkinter", "turtle",
    "zoneinfo",
];

/// Whether every interpreter has what the statement imports.
pub(super) fn is_standard(statement: &str) -> bool {
    imported(statement).into_iter().all(|(module, name)| {
        let root = module.split('.').next().unwrap_or_default();
        let is_new = [Some(root), name]
            .into_iter()
            .flatten()
            .any(|name| NOT_EVERYWHERE.contains(&name));
        let is_package =
            PACKAGES.iter().any(|(package, ..)| *package == root) && !OTHER_ROOTS.contains(&root);
        let is_word = ATTRIBUTES.contains_key(root) && !OTHER_ROOTS.contains(&root);
        !is_new && (MODULES.contains(&root) || is_package || is_word)
    })
}

/// Does a set of modules, each with what lies below it, have everything that a statement imports.
pub(super) fn is_allowed(statement: &str, allowed: &BTreeSet<ModuleName>) -> bool {
    let has = |module: &str| {
        let ends = module.match_indices('.').map(|(at, _)| at).chain([module.len()]);
        ends.filter_map(|end| module.get(..end)?.parse().ok())
            .any(|name: ModuleName| allowed.contains(&name))
    };
    let modules = imported(statement);
    !modules.is_empty()
        && modules
            .iter()
            .all(|(module, name)| has(module) || name.is_some_and(|name| has(&format!("{module}.{name}"))))
}

#[cfg(test)]
mod tests;
