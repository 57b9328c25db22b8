//! Tests of name resolution against the interpreter's own rules.

use super::*;
use crate::python::tests::cases;
use ruff_python_parser::parse_module;

fn unresolved(code: &str) -> Vec<String> {
    let parsed = parse_module(code).unwrap();
    let names = Names::of(parsed.syntax());
    let mut unresolved: Vec<String> = names.unresolved().map(|name| name.name.to_owned()).collect();
    unresolved.dedup();
    unresolved
}

impl<'a> Names<'a> {
    pub(crate) fn of(module: &'a ModModule) -> Self {
        Self::compiled(module, "", PythonVersion::latest()).0
    }
}

#[test]
fn names_resolve_as_in_the_compiler() {
    for (_, code, expect) in cases(include_str!("tests.txt")) {
        assert_eq!(unresolved(&code).join(", "), expect, "{code}");
    }
}

#[test]
fn invisible_bindings_are_detected() {
    let check = |code: &str, star: bool, text: bool| {
        let parsed = parse_module(code).unwrap();
        let names = Names::of(parsed.syntax());
        assert_eq!(
            (!names.stars.is_empty(), names.has_dynamic_bindings),
            (star, text),
            "{code}"
        );
    };
    check("from math import *", true, false);
    check("exec('x = 1')", false, true);
    check("globals()['x'] = 1", false, true);
    check("def exec(x): ...\nexec('x = 1')", false, false);
    check("import builtins\nbuiltins.x = 1", false, true);
    check("import sys\nsys.modules['x'].y = 1", false, true);
    check("'exec'; a.exec()", false, false);
}

#[test]
fn possibly_unshadowed_builtin_is_kept() {
    let check = |code: &str, builtin: bool| {
        let parsed = parse_module(code).unwrap();
        let names = Names::of(parsed.syntax());
        let last = names.reads.iter().rfind(|read| read.name == "eval").unwrap();
        let may_be = last.resolution == Resolution::Builtin || last.fallback == Some(Resolution::Builtin);
        assert_eq!(may_be, builtin, "{code}");
    };
    check("eval", true);
    check("eval = 1\neval", false);
    check("eval = eval", true);
    check("if a:\n    eval = 1\neval", true);
    check("eval = 1\ndel eval\neval", true);
    check("def eval(): return eval", false);
    check("@d\ndef eval(): return eval", true);
    check("def f(): return eval\neval = 1", true);
    check("eval = 1\ndef f(): return eval", false);
    check("def f(eval): return eval", false);
    check("def f():\n    return eval\n    eval = 1", false);
    check("class A:\n    eval = eval", true);
    check("class A:\n    eval = 1\n    x = eval", false);
    check("class A:\n    eval = 1\n    def f(self): eval", true);
    check("class eval:\n    eval", true);
    check("try:\n    pass\nexcept A as eval:\n    pass\neval", true);
    check("eval: int\neval", true);
    check("from m import eval\neval", false);
    check("for eval in []: pass\neval", true);
}
