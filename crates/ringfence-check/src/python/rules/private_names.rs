//! Private names of the library: which are documented, which lead far, and which mean something to its classes.

use super::attributes::is_dunder;
use crate::lists::LISTS;
use crate::python::profile::{BASIC, DATA_SCIENCE, NETWORK, is_standard};

/// Private names of classes of the library that mean something to them, so that a class made of one may not bind them
/// as its own.
#[rustfmt::skip]
const OF_CLASSES: &[(&str, &[&str])] = &[
    ("configparser.ConfigParser", OF_CONFIG_PARSER),
    ("configparser.RawConfigParser", OF_CONFIG_PARSER),
    ("contextlib.AsyncExitStack", OF_EXIT_STACK),
    ("contextlib.ExitStack", OF_EXIT_STACK),
    ("contextlib.chdir", &["_old_cwd"]),
    ("contextlib.redirect_stderr", &["_stream"]),
    ("contextlib.redirect_stdout", &["_stream"]),
    ("contextlib.suppress", &["_exceptions"]),
    ("enum.EnumMeta", OF_ENUM),
    ("enum.EnumType", OF_ENUM),
    ("enum.Enum", OF_ENUM),
    ("enum.Flag", OF_ENUM),
    ("enum.IntEnum", OF_ENUM),
    ("enum.IntFlag", OF_ENUM),
    ("enum.StrEnum", OF_ENUM),
    ("functools.partialmethod", &["_make_unbound_method"]),
    ("functools.singledispatchmethod", &["_method_cache"]),
    ("html.parser.HTMLParser", &[
        "_decl_otherchars", "_parse_doctype_attlist", "_parse_doctype_element", "_parse_doctype_entity",
        "_parse_doctype_notation", "_parse_doctype_subset", "_scan_name",
    ]),
    ("random.Random", &["_randbelow", "_randbelow_with_getrandbits", "_randbelow_without_getrandbits"]),
    ("string.Template", &["_invalid"]),
    ("typing.Generic", &["_is_protocol"]),
    ("typing.Protocol", &["_is_protocol", "_is_runtime_protocol"]),
];

#[rustfmt::skip]
const OF_CONFIG_PARSER: &[&str] = &[
    "_converters", "_dict", "_get_conv", "_interpolation", "_proxies", "_read", "_sections", "_unify_values",
];
#[rustfmt::skip]
const OF_ENUM: &[&str] = &[
    "_check_for_existing_members_", "_create_", "_find_data_repr_", "_find_data_type_", "_get_mixins_",
    "_member_type_", "_new_member_", "_use_args_", "_value_repr_",
];
#[rustfmt::skip]
const OF_EXIT_STACK: &[&str] = &[
    "_create_async_cb_wrapper", "_create_async_exit_wrapper", "_create_cb_wrapper", "_create_exit_wrapper",
    "_exit_callbacks", "_push_async_cm_exit", "_push_cm_exit", "_push_exit_callback",
];

/// Whether only the library has a use for a name.
pub(super) fn leads_far(name: &str) -> bool {
    name.starts_with('_') && LISTS.far_private.contains(&name)
}

/// The private names that a class of the library has.
pub(super) fn names_of(path: &str) -> impl Iterator<Item = &'static str> {
    let known = OF_CLASSES.iter().find(|(class, _)| *class == path);
    known.into_iter().flat_map(|(_, names)| names.iter().copied())
}

/// Is a thing, by its way from a module, one of a library. What a call gives may be the program's: `copy.copy(self)`.
pub(super) fn is_of_a_library(path: &str) -> bool {
    !path.contains('(') && is_from_a_library(path)
}

/// The same, or what a call of it gives.
pub(super) fn is_from_a_library(path: &str) -> bool {
    let root = path.split(['.', '(']).next().unwrap_or(path);
    let of = |names: &[&str]| names.iter().any(|name| name.split('.').next() == Some(root));
    is_standard(root) || of(DATA_SCIENCE) || of(NETWORK)
}

/// Is it of a module that `strict` has.
pub(super) fn is_of_a_basic_module(path: &str) -> bool {
    let has = |name: &str| {
        let rest = path.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !path.contains('(') && BASIC.iter().copied().any(has)
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
