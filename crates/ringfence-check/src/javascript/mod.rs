//! JavaScript and TypeScript: read by the parser that prepares modules for Node.js, in each of the ways in which
//! Node.js may read a program.

mod calls;
mod files;
mod line_ends;
mod look;
mod names;
mod nesting;
mod parse;
mod resolve;

#[cfg(test)]
mod tests;

use crate::{
    registry::javascript as rules,
    rule::{Checked, Finding},
};

/// Which language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As Node.js runs it: no JSX.
    JavaScript,
    /// With JSX, if it has any.
    TypeScript,
}

/// Where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// By itself: a script, or else a module.
    Program,
    /// As a call of a session, as in a console: `await` may stand at its top, `return` may not.
    Call,
}

/// What is found of a program.
pub(crate) fn check(code: &str, dialect: Dialect, setting: Setting) -> Checked {
    let mut checked = match nesting::is_deep(code) {
        false => parse::read(code, dialect, setting),
        // A parser that recurses goes down with it.
        true => {
            let mut unread = Checked::default();
            let what = "the program is nested too deeply to be read".to_owned();
            unread
                .findings
                .push(Finding::new(&rules::UNPARSED, 0..code.len(), what));
            unread
        }
    };
    let analysis = &mut checked.analysis;
    analysis.cyclomatic_complexity = analysis.cyclomatic_complexity.max(1);
    checked.findings.extend(line_ends::odd(code));
    checked
}
