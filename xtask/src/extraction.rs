//! How well the main text of pages is found: on corpora of labelled pages, which are looked up and never kept here.

use crate::{command::show, workspace::Workspace};

/// Prints a table for each directory.
pub fn run(workspace: &Workspace, directories: &[&str]) -> Result<(), String> {
    if directories.is_empty() {
        return Err("name the directories of the corpora".to_owned());
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
