//! Text that bash reads differently from how it looks: CRLF line ends, unterminated here-documents, brackets in words.

use super::{
    reader, rules,
    scene::{Report, ShellContext},
    syntax::{Command, Script},
    variables::Variables,
};
use crate::rule::Finding;
use ringfence_types::Severity::Error;

/// Checks the whole script, which was read with carriage returns as blanks.
pub(super) fn check(code: &str, script: &Script<'_>, report: &mut Report) {
    match script.carriage_return {
        Some(at) => carriage_returns(code, script, at, report),
        None => unclosed(script, report),
    }
}

/// Reports carriage returns at line ends, which bash takes as letters: an error if the script is broken with them.
fn carriage_returns(code: &str, script: &Script<'_>, at: usize, report: &mut Report) {
    let seen = code.replace('\r', "\u{1}");
    let read = reader::read(&seen, &mut Variables::default());
    let breaks = script.faults.is_empty() && read.faults.iter().any(|fault| !fault.too_deep);
    let what = match breaks {
        true => "the line ends with a carriage return, which breaks the script",
        false => "the line ends with a carriage return",
    };
    let rule = &rules::CARRIAGE_RETURN;
    let severity = if breaks { Error } else { rule.severity };
    let finding = Finding::new(rule, at..at + 1, what).with_severity(severity);
    report.checked.findings.push(finding);
    // After a fault the rest is not read as intended.
    if !breaks {
        unclosed(&read, report);
    }
}

fn unclosed(script: &Script<'_>, report: &mut Report) {
    if !script.faults.is_empty() {
        return;
    }
    let what = "the here-document has no end";
    let found = |range: &std::ops::Range<usize>| Finding::new(&rules::HERE_DOCUMENT, range.clone(), what);
    report.checked.findings.extend(script.unclosed.iter().map(found));
}

/// Reports `[$x = y ]`, `[[$x = y ]]`, `[ $x = y]`.
pub(super) fn bracket(context: &ShellContext<'_>, command: &Command<'_>, report: &mut Report) {
    let (Some(first), Some(last)) = (command.words.first(), command.words.last()) else {
        return;
    };
    let (word, end) = (context.raw(&first.range), context.raw(&last.range));
    let what = match word {
        "[" if end != "]" && end.ends_with(']') => "`]` is an argument of `[` and needs a blank before it",
        word if word.starts_with("[[") && word.len() > 2 => {
            "`[[` is a word of its own and needs a blank behind it"
        }
        // `[abc]` may be the name of a file.
        word if word.starts_with('[')
            && word.len() > 1
            && (command.words.len() > 1 || !word.ends_with(']')) =>
        {
            "`[` is a command and needs a blank behind it"
        }
        _ => return,
    };
    report.at(context, &command.range).report(&rules::BRACKET, what);
}
