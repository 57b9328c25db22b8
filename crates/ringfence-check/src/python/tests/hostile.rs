//! Hostile code must not overflow the stack of a worker and must not take long.

use super::*;

const STACK_BYTES: usize = 8 * 1024 * 1024;

fn within_a_worker(code: String) -> Vec<Finding> {
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let started = processor_time();
            let found = found(&code, Profile::Strict);
            let took = processor_time() - started;
            let short: String = code.chars().take(40).collect();
            assert!(took < Duration::from_secs(20), "{short} took {took:?}");
            found
        })
        .unwrap()
        .join()
        .unwrap()
}

fn is_refused(code: String) {
    let short: String = code.chars().take(40).collect();
    let found = within_a_worker(code);
    assert!(
        found
            .iter()
            .any(|finding| ["python.nesting", "python.syntax"].contains(&finding.rule.id)),
        "{short} {:?}",
        found.first()
    );
}

fn passes(code: String) {
    let short: String = code.chars().take(40).collect();
    let found = within_a_worker(code);
    let error = found.iter().find(|finding| finding.severity == Severity::Error);
    assert!(error.is_none(), "{short} {error:?}");
}

#[test]
fn deeply_nested_code_is_refused() {
    let deep = 100_000;
    is_refused("(".repeat(deep));
    is_refused(format!("{}1{}", "(".repeat(deep), ")".repeat(deep)));
    is_refused(format!("{}1{}", "[".repeat(deep), "]".repeat(deep)));
    is_refused(format!("{}1{}", "{1:".repeat(deep), "}".repeat(deep)));
    is_refused(format!("{}1{}", "f(".repeat(deep), ")".repeat(deep)));
    is_refused(format!("{}1", "not ".repeat(deep)));
    is_refused(format!("{}1", "-".repeat(deep)));
    is_refused(format!("{}1", "lambda: ".repeat(deep)));
    is_refused(format!("{}1", "1 if 1 else ".repeat(deep)));
    is_refused(format!("{}1", "1 ** ".repeat(deep)));
    is_refused(format!("{}1", "await ".repeat(deep)));
    is_refused(format!("{}1", "1 + ".repeat(deep)));
    is_refused(format!("a{}", ".b".repeat(deep)));
    is_refused(format!("a{}", "()".repeat(deep)));
    is_refused(format!("a{}", "[0]".repeat(deep)));
    is_refused(format!("{}1{}", "f'{".repeat(1000), "}'".repeat(1000)));
    is_refused(format!("f'{{1{}{}}}'", ":{1".repeat(1000), "}".repeat(1000)));
    is_refused(format!(
        "match a:\n case {}b{}: pass",
        "(".repeat(deep),
        ")".repeat(deep)
    ));
    is_refused(format!(
        "match a:\n case {}b{}: pass",
        "[".repeat(deep),
        "]".repeat(deep)
    ));
    is_refused(format!("{}x = 1", "async ".repeat(deep)));
    is_refused(
        (0..2000)
            .map(|depth| format!("{}if a:\n", " ".repeat(depth)))
            .collect(),
    );
    is_refused(format!("{}pass", "if a: ".repeat(deep)));
    is_refused(format!("{}pass", "class A: ".repeat(deep)));
    is_refused(format!("{}x", "x = yield ".repeat(deep)));
    is_refused(format!("{}x", "x := ".repeat(deep)));
    is_refused(format!("({}", "](".repeat(deep)));
    is_refused("([)".repeat(deep));
    is_refused("{[(".repeat(deep));
}

#[test]
fn long_texts_that_are_not_nested_pass() {
    passes(format!("{}1", "1 + ".repeat(5000)));
    passes(format!("x = {}'a'", "'a' + ".repeat(5000)));
    passes(format!("x = a{}\n", ".b".repeat(5000)).replace("= a", "= []"));
    passes(format!("x = 1\nx{}\n", "()".repeat(5000)));
    passes(format!("if 1: pass\n{}", "elif 1: pass\n".repeat(50_000)));
    passes(format!("{}1", "1 and ".repeat(20_000)));
    passes(format!("{}def f(): pass\n", "@print\n".repeat(50_000)));
    passes(format!("x = [{}]", "1, ".repeat(100_000)));
    passes("x = 1\n".repeat(100_000));
    passes(format!("print({})", "'a', ".repeat(50_000)));
    passes(format!("x = {{{}}}", "'a': lambda b, c: 1, ".repeat(20_000)));
}

#[test]
fn highest_accepted_trees_fit_on_the_stack() {
    let mixed = "(a|b^c&d<<e+f*-g**[h,{i:j(";
    let deep = format!("{}1{}", mixed.repeat(48), ")}])".repeat(48));
    within_a_worker(deep);
    within_a_worker(format!("{}1{}", "(lambda a=".repeat(199), ": 1)".repeat(199)));
    within_a_worker(format!("{}1{}", "[x for x in ".repeat(199), "]".repeat(199)));
    within_a_worker(format!("{}1{}", "f'{".repeat(90), "}'".repeat(90)));
    let blocks: String = (0..99)
        .map(|depth| {
            format!(
                "{0}def f{depth}(a=[b for b in c]):\n{0} try:\n",
                "  ".repeat(depth)
            )
        })
        .take(49)
        .collect();
    within_a_worker(format!("{blocks}{}pass", " ".repeat(200)));
    let mut sum = "a".to_owned();
    for _ in 0..190 {
        sum = format!("({sum}).b(){}", "+1".repeat(45));
    }
    within_a_worker(sum);
}

#[test]
fn work_grows_linearly_with_the_code() {
    let doubling: String = (0..3000)
        .map(|at| format!("x{} = x{at} + x{at}\n", at + 1))
        .collect();
    within_a_worker(format!("x0 = 'a'\n{doubling}eval(x3000)"));
    within_a_worker(format!("x = 'a'\n{}", "getattr(x, x + x + x)\n".repeat(20_000)));
    within_a_worker(format!(
        "x = {}\n{}",
        "'ab'".repeat(10_000),
        "''.join(x)[::-1]\n".repeat(5000)
    ));
    within_a_worker(format!("x{}", ".format('a')".repeat(3000)).replace('x', "'{}'"));
    let chain: String = (0..20_000).map(|at| format!("x{} = x{at}\n", at + 1)).collect();
    within_a_worker(format!("{chain}x0 = eval\nx20000('1')"));
    let reversed: String = (0..20_000)
        .rev()
        .map(|at| format!("x{} = x{at}\n", at + 1))
        .collect();
    within_a_worker(format!("x20000('1')\n{reversed}x0 = eval\n"));
    let functions: String = (0..20_000)
        .map(|at| format!("def f{at}():\n  x = {at}\n  return x\n"))
        .collect();
    within_a_worker(functions);
    within_a_worker("eval(x);".repeat(50_000));
    within_a_worker("nonlocal x\n".repeat(20_000));
    within_a_worker(format!("def f():\n{}", "  global x\n".repeat(20_000)));
    within_a_worker(format!("'{}'", "{0.".repeat(50_000)));
    within_a_worker(format!("print('{}')", "/.ssh".repeat(50_000)));
    within_a_worker(format!("f({})", "a=1,".repeat(20_000)));
    within_a_worker(format!("{{{}}}", "**a,".repeat(20_000)));
    within_a_worker(format!("match a:\n case {{{}}}: pass", "'a': 1,".repeat(10_000)));
    within_a_worker(format!(
        "def f({}): pass",
        (0..20_000).map(|at| format!("a{at},")).collect::<String>()
    ));
    within_a_worker(format!("lI{}", "l".repeat(100_000)));
}

#[test]
fn arbitrary_texts_get_an_answer() {
    for code in [
        "", "\u{feff}", "\0", "\\", "\r", "x\r", "'", "'''", "f'{", "\u{2028}", "if", "\t x", "﻿x", "é = ª",
    ] {
        found(code, Profile::Strict);
    }
}
