//! A request rendered for a person: each fact on its own line, and untrusted text in a quotation that it cannot close.
//! The text is plain, and reads the same on a terminal, in a dialogue and in Markdown.

use super::{Ask, CommandSubject, Subject};
use ringfence_egress::{Pattern, Rule};
use std::time::Duration;

pub(super) fn lines(ask: &Ask, timeout: Duration) -> Vec<String> {
    let mut lines = match &ask.subject {
        Subject::Egress(rule) => egress(rule, opening(ask)),
        Subject::Command(command) => of_command(command),
    };
    lines.push(line("namespace", ask.namespace.as_str()));
    if let Some(session) = &ask.session {
        lines.push(line("session", session.as_str()));
    }
    if let Some(execution) = &ask.execution {
        lines.push(line("run", &format!("{}, which waits", plain(execution))));
    }
    lines.push(line("asked by", &quoted(ask.caller.as_str())));
    match (ask.reason.as_str(), &ask.execution) {
        // A program gives no reason.
        ("", Some(_)) => {}
        ("", None) => lines.push(line("reason", "none was given")),
        (reason, _) => {
            let words = format!("{} (its own words, unchecked)", quoted(reason));
            lines.push(line("reason", &words));
        }
    }
    let seconds = timeout.as_secs();
    lines.push(format!("Without an answer it is denied after {seconds} s."));
    lines
}

fn opening(ask: &Ask) -> &'static str {
    match ask.execution {
        Some(_) => "A program in a sandbox tries to reach a host on the network.",
        None => "Programs in a sandbox ask to reach a host on the network.",
    }
}

fn egress(rule: &Rule, opening: &str) -> Vec<String> {
    let host = match rule.host() {
        Pattern::Below(apex) => format!("every name below {apex}"),
        Pattern::Any => "every name".to_owned(),
        one => one.to_string(),
    };
    let ports: Vec<String> = rule.ports().iter().map(ToString::to_string).collect();
    let mut lines = vec![
        opening.to_owned(),
        line("host", &host),
        line("ports", &ports.join(", ")),
    ];
    if !rule.methods().is_empty() {
        lines.push(line("methods", &rule.methods().join(", ")));
    }
    if let Some(path) = rule.path() {
        lines.push(line("path", &plain(path)));
    }
    lines
}

/// Renders a command, whose words are already escaped one by one.
fn of_command(command: &CommandSubject) -> Vec<String> {
    let mut lines = vec![
        "An agent asks to run a command on the host.".to_owned(),
        line("command", &command.words),
        line("program", &quoted(&command.program)),
        line(
            "directory",
            &command.directory.as_deref().map_or("none".to_owned(), quoted),
        ),
        line("no rule", &plain(&command.missing_rule)),
    ];
    lines.extend(command.files.iter().map(|file| line("file", &plain(file))));
    if command.directory.is_some() && !command.effect.iter().any(|effect| effect == "starts: nothing") {
        lines.push("  other files of the directory may decide what it does".to_owned());
    }
    lines.extend(command.effect.iter().map(|effect| format!("  {}", plain(effect))));
    let may = match command.may_last {
        true => "one run, or a time that you choose",
        false => "one run only",
    };
    lines.push(line("may be approved for", may));
    lines
}

fn line(name: &str, value: &str) -> String {
    format!("  {name}: {value}")
}

/// Quotes a text as one line that ends at the second quotation mark.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text))
}

/// Keeps letters, digits, spaces and most punctuation; escapes as `\u{...}` all that ends a line or the quotation,
/// moves the cursor, reorders or hides text, joins the letter before, or is a link or a tag in Markdown.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

fn is_plain(c: char) -> bool {
    match c {
        ' ' => true,
        '"' | '\\' | '`' | '<' | '>' | '[' | ']' => false,
        // Invisible characters of a visible category: letters and a symbol.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{2800}' => false,
        // The standard library escapes by category invisible and combining characters.
        other => other.escape_debug().eq([other]) || other == '\'',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotation_cannot_be_closed_early_and_stays_on_one_line() {
        let check = |text: &str, expect: &str| assert_eq!(quoted(text), format!("\"{expect}\""));
        check("to read the docs; it's fine", "to read the docs; it's fine");
        check("é 漢 日本語 Ж 🎉", "é 漢 日本語 Ж 🎉");
        check("x\"\n  host: good.test", "x\\u{22}\\u{a}  host: good.test");
        check("\\u{22}", "\\u{5c}u{22}");
        check("\x1b[2K\r\x07", "\\u{1b}\\u{5b}2K\\u{d}\\u{7}");
        check(
            "\u{202e}\u{2066}\u{200f}\u{200b}",
            "\\u{202e}\\u{2066}\\u{200f}\\u{200b}",
        );
        check(
            "\u{2028}\u{85}\u{9b}\u{feff}\u{ad}",
            "\\u{2028}\\u{85}\\u{9b}\\u{feff}\\u{ad}",
        );
        check(
            "a\u{336}\u{3164}\u{e0041}\u{a0}",
            "a\\u{336}\\u{3164}\\u{e0041}\\u{a0}",
        );
        check(
            "![x](http://e.test/?s) <b> `",
            "!\\u{5b}x\\u{5d}(http://e.test/?s) \\u{3c}b\\u{3e} \\u{60}",
        );
    }
}
