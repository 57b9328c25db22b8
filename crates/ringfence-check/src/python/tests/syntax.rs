//! What is refused before anything runs, for which interpreter, and what is said of it.

use super::*;

/// What is said of a text that some version reads, with the hint of each.
fn told_by(code: &str, python: Option<(u8, u8)>) -> Vec<String> {
    let asked = CodeQuestion {
        python,
        ..asked(Profile::Unrestricted)
    };
    let found = check(code, &asked).findings;
    let errors = found.iter().filter(|finding| finding.rule.id == "python.syntax");
    errors.map(|finding| finding.what.clone()).collect()
}

#[test]
fn a_module_may_await_at_its_top() {
    for code in [
        "await x",
        "x = (await y) + 1",
        "async for x in y:\n    pass",
        "async with x:\n    pass",
        "[x async for x in y]",
        "[await x for x in y]",
        "{await x: 1 async for x in y}",
        "(await x for x in y)",
        "[[x async for x in y] for z in w]",
        "def f(a=await x): pass",
        "class A(await x): pass",
        "if x:\n    await y",
        "class A:\n    x = (await y for y in z)",
        "def f():\n    return (await x for x in y)",
    ] {
        assert!(
            told_by(code, None).is_empty(),
            "{code}: {:?}",
            told_by(code, None)
        );
    }
}

#[test]
fn what_is_not_asynchronous_may_not_await_and_is_told_once() {
    for code in [
        "def f():\n    await x",
        "class A:\n    await x",
        "lambda: await x",
        "class A:\n    x = [await y for y in z]",
        "def f():\n    async with x: pass",
        "def f():\n    return [x async for x in y]",
        "async def f():\n    def g():\n        await x",
        "async def f():\n    class A:\n        await x",
    ] {
        let told = told_by(code, None);
        let [only] = told.as_slice() else {
            panic!("{code}: {told:?}");
        };
        assert!(
            only.ends_with("outside of an asynchronous function"),
            "{code}: {only}"
        );
    }
    assert_eq!(
        told_by("yield 1", None),
        ["`yield` statement outside of a function"]
    );
}

#[test]
fn syntax_is_judged_for_the_interpreter_that_reads_it() {
    for (code, since) in [
        ("f'{x['a']}'", (3, 12)),
        ("f'{x!r:{\"a\"}} {\n1}'", (3, 12)),
        ("try: pass\nexcept A, B: pass", (3, 14)),
        ("t'{x}'", (3, 14)),
        ("type X = int", (3, 12)),
        ("def f[T](x: T): pass", (3, 12)),
        ("try: pass\nexcept* A: pass", (3, 11)),
        ("match x:\n    case 1: pass", (3, 10)),
        ("with (open(a) as b, open(c) as d): pass", (3, 9)),
        ("async def f(): return [[x async for x in y] for z in w]", (3, 11)),
    ] {
        let (major, minor) = since;
        assert!(told_by(code, None).is_empty(), "{code}");
        assert!(told_by(code, Some(since)).is_empty(), "{code}");
        let told = told_by(code, Some((major, minor - 1)));
        assert!(!told.is_empty(), "{code}");
        let names = |what: &String| what.contains(&format!("{major}.{minor}"));
        assert!(told.iter().all(names), "{code}: {told:?}");
    }
    assert!(told_by("x = [y := 1, f'{y}']\nprint(x, end='')", Some((3, 8))).is_empty());
    let asked = CodeQuestion {
        python: Some((3, 11)),
        ..asked(Profile::Unrestricted)
    };
    let found = check("type X = int", &asked).findings;
    assert_eq!(
        found[0].hint.as_deref(),
        Some("Write it as Python 3.11 reads it.")
    );
}
