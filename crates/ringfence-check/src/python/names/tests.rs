//! What names mean, held against the interpreter's own rules.

use super::*;
use ruff_python_parser::parse_module;

fn unresolved(code: &str) -> Vec<String> {
    let parsed = parse_module(code).unwrap();
    let names = Names::of(parsed.syntax());
    let mut unresolved: Vec<String> = names.unresolved().map(|name| name.name.to_owned()).collect();
    unresolved.dedup();
    unresolved
}

#[test]
fn names_are_resolved_as_the_compiler_resolves_them() {
    let check = |code: &str, expect: &[&str]| assert_eq!(unresolved(code), expect, "{code}");
    check("print(x)", &["x"]);
    check("x = 1\nprint(x)", &[]);
    check("def f():\n    return x\nx = 1\n", &[]);
    check("def f():\n    x = 1\nprint(x)", &["x"]);
    check("import a.b.c\na.b; b", &["b"]);
    check("import a.b as c\na; c", &["a"]);
    check("from m import a as b, c\na; b; c", &["a"]);
    check(
        "class A:\n    x = 1\n    y = x\n    def f(self):\n        return x",
        &["x"],
    );
    check(
        "class A:\n    x = [1]\n    y = [z for z in x]\n    w = [x for z in [1]]",
        &["x"],
    );
    check(
        "class A:\n    def f(self):\n        return __class__\n    m = __module__\n__class__",
        &["__class__"],
    );
    check("[y for y in x]\ny", &["x", "y"]);
    check("[(q := y) for y in range(3)]\nq", &[]);
    check(
        "def f():\n    any((q := y) for y in [1])\n    return q\nq",
        &["q"],
    );
    check("f = lambda a, b=c, *d, e, **g: (a, b, d, e, g, h)", &["c", "h"]);
    check(
        "def f(a, /, b=a, *c, d: e = 1, **g) -> i:\n    return (a, b, c, d, g)",
        &["a", "e", "i"],
    );
    check("def f():\n    global x\n    x = 1\nprint(x)", &[]);
    check(
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x += 1\n        return x",
        &[],
    );
    check(
        "def f():\n    x = 1\n    def g():\n        global x\n        return x",
        &["x"],
    );
    check(
        "def f():\n    global x\n    def g():\n        return x\n    x = 1",
        &[],
    );
    check("try:\n    pass\nexcept E as e:\n    e\ne", &["E"]);
    check("for i, (j, *k) in l:\n    pass\nelse:\n    i, j, k", &["l"]);
    check("with a as (b, c), d as e[f]:\n    b, c", &["a", "d", "e", "f"]);
    check("x += 1", &[]);
    check("x: int\ny: T = 1\nx, y", &["T"]);
    check("def f():\n    x: T = 1\n    y.z: U = 2", &["y"]);
    check(
        "from __future__ import annotations\ndef f(a: T) -> U: ...\nx: V = 1",
        &[],
    );
    check("def f(a: 'T') -> 'U': ...", &[]);
}

#[test]
fn names_in_patterns_type_parameters_and_texts_are_resolved_too() {
    let check = |code: &str, expect: &[&str]| assert_eq!(unresolved(code), expect, "{code}");
    check(
        "match a:\n    case {'k': b, **c}: b, c\n    case [d, *e]: d, e\n    case P(x=f) as g: f, g\n    case m.n | 1: o",
        &["a", "P", "m", "o"],
    );
    check("def f[T: B](a: T = T) -> T:\n    return T\nT", &["B", "T"]);
    check("class C[T](G[T]):\n    def m(self, a: T): return T", &["G"]);
    check("type A[T] = list[T] | A | B", &["B"]);
    check(
        "class C:\n    class D: pass\n    def m[T](self, d: D): return D",
        &["D"],
    );
    check(
        "@d\ndef f(): ...\n@e(f)\nclass C(B, metaclass=M): ...",
        &["d", "e", "B", "M"],
    );
    check("f'{a!r:{b}} {c=}'; 'd'", &["a", "b", "c"]);
    check("del x\nx", &[]);
    check("a.b = c[d] = 1\ne[0] += f", &["a", "c", "d", "e", "f"]);
    check("x = x", &[]);
    check(
        "__name__, __file__, __builtins__, __annotations__, WindowsError",
        &["WindowsError"],
    );
    // In a class this is another name, which is not followed.
    check("class C:\n    __p = 1\n    def m(self): return __p", &[]);
    check(
        "async def f():\n    async for x in y: x\n    async with z as w: await w",
        &["y", "z"],
    );
    check("lambda: (yield x)", &["x"]);
    check("[a for a in b for c in a if c for d in e]", &["b", "e"]);
    check("print(os.path, sys)\nimport sys", &["os"]);
}

#[test]
fn what_binds_out_of_sight_is_known() {
    let check = |code: &str, star: bool, text: bool| {
        let parsed = parse_module(code).unwrap();
        let names = Names::of(parsed.syntax());
        assert_eq!(
            (!names.stars.is_empty(), names.binds_by_text),
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
fn a_builtin_that_may_not_be_bound_yet_is_told() {
    let check = |code: &str, builtin: bool| {
        let parsed = parse_module(code).unwrap();
        let names = Names::of(parsed.syntax());
        let last = names.reads.iter().rfind(|read| read.name == "eval").unwrap();
        let may_be = last.resolution == Resolution::Builtin || last.otherwise == Some(Resolution::Builtin);
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
