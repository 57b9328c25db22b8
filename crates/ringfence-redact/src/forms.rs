//! The forms in which a secret may be written. Each becomes a needle: a byte string to look for.

use crate::{Forms, ignored::Ignored, wiped::Wiped};
use zeroize::Zeroizing;

/// Derived forms shorter than this would be found in ordinary base64 and hex.
pub(crate) const SHORTEST_DERIVED: usize = 6;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const CASES: [&[u8; 16]; 2] = [LOWER, UPPER];

/// What percent-encoders leave as it is, beside letters and digits: RFC 3986; Python's `quote`; JavaScript's
/// `encodeURIComponent`.
const PERCENT_KEEPS: [&[u8]; 3] = [b"-._~", b"-._~/", b"-._~!*'()"];

/// Shorter secrets are not looked for in laid-out text, nor in base64 that may have been wrapped.
const SHORTEST_RELAID: usize = 16;
const SHORTEST_WRAPPED: usize = 45;

/// Needles, one after the other, without the bytes that are ignored, of which CR and LF always are two.
pub(crate) struct Needles {
    pub(crate) ignored: Ignored,
    bytes: Wiped,
    spans: Vec<Span>,
    /// Where those of the secret at hand begin.
    first: usize,
}

/// Where in the bytes one needle is.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

impl Needles {
    pub(crate) fn new(ignored: Ignored) -> Self {
        Self {
            ignored,
            bytes: Wiped::default(),
            spans: Vec::new(),
            first: 0,
        }
    }

    /// Adds what a secret of several lines may look like where each line stands in a layout, and what base64 of several
    /// lines does.
    pub(crate) fn add_relaid(&mut self, secret: &str, forms: Forms) {
        let secret = secret.trim_matches(['\r', '\n']);
        self.first = self.spans.len();
        if secret.contains(['\r', '\n']) {
            self.add(SHORTEST_RELAID, |out| out.extend(secret.as_bytes()));
            if forms == Forms::All {
                self.add_html(secret);
            }
        }
        if forms == Forms::All && secret.len() >= SHORTEST_WRAPPED {
            for alphabet in [BASE64, BASE64_URL] {
                (0..3).for_each(|offset| self.add_base64(secret.as_bytes(), alphabet, offset));
            }
        }
    }

    /// Adds what a secret may look like.
    pub(crate) fn add_secret(&mut self, secret: &str, forms: Forms) {
        // a line break at an end is not part of what is secret; encoded, it would be
        let secret = secret.trim_matches(['\r', '\n']);
        self.first = self.spans.len();
        self.add(1, |out| out.extend(secret.as_bytes()));
        self.add_json(secret);
        if forms == Forms::Plain {
            return;
        }
        self.add(SHORTEST_DERIVED, |out| {
            for char in secret.chars().rev() {
                out.extend(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
        });
        for digits in CASES {
            self.add(SHORTEST_DERIVED, |out| {
                secret.bytes().for_each(|byte| wide(out, b"", &[byte], digits));
            });
        }
        for alphabet in [BASE64, BASE64_URL] {
            for offset in 0..3 {
                self.add_base64(secret.as_bytes(), alphabet, offset);
            }
        }
        self.add_percent(secret.as_bytes());
        self.add_python(secret);
        self.add_escaped(secret);
        self.add_html(secret);
        self.add_markdown(secret);
    }

    /// Each needle once, in the order of bytes.
    pub(crate) fn sorted(&mut self) -> impl Iterator<Item = &[u8]> + Clone {
        let bytes = self.bytes.as_slice();
        self.spans
            .sort_unstable_by(|one, other| one.of(bytes).cmp(other.of(bytes)));
        self.spans.dedup_by(|one, other| one.of(bytes) == other.of(bytes));
        self.spans.iter().map(move |span| span.of(bytes))
    }

    /// Adds one needle, unless it is too short or there already.
    fn add(&mut self, shortest: usize, write: impl FnOnce(&mut Wiped)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.strip_ignored(start);
        let end = self.bytes.len();
        let shortest = match self.ignored {
            Ignored::LineBreaks => shortest,
            Ignored::Layout => SHORTEST_RELAID,
        };
        let span = u32::try_from(start).ok().zip(u32::try_from(end).ok());
        let span = span.map(|(start, end)| Span { start, end });
        let bytes = self.bytes.as_slice();
        let known = |other: &Span| other.of(bytes) == &bytes[start..];
        match span {
            Some(span) if end - start >= shortest && !self.spans[self.first..].iter().any(known) => {
                self.spans.push(span);
            }
            _ => self.bytes.truncate(start),
        }
    }

    fn strip_ignored(&mut self, start: usize) {
        let (mut kept, ignored) = (start, self.ignored);
        let bytes = self.bytes.as_mut_slice();
        for at in start..bytes.len() {
            bytes[kept] = bytes[at];
            kept += usize::from(!ignored.has(bytes[at]));
        }
        self.bytes.truncate(kept);
    }

    /// The secret within base64, `offset` bytes into a group of three: the characters that it alone decides; then
    /// those at its end, should it be the last thing encoded.
    fn add_base64(&mut self, secret: &[u8], alphabet: &[u8; 64], offset: usize) {
        let bits = 8 * (offset + secret.len());
        let whole = (8 * offset).div_ceil(6)..bits / 6;
        let sextet = |index: usize| {
            let byte = |at: usize| {
                at.checked_sub(offset)
                    .and_then(|at| secret.get(at))
                    .map_or(0, |byte| u32::from(*byte))
            };
            let at = index * 6 / 8;
            let pair = (byte(at) << 8) | byte(at + 1);
            alphabet[((pair >> (10 - index * 6 % 8)) & 63) as usize]
        };
        let padding: &[usize] = match bits % 6 {
            0 => &[],
            2 => &[0, 2],
            _ => &[0, 1],
        };
        self.add(SHORTEST_DERIVED, |out| {
            whole.clone().for_each(|index| out.push(sextet(index)))
        });
        for &padding in padding {
            self.add(SHORTEST_DERIVED, |out| {
                (whole.start..=whole.end).for_each(|index| out.push(sextet(index)));
                out.extend(&b"=="[..padding]);
            });
        }
    }

    fn add_percent(&mut self, secret: &[u8]) {
        for digits in CASES {
            for keeps in PERCENT_KEEPS {
                for space in [&b"%20"[..], b"+"] {
                    self.add(SHORTEST_DERIVED, |out| {
                        for &byte in secret {
                            match byte {
                                b' ' => out.extend(space),
                                _ if byte.is_ascii_alphanumeric() || keeps.contains(&byte) => out.push(byte),
                                _ => wide(out, b"%", &[byte], digits),
                            }
                        }
                    });
                }
            }
            self.add(SHORTEST_DERIVED, |out| {
                secret.iter().for_each(|&byte| wide(out, b"%", &[byte], digits));
            });
        }
    }

    /// Within a JSON string: as little escaped as possible, `/` too, all that is not ASCII, both.
    fn add_json(&mut self, secret: &str) {
        for digits in CASES {
            for (slash, ascii) in [(false, false), (true, false), (false, true), (true, true)] {
                self.add(SHORTEST_DERIVED, |out| {
                    for char in secret.chars() {
                        match char {
                            '"' => out.extend(b"\\\""),
                            '\\' => out.extend(b"\\\\"),
                            '/' if slash => out.extend(b"\\/"),
                            '\n' => out.extend(b"\\n"),
                            '\r' => out.extend(b"\\r"),
                            '\t' => out.extend(b"\\t"),
                            '\u{8}' => out.extend(b"\\b"),
                            '\u{c}' => out.extend(b"\\f"),
                            _ if char < ' ' || (ascii && !char.is_ascii()) => {
                                for unit in char.encode_utf16(&mut [0; 2]) {
                                    wide(out, b"\\u", &unit.to_be_bytes(), digits);
                                }
                            }
                            _ => out.extend(char.encode_utf8(&mut [0; 4]).as_bytes()),
                        }
                    }
                });
            }
        }
    }

    /// Every character escaped, letters too: `\\uXXXX` of JSON and JavaScript, and `\\xXX` of its bytes.
    fn add_escaped(&mut self, secret: &str) {
        for digits in CASES {
            self.add(SHORTEST_DERIVED, |out| {
                for unit in secret.encode_utf16() {
                    wide(out, b"\\u", &unit.to_be_bytes(), digits);
                }
            });
            self.add(SHORTEST_DERIVED, |out| {
                secret.bytes().for_each(|byte| wide(out, b"\\x", &[byte], digits));
            });
        }
    }

    /// In HTML and XML: only what has to be, with the quotes as they are, by name, or by number; every character by
    /// number, decimal or hexadecimal.
    fn add_html(&mut self, secret: &str) {
        for quotes in [
            ["\"", "'"],
            ["&quot;", "'"],
            ["&quot;", "&#39;"],
            ["&quot;", "&#x27;"],
            ["&#34;", "&#39;"],
            ["&quot;", "&apos;"],
        ] {
            self.add(SHORTEST_DERIVED, |out| {
                for char in secret.chars() {
                    match char {
                        '&' => out.extend(b"&amp;"),
                        '<' => out.extend(b"&lt;"),
                        '>' => out.extend(b"&gt;"),
                        '"' => out.extend(quotes[0].as_bytes()),
                        '\'' => out.extend(quotes[1].as_bytes()),
                        _ => out.extend(char.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            });
        }
        let numbered: [fn(u32) -> String; 3] = [
            |point| format!("&#{point};"),
            |point| format!("&#x{point:x};"),
            |point| format!("&#x{point:X};"),
        ];
        for entity in numbered {
            self.add(SHORTEST_DERIVED, |out| {
                for char in secret.chars() {
                    out.extend(Zeroizing::new(entity(char.into())).as_bytes());
                }
            });
        }
    }

    /// In Markdown, where letters would be marks; `<` may begin a tag.
    fn add_markdown(&mut self, secret: &str) {
        for marks in [r"\`*_[]", r"\`*_[]<"] {
            self.add(SHORTEST_DERIVED, |out| {
                for char in secret.chars() {
                    if marks.contains(char) {
                        out.push(b'\\');
                    }
                    out.extend(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
            });
        }
    }

    /// As Python's `repr` writes it: a string, its bytes, and `ascii()`; the quote `'` escaped or not.
    fn add_python(&mut self, secret: &str) {
        for quote in [false, true] {
            for beyond in [Beyond::Kept, Beyond::Bytes, Beyond::Points] {
                self.add(SHORTEST_DERIVED, |out| {
                    for char in secret.chars() {
                        match char {
                            '\\' => out.extend(b"\\\\"),
                            '\'' if quote => out.extend(b"\\'"),
                            '\n' => out.extend(b"\\n"),
                            '\r' => out.extend(b"\\r"),
                            '\t' => out.extend(b"\\t"),
                            _ if char.is_ascii_control() => wide(out, b"\\x", &[char as u8], LOWER),
                            _ if char.is_ascii() => out.push(char as u8),
                            _ => beyond.write(out, char),
                        }
                    }
                });
            }
        }
    }
}

/// As Python sees it (`str.isprintable`): no separator but the blank, nothing that is control, format or unassigned.
/// Rust's own escapes draw the same line, but for marks that combine, which it escapes at the beginning of a text only.
fn is_printable(char: char) -> bool {
    let text = ['a', char].iter().collect::<String>();
    text.escape_debug().count() == 2
}

/// What `repr` makes of characters that are not ASCII.
#[derive(Clone, Copy)]
enum Beyond {
    Kept,
    Bytes,
    Points,
}

impl Beyond {
    fn write(self, out: &mut Wiped, char: char) {
        let point = u32::from(char).to_be_bytes();
        let mut utf8 = [0; 4];
        let utf8 = char.encode_utf8(&mut utf8).as_bytes();
        match self {
            // C1 controls are the ones that `repr` escapes and that occur
            Self::Kept if is_printable(char) => out.extend(utf8),
            Self::Bytes => utf8.iter().for_each(|&byte| wide(out, b"\\x", &[byte], LOWER)),
            _ if point[..3] == [0; 3] => wide(out, b"\\x", &point[3..], LOWER),
            _ if point[..2] == [0; 2] => wide(out, b"\\u", &point[2..], LOWER),
            _ => wide(out, b"\\U", &point, LOWER),
        }
    }
}

fn wide(out: &mut Wiped, before: &[u8], bytes: &[u8], digits: &[u8; 16]) {
    out.extend(before);
    for &byte in bytes {
        out.push(digits[usize::from(byte >> 4)]);
        out.push(digits[usize::from(byte & 15)]);
    }
}
