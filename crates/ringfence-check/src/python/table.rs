//! Names with effects beyond the program's own data, by their full paths.

use super::weight::Weight;
use crate::rule::Rule;
use serde::Deserialize;
use std::{collections::HashMap, sync::LazyLock};

/// Names with the same effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) rule: &'static Rule,
    pub(super) weight: Weight,
    /// Predicate of the finding: "starts a process", as in "`os.system` starts a process".
    pub(super) does: &'static str,
    /// Full names; `ctypes.*` stands for all direct members, `.__dict__` for an attribute of any object.
    names: Vec<&'static str>,
}

static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| crate::lists::embedded(include_str!("groups.json")));

static INDEX: LazyLock<HashMap<&'static str, &'static Group>> = LazyLock::new(|| {
    let names = |group: &'static Group| group.names.iter().map(move |name| (*name, group));
    GROUPS.iter().flat_map(names).collect()
});

pub(super) fn find(path: &str) -> Option<&'static Group> {
    find_by_name(path).or_else(|| {
        let (module, name) = path.rsplit_once('.')?;
        let whole = INDEX.get(format!("{module}.*").as_str()).copied();
        whole.filter(|_| !name.starts_with("__"))
    })
}

/// Finds the group of a full name that is listed itself, not by all members of its module.
pub(super) fn find_by_name(path: &str) -> Option<&'static Group> {
    let of_system = ["posix.", "nt."].iter().find_map(|name| path.strip_prefix(name));
    let known = match of_system {
        Some(name) => INDEX.get(format!("os.{name}").as_str()),
        // Modules such as `_io` and `_pyio` implement other modules.
        None => INDEX
            .get(path)
            .or_else(|| INDEX.get(path.strip_prefix("_py").or(path.strip_prefix('_'))?)),
    };
    known.copied()
}

pub(super) fn find_builtin(name: &str) -> Option<&'static Group> {
    INDEX.get(format!("builtins.{name}").as_str()).copied()
}

/// Finds the group of an attribute by its name; `__*__` stands for any other dunder name, `__=__` for one that is set.
pub(super) fn find_attribute(name: &str) -> Option<&'static Group> {
    static ATTRIBUTES: LazyLock<HashMap<&str, &Group>> = LazyLock::new(|| {
        let known = INDEX.iter();
        known
            .filter_map(|(name, group)| Some((name.strip_prefix('.')?, *group)))
            .collect()
    });
    ATTRIBUTES.get(name).copied()
}

/// Returns the first direct member of a module with the weight `Grave`, with its group.
pub(super) fn in_module(module: &str) -> Option<(&'static Group, &'static str)> {
    let grave = GROUPS.iter().filter(|group| group.weight == Weight::Grave);
    let mut names = grave.flat_map(|group| group.names.iter().map(move |name| (group, *name)));
    names.find(|(_, name)| name.rsplit_once('.').is_some_and(|(of, _)| of == module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_full_name() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(find(path).map(|group| group.rule.id), expect, "{path}")
        };
        check("os.system", Some("python.process"));
        check("posix.system", Some("python.process"));
        check("builtins.eval", Some("python.dynamic_execution"));
        check("ctypes.CDLL", Some("python.native_code"));
        check("ctypes.CDLL().x", None);
        check("ctypes.__doc__", None);
        check("subprocess.PIPE", None);
        check("os.path", None);
        check("pathlib.Path().unlink", Some("python.file_deletion"));
    }

    #[test]
    fn no_name_is_in_two_groups() {
        let names: usize = GROUPS.iter().map(|group| group.names.len()).sum();
        assert_eq!(INDEX.len(), names);
        assert!(names > 300);
    }

    #[test]
    fn star_import_finds_the_gravest_name() {
        assert_eq!(in_module("os").map(|(_, name)| name), Some("os.system"));
        assert!(in_module("math").is_none());
    }
}
