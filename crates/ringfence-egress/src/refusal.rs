//! Refusals, in one form for the result, the audit and the program itself, which gets a text that it can show. Every
//! text from a sandbox is escaped and cut here.

use crate::{Destination, NotApproved};
use ringfence_types::{Denial, closed_words};
use std::fmt::Write as _;

const LAYER: &str = "egress";
/// Length at which an untrusted text is cut, in characters.
const ESCAPED_CHARS_MAX: usize = 120;
/// Length at which the description of a refusal is cut, in characters.
const WHAT_CHARS_MAX: usize = 600;

closed_words! {
    /// The egress rule of a refusal, as spelled in results and the audit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RefusalRule {
        /// No rule names the host.
        Name = "egress.name",
        /// Rules name the host, but not this port.
        Port = "egress.port",
        /// The name resolves only to addresses that may not be dialled, or no rule names the address or its network.
        Address = "egress.address",
        /// The TLS handshake names another host than the connection, or none.
        Sni = "egress.sni",
        /// The TLS handshake may hide its host (Encrypted Client Hello).
        Ech = "egress.ech",
        /// Bytes other than TLS where only TLS is accepted, or a malformed ClientHello.
        NotTls = "egress.not_tls",
        /// This host does not trust the upstream's certificate, or the program does not trust the sandbox's authority.
        Certificate = "egress.certificate",
        /// A secret cannot be written into its place, or might come back in a form that cannot be redacted.
        Secret = "egress.secret",
        /// The HTTP request is for another host than the connection.
        Host = "egress.host",
        /// A method or a path that no rule allows, or a request that cannot be checked where rules require it.
        Request = "egress.request",
        /// HTTP that two parsers could read differently, or that is not forwarded.
        Http = "egress.http",
        /// Too many connections, names, queries, frames or bytes, or too much time.
        Limit = "egress.limit",
        /// The destination is allowed, but was not reached or gave no proper answer.
        Unreachable = "egress.unreachable",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub rule: RefusalRule,
    /// The destination, if it is known.
    pub host: Option<String>,
    pub port: Option<u16>,
    /// Description of what was refused: a sentence without a full stop.
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

    /// Appends the reason why approval was not given.
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

    /// Returns the text for the program, where its protocol can carry one: one or two short lines.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: {}.\n", self.rule, self.what);
        if !self.hint.is_empty() {
            text.push_str(&self.hint);
            text.push('\n');
        }
        text
    }
}

/// Cuts a description: rules can name many ports or paths, and the first characters are enough to recognise them.
fn cut(mut what: String) -> String {
    if let Some((end, _)) = what.char_indices().nth(WHAT_CHARS_MAX) {
        what.truncate(end);
        what.push_str("...");
    }
    what
}

/// Makes an untrusted text safe for a terminal, a log and a report: printable ASCII, the rest escaped, and cut.
pub(crate) fn escaped(text: &[u8]) -> String {
    let mut escaped = String::new();
    for byte in text {
        if escaped.len() >= ESCAPED_CHARS_MAX {
            escaped.push_str("...");
            break;
        }
        match byte {
            b' '..=b'~' => escaped.push(char::from(*byte)),
            other => drop(write!(escaped, "\\x{other:02x}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped_and_cut() {
        assert_eq!(escaped(b"plain text"), "plain text");
        assert_eq!(escaped(b"\x1b[31m\r\n\xff"), "\\x1b[31m\\x0d\\x0a\\xff");
        let long = escaped(&[b'a'; 5000]);
        assert!(long.len() <= ESCAPED_CHARS_MAX + 7 && long.ends_with("..."));
    }

    #[test]
    fn refusal_text_has_rule_and_hint() {
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
