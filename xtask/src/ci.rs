//! Exactly what CI runs, step by step, each named and timed. The first failure ends it; what could not run on this
//! machine is listed with its reason, and is a failure where `RINGFENCE_REQUIRE` asks for it.

use crate::{
    command::{capture, command, count_tests, exists, show},
    deny, fuzz,
    mcp_client::{self, ServerUser},
    require,
    tally::Tally,
    tidy,
    workspace::Workspace,
};
use std::{
    process::Command,
    time::{Duration, Instant},
};

/// The test program that runs attacks, twice when it is root.
pub const ESCAPE: &str = "escape";

/// How a step ended.
enum Outcome {
    Passed(Tally),
    Failed(Tally, String),
    NotRun(String),
}

/// One step of CI.
struct Step {
    name: &'static str,
    /// Capabilities without which it cannot run here.
    needs: &'static [&'static str],
    act: fn(&Workspace) -> Outcome,
}

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "format", needs: &[], act: |w| check(format(w)) },
    Step { name: "clippy", needs: &[], act: |w| check(show(w.cargo(&["clippy", "--workspace", "--all-targets", "--release", "--locked", "--", "-D", "warnings"]))) },
    Step { name: "tidy", needs: &[], act: |w| check(tidy::run(w)) },
    Step { name: "cargo deny", needs: &[], act: |w| check(deny::check(w)) },
    Step { name: "release build", needs: &[], act: |w| check(show(w.cargo(&["build", "--release", "--locked", "--workspace"]))) },
    Step { name: "tests", needs: &[], act: |w| tests(unit_and_end_to_end(w)) },
    Step { name: "documentation tests", needs: &[], act: |w| tests(count_tests(w.cargo(&["test", "--workspace", "--release", "--locked", "--doc"]))) },
    Step { name: "escape tests, as root and as uid 65534", needs: &["root"], act: |w| tests(escape(w)) },
    Step { name: "escape tests, as an ordinary user", needs: &["not root"], act: |w| tests(escape(w)) },
    Step { name: "python client 1.30", needs: &["python3"], act: |w| client(w, "1.30", ServerUser::Same) },
    Step { name: "python client 2.3", needs: &["python3"], act: |w| client(w, "2.3", ServerUser::Same) },
    Step { name: "python client 2.3, server as uid 65534", needs: &["root", "python3"], act: |w| client(w, "2.3", ServerUser::Nobody) },
    Step { name: "fuzz", needs: &["c++"], act: fuzz_all },
    Step { name: "nothing changed in the checkout", needs: &["ci"], act: |w| check(unchanged(w)) },
];

/// Everything in order, or only the steps whose name holds `part`.
pub fn run(workspace: &Workspace, part: &str) -> Result<(), String> {
    let required = require::list();
    let wanted: Vec<&Step> = STEPS.iter().filter(|step| step.name.contains(part)).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!(
            "no step's name holds `{part}`; there are: {}",
            names.join("; ")
        ));
    }
    let mut ended: Vec<(&Step, Outcome, Duration)> = Vec::new();
    for step in &wanted {
        println!("\n=== {}", step.name);
        let begun = Instant::now();
        let outcome = attempt(step, workspace, &required);
        let took = begun.elapsed();
        match &outcome {
            Outcome::Passed(_) => println!("=== {}: passed in {:.1} s", step.name, took.as_secs_f64()),
            Outcome::Failed(_, reason) => println!(
                "=== {}: FAILED in {:.1} s: {reason}",
                step.name,
                took.as_secs_f64()
            ),
            Outcome::NotRun(reason) => println!("=== {}: not run: {reason}", step.name),
        }
        let failed = matches!(outcome, Outcome::Failed(..));
        ended.push((step, outcome, took));
        if failed {
            break;
        }
    }
    summarise(&ended, &wanted[ended.len()..])
}

fn attempt(step: &Step, workspace: &Workspace, required: &str) -> Outcome {
    let missing: Vec<&str> = step.needs.iter().copied().filter(|need| !has(need)).collect();
    if missing.is_empty() {
        return (step.act)(workspace);
    }
    not_run(&format!("needs {}", missing.join(", ")), &missing, required)
}

/// A failure where one of the missing capabilities is required.
fn not_run(reason: &str, missing: &[&str], required: &str) -> Outcome {
    if missing
        .iter()
        .any(|capability| require::names(required, capability))
    {
        return Outcome::Failed(
            Tally::default(),
            format!("{reason}, and {} asks for it", require::VARIABLE),
        );
    }
    Outcome::NotRun(reason.to_owned())
}

fn has(capability: &str) -> bool {
    match capability {
        "root" => require::is_root(),
        "not root" => !require::is_root(),
        "ci" => require::in_ci(),
        program => exists(program),
    }
}

fn check(result: Result<(), String>) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed(Tally::ONE),
        Err(reason) => Outcome::Failed(Tally::default(), reason),
    }
}

fn tests((tally, result): (Tally, Result<(), String>)) -> Outcome {
    match result {
        Ok(()) if tally.failed == 0 => Outcome::Passed(tally),
        Ok(()) => Outcome::Failed(tally, "tests failed".to_owned()),
        Err(reason) => Outcome::Failed(tally, reason),
    }
}

fn format(workspace: &Workspace) -> Result<(), String> {
    show(workspace.cargo(&["fmt", "--all", "--check"]))?;
    show(workspace.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

/// All but the attacks, which have a step of their own.
fn unit_and_end_to_end(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let mut cargo = workspace.cargo(&[
        "test",
        "--workspace",
        "--release",
        "--locked",
        "--no-fail-fast",
        "--lib",
        "--bins",
    ]);
    for (_, program) in workspace
        .test_programs()
        .iter()
        .filter(|(_, program)| program != ESCAPE)
    {
        cargo.args(["--test", program]);
    }
    count_tests(required(cargo))
}

/// Tests that know what must not be skipped here.
fn required(mut cargo: Command) -> Command {
    cargo.env(require::VARIABLE, require::list());
    cargo
}

/// The attacks: the test program itself runs them as root and then as uid 65534 when it is root, else as the user.
fn escape(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let (tally, result) = count_tests(required(workspace.cargo(&[
        "test",
        "--release",
        "--locked",
        "-p",
        "ringfence",
        "--test",
        ESCAPE,
    ])));
    let nothing = tally.passed == 0 && result.is_ok();
    (
        tally,
        if nothing {
            Err("no attack was tried".to_owned())
        } else {
            result
        },
    )
}

fn client(workspace: &Workspace, version: &str, user: ServerUser) -> Outcome {
    // Once with pandas: the current client, and a user who may read the directory of the build.
    let with_data = version == "2.3" && user == ServerUser::Same;
    let environments = mcp_client::environment(workspace, version).and_then(|python| {
        let data = with_data.then(|| mcp_client::data_environment(workspace));
        Ok((python, data.transpose()?))
    });
    match environments {
        Ok((python, data)) => tests(mcp_client::run(workspace, &python, user, data.as_deref())),
        Err(reason) => not_run(
            &format!("no environment with mcp {version}, or with pandas: {reason}"),
            &["pip"],
            &require::list(),
        ),
    }
}

fn fuzz_all(workspace: &Workspace) -> Outcome {
    match fuzz::run(workspace, fuzz::SECONDS) {
        Ok(tally) => Outcome::Passed(tally),
        Err(reason) => Outcome::Failed(Tally::default(), reason),
    }
}

/// A golden file, a lock file or a table that a step rewrote would otherwise land unseen.
fn unchanged(workspace: &Workspace) -> Result<(), String> {
    let mut git = command("git", ["status", "--porcelain"]);
    git.current_dir(&workspace.root);
    let changes = capture(git)?;
    if changes.is_empty() {
        Ok(())
    } else {
        Err(format!("the steps changed the checkout:\n{changes}"))
    }
}

/// The table, what was not run, and the closing line.
fn summarise(ended: &[(&Step, Outcome, Duration)], not_reached: &[&Step]) -> Result<(), String> {
    let width = STEPS.iter().map(|step| step.name.len()).max().unwrap_or(0);
    let (mut total, mut failed) = (Tally::default(), false);
    println!(
        "\n{:<width$}  {:>9}  {:>6}  {:>6}  outcome",
        "step", "seconds", "passed", "failed"
    );
    for (step, outcome, took) in ended {
        let (tally, word) = match outcome {
            Outcome::Passed(tally) => (*tally, "passed"),
            // A step that failed without a failed test counts as one.
            Outcome::Failed(tally, _) => (
                Tally {
                    failed: tally.failed.max(1),
                    ..*tally
                },
                "FAILED",
            ),
            Outcome::NotRun(reason) => {
                println!(
                    "{:<width$}  {:>9}  {:>6}  {:>6}  not run: {}",
                    step.name,
                    "-",
                    "-",
                    "-",
                    first_line(reason)
                );
                continue;
            }
        };
        println!(
            "{:<width$}  {:>9.1}  {:>6}  {:>6}  {word}",
            step.name,
            took.as_secs_f64(),
            tally.passed,
            tally.failed
        );
        failed |= word == "FAILED";
        total.add(tally);
    }
    for step in not_reached {
        println!(
            "{:<width$}  {:>9}  {:>6}  {:>6}  not reached",
            step.name, "-", "-", "-"
        );
    }
    let seconds: f64 = ended.iter().map(|(_, _, took)| took.as_secs_f64()).sum();
    println!(
        "in {seconds:.0} s\n\n{} passed, {} failed",
        total.passed, total.failed
    );
    if failed {
        Err("a step failed".to_owned())
    } else {
        Ok(())
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_lacks_is_listed_unless_it_is_required() {
        assert!(matches!(
            not_run("needs root", &["root"], "userns"),
            Outcome::NotRun(_)
        ));
        assert!(matches!(
            not_run("needs root", &["root"], "userns,root"),
            Outcome::Failed(..)
        ));
    }

    #[test]
    fn a_step_with_failed_tests_has_failed_whatever_its_exit() {
        let tally = Tally { passed: 3, failed: 1 };
        assert!(matches!(tests((tally, Ok(()))), Outcome::Failed(..)));
        assert!(matches!(
            tests((Tally::ONE, Err("exit 1".to_owned()))),
            Outcome::Failed(..)
        ));
        assert!(matches!(tests((Tally::ONE, Ok(()))), Outcome::Passed(_)));
    }

    #[test]
    fn a_failed_step_makes_the_summary_fail() {
        let step = &STEPS[0];
        let failed = Outcome::Failed(Tally::default(), "x".to_owned());
        assert!(summarise(&[(step, failed, Duration::ZERO)], &[]).is_err());
        assert!(summarise(&[(step, Outcome::Passed(Tally::ONE), Duration::ZERO)], &[]).is_ok());
    }
}
