//! Tests of syntax errors: their texts, and the versions of the interpreter that have them.

use super::*;

/// Returns the texts of the syntax errors for a version of Python.
fn syntax_errors(code: &str, python: Option<(u8, u8)>) -> Vec<String> {
    let question = CodeQuestion {
        python,
        ..question(Profile::Unrestricted)
    };
    let found = check(code, &question).findings;
    let errors = found.iter().filter(|finding| finding.rule.id == "python.syntax");
    errors.map(|finding| finding.what.clone()).collect()
}

#[test]
fn module_may_await_at_its_top_level() {
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
            syntax_errors(code, None).is_empty(),
            "{code}: {:?}",
            syntax_errors(code, None)
        );
    }
}

#[test]
fn await_outside_of_asynchronous_code_is_reported_once() {
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
        let reported = syntax_errors(code, None);
        let [only] = reported.as_slice() else {
            panic!("{code}: {reported:?}");
        };
        assert!(
            only.ends_with("outside of an asynchronous function"),
            "{code}: {only}"
        );
    }
    assert_eq!(
        syntax_errors("yield 1", None),
        ["`yield` statement outside of a function"]
    );
}

#[test]
fn syntax_is_checked_for_the_given_python_version() {
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
        assert!(syntax_errors(code, None).is_empty(), "{code}");
        assert!(syntax_errors(code, Some(since)).is_empty(), "{code}");
        let reported = syntax_errors(code, Some((major, minor - 1)));
        assert!(!reported.is_empty(), "{code}");
        let names = |what: &String| what.contains(&format!("{major}.{minor}"));
        assert!(reported.iter().all(names), "{code}: {reported:?}");
    }
    assert!(syntax_errors("x = [y := 1, f'{y}']\nprint(x, end='')", Some((3, 8))).is_empty());
    let question = CodeQuestion {
        python: Some((3, 11)),
        ..question(Profile::Unrestricted)
    };
    let found = check("type X = int", &question).findings;
    assert_eq!(
        found[0].hint.as_deref(),
        Some("Write it as Python 3.11 reads it.")
    );
}

/// Returns each finding as `line what | hint`.
fn explained(code: &str) -> Vec<String> {
    let mut found = check(code, &question(Profile::Unrestricted)).findings;
    found.sort_by_key(|finding| finding.range.start);
    let line = |finding: &Finding| {
        let hint = finding.hint.as_deref().unwrap_or("");
        format!("{} {} | {hint}", line_of(code, finding), finding.what)
    };
    found.iter().map(line).collect()
}

#[test]
fn markdown_around_the_code_is_reported_once() {
    const HINT: &str = "a line of Markdown | Send the code without the fences (```).";
    for (code, expect) in [
        ("```python\nprint(1)\n```\n", &["1"][..]),
        ("```\nprint(1)\n```", &["1"]),
        (
            "Here is the code:\n\n```python\nprint(1)\n```\nIt prints 1.\n",
            &["3"],
        ),
        ("print(1)\n```", &["2"]),
        ("```py\nprint(1)\n", &["1"]),
    ] {
        let expect: Vec<String> = expect.iter().map(|line| format!("{line} {HINT}")).collect();
        let reported: Vec<String> = explained(code)
            .into_iter()
            .filter(|line| line.contains("Markdown"))
            .collect();
        assert_eq!(reported, expect, "{code}");
    }
    assert_eq!(explained("```python\nprint(1)\n```").len(), 1);
    assert_eq!(explained("Here:\n```python\nprint(1)\n```\nIt is done.").len(), 1);
    // Errors in the code itself are reported once the fences are removed.
    assert_eq!(explained("```python\nx = = 1\n```").len(), 1);
    assert!(explained("x = '''\n```python\n'''\n# ```\n").is_empty());
}

#[test]
fn notebook_commands_are_reported_once_each() {
    const WHAT: &str = "a command of a notebook, which is no Python | Leave the command out; packages are named in `packages`.";
    assert_eq!(
        explained("!pip install numpy\nx = 1\n%matplotlib inline\nif x:\n    !ls -l\n"),
        [format!("1 {WHAT}"), format!("3 {WHAT}"), format!("5 {WHAT}")]
    );
    assert_eq!(explained("%%time\nx = 1"), [format!("1 {WHAT}")]);
    assert!(explained("x = (5\n    % 3)\n").is_empty());
}

#[test]
fn print_statement_is_reported_as_one() {
    const WHAT: &str = "`print` is used as a statement | In Python 3 print is a function: print(...).";
    assert_eq!(explained("print \"x\""), [format!("1 {WHAT}")]);
    assert_eq!(
        explained("if 1:\n    print 'a %s' % 1, 2\n    print 'x',\n"),
        [format!("2 {WHAT}"), format!("3 {WHAT}")]
    );
    assert_eq!(explained("x = 1\nprint x"), [format!("2 {WHAT}")]);
    assert!(
        !explained("print if")
            .iter()
            .any(|line| line.contains("statement |"))
    );
}

#[test]
fn curly_quotes_are_reported() {
    assert_eq!(
        explained("print(“hello”)\n"),
        ["1 `“` is no quote of Python | Use straight quotes."]
    );
    assert_eq!(
        explained("x = 1\ny = ‘it’\n"),
        ["2 `‘` is no quote of Python | Use straight quotes."]
    );
    assert!(explained("x = '“hello”'  # ‘x’").is_empty());
    let lines = explained("x = = '“hello”'");
    assert!(lines.len() == 1 && !lines[0].contains("quote"), "{lines:?}");
}

#[test]
fn unclosed_bracket_is_reported() {
    const HINT: &str = "Close the bracket.";
    assert_eq!(
        explained("x = 1\ny = (1,\nz = 2\nw = 3\n"),
        [format!("2 `(` was never closed | {HINT}")]
    );
    assert_eq!(
        explained("def f():\n    return {'a': [1, 2\n\nprint(f())\n"),
        [format!("2 `[` was never closed | {HINT}")]
    );
    assert_eq!(explained("print(1"), [format!("1 `(` was never closed | {HINT}")]);
    for code in ["print('abc)\n", "x = (1]\n", "x = 1)\n"] {
        let reported = explained(code);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(!reported[0].contains("never closed"), "{reported:?}");
    }
}

#[test]
fn only_the_first_of_many_errors_are_reported() {
    let checked = check(&"x = = 1\n".repeat(50), &question(Profile::Unrestricted));
    assert_eq!(checked.findings.len(), 20);
    let checked = check(&"return 1\n".repeat(50), &question(Profile::Unrestricted));
    assert_eq!(checked.findings.len(), 20);
}

#[test]
fn warnings_survive_among_many_informational_findings() {
    let notes: String = (0..30_000).map(|at| format!("open('{at}')\n")).collect();
    let code = format!("{notes}import os\nos.system('x')\nimport ctypes\n");
    let checked = check(&code, &question(Profile::Unrestricted));
    assert_eq!(checked.findings.len(), 30_001);
    let answer = crate::verdict::conclude(&code, checked).validation;
    assert!(answer.issues.iter().any(|issue| issue.rule == "python.process"));
    assert_eq!(
        (answer.issues.len(), answer.issues_total),
        (ringfence_types::ISSUES_MAX, 30_001)
    );
}
