//! The rules that no compiler holds: how a file begins and how long it may be, which names are not used, who may depend
//! on whom, and that what the documents say is what the code and the tests say. All findings are printed.

mod claims;
mod dependencies;
mod reference;
mod source;

use crate::{
    command::capture,
    workspace::{TextFile, Workspace},
};
use std::fmt;

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// Applies every rule; an error when anything was found.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let files = workspace.text_files()?;
    let mut findings = source::check(&files);
    findings.extend(dependencies::check(&workspace.packages));
    findings.extend(claims::check(&files));
    findings.extend(reference::check(&files));
    findings.extend(lock_files(workspace));
    findings.extend(strays(&workspace.paths()?, &files));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing found", files.len());
            Ok(())
        }
        count => Err(format!("tidy: {count} findings")),
    }
}

/// The fuzz targets have a lock file of their own, which knows what our crates depend on and goes stale unseen.
fn lock_files(workspace: &Workspace) -> Vec<Finding> {
    let stale = |manifest: &&str| {
        let words = [
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--manifest-path",
            manifest,
        ];
        capture(workspace.cargo(&words)).is_err()
    };
    let found = ["Cargo.toml", "fuzz/Cargo.toml"].into_iter().filter(stale);
    let finding = |manifest: &str| {
        let what = format!("is behind the manifests: `cargo update --workspace --manifest-path {manifest}`");
        Finding::new(&manifest.replace(".toml", ".lock"), 1, "lock file", what)
    };
    found.map(finding).collect()
}

/// What may lie at the root.
const AT_ROOT: [&str; 14] = [
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

/// What fuzzing begins with, which may be pictures.
const SEEDS: &str = "fuzz/seeds/";

/// What a tool has dropped here: a file at the root that nobody expects, or one that is not text.
fn strays(paths: &[String], files: &[TextFile]) -> Vec<Finding> {
    let is_text = |path: &str| files.iter().any(|file| file.path == path);
    let found = paths.iter().filter_map(|path| {
        if !path.contains('/') && !AT_ROOT.contains(&path.as_str()) {
            Some(Finding::new(path, 1, "stray", "is not known at the root"))
        } else if !is_text(path) && !path.starts_with(SEEDS) {
            Some(Finding::new(path, 1, "stray", "is not text"))
        } else {
            None
        }
    });
    found.collect()
}

fn text_of<'a>(files: &'a [TextFile], path: &str) -> Option<&'a str> {
    files
        .iter()
        .find(|file| file.path == path)
        .map(|file| file.text.as_str())
}

/// A file for the tests of the rules.
#[cfg(test)]
fn file(path: &str, text: &str) -> TextFile {
    TextFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_has_dropped_is_found() {
        let paths = ["README.md", "trace.txt", "docs/x.md", "docs/trace.data"].map(str::to_owned);
        let files = [
            file("README.md", ""),
            file("trace.txt", ""),
            file("docs/x.md", ""),
        ];
        let found: Vec<String> = strays(&paths, &files)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, ["trace.txt", "docs/trace.data"]);
    }
}
