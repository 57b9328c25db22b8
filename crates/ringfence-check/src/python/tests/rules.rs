//! Tests of each rule with snippets: findings, their lines and their texts.

use super::*;

/// Returns `line rule severity` for each finding, or `rule severity` for each error.
fn found_by(section: &str, code: &str) -> Vec<String> {
    let only_errors = section.strip_prefix("errors of ");
    let report = report(code, only_errors.unwrap_or(section).parse().unwrap());
    let report = report.iter().map(|line| line.split(':').next().unwrap());
    match only_errors {
        Some(_) => {
            let errors = report.filter(|line| line.ends_with(" error"));
            errors
                .map(|line| line.split_once(' ').unwrap().1.to_owned())
                .collect()
        }
        // Snippets use undefined names.
        None => report
            .filter(|line| !line.contains("python.undefined_name"))
            .map(str::to_owned)
            .collect(),
    }
}

fn check(section: &str, code: &str, expect: &str) {
    assert_eq!(found_by(section, code).join("; "), expect, "{section}: {code}");
}

#[test]
fn findings_of_each_rule_match_the_table() {
    for (section, code, expect) in cases(include_str!("rules.txt")) {
        check(section, &code, expect);
    }
    check("unrestricted", &"(".repeat(300), "1 python.nesting error");
}

#[test]
fn finding_quotes_the_code_and_names_its_meaning() {
    let check = |code: &str, expect: &str| {
        let report = report(code, Profile::Unrestricted);
        assert!(report.iter().any(|line| line.contains(expect)), "{report:#?}");
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
fn local_modules_and_requested_imports_are_allowed() {
    let mut question = question(Profile::Basic);
    question.local_modules.insert("mine".to_owned());
    question
        .rules
        .imports
        .as_mut()
        .unwrap()
        .insert("os".parse().unwrap());
    let errors = |code: &str| {
        let found = super::super::check(code, &question).findings;
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
fn refusal_names_the_profile_with_the_module() {
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
