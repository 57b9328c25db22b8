//! Programs before and after auto-fix, by the thousand. One that mentions names of modules in any place where no import is
//! missing is not touched. One that misses imports and works all the same says what it said before; one that fails for want of them
//! works. The interpreter judges, all programs of a test in one process.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test asks the interpreter; what fails is the test"
)]

#[path = "untouched/programs.rs"]
mod programs;

use programs::{LackingProgram, lacking, mentioning, settled};
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

/// Runs each program with nothing but builtins, and tells how it ended and what it printed.
const RUN: &str = r#"
import contextlib, io, json, sys
told = []
for code in json.load(sys.stdin):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code.encode(), "program", "exec", dont_inherit=True), {"__name__": "__main__"})
        end = "done"
    except BaseException as problem:
        end = f"{type(problem).__name__}: {problem}"
    told.append([end, printed.getvalue()])
json.dump(told, sys.stdout)
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
        .expect("python3 is there: it is what the sandbox runs");
    let question = serde_json::to_vec(programs).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&question));
    let told = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(told.status.success());
    let runs: Vec<Run> = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(runs.len(), programs.len());
    runs
}

fn checked(code: &str) -> CodeAnswer {
    let question = Question::Code(CodeQuestion {
        auto_fix: true,
        ..CodeQuestion::of(Language::Python, Rules::unrestricted())
    });
    match answer(&question, code.as_bytes()) {
        Answer::Code(told) => *told,
        other => panic!("{other:?}"),
    }
}

fn sample<T: std::fmt::Debug>(programs: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::new(Config::default());
    let draw = |_| programs.new_tree(&mut runner).unwrap().current();
    (0..PROGRAMS).map(draw).collect()
}

#[test]
fn programs_that_only_mention_modules_are_not_touched() {
    let started = Instant::now();
    let programs = sample(mentioning());
    for code in &programs {
        let told = checked(code);
        assert_eq!(told.patches, [], "added to:\n{code}");
        assert_eq!(told.validation.fixed_code, None, "changed:\n{code}");
        let errors = &told.validation.validation.errors;
        assert!(errors.is_empty(), "{errors:?} of:\n{code}");
    }
    // The programs are what they are taken for: they run.
    for (code, ran) in programs.iter().zip(run(&programs)) {
        assert_eq!(ran.end, "done", "{code}");
    }
    eprintln!(
        "untouched: {PROGRAMS} programs that mention modules, {:.1} s",
        started.elapsed().as_secs_f64()
    );
}

#[test]
fn names_that_a_program_binds_anywhere_are_not_given_another_meaning() {
    let programs = sample(settled());
    for (code, name) in &programs {
        let told = checked(code);
        assert!(
            told.patches.iter().all(|patch| patch.name != *name),
            "{name} is added to:\n{code}"
        );
    }
}

#[test]
fn fixed_programs_say_what_they_said_or_work_at_last() {
    let started = Instant::now();
    let programs = sample(lacking());
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
        "fixed: {PROGRAMS} programs, {added} changed; {worked} worked before and say the same, {failed} failed before and work; {:.1} s",
        started.elapsed().as_secs_f64()
    );
    // All sorts are among them.
    assert!(
        worked > PROGRAMS / 20 && failed > PROGRAMS / 2,
        "{worked} worked, {failed} failed"
    );
}

/// With exactly the imports that are missing, each on its own line, and nothing else.
fn fixed(program: &LackingProgram) -> String {
    let told = checked(&program.code);
    let names: BTreeSet<&str> = told.patches.iter().map(|patch| patch.name.as_str()).collect();
    let expected: BTreeSet<&str> = program.missing.iter().copied().collect();
    assert_eq!(names, expected, "added to:\n{}", program.code);
    let Some(fixed) = told.validation.fixed_code else {
        assert!(expected.is_empty());
        return program.code.clone();
    };
    let without = told.patches.iter().fold(fixed.clone(), |code, patch| {
        let end = if program.code.contains("\r\n") {
            "\r\n"
        } else {
            "\n"
        };
        code.replacen(&format!("{}{end}", patch.statement), "", 1)
    });
    // Where a line had to be broken, a line end was added to it.
    let flat = |code: &str| code.replace(['\r', '\n'], "");
    assert_eq!(flat(&without), flat(&program.code), "{fixed}");
    fixed
}

#[test]
fn hostile_programs_are_fixed_with_the_stack_of_a_worker_and_in_time() {
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
        let told = worker.spawn(move || checked(&code)).unwrap().join().unwrap();
        assert_eq!(told.patches.len(), patches);
    }
    assert!(
        started.elapsed() < std::time::Duration::from_secs(120),
        "{:?}",
        started.elapsed()
    );
}
