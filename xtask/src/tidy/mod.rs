//! Rules that the compiler cannot check: headers and lengths of files, banned names, dependencies between crates, and
//! agreement of documents with code and tests. All findings are printed.

mod budgets;
mod claims;
mod dependencies;
mod order;
mod prose;
mod ratchet;
mod reference;
mod signposts;
mod source;
mod structure;

use crate::{
    command::capture,
    workspace::{TextFile, Workspace},
};
use std::fmt;

/// A violation of a rule.
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

/// Applies every rule. Findings are an error.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let files = workspace.text_files()?;
    let mut findings = source::check(&files);
    findings.extend(dependencies::check(&workspace.packages));
    findings.extend(claims::check(&files));
    findings.extend(reference::check(&files));
    findings.extend(signposts::check(&files));
    findings.extend(lock_file(workspace));
    findings.extend(strays(&workspace.paths()?, &files));
    let broken = fences(&structure::measure(&files)?, &files);
    findings.extend(ratchet::check(&broken, &allowed(&files)?));
    findings.sort();
    findings.dedup();
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

/// Returns all violations of the fences that have a ratchet.
fn fences(shapes: &[structure::Shape], files: &[TextFile]) -> Vec<Finding> {
    let of_crates = shapes.iter().flat_map(|shape| shape.findings.clone());
    of_crates
        .chain(prose::check(files))
        .chain(source::names(files))
        .collect()
}

fn allowed(files: &[TextFile]) -> Result<ratchet::Counts, String> {
    let text = text_of(files, ratchet::FILE).ok_or_else(|| format!("there is no {}", ratchet::FILE))?;
    ratchet::read(text)
}

/// Prints the table of lines against budgets and violations of fences, and then each violation of `fence`.
pub fn report(workspace: &Workspace, fence: &str) -> Result<(), String> {
    let files = workspace.text_files()?;
    let shapes = structure::measure(&files)?;
    let found = fences(&shapes, &files);
    print!("{}", structure::report(&shapes, &found));
    let of_fence = found.iter().filter(|finding| finding.rule == fence);
    of_fence.for_each(|finding| println!("{finding}"));
    Ok(())
}

/// Lowers the ratchet's numbers to the remaining violations.
pub fn bless(workspace: &Workspace) -> Result<(), String> {
    let files = workspace.text_files()?;
    let found = fences(&structure::measure(&files)?, &files);
    let path = workspace.root.join(ratchet::FILE);
    std::fs::write(&path, ratchet::lowered(&found, &allowed(&files)?))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks the lock file, which can otherwise go stale unnoticed until a build with `--locked`.
fn lock_file(workspace: &Workspace) -> Option<Finding> {
    let words = ["metadata", "--locked", "--format-version", "1"];
    let what = "is behind the manifests: `cargo update --workspace`";
    capture(workspace.cargo(&words))
        .is_err()
        .then(|| Finding::new("Cargo.lock", 1, "lock file", what))
}

/// Files that are allowed at the root.
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

/// Directory of fuzzing seeds, which need not be text.
const SEEDS: &str = "fuzz/seeds/";

/// Finds files that a tool has left by mistake: unexpected ones at the root, and those that are not text.
fn strays(paths: &[String], files: &[TextFile]) -> Vec<Finding> {
    let is_text = |path: &str| files.iter().any(|file| file.path == path);
    let found = paths.iter().filter_map(|path| {
        if !path.contains('/') && !AT_ROOT.contains(&path.as_str()) {
            Some(Finding::new(path, 1, "stray", "is not expected at the root"))
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

/// Returns a file for the tests of the rules.
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
    fn stray_files_are_found() {
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
