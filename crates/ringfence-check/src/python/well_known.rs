//! Which import a name stands for that a program uses without having it. A name alone says little: `datetime.now()`
//! wants the class and `datetime.timedelta()` the module, `queue.append()` is somebody's list. So a name is decided by
//! all its uses together, and where they disagree, or fit two imports, nothing is decided.

use super::profile;
use crate::lists::{NameSet, is_within};
use ringfence_types::ModuleName;
use ruff_python_ast::Stmt;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
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

/// Names by the module that they come from.
type ByModule = BTreeMap<&'static str, Vec<&'static str>>;

/// What programs use as if everybody had imported it.
#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
struct Known {
    /// Modules under their own names, of which any attribute may be used.
    modules: Vec<&'static str>,
    /// Modules whose names are ordinary words: `queue.Queue` is one, `queue.append` is somebody's list.
    words: ByModule,
    /// Packages of which parts have to be imported by themselves.
    packages: BTreeMap<&'static str, Package>,
    /// Modules under the short names that their own documentation uses.
    aliases: BTreeMap<&'static str, &'static str>,
    /// Names that mean one thing wherever they stand.
    names: ByModule,
    /// Functions whose names are ordinary words: only where every use is a call, or a decorator.
    called: ByModule,
    /// Methods by which a class is told from the module of the same name. Names that both have are the module's.
    datetime_class: Vec<&'static str>,
    /// New, or left out where there is no screen.
    not_everywhere: NameSet,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"), deny_unknown_fields)]
struct Package {
    /// What it has without its parts; none: whatever is asked for.
    plain: Option<Vec<&'static str>>,
    parts: Vec<&'static str>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| crate::lists::embedded(include_str!("well_known.json")));

/// An import that a name may stand for.
struct Meaning {
    statement: String,
    fits: Fits,
}

/// Which uses of a name an import fits.
enum Fits {
    All,
    Called,
    /// A module, of which any attribute is read.
    Module,
    /// A module whose name is an ordinary word: one of these attributes is read.
    Attributes(&'static [&'static str]),
    /// The class, not the module of the same name.
    Datetime,
    Package(&'static str, &'static Package),
}

static TABLE: LazyLock<HashMap<&str, Vec<Meaning>>> = LazyLock::new(|| {
    let mut table: HashMap<&str, Vec<Meaning>> = HashMap::new();
    let mut add = |name, statement, fits| table.entry(name).or_default().push(Meaning { statement, fits });
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

/// The import that a name with these uses stands for, if there is exactly one. The operator's own names win.
pub(super) fn statement(name: &str, uses: &[Usage<'_>], own: &BTreeMap<String, String>) -> Option<String> {
    if let Some(statement) = own.get(name) {
        // Checked when it was set; the worker does not rely on that.
        let is_right = check_known_import(name, statement).is_ok();
        return is_right.then(|| statement.trim().to_owned());
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

/// What a statement imports: modules, each with what is taken from it.
pub(super) fn imported(statement: &str) -> Vec<(&str, Option<&str>)> {
    let first = |text| str::split_whitespace(text).next().unwrap_or_default();
    let from = statement.strip_prefix("from ");
    if let Some((module, name)) = from.and_then(|rest| rest.split_once(" import ")) {
        return vec![(module.trim(), Some(first(name)))];
    }
    let modules = statement.strip_prefix("import ").unwrap_or_default().split(',');
    modules.map(|module| (first(module), None)).collect()
}

/// Whether every interpreter has what the statement imports.
pub(super) fn is_standard(statement: &str) -> bool {
    imported(statement).into_iter().all(|(module, name)| {
        let root = module.split('.').next().unwrap_or_default();
        let mut names = [Some(root), name].into_iter().flatten();
        profile::is_standard(root) && !names.any(|name| KNOWN.not_everywhere.contains(name))
    })
}

/// Whether a set of modules, each with what lies below it, has everything that a statement imports.
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
