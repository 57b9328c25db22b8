//! JavaScript and TypeScript: read by the parser that prepares modules for Node.js, in each of the ways in which
//! Node.js may read a program.

mod calls;
mod effects;
mod names;
mod nesting;
mod parse;
mod resolve;
mod visit;

#[cfg(test)]
mod tests;

use crate::{
    registry::javascript as rules,
    rule::{Checked, Finding},
};
use ringfence_types::Language;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// By itself: a script, or else a module.
    Program,
    /// As a call of a session, as in a console: `await` may stand at its top, `return` may not.
    Call,
}

pub(crate) fn check(code: &str, language: Language, setting: Setting) -> Checked {
    let mut checked = Checked::default();
    match nesting::is_deep(code) {
        false => checked = parse::read(code, language, setting),
        // A parser that recurses goes down with it.
        true => {
            let what = "the program is nested too deeply to be read";
            let finding = Finding::new(&rules::UNPARSED, 0..code.len(), what);
            checked.findings.push(finding);
        }
    }
    checked.analysis.cyclomatic_complexity += 1;
    checked.findings.extend(odd_line_end(code));
    checked
}

/// The first end of a line that only some see: a text may look like one long comment, and Node.js run the rest of it.
fn odd_line_end(code: &str) -> Option<Finding> {
    let mut ends = code.match_indices(['\r', '\u{2028}', '\u{2029}']);
    let (at, end) = ends.find(|(at, end)| *end != "\r" || !code[at + 1..].starts_with('\n'))?;
    let letter = end.chars().next().map_or(0, u32::from);
    let what = format!("a line ends in U+{letter:04X}");
    Some(Finding::new(&rules::LINE_END, at..at + end.len(), what))
}
