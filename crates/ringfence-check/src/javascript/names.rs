//! Canonical paths for objects of the language and of Node.js: `globalThis.process.mainModule.require` is `require`.

use crate::{lists::LISTS, unknown::UNKNOWN};
use std::rc::Rc;

const PATH_BYTES_MAX: usize = 256;

pub(super) fn global(name: &str) -> &str {
    match name {
        "global" | "window" | "self" | "root" | "GLOBAL" => "globalThis",
        name => name,
    }
}

/// True for a global name without a meaning to the rules: `window`.
pub(super) fn is_plain(path: &str) -> bool {
    !path.contains([':', '.']) && !LISTS.functions.contains(path)
}

/// The path of the module that `require(name)` returns.
pub(super) fn module(name: &str) -> String {
    let bare = name.strip_prefix("node:").unwrap_or(name);
    match LISTS.node_modules.contains(bare) {
        true if bare == "process" => bare.to_owned(),
        true => format!("node:{bare}"),
        false => format!("npm:{name}"),
    }
}

pub(super) fn is_shared_class(path: &str) -> bool {
    LISTS.shared_classes.contains(path)
        || path.ends_with("Error") && path.starts_with(char::is_uppercase) && !path.contains('.')
        || path.ends_with("Array") && matches!(path.as_bytes(), [b'I' | b'U' | b'F' | b'B', ..])
}

/// Appends a member name to a path, in its canonical form.
pub(super) fn joined(path: &str, name: &str) -> Rc<str> {
    let short = match (path, name) {
        ("globalThis", name) => global(name),
        ("module" | "process.mainModule" | "require.main" | "module.parent", "require") => "require",
        ("module" | "process.mainModule" | "require.main", "constructor")
        | ("node:module", "Module")
        | ("node:module.prototype", "constructor") => "node:module",
        ("node:module.prototype", "require") => "require",
        ("node:fs", "promises") => "node:fs/promises",
        ("node:path", "posix" | "win32") => "node:path",
        ("globalThis.constructor", "constructor") => "Function",
        (path, "default") if path.starts_with("node:") && !path.contains('.') => path,
        (path, "constructor") if path.ends_with(".prototype") => path.trim_end_matches(".prototype"),
        (path, "constructor") if is_function(path) => "Function",
        _ if path.len() > PATH_BYTES_MAX => return Rc::from(UNKNOWN.to_string()),
        _ => return Rc::from(format!("{path}.{name}")),
    };
    Rc::from(short)
}

fn is_function(path: &str) -> bool {
    LISTS.functions.contains(path)
        || path.contains('.') && path.starts_with("node:")
        || path.ends_with(".constructor")
}
