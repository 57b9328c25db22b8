//! Which modules one reaches as an attribute of another: `uuid.os` is `os`. What a module imports at its top is an
//! attribute of it, so a list of modules that may be imported means little without this one.

use super::profile::is_standard;
use crate::lists::LISTS;

/// The name, if it is such a module.
pub(crate) fn is_grave(name: &str) -> Option<&'static str> {
    LISTS.grave_modules.get(name).copied()
}

/// The module that an attribute of a module is. One that is called as a grave module is taken for it, in whatever
/// package: `numpy.os`, `requests.sessions._sys`.
pub(crate) fn module_at(module: &str, attribute: &str) -> Option<&'static str> {
    // A class, but one that opens any file.
    if (module, attribute) == ("json.tool", "Path") {
        return Some("pathlib.Path");
    }
    // `socket.socket` is a class, and `_signal.signal` a function.
    let last = module.rsplit('.').next().unwrap_or(module);
    if module.contains('(') || last == attribute {
        return None;
    }
    let name = attribute.trim_start_matches('_');
    let root = module.split('.').next().unwrap_or(module);
    let may_hold = last.trim_start_matches('_') != name && is_standard(root);
    is_grave(name).or_else(|| LISTS.held_modules.get(name).filter(|_| may_hold).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_the_names_that_others_give_it() {
        let check = |module, attribute, expect| {
            assert_eq!(module_at(module, attribute), expect, "{module}.{attribute}")
        };
        check("uuid", "os", Some("os"));
        check("random", "_os", Some("os"));
        check("json", "codecs", Some("codecs"));
        check("statistics", "sys", Some("sys"));
        check("enum", "bltns", Some("builtins"));
        check("json.tool", "Path", Some("pathlib.Path"));
        check("numpy", "os", Some("os"));
        check("numpy", "array", None);
        check("pandas", "io", None);
        check("socket", "socket", None);
        check("_signal", "signal", None);
        check("a.b()", "os", None);
        check("scipy", "signal", None);
        check("math", "pi", None);
    }

    #[test]
    fn a_grave_module_is_known_by_its_name() {
        assert_eq!(is_grave("os"), Some("os"));
        assert_eq!(is_grave("math"), None);
    }
}
