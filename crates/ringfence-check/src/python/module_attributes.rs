//! Modules that are attributes of other modules: `uuid.os` is `os`. A module that another one imports at its top level
//! becomes its attribute, so a list of allowed imports means little without these.

use super::profile::is_standard;
use crate::lists::LISTS;

pub(crate) fn dangerous_module(name: &str) -> Option<&'static str> {
    LISTS.grave_modules.get(name).copied()
}

/// Returns the module that an attribute of a module is. An attribute with the name of a dangerous module counts as that
/// module in any package: `numpy.os`, `requests.sessions._sys`.
pub(crate) fn module_at(module: &str, attribute: &str) -> Option<&'static str> {
    // This is a class, but one that opens any file.
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
    dangerous_module(name).or_else(|| LISTS.held_modules.get(name).filter(|_| may_hold).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_recognized_as_attributes_of_others() {
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
    fn dangerous_module_is_recognized_by_its_name() {
        assert_eq!(dangerous_module("os"), Some("os"));
        assert_eq!(dangerous_module("math"), None);
    }
}
