//! Programs in files: ordinary ones give no warning; hostile ones give the findings that their line `expect:` names.

use super::validation;
use ringfence_types::{Language, Severity};
use std::{fs, path::Path};

fn files(directory: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(directory);
    let mut files: Vec<(String, String)> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn language(path: &str) -> Language {
    match path.rsplit('.').next() {
        Some("ts" | "tsx") => Language::Typescript,
        Some("js" | "mjs") => Language::Node,
        _ => Language::Shell,
    }
}

#[test]
fn ordinary_programs_give_no_warning() {
    let mut count = 0;
    for directory in ["javascript/ordinary", "shell/ordinary"] {
        for (path, code) in files(directory) {
            let found = validation(language(&path), &code);
            let worse: Vec<_> = found
                .issues
                .iter()
                .filter(|issue| issue.severity > Severity::Info)
                .collect();
            assert!(worse.is_empty(), "{path}: {worse:#?}");
            assert!(
                found.analysis.line_count > 10 && found.analysis.cyclomatic_complexity > 1,
                "{path}"
            );
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn hostile_programs_match_their_expected_rules() {
    let mut count = 0;
    for directory in ["javascript/hostile", "shell/hostile"] {
        for (path, code) in files(directory) {
            let first = code
                .lines()
                .find(|line| line.contains("expect:"))
                .unwrap_or_else(|| panic!("{path}"));
            let (_, expected) = first.split_once("expect:").unwrap();
            let found = validation(language(&path), &code);
            for word in expected.split_whitespace() {
                let (severity, rule) = word.split_once('=').unwrap();
                let there = found
                    .issues
                    .iter()
                    .any(|issue| issue.rule == rule && issue.severity.as_str() == severity);
                assert!(there, "{path}: {word}\n{:#?}", found.issues);
            }
            assert!(
                found.issues.iter().all(|issue| !issue.rule.ends_with(".syntax")),
                "{path}"
            );
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}
