//! Tests of what expressions denote.

use super::*;
use ruff_python_ast::Stmt;
use ruff_python_parser::parse_module;

/// Returns what the last expression of the code denotes.
fn meaning(code: &str) -> String {
    let parsed = parse_module(code).unwrap();
    let names = Names::of(parsed.syntax());
    let resolver = Meanings::new(&names);
    let Some(Stmt::Expr(last)) = parsed.suite().last() else {
        panic!("{code} does not end with an expression");
    };
    match resolver.of(&last.value) {
        Meaning::Unknown => "?".to_owned(),
        Meaning::Builtin(name) => format!("builtins.{name}"),
        Meaning::Path(path) => path.to_string(),
        Meaning::Text(text) => format!("'{text}'"),
    }
}

fn check(code: &str, expect: &str) {
    assert_eq!(meaning(code), expect, "{code}");
}

#[test]
fn aliases_resolve_to_their_values() {
    check("import os as o\no.system", "os.system");
    check("from os import system as s\ns", "os.system");
    check("import os.path\nos.path.join", "os.path.join");
    check("import os\nx = y = os\ny.system", "os.system");
    check("import os\na, b = os, 1\na.system", "os.system");
    check("import os\ndef f(o=os):\n    pass\nlambda: 0\nos", "os");
    check(
        "try:\n    import json\nexcept ImportError:\n    import simplejson as json\njson.loads",
        "json.loads",
    );
    check("e = eval\ne", "builtins.eval");
    check("(e := eval)", "builtins.eval");
    check("import uuid\nuuid.os.popen", "os.popen");
    check("from random import _os as x\nx.system", "os.system");
    check(
        "from pathlib import Path\nPath('x').unlink",
        "pathlib.Path().unlink",
    );
    check("os.system", "os.system");
    check("spam.system", "?");
    check("x = x\nx", "?");
    check("a = b\nb = a\na", "?");
    check("def f(json): pass\njson", "?");
}

#[test]
fn indirect_accesses_resolve_to_the_name() {
    check("import os\ngetattr(os, 'system')", "os.system");
    check("__import__('os').system", "os.system");
    check("__import__('os.path').system", "os.system");
    check("import importlib\nimportlib.import_module('os.path')", "os.path");
    check("import builtins\nbuiltins.eval", "builtins.eval");
    check("__builtins__['eval']", "builtins.eval");
    check("__builtins__.eval", "builtins.eval");
    check("__builtins__.__dict__['ev' 'al']", "builtins.eval");
    check("getattr(__builtins__, 'eval')", "builtins.eval");
    check("globals()['__builtins__'].exec", "builtins.exec");
    check("globals()['__builtins__']['exec']", "builtins.exec");
    check("import os\nglobals()['os'].system", "os.system");
    check("import os\nglobals().get('os').system", "os.system");
    check("import os\nvars(os)['system']", "os.system");
    check("import os\nos.__dict__['system']", "os.system");
    check("import os\nos.__getattribute__('system')", "os.system");
    check("import os\nobject.__getattribute__(os, 'system')", "os.system");
    check("import sys\nsys.modules['os'].system", "os.system");
    check("import sys\nsys.modules.get('os')", "os");
    check("print.__self__.eval", "builtins.eval");
    check("import os\n(os if 1 else 2).system", "os.system");
    check("__loader__.load_module('os')", "os");
}

#[test]
fn only_string_literals_are_known() {
    check("'a' 'c'", "'ac'");
    check("'\\x6f\\163' '\\N{LATIN SMALL LETTER A}'", "'osa'");
    check("x = 'a'\nx", "'a'");
    check("x = 'a'\nx = 'b'\nx", "?");
    for computed in [
        "'a' + 'b'",
        "'a' + x",
        "'a' * 3",
        "'%s' % 'a'",
        "''.join(['a', 'b'])",
        "'metsys'[::-1]",
        "chr(111)",
        "f'{x}'",
    ] {
        check(computed, "?");
    }
}

#[test]
fn long_chains_of_names_are_not_followed() {
    let chain: String = (0..1000).map(|at| format!("x{at} = x{}\n", at + 1)).collect();
    let code = format!("{chain}x1000 = 'a'\nx0");
    let parsed = parse_module(&code).unwrap();
    let names = Names::of(parsed.syntax());
    let resolver = Meanings::new(&names);
    let Some(Stmt::Expr(last)) = parsed.suite().last() else {
        panic!("{code}");
    };
    assert_eq!(resolver.of(&last.value), Meaning::Unknown);
    assert!(resolver.given_up.get());
}
