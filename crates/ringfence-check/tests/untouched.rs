//! Thousands of generated programs before and after auto-fix. A program that only mentions module names is not
//! changed. A program that lacks imports but runs without them prints the same as before; one that fails with
//! NameError runs to its end. The interpreter runs all programs of a test in one process.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test runs the interpreter and fails by panicking"
)]

#[path = "untouched/programs.rs"]
mod programs;

use programs::{IncompleteProgram, bound_elsewhere, mentioning, missing_imports};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, TestRunner},
};
use ringfence_check::{Answer, CodeAnswer, CodeQuestion, Question, answer};
use ringfence_types::{Language, Rules};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    io::Write,
    process::{Command, Stdio},
    time::Instant,
};

const PROGRAMS: usize = 1500;

/// Runs each program with only the builtins, and returns its end and its output.
const RUN: &str = r#"
import contextlib, io, json, sys
runs = []
for code in json.load(sys.stdin):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code.encode(), "program", "exec", dont_inherit=True), {"__name__": "__main__"})
        end = "done"
    except BaseException as problem:
        end = f"{type(problem).__name__}: {problem}"
    runs.append([end, printed.getvalue()])
json.dump(runs, sys.stdout)
"#;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Run {
    end: String,
    printed: String,
}

fn run(programs: &[String]) -> Vec<Run> {
    let mut child = Command::new("python3")
        .args(["-I", "-c", RUN])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed: the sandbox runs it");
    let question = serde_json::to_vec(programs).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&question));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let runs: Vec<Run> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(runs.len(), programs.len());
    runs
}

fn checked(code: &str) -> CodeAnswer {
    let question = Question::Code(CodeQuestion {
        auto_fix: true,
        ..CodeQuestion::of(Language::Python, Rules::unrestricted())
    });
    match answer(&question, code.as_bytes()) {
        Answer::Code(answer) => *answer,
        other => panic!("{other:?}"),
    }
}

fn sample<T: std::fmt::Debug>(programs: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::new(Config::default());
    let draw = |_| programs.new_tree(&mut runner).unwrap().current();
    (0..PROGRAMS).map(draw).collect()
}

#[test]
fn programs_that_only_mention_modules_are_unchanged() {
    let started = Instant::now();
    let programs = sample(mentioning());
    for code in &programs {
        let answer = checked(code);
        assert_eq!(answer.patches, [], "added to:\n{code}");
        assert_eq!(answer.validation.fixed_code, None, "changed:\n{code}");
        let errors = &answer.validation.validation.errors;
        assert!(errors.is_empty(), "{errors:?} of:\n{code}");
    }
    // Positive control: the programs run.
    for (code, ran) in programs.iter().zip(run(&programs)) {
        assert_eq!(ran.end, "done", "{code}");
    }
    eprintln!(
        "untouched: {PROGRAMS} programs that mention modules, {:.1} s",
        started.elapsed().as_secs_f64()
    );
}

#[test]
fn names_bound_by_the_program_get_no_import() {
    let programs = sample(bound_elsewhere());
    for (code, name) in &programs {
        let answer = checked(code);
        assert!(
            answer.patches.iter().all(|patch| patch.name != *name),
            "{name} is added to:\n{code}"
        );
    }
}

#[test]
fn fixed_programs_print_the_same_or_start_to_work() {
    let started = Instant::now();
    let programs = sample(missing_imports());
    let before: Vec<String> = programs.iter().map(|program| program.code.clone()).collect();
    let after: Vec<String> = programs.iter().map(fixed).collect();
    let (mut worked, mut failed, mut added) = (0, 0, 0);
    for ((old, new), (ran, again)) in before
        .iter()
        .zip(&after)
        .zip(run(&before).into_iter().zip(run(&after)))
    {
        let what = format!("--- before: {ran:?}\n{old}\n--- after: {again:?}\n{new}");
        assert_eq!(again.end, "done", "{what}");
        if ran.end == "done" {
            worked += 1;
            assert_eq!(ran.printed, again.printed, "{what}");
        } else {
            failed += 1;
            assert!(ran.end.starts_with("NameError"), "{what}");
            assert!(again.printed.starts_with(&ran.printed), "{what}");
        }
        added += usize::from(old != new);
    }
    eprintln!(
        "fixed: {PROGRAMS} programs, {added} changed; {worked} worked before and print the same, {failed} failed before and work; {:.1} s",
        started.elapsed().as_secs_f64()
    );
    // The sample has programs of both kinds.
    assert!(
        worked > PROGRAMS / 20 && failed > PROGRAMS / 2,
        "{worked} worked, {failed} failed"
    );
}

/// Returns the fixed program; asserts that exactly the missing imports are added, each on its own line.
fn fixed(program: &IncompleteProgram) -> String {
    let answer = checked(&program.code);
    let names: BTreeSet<&str> = answer.patches.iter().map(|patch| patch.name.as_str()).collect();
    let expected: BTreeSet<&str> = program.missing.iter().copied().collect();
    assert_eq!(names, expected, "added to:\n{}", program.code);
    let Some(fixed) = answer.validation.fixed_code else {
        assert!(expected.is_empty());
        return program.code.clone();
    };
    let without = answer.patches.iter().fold(fixed.clone(), |code, patch| {
        let end = if program.code.contains("\r\n") {
            "\r\n"
        } else {
            "\n"
        };
        code.replacen(&format!("{}{end}", patch.statement), "", 1)
    });
    // A line that had to be split has an additional line end.
    let flat = |code: &str| code.replace(['\r', '\n'], "");
    assert_eq!(flat(&without), flat(&program.code), "{fixed}");
    fixed
}

#[test]
fn hostile_programs_are_fixed_on_a_workers_stack_in_time() {
    let started = Instant::now();
    let names: String = (0..40_000).map(|number| format!("name{number}\n")).collect();
    let chained = format!("    json{}\n", ".a()".repeat(1000)).repeat(60);
    let blocks: String = (0..99)
        .map(|depth| format!("{}def f{depth}():\n", " ".repeat(depth)))
        .collect();
    for (code, patches) in [
        ("json.x;".repeat(60_000), 1),
        (names, 0),
        (format!("json{}\n", ".a".repeat(9_000)), 1),
        (format!("try:\n{chained}except NameError:\n    pass\n"), 0),
        ("# coding\n".repeat(60_000) + "json.x", 1),
        ("\r\n".repeat(200_000) + "json.x", 1),
        (format!("json.f({})", "1,".repeat(100_000)), 1),
        (blocks + &format!("{}json.x\n", " ".repeat(99)).repeat(1000), 1),
        (format!("x = {}json.x", "lambda: ".repeat(400)), 1),
        (format!("x = '{}'; json.x", "https:\\\\a".repeat(50_000)), 1),
        (format!("x = {} + json.x", ["'https://a@'"; 8000].join(" + ")), 1),
    ] {
        let worker = std::thread::Builder::new().stack_size(8 << 20);
        let answer = worker.spawn(move || checked(&code)).unwrap().join().unwrap();
        assert_eq!(answer.patches.len(), patches);
    }
    assert!(
        started.elapsed() < std::time::Duration::from_secs(120),
        "{:?}",
        started.elapsed()
    );
}
