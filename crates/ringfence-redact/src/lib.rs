//! Finds secrets in a stream of bytes, in many encodings, and redacts them.
//!
//! This is a courtesy to readers of the output, **not a wall**. A program that holds a secret and wants to reveal it
//! can: it only needs a form that is not listed here. To protect a secret, do not give it to the program, and give the
//! program no egress. Against accidental disclosure (a log line, a stack trace, `env`, a dumped request) the following
//! is exact and complete.
//!
//! # What is found
//!
//! Every secret of [`SHORTEST_SECRET`] to [`LONGEST_SECRET`] bytes, in these forms ([`Forms::All`]):
//!
//! - verbatim, and reversed (by characters);
//! - hexadecimal, lower and upper case;
//! - base64, standard and URL-safe, at any offset in the encoded text: the characters that the secret alone
//!   determines, and at the end of the encoded text the last character and the padding too;
//! - percent-encoded: with the unreserved characters of RFC 3986 kept, or those of Python's `quote`, of JavaScript's
//!   `encodeURIComponent`, of forms (`URLSearchParams`) or of user information in URLs; only the delimiters or the
//!   reserved characters; a space as `%20` or `+`; every byte as `%XX`; upper and lower case;
//! - in a JSON string: with as few escapes as possible, with `\/`, in ASCII only, both, and as Go, Gson, Flask and .NET
//!   write it; upper and lower case;
//! - as Python's `repr` and `ascii` write strings and bytes;
//! - in a shell: between single or double quotes, in `$'…'`, and as `printf %q` writes it; with the doubled quotes of
//!   CSV and SQL;
//! - with every character as `\uXXXX` or every byte as `\xXX`; upper and lower case;
//! - in HTML and XML: with the required entities, and quotes verbatim, by name or by number; every character by number,
//!   decimal or hexadecimal;
//! - in Markdown: with a backslash before each of ``\ ` * _ [ ]``, and `<` with and without one; in URLs, as their
//!   parsers write them.
//!
//! [`Forms::Plain`] covers the secret verbatim and in JSON strings, without those of Go, Gson, Flask and .NET. Derived
//! forms of less than six bytes are not searched, because they would be found in unrelated text.
//!
//! CR and LF are ignored in the secret and in the text, up to [`LINE_BREAKS_MAX`] in a row, so base64 wrapped at 76
//! columns and a key of many lines are found in any wrapping. Line breaks inside a find are redacted with it. Line
//! breaks at the ends of a secret are not part of it.
//!
//! For a secret of several lines, and for the base64 of a long one, white space and the characters around the lines of
//! a diff, a quotation, a list, a table, a comment or a literal (``+ - > | * # , " ' \ ` ``) are also ignored, up to
//! [`LAYOUT_MAX`] in a row. It is found with its lines indented, prefixed or joined, verbatim and in HTML, if at least
//! 16 bytes of it are left.
//!
//! [`Personal::Remove`] also covers, in the rest of the text: e-mail addresses; phone numbers, `+NN…` or in the US
//! style; payment cards that pass Luhn; US social security numbers. These are recognised by their shape alone, with
//! false negatives and false positives.
//!
//! All finds that touch or overlap become one [`REDACTED`], or as many `*` as they have bytes
//! ([`Redactor::filled`]). Nothing else is changed. The output does not depend on how the input is cut into pieces.
//! Bytes are held back only while a find may have begun.
//!
//! # What is not found
//!
//! Anything else: rot13, other bases, compression, encryption, hashes; one encoding inside another; different case;
//! UTF-16; other characters in between (`s-e-c-r-e-t`); parts of a secret; a secret that is computed or drawn. Base64
//! characters at the edges of a secret, which depend on its neighbours too, stay: up to four bits of it at each end.
//!
//! # Cost
//!
//! Time is linear in the text, for all texts and secrets; memory is that of the tables and, for each stream, at most
//! [`LINE_BREAKS_MAX`] + 1 times the longest form, or [`LAYOUT_MAX`] + 1 times that of several lines. Tables take
//! 128 KiB and nine bytes for each byte that forms do not share: 300 to 1,700 bytes for a byte of secret, and a fifth
//! more during construction; a caller that accepts secrets from untrusted users must limit them. Tables are wiped when
//! the last clone and the last stream are dropped. Secrets of several lines make the search five times as slow.
#![forbid(unsafe_code)]

mod automaton;
mod contact;
mod forms;
mod ignored;
mod json;
mod marks;
mod number;
mod personal;
mod seek;
mod wiped;

use crate::{
    automaton::Automaton, forms::Needles, ignored::Ignored, marks::Mask, personal::PersonalWords, seek::Seek,
};
use std::{borrow::Cow, fmt, sync::Arc};
use zeroize::Zeroizing;

/// Replacement of a find.
pub const REDACTED: &str = "***REDACTED***";

/// Bytes of the shortest secret, without line breaks. Shorter ones would be found everywhere.
pub const SHORTEST_SECRET: usize = 4;

/// Bytes of the longest secret.
pub const LONGEST_SECRET: usize = 64 * 1024;

/// Maximum number of consecutive CR and LF inside a find.
pub const LINE_BREAKS_MAX: u32 = 16;

/// Maximum number of consecutive bytes of layout inside a find of a secret of several lines.
pub const LAYOUT_MAX: u32 = 64;

/// Forms in which secrets are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// All forms; for the output of untrusted programs.
    All,
    /// Verbatim and in JSON strings of common writers; for our own logs.
    Plain,
}

/// Treatment of personal addresses and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personal {
    /// They stay.
    Keep,
    /// They are redacted.
    Remove,
}

/// Number of marks made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Marks for secrets.
    pub secrets: u64,
    /// Marks for personal addresses and numbers.
    pub personal: u64,
}

/// Redacts a set of secrets. Clones share the tables.
#[derive(Clone)]
pub struct Redactor {
    /// The automaton of all forms, then that of forms in a layout.
    automata: Vec<Arc<Automaton>>,
    personal: Personal,
    mask: Mask,
}

/// A text that passes through a [`Redactor`] in pieces.
pub struct Stream {
    /// Each stage reads the output of the one before it.
    stages: Vec<Stage>,
}

enum Stage {
    Secrets(Seek),
    Personal(PersonalWords),
}

impl Redactor {
    /// Builds the tables. Secrets that [`Redactor::is_redactable`] rejects are skipped.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>, forms: Forms, personal: Personal) -> Self {
        let secrets = secrets.into_iter();
        let secrets = secrets.filter(|secret| Self::is_redactable(secret).is_ok());
        let secrets: Vec<&str> = secrets.collect();
        let [mut exact, mut reflowed] = [Ignored::LineBreaks, Ignored::Layout].map(Needles::new);
        for secret in &secrets {
            exact.add_secret(secret, forms);
            reflowed.add_reflowed(secret, forms);
        }
        let mut redactor = Self {
            automata: Automaton::new(&mut exact).map(Arc::new).into_iter().collect(),
            personal: Personal::Keep,
            mask: Mask::Mark,
        };
        for secret in secrets.iter().filter(|secret| secret.contains(['\r', '\n'])) {
            for first in [&redactor, &redactor.filled()] {
                // Its remaining text after the first stage, if its lines contain other secrets.
                let lines = secret.split_inclusive(['\r', '\n']).map(|line| first.text(line));
                let left = Zeroizing::new(lines.collect::<String>());
                if *left != **secret {
                    reflowed.add_reflowed(&left, forms);
                }
            }
        }
        let reflowed = Automaton::new(&mut reflowed).map(Arc::new);
        redactor.automata.extend(reflowed);
        Self { personal, ..redactor }
    }

    /// Returns a redactor that changes nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::new([], Forms::Plain, Personal::Keep)
    }

    /// Returns the same redactor, but each byte of a find becomes a `*`: for formats that depend on lengths.
    #[must_use]
    pub fn filled(&self) -> Self {
        Self {
            mask: Mask::Fill,
            ..self.clone()
        }
    }

    /// True if there is nothing to redact.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.automata.is_empty() && self.personal == Personal::Keep
    }

    /// Checks that a secret can be redacted; the error is the reason why it cannot.
    pub fn is_redactable(secret: &str) -> Result<(), &'static str> {
        let bytes = secret.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'));
        if bytes.count() < SHORTEST_SECRET {
            return Err("shorter than 4 bytes, line breaks not counted: it would be found everywhere");
        }
        if secret.len() > LONGEST_SECRET {
            return Err("longer than 64 KiB");
        }
        if secret.chars().all(char::is_whitespace) {
            return Err("nothing but white space: it would be found everywhere");
        }
        let is_break = |c: char| matches!(c, '\r' | '\n');
        let inside = secret.trim_matches(is_break);
        let breaks = inside.split(|c| !is_break(c)).map(str::len).max().unwrap_or(0);
        if breaks > LINE_BREAKS_MAX as usize {
            return Err("more than 16 line breaks in a row within it, which is as far as a find goes");
        }
        if REDACTED.contains(secret.trim_matches(['\r', '\n'])) {
            return Err("part of the mark that stands for secrets");
        }
        Ok(())
    }

    /// Starts a text.
    #[must_use]
    pub fn stream(&self) -> Stream {
        let secrets = self.automata.iter();
        let secrets = secrets.map(|automaton| Stage::Secrets(Seek::new(Arc::clone(automaton), self.mask)));
        let personal = (self.personal == Personal::Remove).then(|| PersonalWords::new(self.mask));
        Stream {
            stages: secrets.chain(personal.map(Stage::Personal)).collect(),
        }
    }

    /// Redacts a whole text.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let changed = self.changed(text.as_bytes(), Stream::finish);
        changed.map_or(Cow::Borrowed(text), |bytes| Cow::Owned(into_text(bytes)))
    }

    /// Redacts whole bytes.
    #[must_use]
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let changed = self.changed(bytes, Stream::finish);
        changed.map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// Redacts the beginning of a text whose rest is lost. A possible beginning of a find at its end is removed too,
    /// because half of a secret is also a secret.
    #[must_use]
    pub fn cut_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let changed = self.changed(text.as_bytes(), |_, _| {});
        changed.map_or(Cow::Borrowed(text), |bytes| Cow::Owned(into_text(bytes)))
    }

    /// Returns the redacted bytes. `None`: nothing was found.
    fn changed(&self, bytes: &[u8], finish: fn(&mut Stream, &mut Vec<u8>)) -> Option<Vec<u8>> {
        if self.is_idle() {
            return None;
        }
        let mut stream = self.stream();
        let mut out = Vec::with_capacity(bytes.len());
        stream.push(bytes, &mut out);
        finish(&mut stream, &mut out);
        (out != bytes).then_some(out)
    }

    /// Returns the number of states of the tables, of about nine bytes each.
    #[must_use]
    pub fn states(&self) -> usize {
        self.automata.iter().map(|automaton| automaton.states()).sum()
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("states", &self.states())
            .field("personal", &self.personal)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Takes the next piece. Output that can no longer change is appended to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        push(&mut self.stages, bytes, out);
    }

    /// Ends the text. Later pieces are a new text.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        for at in 0..self.stages.len() {
            let mut rest = Zeroizing::<Vec<u8>>::default();
            self.stages[at].finish(&mut rest);
            push(&mut self.stages[at + 1..], &rest, out);
        }
    }

    /// Returns the number of marks so far, in all texts.
    #[must_use]
    pub fn found(&self) -> Found {
        let mut found = Found::default();
        for stage in &self.stages {
            match stage {
                Stage::Secrets(secrets) => found.secrets += secrets.found(),
                Stage::Personal(personal) => found.personal += personal.found(),
            }
        }
        found
    }
}

impl Stage {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Secrets(secrets) => secrets.push(bytes, out),
            Self::Personal(personal) => personal.push(bytes, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Secrets(secrets) => secrets.finish(out),
            Self::Personal(personal) => personal.finish(out),
        }
    }
}

fn push(stages: &mut [Stage], bytes: &[u8], out: &mut Vec<u8>) {
    match stages {
        [] => out.extend_from_slice(bytes),
        [last] => last.push(bytes, out),
        [first, rest @ ..] => {
            let mut between = Zeroizing::<Vec<u8>>::default();
            first.push(bytes, &mut between);
            push(rest, &between, out);
        }
    }
}

/// Converts redacted text: every form of a secret is UTF-8, so the rest is still UTF-8.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
