//! Why something was refused, in one form for the result, the audit and the program itself, which gets an answer that
//! it can show. Every text from a sandbox is escaped and cut here.

use crate::{Destination, NotApproved};
use ringfence_types::{Denial, closed_words};
use std::fmt::Write as _;

/// The name of this layer in results.
const LAYER: &str = "egress";
/// Characters of a stranger's text that are shown.
const SHOWN_CHARS_MAX: usize = 120;
/// Characters in which it is said what was refused.
const WHAT_CHARS_MAX: usize = 600;

closed_words! {
    /// The rule of egress that it would have broken, as it stands in results and the audit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RefusalRule {
        /// No rule names the host.
        Name = "egress.name",
        /// Rules name the host, but not this port.
        Port = "egress.port",
        /// The name leads to an address that is not public, or the address is in no network that rules name.
        Address = "egress.address",
        /// The TLS handshake is for another host than the connection.
        Sni = "egress.sni",
        /// The TLS handshake hides whom it is for.
        Ech = "egress.ech",
        /// Bytes where only TLS is let through.
        NotTls = "egress.not_tls",
        /// The other end has no certificate that this host believes, or the program does not believe the sandbox's
        /// authority.
        Certificate = "egress.certificate",
        /// A secret cannot be put where it belongs, or might come back in a form that cannot be redacted.
        Secret = "egress.secret",
        /// The HTTP request is for another host than the connection.
        Host = "egress.host",
        /// A method or a path that no rule allows.
        Request = "egress.request",
        /// HTTP that two programs could read in two ways.
        Http = "egress.http",
        /// Too many connections, too many bytes, or too long.
        Limit = "egress.limit",
        /// It was allowed, and the other end could not be reached.
        Unreachable = "egress.unreachable",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub rule: RefusalRule,
    /// The destination, if it is known.
    pub host: Option<String>,
    pub port: Option<u16>,
    /// What was refused, in a sentence without a full stop.
    pub what: String,
    /// The smallest change that would allow it, or empty.
    pub hint: String,
}

impl Refusal {
    pub(crate) fn of(rule: RefusalRule, to: &Destination, what: String, hint: &str) -> Self {
        Self {
            rule,
            host: Some(to.host.to_string()),
            port: Some(to.port),
            what: cut(what),
            hint: hint.to_owned(),
        }
    }

    /// This refusal, after approval was asked for in vain.
    pub(crate) fn after(mut self, why: &NotApproved) -> Self {
        self.what = cut(format!("{}; {why}", self.what));
        self
    }

    pub(crate) fn plain(rule: RefusalRule, what: impl Into<String>, hint: &str) -> Self {
        Self {
            rule,
            host: None,
            port: None,
            what: what.into(),
            hint: hint.to_owned(),
        }
    }

    pub(crate) fn denial(&self) -> Denial {
        Denial {
            rule: self.rule.as_str().to_owned(),
            layer: LAYER.to_owned(),
            what: self.what.clone(),
            hint: self.hint.clone(),
        }
    }

    /// What the program is told where it can be told something: two or three short lines.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: {}.\n", self.rule, self.what);
        if !self.hint.is_empty() {
            text.push_str(&self.hint);
            text.push('\n');
        }
        text
    }
}

/// Rules can name many ports or paths; the first characters are enough to see what is meant.
fn cut(mut what: String) -> String {
    if let Some((end, _)) = what.char_indices().nth(WHAT_CHARS_MAX) {
        what.truncate(end);
        what.push_str("...");
    }
    what
}

/// A stranger's text so that a terminal, a log and a reader can have it: printable ASCII, the rest escaped, and not
/// much.
pub(crate) fn shown(text: &[u8]) -> String {
    let mut shown = String::new();
    for byte in text {
        if shown.len() >= SHOWN_CHARS_MAX {
            shown.push_str("...");
            break;
        }
        match byte {
            b' '..=b'~' => shown.push(char::from(*byte)),
            other => drop(write!(shown, "\\x{other:02x}")),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_is_escaped_and_cut() {
        assert_eq!(shown(b"plain text"), "plain text");
        assert_eq!(shown(b"\x1b[31m\r\n\xff"), "\\x1b[31m\\x0d\\x0a\\xff");
        let long = shown(&[b'a'; 5000]);
        assert!(long.len() <= SHOWN_CHARS_MAX + 7 && long.ends_with("..."));
    }

    #[test]
    fn what_a_program_is_told_names_rule_and_hint() {
        let refusal = Refusal::plain(
            RefusalRule::Limit,
            "more than 64 connections at once",
            "close some",
        );
        assert_eq!(
            refusal.text(),
            "egress.limit: more than 64 connections at once.\nclose some\n"
        );
        assert_eq!(refusal.denial().layer, "egress");
    }
}
