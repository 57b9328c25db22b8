//! Checks code found on this machine: scripts that bash accepts and modules that Node.js accepts have no syntax error,
//! with any other findings; scripts broken on purpose have one.
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

/// Returns the validation of code, as the worker does.
fn validation(language: Language, code: &str) -> Validation {
    let question = Question::Code(CodeQuestion::of(language, Rules::unrestricted()));
    match ringfence_check::answer(&question, code.as_bytes()) {
        Answer::Code(answer) => answer.validation,
        other => panic!("{other:?}"),
    }
}

/// Returns the first syntax error.
fn broken(found: &Validation) -> Option<&Issue> {
    found.issues.iter().find(|issue| issue.rule.ends_with(".syntax"))
}

/// Asserts that code accepted by its own interpreter has no syntax error.
#[track_caller]
fn assert_sound(name: &str, found: &Validation) {
    let broken = broken(found);
    assert!(broken.is_none(), "{name}: {broken:?}");
}

fn print(name: &str, issue: &Issue) {
    eprintln!("{name}:{}: {} {}", issue.line, issue.rule, issue.message);
}

/// Returns true if a program is installed; prints that the test is skipped if not, and panics if it is required.
fn is_installed(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        assert!(!is_required(program), "RINGFENCE_REQUIRE asks for {program}");
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// Returns the text files below directories with one of the extensions, sorted by path, up to a limit.
fn texts(roots: &[PathBuf], extensions: &[&str], files_max: usize) -> Vec<(PathBuf, String)> {
    let mut waiting: Vec<PathBuf> = roots.to_vec();
    let mut files = Vec::new();
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() && has_extension(&entry.path(), extensions) => {
                    files.push(entry.path())
                }
                _ => {}
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| fs::read_to_string(&path).ok().map(|text| (path, text));
    files.into_iter().filter_map(read).take(files_max).collect()
}

/// True if `RINGFENCE_REQUIRE` names a capability.
fn is_required(capability: &str) -> bool {
    let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == capability)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|extension| extensions.iter().any(|known| extension == *known))
}
