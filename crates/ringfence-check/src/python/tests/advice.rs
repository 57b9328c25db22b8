//! Tests of the hints of findings.

use super::*;

/// Returns each finding of a rule as `what | hint`.
fn advice(code: &str, profile: Profile, rule: &str) -> Vec<String> {
    let found = found(code, profile);
    let of_rule = found.iter().filter(|finding| finding.rule.id == rule);
    let lines = of_rule.map(|finding| {
        let hint = finding.hint.as_deref().unwrap_or(finding.rule.hint);
        format!("{} | {hint}", finding.what)
    });
    lines.collect()
}

#[test]
fn finding_names_the_module_missing_from_the_profile() {
    let attributes = advice(
        "import os\nos.environ\n",
        Profile::Filesystem,
        "profile.module_attribute",
    );
    let [only] = attributes.as_slice() else {
        panic!("{attributes:?}");
    };
    assert!(
        only.starts_with("`os.environ` is reached as an attribute under"),
        "{only}"
    );
    assert!(only.ends_with("add it by `allowed_imports: [\"os\"]`."), "{only}");
    let imported = advice("from os import environ\n", Profile::Filesystem, "profile.import");
    assert!(
        imported[0].contains("`allowed_imports: [\"os\"]`"),
        "{imported:?}"
    );
    // A module in a package has its own name.
    let imported = advice("from xml import sax\n", Profile::Basic, "profile.import");
    assert!(
        imported[0].contains("`allowed_imports: [\"xml.sax\"]`"),
        "{imported:?}"
    );
    let imported = advice("import os.path\n", Profile::Basic, "profile.import");
    assert!(
        imported[0].contains("The profile `filesystem` has `os.path`"),
        "{imported:?}"
    );
}

#[test]
fn relative_import_is_reported_as_one() {
    let advised = |code: &str| advice(code, Profile::Basic, "profile.import");
    assert_eq!(
        advised("from . import y"),
        [
            "`from . import y` is relative, and a program is one file in no package | \
          Name the module without the dots: `import y`."
        ]
    );
    assert_eq!(
        advised("from ..util import x, y"),
        [
            "`from ..util import x, y` is relative, and a program is one file in no package | \
          Name the module without the dots: `from util import ...`."
        ]
    );
    assert!(!advised("from . import a, b")[0].contains("``"));
}

#[test]
fn finding_names_the_list_if_there_is_no_profile() {
    let mut question = question(Profile::Unrestricted);
    question.rules.imports = Some(BTreeSet::from(["math".parse().unwrap(), "uuid".parse().unwrap()]));
    let lines = |code: &str| {
        let found = check(code, &question).findings;
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
        let advised = errors.map(|one| format!("{} | {}", one.what, one.hint.as_deref().unwrap()));
        advised.collect::<Vec<_>>()
    };
    assert_eq!(
        lines("import json, math"),
        [
            "`json` is imported and is not in `allowed_imports` | Where it is needed, add `json` to `allowed_imports`."
        ]
    );
    assert_eq!(
        lines("import uuid as u\nu.os"),
        [
            "`u.os` is `os`, which is not in `allowed_imports` | Where it is needed, add `os` to `allowed_imports`."
        ]
    );
}

#[test]
fn hints_do_not_promise_network_access() {
    let requested = advice(
        "import urllib.request\nurllib.request.urlopen('http://a.example')",
        Profile::Unrestricted,
        "python.network",
    );
    assert!(
        requested[0].ends_with("| Where it may reach none, fetch first, and send along in `files`."),
        "{requested:?}"
    );
    for rule in crate::registry::rules() {
        for text in [rule.why, rule.hint] {
            assert!(
                !text.contains("policy") && !text.contains("allowed_domains"),
                "{text}"
            );
        }
    }
}

#[test]
fn duplicate_findings_are_reported_once() {
    for (code, count) in [
        ("from pathlib import Path\nopen(Path.home()/'.ssh'/'id_rsa')", 2),
        ("from pathlib import Path\nx = Path.home()/'.ssh'/'id_rsa'", 2),
        ("f(home / '.ssh')\nf(home / '.ssh')", 2),
    ] {
        let advised = advice(code, Profile::Unrestricted, "python.credential_path");
        assert_eq!(advised.len(), count, "{code}: {advised:?}");
    }
}

#[test]
fn informational_findings_have_mild_texts() {
    for (code, what) in [
        ("self.__dict__", "`__dict__` is an object's own dictionary"),
        ("x.__class__", "`__class__` is the class of an object"),
        ("vars(s)", "`vars` gives all names of a scope"),
    ] {
        let found = found(code, Profile::Unrestricted);
        let noted = found
            .iter()
            .find(|finding| finding.rule.id == "python.reflection")
            .unwrap();
        assert_eq!((noted.what.as_str(), noted.severity), (what, Severity::Info));
        assert_eq!(noted.rule.why, "it is fine for objects of one's own");
    }
    let strict = found("x.__globals__", Profile::Unrestricted);
    assert!(strict[0].rule.why.starts_with("from any object"));
    let opened = advice(
        "open('quotes.csv', 'w')",
        Profile::Unrestricted,
        "python.file_access",
    );
    assert_eq!(
        opened,
        ["`quotes.csv` is opened | Nothing: such files are the sandbox's own."]
    );
    let outside = advice("open('/etc/hosts')", Profile::Unrestricted, "python.file_access");
    assert!(outside[0].contains("relative names"), "{outside:?}");
}

#[test]
fn names_with_confusable_letters_are_reported() {
    let advised = |code: &str| advice(code, Profile::Unrestricted, "python.obfuscated_name");
    for code in [
        "рrint = 1",
        "import os as оs",
        "import оs",
        "x.рath",
        "def f(сount): pass",
        "f(pаth=1)",
        "class Аdmin: pass",
        "ρrint('x')",
    ] {
        let advised = advised(code);
        assert_eq!(advised.len(), 1, "{code}: {advised:?}");
        assert!(advised[0].contains("reads as"), "{advised:?}");
    }
    for code in [
        "имя = 1",
        "数量 = größe = β = Δx = σ2 = μ_0 = sigma_β = 1",
        "x = 'рrint'  # рrint",
        "def площадь(длина, ширина): return длина * ширина",
    ] {
        assert!(advised(code).is_empty(), "{code}: {:?}", advised(code));
    }
    let turned = advice(
        "x = 'a\u{202e}b'\n# \u{2066}",
        Profile::Unrestricted,
        "python.bidirectional_text",
    );
    assert_eq!(turned.len(), 2, "{turned:?}");
}

/// Returns the errors as `line rule`.
fn error_lines(code: &str) -> Vec<String> {
    let found = found(code, Profile::Unrestricted);
    let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
    errors
        .map(|finding| format!("{} {}", line_of(code, finding), finding.rule.id))
        .collect()
}

#[test]
fn constant_commands_are_checked_as_shell_code() {
    for code in [
        "import os\nos.system('rm -rf /')",
        "import os\nc = 'rm -rf /'\nos.system(c)",
        "import os\nos.popen('rm -rf /')",
        "import subprocess\nsubprocess.run('rm -rf /', shell=True)",
        "import subprocess\nsubprocess.run(args='rm -rf /', shell=True)",
        "import subprocess\nsubprocess.getoutput('rm -rf /')",
        "import subprocess\nsubprocess.check_call(['rm', '-rf', '/'])",
        "import subprocess\nsubprocess.Popen(['sh', '-c', 'rm -rf /'])",
    ] {
        assert!(
            error_lines(code).contains(&format!("{} shell.remove_root", code.lines().count())),
            "{code}: {:?}",
            error_lines(code)
        );
    }
    for code in [
        "import os\nos.system('ls -l')",
        "import os\nos.system('if then')",
        "import os\nos.system(command)",
        "import subprocess\nsubprocess.run('rm -rf /')",
        "import subprocess\nsubprocess.run(['echo', 'rm -rf /'])",
        "import subprocess\nsubprocess.run(['rm', '-rf', name])",
        "print('rm -rf /')",
    ] {
        assert!(error_lines(code).is_empty(), "{code}: {:?}", error_lines(code));
    }
}

#[test]
fn removal_of_a_root_is_an_error() {
    for path in ["/", "/usr", "/var/lib", "~", "/home/", "/home/alice", "../.."] {
        let code = format!("import shutil\nshutil.rmtree('{path}', ignore_errors=True)");
        assert_eq!(error_lines(&code), ["2 python.file_deletion"], "{code}");
    }
    for path in ["build", "/tmp/x", "/workspace/out", "./a"] {
        assert!(
            error_lines(&format!("import shutil\nshutil.rmtree('{path}')")).is_empty(),
            "{path}"
        );
    }
}
