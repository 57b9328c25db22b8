//! Tests of the added imports, and of the conditions that prevent them.

use super::*;
use ringfence_types::Profile;
use ruff_python_parser::parse_module;

fn question(profile: Profile) -> CodeQuestion {
    CodeQuestion {
        auto_fix: true,
        ..crate::python::tests::question(profile)
    }
}

fn missing(code: &str, question: &CodeQuestion) -> Missing {
    let parsed = parse_module(code).unwrap();
    let names = Names::of(parsed.syntax());
    find_missing(code, &parsed, &names, question)
}

/// Returns the added imports and the names with a finding.
fn found(code: &str, question: &CodeQuestion) -> (Vec<String>, Vec<String>) {
    let missing = missing(code, question);
    let patches = missing.fix.map(|fix| fix.patches).unwrap_or_default();
    let findings = missing.findings.iter();
    (
        patches.into_iter().map(|patch| patch.statement).collect(),
        findings.map(|one| code[one.range.clone()].to_owned()).collect(),
    )
}

#[test]
fn imports_are_added_and_names_reported_as_in_the_table() {
    for (_, code, expect) in crate::python::tests::cases(include_str!("tests.txt")) {
        let (added, reported) = found(&code, &question(Profile::Unrestricted));
        let found = format!("{} | {}", added.join("; "), reported.join("; "));
        assert_eq!(found.trim(), expect, "{code}");
    }
}

#[test]
fn name_whose_error_may_be_caught_is_reported_and_not_imported() {
    for caught in [
        "",
        " Exception",
        " BaseException as e",
        " (ValueError, Exception)",
        " unknown()",
        " anything",
        " pandas.Error",
        " socket.BaseException",
    ] {
        let start = "import socket, pandas\nanything = (ValueError, NameError)[1:]\n"
            .replace("NameError", "KeyError");
        for body in [
            "json",
            "json.dumps({})",
            "x = [json.dumps(y) for y in z]",
            "print(np.zeros(1))",
        ] {
            let code = format!("{start}z = []\ntry:\n    {body}\nexcept{caught}:\n    print('none')\n");
            let (added, reported) = found(&code, &question(Profile::Unrestricted));
            assert_eq!(added, <[String; 0]>::default(), "{code}");
            assert!(!reported.is_empty(), "{code}");
        }
    }
    for caught in [
        " ValueError",
        " (ValueError, KeyError) as e",
        " json.JSONDecodeError",
        " socket.timeout",
        " urllib.error.URLError",
        " Mine",
        " CalledProcessError",
    ] {
        let code = format!(
            "import socket, urllib.error\nfrom subprocess import CalledProcessError\nclass Mine(Exception): pass\n\
             try:\n    json.dumps({{}})\nexcept{caught}:\n    print('none')\n"
        );
        let (added, reported) = found(&code, &question(Profile::Unrestricted));
        assert_eq!(
            (added, reported),
            (vec!["import json".to_owned()], Vec::new()),
            "{code}"
        );
    }
    let reported = missing(
        "try:\n    np.zeros(3)\nexcept Exception:\n    pass",
        &question(Profile::Unrestricted),
    );
    assert!(reported.fix.is_none());
    assert_eq!(
        reported.findings[0].hint.as_deref(),
        Some("Add `import numpy as np`.")
    );
}

#[test]
fn package_is_not_added_where_the_program_may_work_without_it() {
    for code in [
        "USE_PLOT = False\nif USE_PLOT: plt.plot()",
        "x = 1\ny = x or np.zeros(1)",
        "x = 0 and np.zeros(1)",
        "x = np.zeros(1) if 0 else 1",
        "x = 1 if 1 else np.zeros(1)",
        "1 < 0 < np.pi",
        "assert 1, np.zeros(1)",
        "for x in []: np.sqrt(x)",
        "while 0: np.sqrt(1)",
        "while 0: pass\nelse: print(np.pi) if 0 else 1",
        "[np.sqrt(x) for x in []]",
        "[x for x in [] if np.sqrt(x)]",
        "{x: np.sqrt(x) for x in []}",
        "(np.sqrt(x) for x in [1])",
        "lambda: np.pi",
        "match 1:\n    case 2: np.sqrt(1)",
        "match 1:\n    case 1 if np.sqrt(1): pass",
        "try: pass\nexcept ValueError: np.sqrt(1)",
        "try: int('a'); np.sqrt(1)\nexcept ValueError: pass",
        "import sys\ndef main():\n    if '--plot' in sys.argv: plt.show()\nmain()",
        "import sys\nif len(sys.argv) < 2:\n    sys.exit()\nnp.zeros(1)",
        "if not 0:\n    raise SystemExit\nnp.zeros(1)",
        "def usage():\n    exit()\ndef check():\n    usage()\ncheck()\nnp.zeros(1)",
        "def f():\n    if 1: return 0\n    return np.zeros(1)\nf()",
        "def f(): return np.zeros(3)",
        "def f(): return np.zeros(3)\nprint(1)",
        "def f(): return np.zeros(3)\nif 0: f()",
        "def f(): return np.zeros(3)\ndef g(): return f()\nprint(1)",
        "async def f(): return np.zeros(3)\nprint(f)",
        "class A:\n    def m(self): return np.zeros(3)\nprint(1)",
        "class A:\n    def m(self): return np.zeros(3)\nprint(A())",
        "def main():\n    x = np.zeros(1)\n    return x\nif __name__ == '__main__':\n    main()",
        "import sys\ndef main():\n    np.zeros(1)\nif __name__ == '__main__':\n    sys.exit(main())",
        "def f(): return np.zeros(3)\ndef g(): return f()\ng()",
        "import asyncio\nasync def f(): np.zeros(3)\nasyncio.run(f())",
        "class A:\n    def m(self): return np.zeros(3)\nprint(A().m())",
        "def f(x: np.ndarray): pass",
        "type X = np.ndarray",
        "if 0:\n    class A(np.ndarray): pass",
        "if 0:\n    def f(): return np.zeros(3)\n    f()",
    ] {
        let (added, reported) = found(code, &question(Profile::Unrestricted));
        assert_eq!(added, <[String; 0]>::default(), "{code}");
        assert_eq!(reported.len(), 1, "{code}");
        let hint = missing(code, &question(Profile::Unrestricted)).findings[0]
            .hint
            .clone();
        assert!(hint.unwrap().starts_with("Add `import "), "{code}");
    }
}

#[test]
fn package_is_added_where_the_program_fails_without_it() {
    for code in [
        "np.zeros(1)",
        "x = np.zeros(1) or 1",
        "x = 1 if np.zeros(1) else 2",
        "if np.zeros(1): pass",
        "while np.any([]): pass",
        "for x in np.zeros(3): pass",
        "[x for x in np.zeros(3)]",
        "assert np.zeros(1)",
        "0 < np.pi < 1",
        "def f(a=np.pi): pass",
        "@np.vectorize\ndef f(): pass",
        "class A(np.ndarray): pass",
        "class A:\n    x = np.zeros(3)\n",
        "with open('a') as f:\n    np.load(f)",
        "try:\n    np.zeros(1)\nfinally: pass",
        "try: pass\nfinally:\n    np.zeros(1)",
        "if 0: np.zeros(1)\nnp.ones(1)",
        "if __name__ == '__main__':\n    np.zeros(1)",
    ] {
        let (added, reported) = found(code, &question(Profile::Unrestricted));
        assert_eq!(added, ["import numpy as np"], "{code}");
        assert!(reported.is_empty(), "{code}");
    }
}

#[test]
fn imports_outside_the_profile_are_suggested_and_not_added() {
    for (profile, code, statements, names) in [
        (
            Profile::Basic,
            "print(json.dumps(1), os.getcwd())",
            &["import json"][..],
            &["os"][..],
        ),
        (
            Profile::Filesystem,
            "print(os.path.join('a'))",
            &["import os.path"],
            &[],
        ),
        (
            Profile::Filesystem,
            "print(os.path.join('a'), os.getcwd())",
            &[],
            &["os"],
        ),
        (
            Profile::Basic,
            "urllib.parse.quote('')",
            &["import urllib.parse"],
            &[],
        ),
        (Profile::Basic, "urllib.request.urlopen('')", &[], &["urllib"]),
        (Profile::DataScience, "np.zeros(1)", &["import numpy as np"], &[]),
        (
            Profile::Basic,
            "ET.parse('')",
            &["import xml.etree.ElementTree as ET"],
            &[],
        ),
    ] {
        let (added, reported) = found(code, &question(profile));
        assert_eq!(
            (added.as_slice(), reported.as_slice()),
            (
                &statements.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..],
                &names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]
            ),
            "{code}"
        );
    }
    let missing = missing("os.getcwd()", &question(Profile::Basic));
    let hint = missing.findings[0].hint.as_deref().unwrap();
    assert!(hint.contains("profile does not have"), "{hint}");
}

#[test]
fn hint_names_the_import_if_fixes_are_off() {
    let mut question = question(Profile::Unrestricted);
    question.auto_fix = false;
    let missing = missing(
        "json.dumps(1)\ndef f(): return re.split, re.match, nothing",
        &question,
    );
    assert!(missing.fix.is_none());
    let reported: Vec<_> = missing
        .findings
        .iter()
        .map(|finding| (finding.what.as_str(), finding.severity, finding.hint.as_deref()))
        .collect();
    assert_eq!(
        reported,
        [
            (
                "`json` is not defined",
                Severity::Warning,
                Some("Add `import json`.")
            ),
            ("`nothing` is not defined", Severity::Info, None),
            (
                "`re`, which is read in 2 places, is not defined",
                Severity::Info,
                Some("Add `import re`.")
            ),
        ]
    );
}

#[test]
fn operators_imports_are_added_and_local_modules_are_not() {
    let mut question = question(Profile::Unrestricted);
    question
        .known_imports
        .insert("acme".to_owned(), "from acme.core import acme".to_owned());
    question.local_modules.insert("random".to_owned());
    let (added, reported) = found("acme(1)\nrandom.randint(1, 2)\n", &question);
    assert_eq!(added, ["from acme.core import acme"]);
    assert_eq!(reported, ["random"]);
}

#[test]
fn deep_code_is_read_without_recursion() {
    let read = || {
        let sum = format!("print({})\n", vec!["json.x"; 3000].join(" + "));
        let chain = format!("json{}\n", ".a()".repeat(1000));
        let attributes = format!("json{}\n", ".a".repeat(3000));
        let code = format!("{sum}{chain}{attributes}");
        let added = found(&code, &question(Profile::Unrestricted)).0;
        assert_eq!(added, ["import json"]);
    };
    std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(read)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn session_call_may_use_names_of_earlier_calls() {
    let mut question = question(Profile::Unrestricted);
    question.is_fragment = true;
    let checked = crate::python::check("table.head()\njson.dumps(total)\n", &question);
    assert!(checked.findings.is_empty(), "{:?}", checked.findings);
    let statements: Vec<String> = checked
        .fix
        .unwrap()
        .patches
        .into_iter()
        .map(|patch| patch.statement)
        .collect();
    assert_eq!(statements, ["import json"]);
}
