//! Reads words: quotes, variables, substitutions, and what joins them.

use super::{
    reader::{Read, Reader, ends_word, fault},
    syntax::{Operation, Part, Quoted, ShellWord},
};
use std::{borrow::Cow, ops::Range};

impl<'a> ShellWord<'a> {
    /// A text as it is written.
    pub(super) fn quoted(range: Range<usize>, text: &'a str) -> Self {
        Self {
            range,
            parts: vec![Part::Text(Cow::Borrowed(text), Quoted::Yes)],
        }
    }
}

impl<'a> Reader<'a> {
    /// None: no word begins here.
    pub(super) fn word(&mut self) -> Read<Option<ShellWord<'a>>> {
        let start = self.at;
        let mut parts = Vec::new();
        if self.byte() == Some(b'#') {
            return Ok(None);
        }
        while let Some(byte) = self.byte() {
            match byte {
                b'<' | b'>' if self.byte_at(1) == Some(b'(') => {
                    let opened = self.at;
                    self.at += 2;
                    parts.push(Part::Output(self.subshell(")", opened)?));
                }
                b'(' if self.slice(start..self.at).ends_with(['?', '*', '+', '@', '!']) => {
                    let unclosed = fault(self.at..self.at + 1, "`(` has no `)`");
                    self.at = self.parenthesis_end(self.at).ok_or(unclosed)?;
                    parts.push(Part::Unknown);
                }
                _ if ends_word(byte) => break,
                _ => self.piece(byte, &mut parts)?,
            }
        }
        let range = start..self.at;
        Ok((!range.is_empty()).then_some(ShellWord { range, parts }))
    }

    /// What begins with a quote, `$` or a letter, outside of double quotes.
    pub(super) fn piece(&mut self, byte: u8, parts: &mut Vec<Part<'a>>) -> Read<()> {
        match byte {
            b'\'' => {
                let opened = self.at;
                self.at += 1;
                let text = self.run(|byte| byte != b'\'');
                self.at += text.len();
                parts.push(Part::Text(Cow::Borrowed(text), Quoted::Yes));
                self.close(opened..opened + 1, "the quote `'` is not closed")
            }
            b'"' => self.double(parts),
            b'\\' => {
                self.escaped(parts);
                Ok(())
            }
            b'$' => self.dollar(Quoted::No, parts),
            b'`' => self.backtick(parts),
            _ => {
                let text = self.run(|byte| !ends_word(byte) && !b"'\"\\$`".contains(&byte));
                self.text(text, Quoted::No, parts);
                Ok(())
            }
        }
    }

    fn text(&mut self, text: &'a str, quoted: Quoted, parts: &mut Vec<Part<'a>>) {
        self.at += text.len();
        parts.push(Part::Text(Cow::Borrowed(text), quoted));
    }

    /// Consumes the byte that closes; none: the text has ended.
    fn close(&mut self, opened: Range<usize>, otherwise: &str) -> Read<()> {
        if self.byte().is_none() {
            return Err(fault(opened, otherwise));
        }
        self.at += 1;
        Ok(())
    }

    fn escaped(&mut self, parts: &mut Vec<Part<'a>>) {
        self.at += 1;
        let letter = self.slice(self.at..self.end).chars().next();
        let text = self.slice(self.at..self.at + letter.map_or(0, char::len_utf8));
        match text {
            "\n" => self.at += 1,
            text => self.text(text, Quoted::Yes, parts),
        }
    }

    /// `"…"`
    fn double(&mut self, parts: &mut Vec<Part<'a>>) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        // An empty one is a word, too.
        parts.push(Part::Text(Cow::Borrowed(""), Quoted::Yes));
        self.quoted_parts(parts, b'"')?;
        self.close(opened..opened + 1, "the quote `\"` is not closed")
    }

    /// As within double quotes, up to a byte, or to the end.
    fn quoted_parts(&mut self, parts: &mut Vec<Part<'a>>, stop: u8) -> Read<()> {
        while let Some(byte) = self.byte().filter(|byte| *byte != stop) {
            match byte {
                b'$' => self.dollar(Quoted::Yes, parts)?,
                b'`' => self.backtick(parts)?,
                b'\\' if self.byte_at(1).is_some_and(|next| b"$`\"\\\n".contains(&next)) => {
                    self.escaped(parts);
                }
                b'\\' => self.text("\\", Quoted::Yes, parts),
                _ => {
                    let text = self.run(|byte| byte != stop && !b"$`\\".contains(&byte));
                    self.text(text, Quoted::Yes, parts);
                }
            }
        }
        Ok(())
    }

    /// The text of a here-document or of an arithmetic expression, with the commands in it.
    pub(super) fn part_of_text(&mut self, range: Range<usize>) -> Read<ShellWord<'a>> {
        let (at, end) = (self.at, self.end);
        (self.at, self.end) = (range.start, range.end);
        let mut parts = Vec::new();
        let result = self.within(|reader| reader.quoted_parts(&mut parts, 0));
        (self.at, self.end) = (at, end);
        result.map(|()| ShellWord { range, parts })
    }

    /// What begins with `$`.
    fn dollar(&mut self, quoted: Quoted, parts: &mut Vec<Part<'a>>) -> Read<()> {
        let opened = self.at;
        match self.byte_at(1) {
            Some(b'(') => {
                let arithmetic = (self.byte_at(2) == Some(b'(')).then(|| self.arithmetic_end(opened + 2));
                if let Some(after) = arithmetic.flatten() {
                    self.part_of_text(opened + 3..after - 2)?;
                    self.at = after;
                    parts.push(Part::Unknown);
                    return Ok(());
                }
                self.at += 2;
                parts.push(Part::Output(self.subshell(")", opened)?));
            }
            Some(b'{') => {
                let part = self.within(|reader| reader.expansion(quoted))?;
                parts.push(part);
            }
            Some(b'[') => {
                let rest = self.slice(self.at..self.end);
                self.at += rest.find(']').map_or(2, |length| length + 1);
                parts.push(Part::Unknown);
            }
            Some(b'\'') if quoted == Quoted::No => parts.push(self.ansi()?),
            Some(b'"') if quoted == Quoted::No => {
                self.at += 1;
                self.double(parts)?;
            }
            _ => {
                self.at += 1;
                let name = self.parameter();
                self.at += name.len();
                let operation = Operation::Plain;
                parts.push(match name {
                    "" => Part::Text(Cow::Borrowed("$"), quoted),
                    name => Part::Variable {
                        name,
                        operation,
                        quoted,
                    },
                });
            }
        }
        Ok(())
    }

    /// A name, a position, or a sign.
    fn parameter(&self) -> &'a str {
        match self.byte() {
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.slice(self.at..self.at + 1)
            }
            _ => self.variable(),
        }
    }

    /// `${…}`
    fn expansion(&mut self, quoted: Quoted) -> Read<Part<'a>> {
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
        let pattern = matches!(self.byte(), Some(b'#' | b'%' | b'/' | b'^' | b','));
        let start = self.at;
        let mut parts = Vec::new();
        while let Some(byte) = self.byte().filter(|byte| *byte != b'}') {
            match byte {
                // Within double quotes a default may contain an apostrophe; a pattern is quoted by it.
                b'\'' if quoted == Quoted::Yes && !pattern => self.text("'", quoted, &mut parts),
                b'\'' | b'"' | b'\\' | b'`' => self.piece(byte, &mut parts)?,
                b'$' => self.dollar(quoted, &mut parts)?,
                _ => {
                    let text = self.run(|byte| !b"}'\"\\$`".contains(&byte));
                    self.text(text, quoted, &mut parts);
                }
            }
        }
        let range = start..self.at;
        self.close(opened..opened + 2, "`${` has no `}`")?;
        let operation = match sign {
            None if range.is_empty() && !changed => Operation::Plain,
            Some(":-" | ":=" | "-" | "=") if !changed => Operation::Default(ShellWord { range, parts }),
            _ => Operation::Other,
        };
        Ok(Part::Variable {
            name,
            operation,
            quoted,
        })
    }

    /// `$'…'`
    fn ansi(&mut self) -> Read<Part<'a>> {
        let opened = self.at;
        self.at += 2;
        let text = self.slice(self.at..self.at + self.length_to(b'\''));
        self.at += text.len();
        self.close(opened..opened + 2, "the quote `$'` is not closed")?;
        Ok(Part::Text(Cow::Owned(unescape(text)), Quoted::Yes))
    }

    /// How many bytes there are before one that no backslash stands before, or before the end.
    fn length_to(&self, stop: u8) -> usize {
        let rest = self.rest();
        let mut length = 0;
        while length < rest.len() && rest[length] != stop {
            length += if rest[length] == b'\\' { 2 } else { 1 };
        }
        length.min(rest.len())
    }

    /// `` `…` ``
    fn backtick(&mut self, parts: &mut Vec<Part<'a>>) -> Read<()> {
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
            parts.push(Part::Unknown);
            return Ok(());
        }
        (self.at, self.end) = (start, stop);
        // The end of what may be read closes it.
        let inside = self.subshell("", start);
        (self.at, self.end) = (after, end);
        parts.push(match inside {
            Err(fault) if fault.too_deep => return Err(fault),
            // bash looks into it only when it gets there.
            Err(_) => Part::Unknown,
            Ok(inside) => Part::Output(inside),
        });
        Ok(())
    }
}

/// The escapes of `$'…'`.
fn unescape(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let letter = rest.chars().next().unwrap_or('\\');
        let (skip, base, most) = match letter {
            'x' => (1, 16, 2),
            'u' => (1, 16, 4),
            'U' => (1, 16, 8),
            '0'..='7' => (0, 8, 3),
            _ => {
                result.push(control(letter));
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
                continue;
            }
        };
        let digits = rest[skip..]
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(base))
            .count();
        let number = u32::from_str_radix(&rest[skip..skip + digits], base).ok();
        result.extend(number.and_then(char::from_u32));
        rest = &rest[skip + digits..];
    }
    result + rest
}

fn control(letter: char) -> char {
    match letter {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'e' | 'E' => '\u{1b}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        letter => letter,
    }
}
