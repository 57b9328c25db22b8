//! Private names of libraries, and paths that lead into a library.

use super::attributes::is_dunder;
use crate::{
    lists::{LISTS, is_within},
    python::profile::{BASIC, DATA_SCIENCE, NETWORK, is_standard},
};

/// True for a private name that always counts as the standard library's.
pub(super) fn is_std_private(name: &str) -> bool {
    name.starts_with('_') && LISTS.far_private.contains(&name)
}

/// True if a path leads to a part of a library. The result of a call may be the program's: `copy.copy(self)`.
pub(super) fn is_of_a_library(path: &str) -> bool {
    !path.contains('(') && is_from_a_library(path)
}

/// The same, including the results of calls.
pub(super) fn is_from_a_library(path: &str) -> bool {
    let root = path.split(['.', '(']).next().unwrap_or(path);
    let of = |names: &[&str]| names.iter().any(|name| name.split('.').next() == Some(root));
    is_standard(root) || of(DATA_SCIENCE) || of(NETWORK)
}

/// True if a path leads to a part of a module that `strict` has.
pub(super) fn is_of_a_basic_module(path: &str) -> bool {
    !path.contains('(') && BASIC.iter().any(|module| is_within(path, module))
}

/// True for a name with a leading underscore but `_`, `__x__`, the field `_1` of a named tuple and documented names.
pub(super) fn is_private(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('_') else {
        return false;
    };
    !rest.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit())
        && !is_dunder(name)
        && !LISTS.documented.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_name_has_an_underscore_and_is_not_documented() {
        let check = |name: &str, expect: bool| assert_eq!(is_private(name), expect, "{name}");
        check("_x", true);
        check("__x", true);
        check("_convert_", true);
        check("_", false);
        check("__", false);
        check("_1", false);
        check("__x__", false);
        check("_asdict", false);
        check("_missing_", false);
        check("x", false);
    }

    #[test]
    fn library_modules_are_distinguished_from_the_programs_own() {
        let check = |path: &str, expect: bool| assert_eq!(is_of_a_library(path), expect, "{path}");
        check("uuid", true);
        check("random.Random", true);
        check("numpy.core", true);
        check("copy.copy()", false);
        check("mine.part", false);
        check("uuids", false);
        assert!(is_of_a_basic_module("json.decoder") && !is_of_a_basic_module("sys"));
    }
}
