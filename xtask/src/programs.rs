//! Test programs, each started separately. A program without output for too long is killed, and the tests that it was
//! running are named. Failed tests run a second time, alone. Those that pass then are counted and named: they hide a
//! race that has to be fixed, but do not block a change.

use crate::{
    command::{capture, tests_of},
    tally::Tally,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    num::NonZero,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

/// A test program without output for this long counts as hung.
const SILENCE: Duration = Duration::from_secs(300);

/// Maximum number of failed tests of a program that are tried again. More are not a coincidence.
const SECOND_TRIES_MAX: usize = 5;

/// Number of times that a failing test is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tries {
    One,
    Two,
}

/// A test program that is built.
struct Program {
    name: String,
    path: PathBuf,
    /// Directory of its package, in which cargo would start it.
    directory: PathBuf,
}

/// Results of one run of a program.
#[derive(Default)]
struct Run {
    tally: Tally,
    /// Tests that passed or are ignored.
    done: BTreeSet<String>,
    /// Tests that were reported as slow and have no result.
    slow: BTreeSet<String>,
    failed: Vec<String>,
    /// True if the program uses libtest, so that single tests of it can be run.
    has_names: bool,
}

/// Runs the test programs that `cargo test` with these arguments would run.
pub fn run(
    workspace: &Workspace,
    words: &[&str],
    required: &str,
    tries: Tries,
) -> (Tally, Result<(), String>) {
    let mut total = Tally::default();
    let programs = match built(workspace, words) {
        Ok(programs) => programs,
        Err(reason) => return (total, Err(reason)),
    };
    // Most tests spend their time waiting for a time limit or for a program.
    let threads = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut broken = Vec::new();
    for (at, program) in programs.iter().enumerate() {
        let (number, name, path) = (at + 1, &program.name, program.path.display());
        println!("\n     Running {number} of {}: {name} ({path})", programs.len());
        let start = |tests: &[String]| {
            let mut command = Command::new(&program.path);
            command.args(tests).env(crate::require::VARIABLE, required);
            command.env("RUST_TEST_THREADS", threads.to_string());
            if !tests.is_empty() {
                command.arg("--exact");
            }
            command
                .current_dir(&program.directory)
                .env("CARGO_MANIFEST_DIR", &program.directory);
            command
        };
        let (tally, result) = try_twice(start, SILENCE, tries);
        total.add(tally);
        if let Err(reason) = result {
            broken.push(format!("{}: {reason}", program.name));
        }
    }
    let result = if broken.is_empty() {
        Ok(())
    } else {
        Err(broken.join("; "))
    };
    (total, result)
}

/// Has cargo build the test programs, and returns them.
fn built(workspace: &Workspace, words: &[&str]) -> Result<Vec<Program>, String> {
    let mut cargo = workspace.tests(words);
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.stderr(Stdio::inherit());
    let output = capture(cargo)?;
    let program = |line: &str| {
        let artifact: Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(artifact["executable"].as_str()?);
        if artifact["profile"]["test"] != true {
            return None;
        }
        let directory = PathBuf::from(artifact["manifest_path"].as_str()?)
            .parent()?
            .to_owned();
        let name = artifact["target"]["name"].as_str()?.to_owned();
        Some(Program {
            name,
            path,
            directory,
        })
    };
    let mut programs: Vec<Program> = output.lines().filter_map(program).collect();
    programs.sort_by(|one, other| (&one.directory, &one.name).cmp(&(&other.directory, &other.name)));
    if programs.is_empty() {
        return Err("cargo has not built any test program".to_owned());
    }
    Ok(programs)
}

/// Runs the program, and then the tests that have not passed a second time.
fn try_twice(
    start: impl Fn(&[String]) -> Command,
    silence: Duration,
    tries: Tries,
) -> (Tally, Result<(), String>) {
    let (first, result) = follow(start(&[]), silence);
    let Err(reason) = result else {
        return (first.tally, Ok(()));
    };
    println!("{reason}");
    if tries == Tries::One || first.failed.len() + first.slow.len() > SECOND_TRIES_MAX {
        return (first.failed_tally(), Err(reason));
    }
    let tests = match first.not_passed(start(&[])) {
        Ok(tests) => tests,
        Err(error) => return (first.failed_tally(), Err(format!("{reason}; {error}"))),
    };
    println!("\n     A second try of {}", describe(&tests));
    let (second, result) = follow(start(&tests), silence);
    match result {
        Ok(()) => {
            println!("passed at the second try alone: {}", describe(&tests));
            let tally = Tally {
                passed: first.done.len().max(1) as u64 + second.tally.passed - u64::from(!first.has_names),
                failed: 0,
                retried: second.tally.passed.max(1),
            };
            (tally, Ok(()))
        }
        Err(again) => (first.failed_tally(), Err(format!("{reason}; again: {again}"))),
    }
}

fn describe(tests: &[String]) -> String {
    if tests.is_empty() {
        "the program".to_owned()
    } else {
        tests.join(", ")
    }
}

/// Runs a program and reads its reports of tests.
fn follow(command: Command, silence: Duration) -> (Run, Result<(), String>) {
    let mut run = Run::default();
    let result = tests_of(command, silence, |line| run.read_line(line));
    let result = result.map_err(|error| {
        let tests: Vec<&str> = run.failed.iter().chain(&run.slow).map(String::as_str).collect();
        match tests.is_empty() {
            true => error,
            false => format!("{error}, at {}", tests.join(", ")),
        }
    });
    (run, result)
}

impl Run {
    fn read_line(&mut self, line: &str) {
        self.tally.read_line(line);
        let line = line.trim_end();
        self.has_names |= line.starts_with("running ") && line.ends_with(" tests");
        let Some(report) = line.strip_prefix("test ") else {
            return;
        };
        if let Some((name, result)) = report.split_once(" ... ") {
            let name = name.trim_end_matches(" - should panic");
            self.slow.remove(name);
            if result == "ok" || result.starts_with("ignored") {
                self.done.insert(name.to_owned());
            } else {
                self.failed.push(name.to_owned());
            }
        } else if let Some((name, _)) = report.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        }
    }

    /// Returns the tests that have not passed; an empty list if the program can only be run as a whole.
    fn not_passed(&self, mut list: Command) -> Result<Vec<String>, String> {
        if !self.has_names {
            return Ok(Vec::new());
        }
        list.args(["--list", "--format", "terse"]);
        let listed = capture(list)?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let tests: Vec<String> = names
            .filter(|name| !self.done.contains(*name))
            .map(str::to_owned)
            .collect();
        if tests.is_empty() {
            return Err("the program failed although all of its tests passed".to_owned());
        }
        Ok(tests)
    }

    /// Returns the tally with at least one failure: a program that was killed prints no closing line.
    fn failed_tally(&self) -> Tally {
        Tally {
            failed: self.tally.failed.max(1),
            ..self.tally
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::command;
    use std::{cell::Cell, fs};

    /// Returns a program that runs `first` at its first start and `second` at its next; a file remembers which is due.
    fn twice(first: &str, second: &str) -> impl Fn(&[String]) -> Command {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mark = std::env::temp_dir().join(format!("xtask-programs-{}-{number}", std::process::id()));
        drop(fs::remove_file(&mark));
        let script = format!(
            "case \"$*\" in *--list*) printf 'a: test\\nb: test\\n'; exit;; esac\n\
             if [ -e {0} ]; then rm {0}; {second}; else touch {0}; {first}; fi",
            mark.display()
        );
        move |tests| {
            let mut shell = command("sh", ["-c", &script, "program"]);
            shell.args(tests);
            shell
        }
    }

    const FAILS: &str = "printf 'running 2 tests\\ntest a ... ok\\ntest b ... FAILED\\n\\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\\n'; exit 101";
    const PASSES: &str = "[ \"$*\" = b ] && printf 'running 1 test\\ntest b ... ok\\n\\ntest result: ok. 1 passed; 0 failed; 0 ignored\\n'";

    #[test]
    fn test_that_fails_once_is_rerun_alone_and_counted() {
        let (tally, result) = try_twice(twice(FAILS, PASSES), SILENCE, Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.failed, tally.retried), (2, 0, 1));
    }

    #[test]
    fn test_that_fails_twice_is_a_failure() {
        let (tally, result) = try_twice(twice(FAILS, FAILS), SILENCE, Tries::Two);
        assert!(result.is_err());
        assert_eq!((tally.passed, tally.failed, tally.retried), (1, 1, 0));
    }

    #[test]
    fn one_failure_fails_without_a_second_try() {
        let starts = Cell::new(0);
        let program = twice(FAILS, PASSES);
        let start = |tests: &[String]| {
            starts.set(starts.get() + 1);
            program(tests)
        };
        let (tally, result) = try_twice(start, SILENCE, Tries::One);
        assert!(result.is_err() && tally.failed == 1 && starts.get() == 1);
    }

    #[test]
    fn more_than_five_failures_are_not_retried() {
        let many = "echo running 6 tests; for n in $(seq 6); do echo test $n ... FAILED; done; exit 101";
        let (_, result) = try_twice(twice(many, "true"), SILENCE, Tries::Two);
        assert!(result.is_err());
    }

    #[test]
    fn hanging_program_is_killed_and_its_test_is_named() {
        let hangs = "printf 'running 2 tests\\ntest a ... ok\\ntest b has been running for over 60 seconds\\n'; exec sleep 100";
        let (tally, result) = try_twice(twice(hangs, PASSES), Duration::from_millis(300), Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.retried), (2, 1));
        let (_, result) = follow(twice(hangs, PASSES)(&[]), Duration::from_millis(300));
        assert!(result.unwrap_err().ends_with("at b"));
    }

    #[test]
    fn program_without_test_names_is_rerun_as_a_whole() {
        let fails = "echo 3 passed, 1 failed; exit 1";
        let (tally, result) = try_twice(twice(fails, "echo 4 passed, 0 failed"), SILENCE, Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.failed, tally.retried), (4, 0, 4));
    }
}
