//! Tests of the rules of the profile `strict` alone, against access to an attribute without its name in the code.

use super::*;

/// Asserts that code is refused under `strict` by this rule on this line, and not without a restricting profile.
fn refused(rule: &str, line: &str, code: &str) {
    let expect = format!("{line} {rule} error");
    let has = |lines: Vec<String>| lines.iter().any(|line| line.starts_with(&expect));
    let strict = report(code, Profile::Strict);
    assert!(has(strict.clone()), "{code}\nexpected {expect}: {strict:#?}");
    assert!(!has(report(code, Profile::Unrestricted)), "{code}\n{expect}");
}

fn passes(code: &str) {
    let report = report(code, Profile::Strict);
    let is_reported = |line: &&String| !line.contains("python.undefined_name") && !line.contains(" info: ");
    let reported: Vec<&String> = report.iter().filter(is_reported).collect();
    assert!(reported.is_empty(), "{code}\n{reported:#?}");
}

#[test]
fn programs_are_refused_or_pass_as_in_the_table() {
    for (section, code, line) in cases(include_str!("strict.txt")) {
        match section.strip_prefix("refused by ") {
            Some(rule) => refused(rule, line, &code),
            None => passes(&code),
        }
    }
    refused("python.dynamic_execution", "1", "def f(x: '(f\\n())'): pass");
}

#[test]
fn builtins_are_not_attributed_to_a_star_import() {
    let report = report(
        "from ctypes import *\nhasattr(1, 'y'), TypeError",
        Profile::Unrestricted,
    );
    assert_eq!(report.len(), 1);
}

#[test]
fn private_attributes_of_external_classes_pass() {
    let errors = |code: &str, change: fn(&mut CodeQuestion)| {
        let mut question = question(Profile::Strict);
        change(&mut question);
        let found = check(code, &question).findings;
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
        errors.count()
    };
    let with_module = |question: &mut CodeQuestion| {
        question
            .rules
            .imports
            .as_mut()
            .unwrap()
            .insert("mine".parse().unwrap());
    };
    assert_eq!(errors("from mine import _helper\n_helper()", with_module), 0);
    assert_eq!(errors("import mine\nmine._x\nmine.A()._y", with_module), 0);
    assert_eq!(
        errors(
            "from mine import A\nclass B(A):\n    def f(self):\n        return self._x",
            with_module
        ),
        0
    );
    assert_eq!(errors("import mine\nimport uuid\nuuid._x", with_module), 1);
    assert_eq!(errors("account._balance", |it| it.is_fragment = true), 0);
    assert_eq!(errors("r._old_targets", |it| it.is_fragment = true), 1);
    assert_eq!(errors("account._balance", |_| ()), 1);
}

#[test]
fn computed_string_is_refused_where_the_literal_would_be() {
    const NAMES: &[&str] = &[
        "'so'[::-1]",
        "'%s' % 'os'",
        "'{}{}'.format('o', 's')",
        "''.join(['o', 's'])",
        "''.join(map(chr, [111, 115]))",
        "''.join(chr(c ^ 42) for c in [69, 89])",
        "chr(111) + chr(115)",
        "b'os'.decode()",
        "bytes([111, 115]).decode()",
        "f\"{'o'}s\"",
        "first[::-1]",
        "base64.b64decode('b3M=').decode()",
    ];
    for name in NAMES {
        for (profile, code) in [
            (Profile::Basic, "__import__(NAME)"),
            (Profile::Basic, "import importlib\nimportlib.import_module(NAME)"),
            (Profile::Basic, "getattr(uuid, NAME)"),
            (Profile::Basic, "uuid.__dict__[NAME]"),
            (Profile::Basic, "uuid.__dict__.get(NAME)"),
            (Profile::Basic, "vars(uuid)[NAME]"),
            (Profile::Basic, "operator.attrgetter(NAME)(uuid)"),
            (Profile::Basic, "operator.itemgetter(NAME)(vars(uuid))"),
            (Profile::Strict, "getattr(uuid, NAME)"),
            (Profile::Strict, "open(NAME)"),
            (Profile::Strict, "(NAME).format(1)"),
            (Profile::Strict, "def f(x: NAME): pass"),
            (Profile::Strict, "T = NAME\ndef f(x: T): pass"),
        ] {
            let code = format!(
                "import base64, operator, uuid\nfirst = 'so'\n{}",
                code.replace("NAME", name)
            );
            assert!(
                !errors(&code, profile).is_empty(),
                "{code}\n{:#?}",
                report(&code, profile)
            );
        }
    }
    for code in [
        "getattr(math, name)",
        "getattr(math, names[0])",
        "open(f'{name}.txt')",
        "(prefix + '{}').format(1)",
        "T = list['Node']\ndef f(x: T, y: dict['a', 'b']): pass",
        "vars(math)[name]",
    ] {
        let code = format!(
            "import math\ndef g(name, names, prefix):\n    return {}",
            code.replace('\n', "\n    ")
        );
        let code = code.replace("return T", "T").replace("return vars", "x = vars");
        let errors: Vec<String> = errors(&code, Profile::Basic);
        assert!(errors.is_empty(), "{code}\n{errors:#?}");
    }
}
