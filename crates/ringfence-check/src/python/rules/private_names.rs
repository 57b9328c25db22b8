//! Private names of the library: which are documented, which lead far, and which mean something to its classes.

use super::attributes::is_dunder;
use crate::{
    lists::{LISTS, is_within},
    python::profile::{BASIC, DATA_SCIENCE, NETWORK, is_standard},
};

/// Whether only the library has a use for a name.
pub(super) fn leads_far(name: &str) -> bool {
    name.starts_with('_') && LISTS.far_private.contains(&name)
}

/// Whether a thing, by its path from a module, is a library's. What a call gives may be the program's:
/// `copy.copy(self)`.
pub(super) fn is_of_a_library(path: &str) -> bool {
    !path.contains('(') && is_from_a_library(path)
}

/// The same, or what a call of it gives.
pub(super) fn is_from_a_library(path: &str) -> bool {
    let root = path.split(['.', '(']).next().unwrap_or(path);
    let of = |names: &[&str]| names.iter().any(|name| name.split('.').next() == Some(root));
    is_standard(root) || of(DATA_SCIENCE) || of(NETWORK)
}

/// Whether it is of a module that `strict` has.
pub(super) fn is_of_a_basic_module(path: &str) -> bool {
    !path.contains('(') && BASIC.iter().any(|module| is_within(path, module))
}

/// A name with an underscore before it, other than `_`, `__x__`, the fields `_1` of a named tuple and what is
/// documented.
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
    fn a_private_name_has_an_underscore_and_is_not_documented() {
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
    fn a_module_of_the_library_is_told_from_the_programs_own() {
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
