//! Quality of the extraction of main text, on corpora of labelled pages that are not part of the repository.

use crate::{command::show, workspace::Workspace};

/// Prints a table for each directory of a corpus.
pub fn run(workspace: &Workspace, directories: &[&str]) -> Result<(), String> {
    if directories.is_empty() {
        return Err("extraction: give the directories of the corpora".to_owned());
    }
    let words = [
        "run",
        "--release",
        "-p",
        "ringfence-web",
        "--example",
        "extraction",
        "--",
    ];
    show(workspace.cargo(&[&words[..], directories].concat()))
}
