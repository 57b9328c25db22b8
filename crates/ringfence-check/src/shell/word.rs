//! Reads words: quotes, variables, substitutions, and what joins them.

use super::{
    reader::{Read, Reader, ends_word},
    syntax::{Assignment, AssignmentKind, Every, FaultKind, Operation, Part, Quoted, ShellWord},
};
use std::{borrow::Cow, ops::Range};

/// `a[…]=`: longer ones are not looked for.
const SUBSCRIPT_MAX: usize = 4096;

impl<'a> ShellWord<'a> {
    /// A text as it stands.
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
                    parts.push(Part::Process(self.subshell(")", opened)?));
                }
                b'(' if self.at > start && b"?*+@!".contains(&self.text.as_bytes()[self.at - 1]) => {
                    match self.parenthesis_end(self.at) {
                        Some(after) => self.at = after,
                        None => {
                            return Err(self.open_fault(self.at..self.at + 1, "`(` has no `)`".to_owned()));
                        }
                    }
                    parts.push(Part::Unknown);
                }
                _ if ends_word(byte) => break,
                b'{' | b'}' | b',' => {
                    self.at += 1;
                    parts.push(Part::Brace(byte));
                }
                _ => self.piece(byte, &mut parts)?,
            }
        }
        let range = start..self.at;
        Ok((self.at > start).then_some(ShellWord { range, parts }))
    }

    /// What begins with a quote, `$` or a letter, outside of double quotes.
    fn piece(&mut self, byte: u8, parts: &mut Vec<Part<'a>>) -> Read<()> {
        match byte {
            b'\'' => {
                let text = self.single()?;
                parts.push(Part::Text(Cow::Borrowed(text), Quoted::Yes));
            }
            b'"' => self.double(parts)?,
            b'\\' => self.escaped(parts),
            b'$' => self.dollar(Quoted::No, parts)?,
            b'`' => parts.push(self.backtick(Quoted::No)?),
            _ => {
                let start = self.at;
                let plain = |b: u8| !ends_word(b) && !b"'\"\\$`{},".contains(&b);
                let rest = &self.text.as_bytes()[self.at..self.end];
                self.at += rest.iter().position(|b| !plain(*b)).unwrap_or(rest.len());
                parts.push(Part::Text(Cow::Borrowed(self.slice(start..self.at)), Quoted::No));
            }
        }
        Ok(())
    }

    fn escaped(&mut self, parts: &mut Vec<Part<'a>>) {
        let start = self.at + 1;
        let length = self
            .slice(start..self.end)
            .chars()
            .next()
            .map_or(0, char::len_utf8);
        self.at = start + length;
        let text = self.slice(start..self.at);
        if text != "\n" {
            parts.push(Part::Text(Cow::Borrowed(text), Quoted::Yes));
        }
    }

    /// `'…'`
    fn single(&mut self) -> Read<&'a str> {
        let start = self.at + 1;
        let rest = self.slice(start..self.end);
        let Some(length) = rest.find('\'') else {
            let opened = self.at;
            self.at = self.end;
            return Err(self.open_fault(opened..opened + 1, "the quote `'` is not closed".to_owned()));
        };
        self.at = start + length + 1;
        Ok(&rest[..length])
    }

    /// `"…"`
    fn double(&mut self, parts: &mut Vec<Part<'a>>) -> Read<()> {
        let opened = self.at;
        self.at += 1;
        // An empty one is a word, too.
        parts.push(Part::Text(Cow::Borrowed(""), Quoted::Yes));
        self.quoted_parts(parts, b'"')?;
        match self.byte() {
            Some(_) => {
                self.at += 1;
                Ok(())
            }
            None => Err(self.open_fault(opened..opened + 1, "the quote `\"` is not closed".to_owned())),
        }
    }

    /// As within double quotes, up to a byte, or to the end.
    fn quoted_parts(&mut self, parts: &mut Vec<Part<'a>>, stop: u8) -> Read<()> {
        while let Some(byte) = self.byte() {
            match byte {
                _ if byte == stop => break,
                b'$' => self.dollar(Quoted::Yes, parts)?,
                b'`' => parts.push(self.backtick(Quoted::Yes)?),
                b'\\' if matches!(self.byte_at(1), Some(b'$' | b'`' | b'"' | b'\\' | b'\n')) => {
                    self.escaped(parts);
                }
                _ => {
                    let start = self.at;
                    let rest = &self.text.as_bytes()[start + 1..self.end];
                    let special = |b: &u8| *b == stop || b"$`\\".contains(b);
                    self.at += 1 + rest.iter().position(special).unwrap_or(rest.len());
                    let text = Cow::Borrowed(self.slice(start..self.at));
                    parts.push(Part::Text(text, Quoted::Yes));
                }
            }
        }
        Ok(())
    }

    /// The text of a here-document, or of an arithmetic expression, with the commands in it.
    pub(super) fn part_of_text(&mut self, range: Range<usize>) -> Read<ShellWord<'a>> {
        let (at, end) = (self.at, self.end);
        (self.at, self.end) = (range.start, range.end);
        let mut parts = Vec::new();
        let told = self.within(|reader| reader.quoted_parts(&mut parts, 0));
        (self.at, self.end) = (at, end);
        told?;
        Ok(ShellWord { range, parts })
    }

    /// What begins with `$`.
    fn dollar(&mut self, quoted: Quoted, parts: &mut Vec<Part<'a>>) -> Read<()> {
        let opened = self.at;
        match self.byte_at(1) {
            Some(b'(') => {
                if self.byte_at(2) == Some(b'(')
                    && let Some(after) = self.arithmetic_end(self.at + 2)
                {
                    drop(self.part_of_text(opened + 3..after - 2)?);
                    self.at = after;
                    parts.push(Part::Unknown);
                    return Ok(());
                }
                self.at += 2;
                parts.push(Part::Output(self.subshell(")", opened)?, quoted));
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
                let name = self.variable_name();
                self.at += name.len();
                parts.push(match name {
                    "" => Part::Text(Cow::Borrowed("$"), quoted),
                    name => variable(name, Operation::Plain, quoted),
                });
            }
        }
        Ok(())
    }

    /// A name, a position, or a sign.
    fn variable_name(&self) -> &'a str {
        let length = match self.byte() {
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => 1,
            _ => self.name_length(),
        };
        self.slice(self.at..self.at + length)
    }

    fn name_length(&self) -> usize {
        let rest = &self.text.as_bytes()[self.at..self.end];
        if rest.first().is_none_or(u8::is_ascii_digit) {
            return 0;
        }
        let part_of_name = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
        rest.iter().take_while(part_of_name).count()
    }

    /// `${…}`
    fn expansion(&mut self, quoted: Quoted) -> Read<Part<'a>> {
        let opened = self.at;
        self.at += 2;
        let prefix = match self.byte() {
            Some(sign @ (b'!' | b'#'))
                if !matches!(self.byte_at(1), Some(b'}' | b':' | b'-' | b'+' | b'=')) =>
            {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        };
        let start = self.at;
        match self.byte() {
            Some(b'0'..=b'9') => {
                let rest = self.slice(start..self.end);
                self.at += rest.bytes().take_while(u8::is_ascii_digit).count();
            }
            _ => self.at += self.variable_name().len(),
        }
        let name = self.slice(start..self.at);
        let element = self.element();
        let sign = self.expansion_sign();
        self.at += sign.len();
        let rest = self.expansion_rest(opened, sign, quoted)?;
        let operation = match (prefix, element, sign) {
            (Some(b'!'), None, "") => Operation::Indirect,
            (Some(_), _, _) => Operation::Other,
            (None, Some(element), "") => element,
            _ => self.operation(sign, rest),
        };
        Ok(variable(name, operation, quoted))
    }

    /// `[0]`, `[@]`
    fn element(&mut self) -> Option<Operation<'a>> {
        if self.byte() != Some(b'[') {
            return None;
        }
        let rest = self.slice(self.at..self.end);
        let window = rest.char_indices().map(|(at, _)| at).take(SUBSCRIPT_MAX);
        let mut depth = 0_usize;
        let bytes = rest.as_bytes();
        for at in window {
            match bytes[at] {
                b'[' => depth += 1,
                b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += at + 1;
                return Some(match &rest[1..at] {
                    "@" | "*" => Operation::Plain,
                    index => index.parse().map_or(Operation::Other, Operation::Element),
                });
            }
        }
        None
    }

    fn expansion_sign(&self) -> &'a str {
        let all = [
            ":-", ":=", ":+", ":?", "-", "=", "+", "?", ":", ",,", ",", "^^", "^", "//", "/", "##", "#",
            "%%", "%", "@",
        ];
        let sign = all.into_iter().find(|sign| self.looks_at(sign));
        self.slice(self.at..self.at + sign.map_or(0, str::len))
    }

    /// Up to the brace that closes.
    fn expansion_rest(&mut self, opened: usize, sign: &str, quoted: Quoted) -> Read<ShellWord<'a>> {
        let start = self.at;
        let mut parts = Vec::new();
        // Within double quotes a default may contain an apostrophe; a pattern is quoted by it.
        let apostrophe = quoted == Quoted::No || sign.starts_with(['#', '%', '/', '^', ',']);
        loop {
            let Some(byte) = self.byte() else {
                return Err(self.open_fault(opened..opened + 2, "`${` has no `}`".to_owned()));
            };
            match byte {
                b'}' => break,
                b'\'' if !apostrophe => {
                    self.at += 1;
                    parts.push(Part::Text(Cow::Borrowed("'"), quoted));
                }
                b'\'' | b'"' | b'\\' => self.piece(byte, &mut parts)?,
                b'$' => self.dollar(quoted, &mut parts)?,
                b'`' => parts.push(self.backtick(quoted)?),
                _ => {
                    let from = self.at;
                    let rest = &self.text.as_bytes()[from..self.end];
                    let plain = |b: &&u8| !b"}'\"\\$`".contains(b);
                    self.at += rest.iter().take_while(plain).count();
                    parts.push(Part::Text(Cow::Borrowed(self.slice(from..self.at)), quoted));
                }
            }
        }
        let range = start..self.at;
        self.at += 1;
        Ok(ShellWord { range, parts })
    }

    fn operation(&self, sign: &str, rest: ShellWord<'a>) -> Operation<'a> {
        let raw = self.slice(rest.range.clone());
        match sign {
            "" | "@" => Operation::Plain,
            ":?" | "?" => Operation::Required,
            ":-" | "-" | ":=" | "=" => Operation::Default(rest),
            ":+" | "+" => Operation::Alternate(rest),
            ",," => Operation::Lower,
            "^^" => Operation::Upper,
            ":" => {
                let mut numbers = raw.split(':').map(|number| number.trim().parse().ok());
                match (numbers.next().flatten(), numbers.next()) {
                    (Some(from), None) => Operation::Slice(from, None),
                    (Some(from), Some(Some(length))) => Operation::Slice(from, Some(length)),
                    _ => Operation::Other,
                }
            }
            "/" | "//" if !raw.contains(['$', '`', '\\', '\'', '"', '*', '?', '[']) => {
                let (this, that) = raw.split_once('/').unwrap_or((raw, ""));
                let every = if sign == "//" { Every::All } else { Every::First };
                Operation::Replace(this, that, every)
            }
            _ => Operation::Other,
        }
    }

    /// `$'…'`
    fn ansi(&mut self) -> Read<Part<'a>> {
        let opened = self.at;
        let start = self.at + 2;
        let bytes = &self.text.as_bytes()[start..self.end];
        let mut length = 0;
        while length < bytes.len() && bytes[length] != b'\'' {
            length += if bytes[length] == b'\\' { 2 } else { 1 };
        }
        if length >= bytes.len() {
            self.at = self.end;
            return Err(self.open_fault(opened..opened + 2, "the quote `$'` is not closed".to_owned()));
        }
        self.at = start + length + 1;
        let text = unescape(self.slice(start..start + length));
        Ok(Part::Text(Cow::Owned(text), Quoted::Yes))
    }

    /// `` `…` ``
    fn backtick(&mut self, quoted: Quoted) -> Read<Part<'a>> {
        let opened = self.at;
        let start = self.at + 1;
        let bytes = &self.text.as_bytes()[start..self.end];
        let mut length = 0;
        let mut changed = false;
        while length < bytes.len() && bytes[length] != b'`' {
            if bytes[length] == b'\\' {
                changed |= bytes.get(length + 1).is_some_and(|b| b"`$\\".contains(b));
                length += 1;
            }
            length += 1;
        }
        if length >= bytes.len() {
            self.at = self.end;
            return Err(self.open_fault(opened..start, "the backtick is not closed".to_owned()));
        }
        let stop = start + length;
        if changed {
            let text = self.slice(start..stop);
            let inner = text.replace("\\`", "`").replace("\\$", "$").replace("\\\\", "\\");
            self.script.hidden.push((inner, opened..stop + 1));
            self.at = stop + 1;
            return Ok(Part::Unknown);
        }
        let end = self.end;
        self.at = start;
        self.end = stop;
        // Their end is the end of what may be read, so that nothing has to be there.
        let inside = self.subshell("", self.at);
        self.end = end;
        self.at = stop + 1;
        match inside {
            Err(fault) if fault.kind == FaultKind::Nested => Err(fault),
            // bash looks into it only when it gets there.
            Err(_) => Ok(Part::Unknown),
            Ok(inside) => Ok(Part::Output(inside, quoted)),
        }
    }

    /// The regular expression after `=~`.
    pub(super) fn pattern(&mut self) -> Read<Option<ShellWord<'a>>> {
        let start = self.at;
        let mut parts = Vec::new();
        let mut depth = 0_usize;
        while let Some(byte) = self.byte() {
            match byte {
                b' ' | b'\t' | b'\n' if depth == 0 => break,
                b'(' => depth += 1,
                b')' if depth == 0 => break,
                b')' => depth -= 1,
                b'\'' | b'"' | b'\\' | b'$' | b'`' => {
                    self.piece(byte, &mut parts)?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        let range = start..self.at;
        Ok((self.at > start).then_some(ShellWord { range, parts }))
    }

    /// After the parenthesis that closes the one at `from`, with quotes left out.
    fn parenthesis_end(&self, from: usize) -> Option<usize> {
        let bytes = &self.text.as_bytes()[..self.end];
        let mut depth = 0_usize;
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' => at += 1,
                quote @ (b'\'' | b'"') => {
                    at += 1;
                    while at < bytes.len() && bytes[at] != quote {
                        at += if bytes[at] == b'\\' && quote == b'"' { 2 } else { 1 };
                    }
                }
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// After `))`, if the parenthesis at `from` is the second of `((` and is closed by the first of `))`.
    pub(super) fn arithmetic_end(&self, from: usize) -> Option<usize> {
        let after = self.parenthesis_end(from)?;
        (after < self.end && self.text.as_bytes()[after] == b')').then_some(after + 1)
    }

    /// `name=`, `name+=`, `name[…]=`; none: it is something else.
    pub(super) fn assignment(&mut self) -> Read<Option<Assignment<'a>>> {
        let start = self.at;
        let name = self.slice(start..start + self.name_length());
        if name.is_empty() {
            return Ok(None);
        }
        self.at += name.len();
        let element = self.element().is_some();
        let append = self.byte() == Some(b'+');
        let sign = usize::from(append);
        if self.byte_at(sign) != Some(b'=') {
            self.at = start;
            return Ok(None);
        }
        self.at += sign + 1;
        let values = match self.byte() {
            Some(b'(') => self.array()?,
            Some(b'#') => Vec::new(),
            _ => self.word()?.into_iter().collect(),
        };
        let kind = match (element, append) {
            (true, _) => AssignmentKind::Element,
            (false, true) => AssignmentKind::Append,
            (false, false) => AssignmentKind::Set,
        };
        Ok(Some(Assignment {
            range: start..self.at,
            name,
            kind,
            values,
        }))
    }

    fn array(&mut self) -> Read<Vec<ShellWord<'a>>> {
        let opened = self.at;
        let mut values = Vec::new();
        self.at += 1;
        loop {
            self.skip_lines()?;
            match self.word()? {
                Some(word) => values.push(word),
                None if self.byte() == Some(b')') => {
                    self.at += 1;
                    return Ok(values);
                }
                None => {
                    return Err(self.open_fault(opened..opened + 1, "`(` has no `)`".to_owned()));
                }
            }
        }
    }
}

fn variable<'a>(name: &'a str, operation: Operation<'a>, quoted: Quoted) -> Part<'a> {
    Part::Variable {
        name,
        operation,
        quoted,
    }
}

/// The escapes of `$'…'`, of `echo -e` and of `printf`.
pub(super) fn unescape(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        told.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(letter) = rest.chars().next() else {
            told.push('\\');
            break;
        };
        rest = &rest[letter.len_utf8()..];
        let (skip, base, most) = match letter {
            'x' => (0, 16, 2),
            'u' => (0, 16, 4),
            'U' => (0, 16, 8),
            '0' => (1, 8, 4),
            '1'..='7' => (1, 8, 3),
            _ => {
                told.push(control(letter));
                continue;
            }
        };
        // The first digit of an octal number is the letter itself.
        let from = text.len() - rest.len() - skip;
        let digits = text[from..]
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(base))
            .count();
        let number = u32::from_str_radix(&text[from..from + digits], base).ok();
        told.extend(number.and_then(char::from_u32));
        rest = &text[from + digits..];
    }
    told.push_str(rest);
    told
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
