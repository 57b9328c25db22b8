//! Test programs, each started by itself. One that says nothing for too long is ended, with the names of the tests that
//! it was at; tests that fail are run once more, alone, and those that pass then are counted and named: they hide a
//! race, and are to be mended, but do not keep a change from landing.

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

/// A test program that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(300);

/// More failed tests than these are no coincidence.
const SECOND_TRIES_MAX: usize = 5;

/// How often a test that fails is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tries {
    One,
    Two,
}

/// A test program that is built.
struct Program {
    name: String,
    path: PathBuf,
    /// Of its package: where cargo would start it.
    directory: PathBuf,
}

/// What one run of a program said.
#[derive(Default)]
struct Run {
    tally: Tally,
    /// Tests that passed or are not run by themselves.
    done: BTreeSet<String>,
    /// Those that have said that they take long, and nothing since.
    late: BTreeSet<String>,
    failed: Vec<String>,
    /// It runs tests as `cargo test` does, and so can be asked for some of them.
    has_names: bool,
}

/// Runs what `cargo test` with these words would run.
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
    // Most tests wait: for a time limit, or for a program of theirs.
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

/// Asks cargo, which builds what is not built.
fn built(workspace: &Workspace, words: &[&str]) -> Result<Vec<Program>, String> {
    let mut cargo = workspace.tests(words);
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.stderr(Stdio::inherit());
    let said = capture(cargo)?;
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
    let mut programs: Vec<Program> = said.lines().filter_map(program).collect();
    programs.sort_by(|one, other| (&one.directory, &one.name).cmp(&(&other.directory, &other.name)));
    if programs.is_empty() {
        return Err("cargo has built no test program".to_owned());
    }
    Ok(programs)
}

/// Runs the program, and what has not passed once more.
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
    if tries == Tries::One || first.failed.len() + first.late.len() > SECOND_TRIES_MAX {
        return (first.failed_tally(), Err(reason));
    }
    let tests = match first.left(start(&[])) {
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
                second: second.tally.passed.max(1),
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

/// Runs it and reads what it says of its tests.
fn follow(command: Command, silence: Duration) -> (Run, Result<(), String>) {
    let mut run = Run::default();
    let result = tests_of(command, silence, |line| run.read_line(line));
    let result = result.map_err(|error| {
        let tests: Vec<&str> = run.failed.iter().chain(&run.late).map(String::as_str).collect();
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
        let Some(said) = line.strip_prefix("test ") else {
            return;
        };
        if let Some((name, how)) = said.split_once(" ... ") {
            let name = name.trim_end_matches(" - should panic");
            self.late.remove(name);
            if how == "ok" || how.starts_with("ignored") {
                self.done.insert(name.to_owned());
            } else {
                self.failed.push(name.to_owned());
            }
        } else if let Some((name, _)) = said.split_once(" has been running for over ") {
            self.late.insert(name.to_owned());
        }
    }

    /// Tests of the program that have not passed; none: it can only be run as a whole.
    fn left(&self, mut list: Command) -> Result<Vec<String>, String> {
        if !self.has_names {
            return Ok(Vec::new());
        }
        list.args(["--list", "--format", "terse"]);
        let listed = capture(list)?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let left: Vec<String> = names
            .filter(|name| !self.done.contains(*name))
            .map(str::to_owned)
            .collect();
        if left.is_empty() {
            return Err("it failed, and every test of it has passed".to_owned());
        }
        Ok(left)
    }

    /// A program that was ended has no closing line.
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

    /// A program that says its lines with a mark in a file: the first time one way, the second another.
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
    fn a_test_that_fails_once_is_run_alone_and_counted() {
        let (tally, result) = try_twice(twice(FAILS, PASSES), SILENCE, Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.failed, tally.second), (2, 0, 1));
    }

    #[test]
    fn a_test_that_fails_twice_has_failed() {
        let (tally, result) = try_twice(twice(FAILS, FAILS), SILENCE, Tries::Two);
        assert!(result.is_err());
        assert_eq!((tally.passed, tally.failed, tally.second), (1, 1, 0));
    }

    #[test]
    fn without_a_second_try_one_failure_is_enough() {
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
    fn many_failures_are_no_coincidence() {
        let many = "echo running 6 tests; for n in $(seq 6); do echo test $n ... FAILED; done; exit 101";
        let (_, result) = try_twice(twice(many, "true"), SILENCE, Tries::Two);
        assert!(result.is_err());
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_the_name_of_its_test() {
        let hangs = "printf 'running 2 tests\\ntest a ... ok\\ntest b has been running for over 60 seconds\\n'; exec sleep 100";
        let (tally, result) = try_twice(twice(hangs, PASSES), Duration::from_millis(300), Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.second), (2, 1));
        let (_, result) = follow(twice(hangs, PASSES)(&[]), Duration::from_millis(300));
        assert!(result.unwrap_err().ends_with("at b"));
    }

    #[test]
    fn a_program_without_names_is_run_again_as_a_whole() {
        let fails = "echo 3 passed, 1 failed; exit 1";
        let (tally, result) = try_twice(twice(fails, "echo 4 passed, 0 failed"), SILENCE, Tries::Two);
        assert_eq!(result, Ok(()));
        assert_eq!((tally.passed, tally.failed, tally.second), (4, 0, 4));
    }
}
