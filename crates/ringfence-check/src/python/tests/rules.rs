//! Each rule by snippets: what is found, where, and what is said of it.

use super::*;

/// `line rule severity` of each finding, or `rule severity` of each error.
fn found_by(section: &str, code: &str) -> Vec<String> {
    let only_errors = section.strip_prefix("errors of ");
    let told = told(code, only_errors.unwrap_or(section).parse().unwrap());
    let told = told.iter().map(|line| line.split(':').next().unwrap());
    match only_errors {
        Some(_) => {
            let errors = told.filter(|line| line.ends_with(" error"));
            errors
                .map(|line| line.split_once(' ').unwrap().1.to_owned())
                .collect()
        }
        // Snippets use names that they do not define.
        None => told
            .filter(|line| !line.contains("python.undefined_name"))
            .map(str::to_owned)
            .collect(),
    }
}

fn check(section: &str, code: &str, expect: &str) {
    assert_eq!(found_by(section, code).join("; "), expect, "{section}: {code}");
}

#[test]
fn each_rule_finds_what_the_table_says() {
    for (section, code, expect) in cases(include_str!("rules.txt")) {
        check(section, &code, expect);
    }
    check("unrestricted", &"(".repeat(300), "1 python.nesting error");
}

#[test]
fn what_is_found_is_named_as_it_is_written_and_as_what_it_is() {
    let check = |code: &str, expect: &str| {
        let told = told(code, Profile::Unrestricted);
        assert!(told.iter().any(|line| line.contains(expect)), "{told:#?}");
    };
    check(
        "import os\nos.system('x')",
        "2 python.process warning: `os.system` starts a process",
    );
    check(
        "from os import system as s\ns('x')",
        "`s` is `os.system`, which starts a process",
    );
    check(
        "import os\ngetattr(os, 'system')('x')",
        "`getattr(os, 'system')` is `os.system`, which",
    );
    check(
        "import os\nos.__dict__['popen']('x')",
        "`os.__dict__['popen']` is `os.popen`, which",
    );
    check(
        "import uuid\nuuid.os.system('x')",
        "`uuid.os.system` is `os.system`, which",
    );
    check("eval('x')", "`eval` runs text as code");
    check(
        "from math import *\nfrom os import *",
        "everything of `os` is imported, and `os.system` starts a process",
    );
}

#[test]
fn modules_of_the_caller_and_of_the_request_are_allowed() {
    let mut asked = asked(Profile::Basic);
    asked.local_modules.insert("mine".to_owned());
    asked
        .rules
        .imports
        .as_mut()
        .unwrap()
        .insert("os".parse().unwrap());
    let errors = |code: &str| {
        let found = super::super::check(code, &asked).findings;
        found
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count()
    };
    assert_eq!(
        errors("import mine.part\nfrom mine import x\nfrom . import mine\nimport os, uuid\nuuid.os.getcwd()"),
        0
    );
    assert_eq!(errors("import yours"), 1);
}

#[test]
fn a_refusal_names_the_profile_that_has_the_module() {
    let hint = |code: &str| found(code, Profile::Basic).remove(0).hint.unwrap();
    assert!(hint("import requests").contains("`network`"));
    assert!(hint("import requests").contains("`allowed_imports: [\"requests\"]`"));
    assert_eq!(
        hint("import numpy.linalg"),
        "The profile `data_science` has `numpy.linalg`; or add it alone by `allowed_imports: [\"numpy.linalg\"]`."
    );
    assert!(hint("import subprocess").starts_with("No restricting profile"));
}

#[test]
fn every_rule_is_described() {
    let mut ids = std::collections::HashSet::new();
    for rule in crate::registry::rules() {
        assert!(ids.insert(rule.id), "{}", rule.id);
        assert!(
            !rule.title.is_empty() && !rule.hint.is_empty() && rule.hint.ends_with('.'),
            "{}",
            rule.id
        );
    }
}
