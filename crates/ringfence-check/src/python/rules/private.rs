//! Private attributes (`x._name`) of what is not the program's own, of which the profile `strict` speaks: what a module of the
//! library keeps for itself may reach what a program may not.

use super::{BUILTINS_WRITE, PRIVATE_ATTRIBUTE, REFLECTION, Weight, attributes::is_dunder, walk::Walk};
use crate::python::{
    meaning::Meaning,
    profile::{BASIC, DATA_SCIENCE, NETWORK, STANDARD_LIBRARY},
};
use ringfence_types::Profile;
use ruff_python_ast::{self as ast, ExprContext};
use ruff_text_size::{Ranged, TextRange};

/// Documented, in spite of the underscore. In alphabetical order.
const PUBLIC: &[&str] = &[
    "_add_alias_",
    "_add_value_alias_",
    "_asdict",
    "_field_defaults",
    "_fields",
    "_generate_next_value_",
    "_ignore_",
    "_make",
    "_member_map_",
    "_member_names_",
    "_missing_",
    "_name_",
    "_order_",
    "_replace",
    "_value2member_map_",
    "_value_",
];

/// Private names of the library that lead far and that nobody else has a use for, whoever binds one of the same name. In
/// alphabetical order.
const FAR: &[&str] = &[
    "_close_and_return_root",
    "_convert_",
    "_find_new_",
    "_get_command_stdout",
    "_load_system_functions",
    "_old_targets",
    "_recreate_cm",
    "_set_new_attribute",
    "_vformat",
];

/// Private names of classes of the library that mean something to them, so that a class made of one may not bind them as its own.
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

const OF_CONFIG_PARSER: &[&str] = &[
    "_converters",
    "_dict",
    "_get_conv",
    "_interpolation",
    "_proxies",
    "_read",
    "_sections",
    "_unify_values",
];
const OF_ENUM: &[&str] = &[
    "_check_for_existing_members_",
    "_create_",
    "_find_data_repr_",
    "_find_data_type_",
    "_get_mixins_",
    "_member_type_",
    "_new_member_",
    "_use_args_",
    "_value_repr_",
];
const OF_EXIT_STACK: &[&str] = &[
    "_create_async_cb_wrapper",
    "_create_async_exit_wrapper",
    "_create_cb_wrapper",
    "_create_exit_wrapper",
    "_exit_callbacks",
    "_push_async_cm_exit",
    "_push_cm_exit",
    "_push_exit_callback",
];

/// Does nobody but the library have a use for a name.
pub(super) fn leads_far(name: &str) -> bool {
    name.starts_with('_') && FAR.binary_search(&name).is_ok()
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
fn is_from_a_library(path: &str) -> bool {
    let root = path.split(['.', '(']).next().unwrap_or(path);
    let of = |names: &[&str]| names.iter().any(|name| name.split('.').next() == Some(root));
    STANDARD_LIBRARY.contains(&root) || of(DATA_SCIENCE) || of(NETWORK)
}

/// Is it of a module that `strict` has.
fn is_of_a_basic_module(path: &str) -> bool {
    let has = |name: &str| {
        let rest = path.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !path.contains('(') && BASIC.iter().copied().any(has)
}

/// A name with an underscore before it, other than `_`, `__x__`, the fields `_1` of a named tuple and what is documented.
fn is_private(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('_') else {
        return false;
    };
    !rest.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit())
        && !is_dunder(name)
        && PUBLIC.binary_search(&name).is_err()
}

impl<'a> Walk<'a, '_, '_> {
    /// `x._name`, with what `x` denotes.
    pub(super) fn private_attribute(&mut self, name: &str, of: &Meaning<'a>, range: TextRange) {
        if !is_private(name) {
            return;
        }
        let Some(own) = &self.strict.own else { return };
        let of_library = match of {
            Meaning::Path(path) if is_of_a_library(path) && !self.imports.is_own(path) => {
                Some(path.to_string())
            }
            Meaning::Builtin(builtin) => Some((*builtin).to_owned()),
            _ => None,
        };
        let is_own_module = of
            .as_path()
            .is_some_and(|path| !is_from_a_library(path) || self.imports.is_own(path));
        if !leads_far(name) && of_library.is_none() && (is_own_module || own.has(name)) {
            return;
        }
        let what = match of_library {
            Some(path) => format!("`{name}` is a private part of `{path}`"),
            None if leads_far(name) => format!("`{name}` is a private part of the standard library"),
            None => format!("`{name}` is a private attribute of something that is not the program's own"),
        };
        self.say(&PRIVATE_ATTRIBUTE, Weight::STRICT_ERROR, range, what);
    }

    /// A text that is such a name: it may be on its way to `type` or `getattr`.
    pub(super) fn private_text(&mut self, text: &str, range: TextRange) {
        if self.strict.own.is_some() && leads_far(text) {
            let what = format!("`'{text}'` names a private part of the standard library");
            self.say(&PRIVATE_ATTRIBUTE, Weight::STRICT_ERROR, range, what);
        }
    }

    /// Bodies of classes that bind what only the library has a use for.
    pub(super) fn private_names_taken(&mut self) {
        let taken = self.strict.own.as_mut().map(|own| std::mem::take(&mut own.taken));
        for (name, range) in taken.unwrap_or_default() {
            let (rule, whose) = match is_dunder(name) {
                true => (&REFLECTION, "of the interpreter's own"),
                false => (&PRIVATE_ATTRIBUTE, "of the standard library"),
            };
            let what = format!("`{name}` takes the place of a private part {whose}");
            self.say(rule, Weight::STRICT_ERROR, range, what);
        }
    }

    /// `from module import _name`.
    pub(super) fn private_import(&mut self, module: &str, name: &ast::Identifier) {
        self.private_attribute(name.as_str(), &Meaning::path(module), name.range());
    }

    /// `import package._module`.
    pub(super) fn private_module(&mut self, module: &str, range: TextRange) {
        let mut of = String::new();
        for part in module.split('.') {
            if !of.is_empty() {
                self.private_attribute(part, &Meaning::path(&of), range);
                of.push('.');
            }
            of.push_str(part);
        }
    }

    /// `contextlib.setattr = f`: a name that the module's own code then finds.
    pub(super) fn module_changed(&mut self, attribute: &'a ast::ExprAttribute, of: &Meaning<'a>) {
        if attribute.ctx != ExprContext::Load {
            self.name_of_module_changed(of, attribute.range);
        }
    }

    /// `setattr(contextlib, 'setattr', f)`.
    pub(super) fn name_of_module_changed(&mut self, of: &Meaning<'a>, range: TextRange) {
        let Some(path) = of.as_path() else { return };
        if self.profile != Profile::Strict || !is_of_a_basic_module(path) || self.imports.is_own(path) {
            return;
        }
        let what = format!("`{}` changes a name of `{path}`", self.quote(range));
        self.say(&BUILTINS_WRITE, Weight::STRICT_ERROR, range, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_they_can_be_searched() {
        assert!(PUBLIC.is_sorted() && FAR.is_sorted());
    }

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
