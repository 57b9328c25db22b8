//! What is on this machine is read: scripts that bash accepts and modules that Node.js accepts are not called broken, whatever else
//! is found of them; scripts that were broken on purpose are.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment, and fails by panicking"
)]

mod javascript;
#[path = "../../src/processor_time.rs"]
mod processor_time;
mod programs;
mod python;
mod shell;
mod speed;

use ringfence_check::{Answer, CodeQuestion, Question};
use ringfence_types::{Issue, Language, Rules, Validation};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What is found of code, as the worker is asked.
fn validation(language: Language, code: &str) -> Validation {
    let question = Question::Code(CodeQuestion::of(language, Rules::unrestricted()));
    match ringfence_check::answer(&question, code.as_bytes()) {
        Answer::Code(told) => told.validation,
        other => panic!("{other:?}"),
    }
}

/// Findings that say that the code is broken.
fn broken(found: &Validation) -> Option<&Issue> {
    found.issues.iter().find(|issue| issue.rule.ends_with(".syntax"))
}

/// Fails if something that its judge accepts is called broken.
#[track_caller]
fn assert_sound(name: &str, found: &Validation) {
    let broken = broken(found);
    assert!(broken.is_none(), "{name}: {broken:?}");
}

fn print(name: &str, issue: &Issue) {
    eprintln!("{name}:{}: {} {}", issue.line, issue.rule, issue.message);
}

/// Is the program there. If not, says so, and fails where it is asked for.
fn has(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        assert!(!is_required(program), "RINGFENCE_REQUIRE asks for {program}");
        eprintln!("skipped: there is no {program} on this machine to judge what is broken");
    }
    there
}

/// Files below directories with one of the endings, in order, as texts.
fn texts(roots: &[PathBuf], endings: &[&str], most: usize) -> Vec<(PathBuf, String)> {
    let mut waiting: Vec<PathBuf> = roots.to_vec();
    let mut files = Vec::new();
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() && has_ending(&entry.path(), endings) => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| fs::read_to_string(&path).ok().map(|text| (path, text));
    files.into_iter().filter_map(read).take(most).collect()
}

/// Does the operator of this run ask for a capability.
fn is_required(capability: &str) -> bool {
    let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == capability)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension()
        .is_some_and(|ending| endings.iter().any(|known| ending == *known))
}
