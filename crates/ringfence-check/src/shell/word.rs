//! Reads words as bash does: quotes are removed, and variables are replaced by the literal texts that they were set to.
//! Parts that are only known at run time are [`UNKNOWN`]; nothing is computed.

use super::{
    reader::{Read, Reader, ends_word, fault},
    syntax::ShellWord,
};
use crate::unknown::UNKNOWN;
use regex::{Captures, Regex};
use std::{borrow::Cow, ops::Range, sync::LazyLock};

/// Context of the pieces of a word, which decides how they end and how quotes are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    Word,
    /// `"…"`
    Quotes,
    /// A here-document or an arithmetic expression, up to the end of the part that is read.
    Text,
    /// `${…}`; within double quotes a default may contain an apostrophe.
    Braces {
        quoted: bool,
    },
}

impl Within {
    fn is_quoted(self) -> bool {
        !matches!(self, Self::Word | Self::Braces { quoted: false })
    }

    fn ends(self, byte: u8) -> bool {
        match self {
            Self::Word => ends_word(byte),
            Self::Quotes => byte == b'"',
            Self::Text => false,
            Self::Braces { .. } => byte == b'}',
        }
    }
}

/// Operation of `${name…}` on the value.
enum Operation<'a> {
    Plain,
    /// `${name:-word}`, `${name:=word}`
    Default(ShellWord<'a>),
    /// Any other; its result is unknown.
    Other,
}

impl<'a> Reader<'a> {
    pub(super) fn word(&mut self) -> Read<Option<ShellWord<'a>>> {
        let start = self.at;
        let mut word = ShellWord::default();
        if self.byte() == Some(b'#') {
            return Ok(None);
        }
        self.pieces(Within::Word, &mut word)?;
        word.range = start..self.at;
        Ok((!word.range.is_empty()).then_some(word))
    }

    fn pieces(&mut self, within: Within, word: &mut ShellWord<'a>) -> Read<()> {
        let start = self.at;
        while let Some(byte) = self.byte() {
            match byte {
                b'<' | b'>' if within == Within::Word && self.byte_at(1) == Some(b'(') => {
                    self.at += 2;
                    word.output(self.subshell(")", self.at - 2)?);
                }
                b'(' if within == Within::Word
                    && self.slice(start..self.at).ends_with(['?', '*', '+', '@', '!']) =>
                {
                    let unclosed = fault(self.at..self.at + 1, "`(` has no `)`");
                    self.at = self.parenthesis_end(self.at).ok_or(unclosed)?;
                    word.unknown();
                }
                _ if within.ends(byte) => break,
                _ => self.piece(byte, within, word)?,
            }
        }
        Ok(())
    }

    /// Reads a piece that begins with a quote, `$`, a backtick, a backslash or a letter.
    pub(super) fn piece(&mut self, byte: u8, within: Within, word: &mut ShellWord<'a>) -> Read<()> {
        match byte {
            b'$' => return self.dollar(within, word),
            b'`' => return self.backtick(word),
            b'\'' if !within.is_quoted() => return self.single(word),
            b'"' if !matches!(within, Within::Quotes | Within::Text) => return self.double(word),
            b'\\'
                if matches!(within, Within::Word | Within::Braces { .. })
                    || self.byte_at(1).is_some_and(|next| b"$`\"\\\n".contains(&next)) =>
            {
                self.tilde(word);
                self.at += 1;
                match self.letter() {
                    "\n" => self.at += 1,
                    letter => self.text(letter, word),
                }
            }
            _ => {
                let letter = self.letter();
                self.text(letter, word);
                let text = self.run(|byte| !within.ends(byte) && !b"'\"\\$`".contains(&byte));
                if !text.is_empty() {
                    self.text(text, word);
                }
            }
        }
        Ok(())
    }

    pub(super) fn letter(&self) -> &'a str {
        let letter = self.slice(self.at..self.end).chars().next();
        self.slice(self.at..self.at + letter.map_or(0, char::len_utf8))
    }

    fn text(&mut self, text: &str, word: &mut ShellWord<'a>) {
        self.at += text.len();
        word.add(text);
    }

    /// Marks a quoted tilde at the beginning of a word as a file name.
    fn tilde(&self, word: &mut ShellWord<'a>) {
        if word.fields.is_empty() && self.byte_at(1) == Some(b'~') {
            word.add("./");
        }
    }

    /// Consumes the closing byte; a fault if the text has ended.
    fn close(&mut self, opened: Range<usize>, otherwise: &str) -> Read<()> {
        if self.byte().is_none() {
            return Err(fault(opened, otherwise));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads `'…'`.
    fn single(&mut self, word: &mut ShellWord<'a>) -> Read<()> {
        let opened = self.at;
        self.tilde(word);
        self.at += 1;
        let text = self.run(|byte| byte != b'\'');
        self.text(text, word);
        self.close(opened..opened + 1, "the quote `'` is not closed")
    }

    /// Reads `"…"`.
    fn double(&mut self, word: &mut ShellWord<'a>) -> Read<()> {
        let opened = self.at;
        self.tilde(word);
        self.at += 1;
        // Empty quotes make an empty field.
        word.add("");
        self.pieces(Within::Quotes, word)?;
        self.close(opened..opened + 1, "the quote `\"` is not closed")
    }

    /// Reads the text of a here-document or of an arithmetic expression, with the commands in it.
    pub(super) fn part_of_text(&mut self, range: Range<usize>) -> Read<ShellWord<'a>> {
        let (at, end) = (self.at, self.end);
        (self.at, self.end) = (range.start, range.end);
        let mut word = ShellWord {
            range,
            ..ShellWord::default()
        };
        let result = self.within(|reader| reader.pieces(Within::Text, &mut word));
        (self.at, self.end) = (at, end);
        result.map(|()| word)
    }

    fn dollar(&mut self, within: Within, word: &mut ShellWord<'a>) -> Read<()> {
        let opened = self.at;
        match self.byte_at(1) {
            Some(b'(') => {
                let arithmetic = (self.byte_at(2) == Some(b'(')).then(|| self.arithmetic_end(opened + 2));
                if let Some(after) = arithmetic.flatten() {
                    self.part_of_text(opened + 3..after - 2)?;
                    self.at = after;
                    word.unknown();
                    return Ok(());
                }
                self.at += 2;
                word.output(self.subshell(")", opened)?);
            }
            Some(b'{') => self.within(|reader| reader.expansion(within, word))?,
            Some(b'[') => {
                let rest = self.slice(self.at..self.end);
                self.at += rest.find(']').map_or(2, |length| length + 1);
                word.unknown();
            }
            Some(b'\'') if !within.is_quoted() => {
                self.at += 2;
                let text = self.slice(self.at..self.at + self.length_to(b'\''));
                self.at += text.len();
                word.add(&unescape(text));
                self.close(opened..opened + 2, "the quote `$'` is not closed")?;
            }
            Some(b'"') if !within.is_quoted() => {
                self.at += 1;
                self.double(word)?;
            }
            _ => {
                self.at += 1;
                let name = self.parameter();
                self.at += name.len();
                match name {
                    "" => word.add("$"),
                    name => self.expand(name, Operation::Plain, within, word),
                }
            }
        }
        Ok(())
    }

    /// The name of a parameter: a variable, a digit or a special sign.
    fn parameter(&self) -> &'a str {
        match self.byte() {
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.slice(self.at..self.at + 1)
            }
            _ => self.variable(),
        }
    }

    /// Reads `${…}`.
    fn expansion(&mut self, within: Within, word: &mut ShellWord<'a>) -> Read<()> {
        let opened = self.at;
        self.at += 2;
        let changed = matches!(self.byte(), Some(b'!' | b'#'))
            && !matches!(self.byte_at(1), Some(b'}' | b':' | b'-' | b'+' | b'='));
        self.at += usize::from(changed);
        let name = match self.run(|byte| byte.is_ascii_digit()) {
            "" => self.parameter(),
            position => position,
        };
        self.at += name.len();
        let sign = self.sign(&[":-", ":=", "-", "=", ":+", ":?", "+", "?"]);
        let is_pattern = matches!(self.byte(), Some(b'#' | b'%' | b'/' | b'^' | b','));
        let mut rest = ShellWord::default();
        let start = self.at;
        let quoted = within.is_quoted() && !is_pattern;
        self.pieces(Within::Braces { quoted }, &mut rest)?;
        rest.range = start..self.at;
        self.close(opened..opened + 2, "`${` has no `}`")?;
        let operation = match sign {
            None if rest.range.is_empty() && !changed => Operation::Plain,
            Some(":-" | ":=" | "-" | "=") if !changed => Operation::Default(rest),
            _ => Operation::Other,
        };
        self.expand(name, operation, within, word);
        Ok(())
    }

    fn expand(&mut self, name: &'a str, operation: Operation<'a>, within: Within, word: &mut ShellWord<'a>) {
        let values = self.variables.get(name);
        let text = values.as_ref().map(|values| values.concat());
        // A positional parameter may be given as an argument.
        let is_position = name.starts_with(|letter: char| letter.is_ascii_digit());
        let is_plain = matches!(&operation, Operation::Plain)
            || matches!(&operation, Operation::Default(word) if word.range.is_empty());
        let is_open = |text: &String| !text.is_empty() && text.trim_matches(UNKNOWN).is_empty();
        word.is_mixed |= !is_plain || !text.as_ref().is_none_or(is_open);
        word.variables.push(name);
        let values = match (operation, values) {
            (Operation::Default(word), _) if !is_position && text.is_none_or(|text| text.is_empty()) => {
                vec![word.text()]
            }
            (Operation::Plain | Operation::Default(_), Some(values)) => values,
            _ => vec![UNKNOWN.to_string()],
        };
        for (nth, value) in values.iter().enumerate() {
            word.continues_field &= nth == 0;
            match within.is_quoted() {
                true => word.add(value),
                false => word.add_split(value),
            }
        }
    }

    /// Returns the number of bytes before the next unescaped `stop`, or before the end.
    fn length_to(&self, stop: u8) -> usize {
        let rest = self.rest();
        let mut length = 0;
        while length < rest.len() && rest[length] != stop {
            length += if rest[length] == b'\\' { 2 } else { 1 };
        }
        length.min(rest.len())
    }

    /// Reads `` `…` ``.
    fn backtick(&mut self, word: &mut ShellWord<'a>) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        let start = self.at;
        let stop = start + self.length_to(b'`');
        self.at = stop;
        self.close(opened..start, "the backtick is not closed")?;
        let (after, end) = (self.at, self.end);
        let text = self.slice(start..stop);
        if ["\\`", "\\$", "\\\\"].iter().any(|escape| text.contains(escape)) {
            let inner = text.replace("\\`", "`").replace("\\$", "$").replace("\\\\", "\\");
            self.script.unescaped.push((inner, opened..after));
            word.unknown();
            return Ok(());
        }
        (self.at, self.end) = (start, stop);
        // The end of the part that is read closes the subshell.
        let inside = self.subshell("", start);
        (self.at, self.end) = (after, end);
        match inside {
            Err(fault) if fault.too_deep => return Err(fault),
            // bash parses it only when it runs the command.
            Err(_) => word.unknown(),
            Ok(inside) => word.output(inside),
        }
        Ok(())
    }
}

fn unescape(text: &str) -> Cow<'_, str> {
    static ESCAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))")
            .ok()
    });
    let letter = |escape: &Captures<'_>| {
        let number = |at: usize, base: u32| u32::from_str_radix(escape.get(at)?.as_str(), base).ok();
        let hexadecimal = (1..=3).find_map(|at| number(at, 16));
        match (hexadecimal.or_else(|| number(4, 8)), escape.get(5)) {
            (_, Some(letter)) => {
                let control = "ntrabeEfv".find(letter.as_str());
                control
                    .map_or(letter.as_str(), |at| &"\n\t\r\x07\x08\x1b\x1b\x0c\x0b"[at..=at])
                    .to_owned()
            }
            (number, None) => number.and_then(char::from_u32).into_iter().collect(),
        }
    };
    let escapes = ESCAPES.as_ref();
    escapes.map_or(Cow::Borrowed(text), |escapes| escapes.replace_all(text, letter))
}
