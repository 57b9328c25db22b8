//! Finds the import for a name that a program does not define, by all its uses: `datetime.now()` needs the class,
//! `datetime.timedelta()` the module; `queue.append()` is a list. If they disagree or fit two, there is no import.

use super::profile;
use crate::lists::{NameSet, is_within};
use ringfence_types::ModuleName;
use ruff_python_ast::Stmt;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};

const STATEMENT_BYTES_MAX: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Usage<'a> {
    /// `name.a.b`: the attributes, at most [`ATTRIBUTES_MAX`].
    Attributes(Vec<&'a str>),
    /// `name()`, `@name`.
    Called,
    Bare,
}

/// Number of attributes that identify a part of a package.
pub(super) const ATTRIBUTES_MAX: usize = 3;

type ByModule = BTreeMap<&'static str, Vec<&'static str>>;

/// Names that programs often use without importing them.
#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
struct Known {
    /// Modules under their own names, of which any attribute may be used.
    modules: Vec<&'static str>,
    /// Modules whose names are ordinary words, with their attributes: `queue.append` is a list, not the module.
    words: ByModule,
    /// Packages with parts that have to be imported by themselves.
    packages: BTreeMap<&'static str, Package>,
    /// Modules under the short names that their own documentation uses.
    aliases: BTreeMap<&'static str, &'static str>,
    /// Names with a single meaning.
    names: ByModule,
    /// Functions whose names are ordinary words: imported only if every use is a call or a decorator.
    called: ByModule,
    /// Methods that distinguish the class from the module of the same name. Names that both have count as the module's.
    datetime_class: Vec<&'static str>,
    /// Names that some interpreters lack: new ones, and ones that are left out on machines without a screen.
    not_everywhere: NameSet,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
struct Package {
    /// Attributes that need none of the parts; `None` if that is any attribute.
    plain: Option<Vec<&'static str>>,
    parts: Vec<&'static str>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| crate::lists::embedded(include_str!("well_known.json")));

struct Candidate {
    statement: String,
    fits: Fits,
}

/// The uses of a name that an import fits.
enum Fits {
    All,
    Called,
    /// A module; any attribute may be read.
    Module,
    /// A module whose name is an ordinary word; only these attributes may be read.
    Attributes(&'static [&'static str]),
    /// The class, not the module of the same name.
    Datetime,
    Package(&'static str, &'static Package),
}

static TABLE: LazyLock<HashMap<&str, Vec<Candidate>>> = LazyLock::new(|| {
    let mut table: HashMap<&str, Vec<Candidate>> = HashMap::new();
    let mut add = |name, statement, fits| table.entry(name).or_default().push(Candidate { statement, fits });
    for module in &KNOWN.modules {
        add(*module, format!("import {module}"), Fits::Module);
    }
    for (module, known) in &KNOWN.words {
        add(*module, format!("import {module}"), Fits::Attributes(known));
    }
    for (name, package) in &KNOWN.packages {
        add(*name, format!("import {name}"), Fits::Package(name, package));
    }
    for (name, module) in &KNOWN.aliases {
        add(*name, format!("import {module} as {name}"), Fits::Module);
    }
    let each =
        |(module, names): (&'static &str, &'static Vec<&str>)| names.iter().map(move |name| (module, *name));
    for (module, name) in KNOWN.names.iter().flat_map(each) {
        add(name, format!("from {module} import {name}"), Fits::All);
    }
    for (module, name) in KNOWN.called.iter().flat_map(each) {
        add(name, format!("from {module} import {name}"), Fits::Called);
    }
    let class = "from datetime import datetime".to_owned();
    let fits = Fits::Attributes(&KNOWN.datetime_class);
    add("dt", format!("{class} as dt"), fits);
    add("datetime", class, Fits::Datetime);
    let module = KNOWN.words.get("datetime").map_or(&[][..], Vec::as_slice);
    add("dt", "import datetime as dt".to_owned(), Fits::Attributes(module));
    table
});

/// Returns the import for a name with these uses, if exactly one fits. The operator's own names take precedence.
pub(super) fn statement(name: &str, uses: &[Usage<'_>], own: &BTreeMap<String, String>) -> Option<String> {
    if let Some(statement) = own.get(name) {
        // The setting is checked when it is set; the worker does not rely on that.
        let is_right = check_known_import(name, statement).is_ok();
        return is_right.then(|| statement.trim().to_owned());
    }
    let candidates = TABLE.get(name)?;
    let mut fitting = candidates.iter().filter_map(|one| one.statement(uses));
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first)
}

/// Returns a narrower import that is sufficient, for a profile that has only a part of the module: `import os.path`.
pub(super) fn narrower(name: &str, uses: &[Usage<'_>]) -> Option<String> {
    let only_path =
        |used: &Usage<'_>| matches!(used, Usage::Attributes(chain) if chain.first() == Some(&"path"));
    (name == "os" && uses.iter().all(only_path)).then(|| "import os.path".to_owned())
}

impl Candidate {
    fn statement(&self, uses: &[Usage<'_>]) -> Option<String> {
        let fits = match self.fits {
            Fits::All => true,
            Fits::Called => uses.iter().all(|used| *used == Usage::Called),
            Fits::Module => is_module(uses, |_| true),
            Fits::Attributes(known) => is_module(uses, |first| known.contains(&first)),
            Fits::Datetime => uses.iter().all(|used| match used {
                Usage::Attributes(chain) => chain
                    .first()
                    .is_some_and(|first| KNOWN.datetime_class.contains(first)),
                Usage::Called | Usage::Bare => true,
            }),
            Fits::Package(name, package) => return parts_of(name, package, uses),
        };
        fits.then(|| self.statement.clone())
    }
}

/// True if the uses are those of a module: no calls, at least one attribute, and all attributes are known.
fn is_module(uses: &[Usage<'_>], known: impl Fn(&str) -> bool) -> bool {
    let mut attributes = uses.iter().filter_map(|used| match used {
        Usage::Attributes(chain) => chain.first(),
        Usage::Called | Usage::Bare => None,
    });
    let reads_known = attributes.clone().next().is_some() && attributes.all(|first| known(first));
    reads_known && !uses.contains(&Usage::Called)
}

/// Returns the import of all needed parts, in one statement that binds one name: `import urllib.parse, urllib.request`.
fn parts_of(name: &str, package: &Package, uses: &[Usage<'_>]) -> Option<String> {
    let mut needed = BTreeSet::new();
    for used in uses {
        let Usage::Attributes(chain) = used else {
            return None;
        };
        let path = chain.join(".");
        let named = |part: &&&str| is_within(&path, part);
        match (package.parts.iter().find(named), &package.plain) {
            (Some(part), _) => drop(needed.insert(*part)),
            (None, Some(plain)) if !chain.first().is_some_and(|first| plain.contains(first)) => return None,
            (None, _) => {}
        }
    }
    if needed.is_empty() {
        return (!uses.is_empty()).then(|| format!("import {name}"));
    }
    let modules: Vec<String> = needed.iter().map(|part| format!("{name}.{part}")).collect();
    Some(format!("import {}", modules.join(", ")))
}

/// Checks an operator's import for a name: one statement on one line that binds exactly that name.
///
/// # Errors
/// A description of the problem, in one sentence.
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
            if from.level > 0 || from.module.as_deref() == Some("__future__") {
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

/// Returns the modules that a statement imports, each with the name imported from it.
pub(super) fn imported(statement: &str) -> Vec<(&str, Option<&str>)> {
    let first = |text| str::split_whitespace(text).next().unwrap_or_default();
    let from = statement.strip_prefix("from ");
    if let Some((module, name)) = from.and_then(|rest| rest.split_once(" import ")) {
        return vec![(module.trim(), Some(first(name)))];
    }
    let modules = statement.strip_prefix("import ").unwrap_or_default().split(',');
    modules.map(|module| (first(module), None)).collect()
}

/// True if every interpreter has the modules and names that a statement imports.
pub(super) fn is_standard(statement: &str) -> bool {
    imported(statement).into_iter().all(|(module, name)| {
        let root = module.split('.').next().unwrap_or_default();
        let mut names = [Some(root), name].into_iter().flatten();
        profile::is_standard(root) && !names.any(|name| KNOWN.not_everywhere.contains(name))
    })
}

/// True if a set of modules, each including its submodules, covers everything that a statement imports.
pub(super) fn is_allowed(statement: &str, allowed: &BTreeSet<ModuleName>) -> bool {
    let has = |path: &str| allowed.iter().any(|module| is_within(path, module.as_str()));
    let modules = imported(statement);
    !modules.is_empty()
        && modules
            .iter()
            .all(|(module, name)| has(module) || name.is_some_and(|name| has(&format!("{module}.{name}"))))
}

#[cfg(test)]
mod tests;
