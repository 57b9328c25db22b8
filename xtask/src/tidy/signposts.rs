//! Checks that the targets of references in documents exist: the files and headings of links, the paths that are named,
//! and the functions that a row of a table locates in files. Code moves, and a map that is not checked soon lies.

use super::{Finding, text_of};
use crate::workspace::TextFile;
use std::path::{Component, Path, PathBuf};

const RULE: &str = "signpost";
/// Beginnings of texts in backticks that are paths.
const ROOTS: [&str; 4] = ["crates/", "docs/", "tests/", "xtask/"];
/// Records of the past, and generated documents.
const NOT_READ: [&str; 2] = ["CHANGELOG.md", "docs/reference.md"];

/// Checks the documents at the root and below `docs/`.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let is_read = |path: &str| {
        path.ends_with(".md")
            && (path.starts_with("docs/") || !path.contains('/'))
            && !NOT_READ.contains(&path)
    };
    let documents = files.iter().filter(|file| is_read(&file.path));
    documents.flat_map(|document| of(document, files)).collect()
}

fn of(document: &TextFile, files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut base = None;
    for (number, line) in document.text.lines().enumerate() {
        let mut missing = |what: String| findings.push(Finding::new(&document.path, number + 1, RULE, what));
        let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        for (target, heading) in links(line) {
            let path = match target {
                "" => document.path.clone(),
                target => joined(folder, target),
            };
            if !exists(&path, files) {
                missing(format!("the link leads to {path}, which does not exist"));
            } else if !heading.is_empty() && !has_heading(text_of(files, &path), heading) {
                missing(format!("{path} has no heading `{heading}`"));
            }
        }
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        if line.starts_with('#') {
            base = quoted
                .first()
                .copied()
                .filter(|text| is_path(text) || *text == "crates");
        }
        let paths: Vec<String> = quoted
            .iter()
            .filter(|text| is_path(text))
            .map(|text| text.trim_end_matches('/').to_owned())
            .chain(
                first_cell(line)
                    .zip(base)
                    .into_iter()
                    .flat_map(|(cell, base)| below(base, cell)),
            )
            .collect();
        for path in paths.iter().filter(|path| !exists(path, files)) {
            missing(format!("{path} does not exist"));
        }
        let functions = quoted.iter().filter_map(|text| text.strip_suffix("()"));
        for function in functions.filter(|_| line.starts_with('|') && !paths.is_empty()) {
            if !paths.iter().any(|path| defines(text_of(files, path), function)) {
                missing(format!("no file of this row has `fn {function}`"));
            }
        }
    }
    findings
}

/// Returns the targets of links within the repository: file and heading.
fn links(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://"))
        .map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// Returns true if a document has a heading with the anchor `wanted`.
fn has_heading(text: Option<&str>, wanted: &str) -> bool {
    let anchor = |heading: &str| -> String {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let headings = text
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .any(|heading| heading == wanted)
}

fn joined(folder: &Path, target: &str) -> String {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

fn is_path(text: &str) -> bool {
    ROOTS.iter().any(|root| text.starts_with(root)) && !text.contains([' ', '<', '*'])
}

/// Returns the first cell of a row if it has a text in backticks.
fn first_cell(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?;
    cell.contains('`').then_some(cell)
}

/// Returns the paths that a cell names, below the folder of the heading above.
fn below(base: &str, cell: &str) -> Vec<String> {
    let names = cell.split('`').skip(1).step_by(2);
    names
        .map(|name| format!("{}/{name}", base.trim_end_matches('/')))
        .collect()
}

fn exists(path: &str, files: &[TextFile]) -> bool {
    let folder = format!("{path}/");
    files
        .iter()
        .any(|file| file.path == path || file.path.starts_with(&folder))
}

fn defines(text: Option<&str>, function: &str) -> bool {
    text.is_some_and(|text| {
        ["(", "<"]
            .iter()
            .any(|next| text.contains(&format!("fn {function}{next}")))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    fn assert_broken(document: &str, expect: &[usize]) {
        let files = [
            file("ARCHITECTURE.md", document),
            file("crates/a/src/b.rs", "pub fn decide<T>() {}\n"),
            file(
                "docs/x.md",
                "## The `Y` way\n\n[here](adr/1.md) and [up](../ARCHITECTURE.md)\n",
            ),
            file("docs/adr/1.md", ""),
        ];
        let found: Vec<usize> = check(&files).into_iter().map(|finding| finding.line).collect();
        assert_eq!(found, expect, "{document}");
    }

    #[test]
    fn missing_paths_links_and_functions_are_found() {
        assert_broken(
            "see `crates/a/src/b.rs`, `crates/a/` and [x](docs/x.md#the-y-way)\n",
            &[],
        );
        assert_broken("see `crates/a/src/c.rs`\n", &[1]);
        assert_broken("see [y](docs/y.md), [web](https://example.com#a)\n", &[1]);
        assert_broken("see [x](docs/x.md#elsewhere)\n", &[1]);
        assert_broken("# Top\n\nsee [above](#top), [below](#end)\n", &[3]);
        assert_broken("| q | `crates/a/src/b.rs`: `decide()` |\n", &[]);
        assert_broken("| q | `crates/a/src/b.rs`: `judge()` |\n", &[1]);
        assert_broken("`library::init()` is not in a table\n", &[]);
    }

    #[test]
    fn rows_below_a_folder_are_relative_to_it() {
        assert_broken("### `crates/a/src`\n\n| `b.rs` | what |\n", &[]);
        assert_broken("### `crates/a/src`\n\n| `c.rs` | what |\n", &[3]);
        assert_broken("### `crates/a/src`\n\n## Next\n\n| `c.rs` | what |\n", &[]);
    }
}
