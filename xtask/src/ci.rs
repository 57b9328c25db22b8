//! The steps of CI, each named and timed, with its usual duration printed before. After a failed step all others still
//! run, except those that need its result. Steps that cannot run on this machine are listed with the reason; they fail
//! if `RINGFENCE_REQUIRE` names the missing capability.
//!
//! All dependencies are built once: every step uses the one development build, of the same packages and therefore with
//! the same features, and Clippy's lints come from it. Tools of later steps are installed during the build, whose last
//! crates use one processor. Bounds in milliseconds hold for optimised code only: tests assert them under `--release`,
//! and growth and ratios in every build.

use crate::{
    backends, clients,
    command::{capture, command, count_tests, exists, show},
    conformance, deny, fuzz, http_clients,
    mcp_client::{self, ServerUser},
    programs::{self, Tries},
    require,
    tally::Tally,
    tidy,
    workspace::{Profile, Workspace},
};
use serde_json::Value;
use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Test program that runs attacks, twice if it is root.
const ESCAPE: &str = "escape";

/// Test program that counts what many runs and kills leave on the machine.
const LEAKS: &str = "leaks";

/// Options of `cargo xtask ci`.
#[derive(Clone, Copy)]
pub struct CiOptions<'a> {
    /// Runs only steps whose name contains this.
    pub part: &'a str,
    /// Runs only the quick steps.
    pub is_quick: bool,
    /// Build profile of the steps.
    pub profile: Profile,
    /// Number of times that a failing test is run.
    pub tries: Tries,
}

impl<'a> CiOptions<'a> {
    /// Parses the arguments after `ci`.
    pub fn parse(words: &[&'a str]) -> Result<Self, String> {
        let mut options = Self {
            part: "",
            is_quick: false,
            profile: Profile::Dev,
            tries: Tries::Two,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--quick" => options.is_quick = true,
                "--release" => options.profile = Profile::Release,
                "--once" => options.tries = Tries::One,
                "--only" => options.part = words.next().ok_or("--only needs a part of the steps' names")?,
                other => return Err(format!("ci: unknown option {other}")),
            }
        }
        Ok(options)
    }
}

/// Outcome of a step.
enum Outcome {
    Passed(Tally),
    Failed(Tally, String),
    NotRun(String),
}

/// One step of CI.
struct Step {
    name: &'static str,
    /// Usual duration on two cores from a clean checkout, printed before the step.
    seconds: u64,
    /// True if `--quick` runs it.
    is_quick: bool,
    /// Capabilities that it requires, and earlier steps without which it would only fail again.
    needs: &'static [&'static str],
    run: fn(&Workspace) -> Outcome,
}

/// The step that builds the programs of most other steps.
const BUILD: &str = "build";

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "format", seconds: 2, is_quick: true, needs: &[], run: |w| check(formatted(w)) },
    Step { name: "tidy", seconds: 5, is_quick: true, needs: &[], run: |w| check(tidy::run(w)) },
    Step { name: BUILD, seconds: 260, is_quick: true, needs: &[], run: |w| check(show(w.tests(&["--lib", "--bins", "--tests", "--no-run"]))) },
    Step { name: "tests", seconds: 455, is_quick: true, needs: &[BUILD], run: test_programs },
    Step { name: "documentation tests", seconds: 15, is_quick: true, needs: &[BUILD], run: |w| tests(count_tests(w.tests(&["--doc"]))) },
    Step { name: "leak tests", seconds: 30, is_quick: false, needs: &[BUILD], run: |w| tests(count_tests(required(w.tests(&["--test", LEAKS])))) },
    Step { name: "escape tests, as root and as uid 65534", seconds: 75, is_quick: false, needs: &[BUILD, "root"], run: |w| tests(escape(w)) },
    Step { name: "escape tests, as an ordinary user", seconds: 40, is_quick: false, needs: &[BUILD, "not root"], run: |w| tests(escape(w)) },
    Step { name: "backends: native, Docker, gVisor", seconds: 30, is_quick: false, needs: &[BUILD, "root", "dockerd", "runsc"], run: |w| counted(backends::run(w, "", backends::Extent::Short)) },
    Step { name: "backends: kills", seconds: 45, is_quick: false, needs: &[BUILD, "root", "dockerd", "runsc"], run: |w| check(backends::kill(w)) },
    Step { name: "backends: faults", seconds: 60, is_quick: false, needs: &[BUILD, "root", "dockerd", "runsc"], run: |w| check(backends::fault(w, "")) },
    Step { name: "docker restart, approved in a terminal", seconds: 15, is_quick: false, needs: &[BUILD, "root", "dockerd", "python3"], run: |w| tests(backends::restart(w)) },
    Step { name: "image", seconds: 30, is_quick: false, needs: &[BUILD, "root", "dockerd", "curl"], run: |w| check(backends::image::run(w)) },
    Step { name: "client libraries", seconds: 35, is_quick: false, needs: &[BUILD, "node", "npm"], run: clients },
    Step { name: "OAuth", seconds: 45, is_quick: false, needs: &[BUILD, "node", "npm", "python3"], run: |w| tests(http_clients::oauth(w, &w.binary())) },
    Step { name: "conformance", seconds: 60, is_quick: false, needs: &[BUILD, "npm"], run: conform },
    Step { name: "python client 1.30", seconds: 20, is_quick: false, needs: &[BUILD, "python3"], run: |w| client(w, "1.30", ServerUser::Same) },
    Step { name: "python client 2.3", seconds: 75, is_quick: false, needs: &[BUILD, "python3"], run: |w| client(w, "2.3", ServerUser::Same) },
    Step { name: "python client 2.3, server as uid 65534", seconds: 15, is_quick: false, needs: &[BUILD, "root", "python3"], run: |w| client(w, "2.3", ServerUser::Nobody) },
    Step { name: "fuzz", seconds: 25, is_quick: false, needs: &[BUILD], run: fuzz_all },
    Step { name: "clippy", seconds: 10, is_quick: false, needs: &[BUILD], run: |w| check(lints(w)) },
    Step { name: "cargo deny", seconds: 5, is_quick: false, needs: &[], run: |w| check(deny::check(w)) },
    Step { name: "nothing changed in the checkout", seconds: 0, is_quick: false, needs: &["ci"], run: |w| check(unchanged(w)) },
];

type Install = fn(&Workspace) -> Result<(), String>;

/// Tools that steps install, by the steps' names. The step itself tries again after a failure, and reports it.
#[rustfmt::skip]
const INSTALLED: &[(&str, Install)] = &[
    ("client libraries", |w| clients::installed(w, clients::Library::Node).map(drop)),
    ("OAuth", |w| http_clients::provider(w).map(drop)),
    ("conformance", |w| conformance::installed(w).map(drop)),
    ("python client 1.30", |w| mcp_client::environment(w, "1.30").map(drop)),
    ("python client 2.3", |w| mcp_client::environment(w, "2.3").and(mcp_client::data_environment(w)).map(drop)),
    ("cargo deny", |w| deny::find_or_install(w).map(drop)),
];

/// Outcome of a step of which a test passed only on its second try.
const RETRIED: &str = "passed on the second try";

/// Runs the steps that the options select, in order.
pub fn run(mut workspace: Workspace, options: CiOptions<'_>) -> Result<(), String> {
    workspace.profile = options.profile;
    workspace.tries = options.tries;
    let is_selected = |step: &&Step| step.name.contains(options.part) && (step.is_quick || !options.is_quick);
    let steps: Vec<&Step> = STEPS.iter().filter(is_selected).collect();
    if steps.is_empty() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        let part = options.part;
        return Err(format!(
            "no step's name contains `{part}`; there are: {}",
            names.join("; ")
        ));
    }
    println!("{}", announcement(&steps));
    let usual: u64 = steps.iter().map(|step| step.seconds).sum();
    let first = Instant::now();
    let mut ended: Vec<(&Step, Outcome, Duration)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        println!(
            "\n=== {} of {}: {}, about {} s; {} of about {} elapsed",
            number + 1,
            steps.len(),
            step.name,
            step.seconds,
            clock(first.elapsed().as_secs()),
            clock(usual)
        );
        let begun = Instant::now();
        let outcome = thread::scope(|scope| {
            if step.name == BUILD {
                scope.spawn(|| install(&workspace, &steps));
            }
            attempt(step, &workspace, &ended)
        });
        let took = begun.elapsed();
        let seconds = took.as_secs_f64();
        match &outcome {
            Outcome::Passed(_) => println!("=== {}: passed in {seconds:.1} s", step.name),
            Outcome::Failed(_, reason) => println!("=== {}: FAILED in {seconds:.1} s: {reason}", step.name),
            Outcome::NotRun(reason) => println!("=== {}: not run: {reason}", step.name),
        }
        ended.push((step, outcome, took));
    }
    summarise(&ended)
}

fn install(workspace: &Workspace, steps: &[&Step]) {
    for (name, install) in INSTALLED {
        if steps.iter().any(|step| step.name == *name)
            && let Err(reason) = install(workspace)
        {
            println!("not installed yet: {reason}");
        }
    }
}

/// Checks the format of all packages, and of the file that a build script compiles, which cargo does not know.
fn formatted(workspace: &Workspace) -> Result<(), String> {
    show(workspace.cargo(&["fmt", "--all", "--check"]))?;
    let mut forker = command("rustfmt", ["--check", "--edition", "2024", FORKER]);
    forker.current_dir(&workspace.root);
    show(forker)
}

const FORKER: &str = "crates/ringfence-sys/src/forker/image.rs";

/// Prints Clippy's warnings for all targets: cargo repeats those of targets that are already built.
fn lints(workspace: &Workspace) -> Result<(), String> {
    let output = capture(workspace.tests(&["--all-targets", "--no-run", "--message-format", "json"]))?;
    let messages = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let messages = messages.filter(|line| line["reason"] == "compiler-message");
    let rendered = messages.filter_map(|line| line["message"]["rendered"].as_str().map(str::to_owned));
    let warnings = rendered.inspect(|warning| print!("{warning}")).count();
    match warnings {
        0 => Ok(()),
        _ => Err(format!("{warnings} warning(s)")),
    }
}

/// Formats minutes and seconds.
fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Returns a line about the expected duration.
fn announcement(steps: &[&Step]) -> String {
    let seconds = |steps: &mut dyn Iterator<Item = &&Step>| -> u64 { steps.map(|step| step.seconds).sum() };
    let all = seconds(&mut steps.iter()).div_ceil(60);
    let built = seconds(&mut steps.iter().filter(|step| step.name != BUILD)).div_ceil(60);
    let count = steps.len();
    format!("{count} steps: about {all} minutes on two cores, {built} of them after the build")
}

fn attempt(step: &Step, workspace: &Workspace, ended: &[(&Step, Outcome, Duration)]) -> Outcome {
    let broken = |need: &&str| {
        ended
            .iter()
            .any(|(earlier, outcome, _)| earlier.name == *need && !matches!(outcome, Outcome::Passed(_)))
    };
    if let Some(need) = step.needs.iter().copied().find(broken) {
        return Outcome::NotRun(format!("needs {need}"));
    }
    let missing: Vec<&str> = step.needs.iter().copied().filter(|need| !has(need)).collect();
    if missing.is_empty() {
        return (step.run)(workspace);
    }
    not_run(
        &format!("needs {}", missing.join(", ")),
        &missing,
        &require::list(),
    )
}

/// Returns the outcome of a step that cannot run: a failure if a missing capability is required.
fn not_run(reason: &str, missing: &[&str], required: &str) -> Outcome {
    if missing
        .iter()
        .any(|capability| require::names(required, capability))
    {
        return Outcome::Failed(
            Tally::default(),
            format!("{reason}, and {} requires it", require::VARIABLE),
        );
    }
    Outcome::NotRun(reason.to_owned())
}

fn has(capability: &str) -> bool {
    match capability {
        "root" => require::is_root(),
        "not root" => !require::is_root(),
        "ci" => require::in_ci(),
        // A failed build has been handled above. A run without the build step is the caller's choice.
        BUILD => true,
        program => exists(program),
    }
}

fn check(result: Result<(), String>) -> Outcome {
    counted(result.map(|()| Tally::ONE))
}

fn counted(result: Result<Tally, String>) -> Outcome {
    match result {
        Ok(tally) => Outcome::Passed(tally),
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

/// Returns the cargo arguments for all test programs except those that have steps of their own: attacks, leaks and fuzz
/// targets.
pub fn quiet(workspace: &Workspace) -> Vec<String> {
    let has_a_step = |program: &String| [ESCAPE, LEAKS, fuzz::PROGRAM].contains(&program.as_str());
    let programs = workspace.test_programs().into_iter();
    let programs = programs.filter(|program| !has_a_step(program));
    let words = ["--lib".to_owned(), "--bins".to_owned()].into_iter();
    words
        .chain(programs.flat_map(|program| ["--test".to_owned(), program]))
        .collect()
}

fn test_programs(workspace: &Workspace) -> Outcome {
    let words = quiet(workspace);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tests(programs::run(
        workspace,
        &words,
        &require::list(),
        workspace.tries,
    ))
}

/// Passes the required capabilities to tests.
fn required(mut cargo: Command) -> Command {
    cargo.env(require::VARIABLE, require::list());
    cargo
}

/// Runs the attacks. If the test program is root, it runs them as root and then as uid 65534; else as the user.
fn escape(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let (tally, result) = count_tests(required(workspace.tests(&["--test", ESCAPE])));
    let nothing = tally.passed == 0 && result.is_ok();
    (
        tally,
        if nothing {
            Err("no attack was run".to_owned())
        } else {
            result
        },
    )
}

fn client(workspace: &Workspace, version: &str, user: ServerUser) -> Outcome {
    // One of the steps tests pandas: the current client, with a user that may read the build directory.
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

fn clients(workspace: &Workspace) -> Outcome {
    match clients::installed(workspace, clients::Library::Node) {
        Ok(_) => tests(clients::node(workspace)),
        Err(reason) => not_run(&reason, &["index"], &require::list()),
    }
}

fn conform(workspace: &Workspace) -> Outcome {
    match conformance::installed(workspace) {
        Ok(suite) => tests(conformance::run(workspace, &suite)),
        Err(reason) => not_run(&reason, &["index"], &require::list()),
    }
}

fn fuzz_all(workspace: &Workspace) -> Outcome {
    counted(fuzz::run(workspace, fuzz::Effort::Short))
}

/// Fails if a step changed the checkout. A rewritten golden file, lock file or table would otherwise go unnoticed.
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

/// Prints the table with the steps that were not run, the closing line, and the reasons of failures. The reasons come
/// last, because often only the end of the output is read.
fn summarise(ended: &[(&Step, Outcome, Duration)]) -> Result<(), String> {
    let width = STEPS.iter().map(|step| step.name.len()).max().unwrap_or(0);
    let (mut total, mut failed) = (Tally::default(), false);
    println!(
        "\n{:<width$}  {:>9}  {:>6}  {:>6}  outcome",
        "step", "seconds", "passed", "failed"
    );
    for (step, outcome, took) in ended {
        let (tally, word) = match outcome {
            Outcome::Passed(tally) if tally.retried > 0 => (*tally, RETRIED),
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
    let seconds: f64 = ended.iter().map(|(_, _, took)| took.as_secs_f64()).sum();
    if total.retried > 0 {
        println!("{} {RETRIED}: each hides a race", total.retried);
    }
    println!(
        "in {seconds:.0} s\n\n{} passed, {} failed",
        total.passed, total.failed
    );
    if failed {
        for (step, outcome, _) in ended {
            if let Outcome::Failed(_, reason) = outcome {
                println!("\n{}: {reason}", step.name);
            }
        }
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
    fn missing_capability_is_not_run_and_fails_only_if_required() {
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
    fn step_fails_on_failed_tests_and_on_errors() {
        let tally = Tally {
            passed: 3,
            failed: 1,
            retried: 0,
        };
        assert!(matches!(tests((tally, Ok(()))), Outcome::Failed(..)));
        assert!(matches!(
            tests((Tally::ONE, Err("exit 1".to_owned()))),
            Outcome::Failed(..)
        ));
        assert!(matches!(tests((Tally::ONE, Ok(()))), Outcome::Passed(_)));
    }

    #[test]
    fn step_that_needs_a_failed_step_is_not_run_and_others_are() {
        let step = |name, needs| Step {
            name,
            seconds: 60,
            is_quick: true,
            needs,
            run: |_| Outcome::Passed(Tally::ONE),
        };
        let (build, tests, tidy) = (step(BUILD, &[]), step("tests", &[BUILD]), step("tidy", &[]));
        let workspace = Workspace::open().unwrap();
        let failed = [(
            &build,
            Outcome::Failed(Tally::default(), "x".to_owned()),
            Duration::ZERO,
        )];
        assert!(matches!(attempt(&tests, &workspace, &failed), Outcome::NotRun(why) if why == "needs build"));
        assert!(matches!(attempt(&tidy, &workspace, &failed), Outcome::Passed(_)));
        assert!(matches!(attempt(&tests, &workspace, &[]), Outcome::Passed(_)));
    }

    #[test]
    fn ci_options_are_parsed_and_unknown_ones_refused() {
        let options = CiOptions::parse(&["--quick", "--only", "tests"]).unwrap();
        assert!(options.is_quick && options.part == "tests" && options.profile == Profile::Dev);
        assert!(CiOptions::parse(&["--release"]).unwrap().profile == Profile::Release);
        assert!(CiOptions::parse(&["--only"]).is_err() && CiOptions::parse(&["--fast"]).is_err());
    }

    #[test]
    fn steps_take_at_most_25_minutes_and_quick_ones_8_after_the_build() {
        let as_root = STEPS.iter().filter(|step| !step.needs.contains(&"not root"));
        let seconds: u64 = as_root.map(|step| step.seconds).sum();
        assert!(seconds <= 25 * 60, "{seconds}");
        let quick = STEPS.iter().filter(|step| step.is_quick && step.name != BUILD);
        assert!(quick.map(|step| step.seconds).sum::<u64>() <= 8 * 60);
        let steps: Vec<&Step> = STEPS
            .iter()
            .filter(|step| ["tidy", BUILD].contains(&step.name))
            .collect();
        assert!(
            announcement(&steps)
                .starts_with("2 steps: about 5 minutes on two cores, 1 of them after the build")
        );
    }

    #[test]
    fn failed_step_makes_the_summary_fail() {
        let step = &STEPS[0];
        let failed = Outcome::Failed(Tally::default(), "x".to_owned());
        assert!(summarise(&[(step, failed, Duration::ZERO)]).is_err());
        assert!(summarise(&[(step, Outcome::Passed(Tally::ONE), Duration::ZERO)]).is_ok());
    }
}
