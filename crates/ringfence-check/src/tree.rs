//! Parsing with tree-sitter, within a time. Its parsers go on after an error and never say what they waited for; whether a text is
//! refused is decided by whoever asks.

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};
use tree_sitter::{Language, Node, ParseOptions, Parser, Tree, TreeCursor};

/// More places than this say nothing new.
const FAULTS_MAX: usize = 20;

/// A place that the grammar does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) range: Range<usize>,
    /// The word or sign that would have to stand there; none: what stands there is too much.
    pub(crate) missing: Option<String>,
}

/// The tree; none: it took too long. The parsers keep more readings of a broken text the longer they go on, so that the time
/// bounds the memory, too.
pub(crate) fn parse(language: &Language, code: &str, longest: Duration) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(language).ok()?;
    let started = Instant::now();
    let mut in_time = |_: &tree_sitter::ParseState| match started.elapsed() < longest {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let bytes = code.as_bytes();
    parser.parse_with_options(
        &mut |at, _| bytes.get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut in_time)),
    )
}

/// The next node in the order of the text; false: there is none. `deeper`: the children of this one come first.
pub(crate) fn advance(cursor: &mut TreeCursor<'_>, deeper: Deeper) -> bool {
    if deeper == Deeper::Yes && cursor.goto_first_child() {
        return true;
    }
    loop {
        if cursor.goto_next_sibling() {
            return true;
        }
        if !cursor.goto_parent() {
            return false;
        }
    }
}

/// Do the children of a node come next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deeper {
    Yes,
    No,
}

/// Where the grammar and the text part; at most [`FAULTS_MAX`].
pub(crate) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !tree.root_node().has_error() {
        return faults;
    }
    let mut cursor = tree.walk();
    while faults.len() < FAULTS_MAX {
        let node = cursor.node();
        let found = fault(node);
        let deeper = match found.is_none() && node.has_error() {
            true => Deeper::Yes,
            false => Deeper::No,
        };
        faults.extend(found);
        if !advance(&mut cursor, deeper) {
            break;
        }
    }
    faults
}

fn fault(node: Node<'_>) -> Option<Fault> {
    let range = node.byte_range();
    if node.is_missing() {
        let missing = Some(node.kind().to_owned());
        return Some(Fault { range, missing });
    }
    node.is_error().then_some(Fault { range, missing: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(code: &str) -> Vec<Fault> {
        let language = tree_sitter_javascript::LANGUAGE.into();
        faults(&parse(&language, code, Duration::from_secs(10)).unwrap())
    }

    #[test]
    fn a_fault_has_its_place_and_what_is_missing() {
        assert_eq!(faults_of("let a = 1"), []);
        let missing = Fault {
            range: 5..5,
            missing: Some(")".to_owned()),
        };
        assert_eq!(faults_of("if (a { b() }"), [missing]);
        assert_eq!(faults_of("let a = 1 1")[0].range, 8..9);
    }

    #[test]
    fn a_hundred_thousand_brackets_are_read_in_time() {
        for bracket in ["(", "[", "{", "`${"] {
            let code = bracket.repeat(100_000);
            let language = tree_sitter_javascript::LANGUAGE.into();
            if let Some(tree) = parse(&language, &code, Duration::from_secs(2)) {
                assert!(faults(&tree).len() <= FAULTS_MAX);
            }
        }
    }
}
