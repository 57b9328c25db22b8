//! JavaScript and TypeScript in each mode of Node.js (CommonJS, module, script), by the parser that prepares modules.

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
    /// A program of its own: a CommonJS script, or else a module.
    Program,
    /// A call in a session, as in a REPL: top-level `await` is allowed, top-level `return` is not.
    Call,
}

pub(crate) fn check(code: &str, language: Language, setting: Setting) -> Checked {
    let mut checked = Checked::default();
    match nesting::is_deep(code) {
        false => checked = parse::read(code, language, setting),
        // A recursive parser would overflow its stack.
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

/// Reports the first line end that only some programs recognize: an apparent comment may hold code that Node.js runs.
fn odd_line_end(code: &str) -> Option<Finding> {
    let mut ends = code.match_indices(['\r', '\u{2028}', '\u{2029}']);
    let (at, end) = ends.find(|(at, end)| *end != "\r" || !code[at + 1..].starts_with('\n'))?;
    let letter = end.chars().next().map_or(0, u32::from);
    let what = format!("a line ends in U+{letter:04X}");
    Some(Finding::new(&rules::LINE_END, at..at + end.len(), what))
}
