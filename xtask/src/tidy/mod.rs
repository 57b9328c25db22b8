//! The rules that no compiler holds: how a file begins and how long it may be, which names are not used, who may depend
//! on whom, and that what the documents say is what the code and the tests say. All findings are printed.

mod claims;
mod dependencies;
mod reference;
mod source;

use crate::workspace::{TextFile, Workspace};
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
