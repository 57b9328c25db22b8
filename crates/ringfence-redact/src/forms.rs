//! The forms in which a secret may be written. Each becomes a needle: a byte string to search for.

use crate::{Forms, ignored::Ignored, wiped::Wiped};
use zeroize::Zeroizing;

/// Minimum bytes of derived forms; shorter ones would be found in ordinary base64 and hex.
pub(crate) const SHORTEST_DERIVED: usize = 6;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const CASES: [&[u8; 16]; 2] = [LOWER, UPPER];

/// Characters beside letters and digits that percent-encoders keep: RFC 3986; Python's `quote`; JavaScript's
/// `encodeURIComponent`; forms (`URLSearchParams`).
const PERCENT_KEEPS: [&[u8]; 4] = [b"-._~", b"-._~/", b"-._~!*'()", b"-._*"];
/// The same for parsers of URLs (URL Standard, section 1.3): a path, a query and a fragment, and in a Markdown link.
const URL_KEEPS: [&[u8]; 6] = [
    b"-._~!$%&'()*+,/:;=@[]^|",
    b"-._~!$%&()*+,/:;=@[\\]^|?`{}",
    b"-._~!$%&'()*+,/:;=@[\\]^|?#{}",
    b"-._~!$%&'*+,/:;=@[]^|",
    b"-._~!$%&*+,/:;=@[\\]^|?{}",
    b"-._~!$%&'*+,/:;=@[\\]^|?#{}",
];

/// Minimum bytes of a form that is searched in a layout, and of a secret whose base64 is.
const SHORTEST_REFLOWED: usize = 16;
const SHORTEST_WRAPPED: usize = 45;

/// Needles without the ignored bytes, which always include CR and LF.
pub(crate) struct Needles {
    pub(crate) ignored: Ignored,
    bytes: Wiped,
    spans: Vec<Span>,
    /// Index of the first needle of the current secret.
    first: usize,
}

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

    /// Adds the forms that may be spread over lines of a layout: a secret of several lines, and base64 of a long one.
    pub(crate) fn add_reflowed(&mut self, secret: &str, forms: Forms) {
        let secret = secret.trim_matches(['\r', '\n']);
        self.first = self.spans.len();
        if secret.contains(['\r', '\n']) {
            self.add(SHORTEST_REFLOWED, |out| out.extend(secret.as_bytes()));
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

    /// Adds the forms of a secret.
    pub(crate) fn add_secret(&mut self, secret: &str, forms: Forms) {
        // line breaks at its ends are not secret, and would change the encoded forms
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
        for alphabet in [BASE64, BASE64_URL] {
            (0..3).for_each(|offset| self.add_base64(secret.as_bytes(), alphabet, offset));
        }
        self.add_percent(secret.as_bytes());
        self.add_python(secret);
        self.add_escaped(secret);
        self.add_html(secret);
        self.add_markdown(secret);
    }

    /// Returns each needle once, sorted by bytes.
    pub(crate) fn sorted(&mut self) -> impl Iterator<Item = &[u8]> + Clone {
        let bytes = self.bytes.as_slice();
        self.spans
            .sort_unstable_by(|one, other| one.of(bytes).cmp(other.of(bytes)));
        self.spans.dedup_by(|one, other| one.of(bytes) == other.of(bytes));
        self.spans.iter().map(move |span| span.of(bytes))
    }

    /// Adds a needle, unless it is too short or exists already.
    fn add(&mut self, shortest: usize, write: impl FnOnce(&mut Wiped)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.strip_ignored(start);
        let end = self.bytes.len();
        let shortest = match self.ignored {
            Ignored::LineBreaks => shortest,
            Ignored::Layout => SHORTEST_REFLOWED,
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

    /// Adds base64 of the secret, `offset` bytes into a group of three: the characters that it alone determines, and
    /// those with the last character and padding, for a secret at the end of the encoded text.
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
        let encoders = CASES.map(|digits| PERCENT_KEEPS.map(|keeps| (keeps, digits, false)));
        // Parsers of URLs write upper case, and in a path `/` for `\`.
        let urls = URL_KEEPS.map(|keeps| (keeps, UPPER, !keeps.contains(&b'\\')));
        for (keeps, digits, is_path) in encoders.into_iter().flatten().chain(urls) {
            for space in [&b"%20"[..], b"+"] {
                self.add(SHORTEST_DERIVED, |out| {
                    for &byte in secret {
                        match byte {
                            b' ' => out.extend(space),
                            b'\\' if is_path => out.push(b'/'),
                            _ if byte.is_ascii_alphanumeric() || keeps.contains(&byte) => out.push(byte),
                            _ => hex(out, b"%", &[byte], digits),
                        }
                    }
                });
            }
        }
    }

    /// Adds JSON strings: with as few escapes as possible, with `/` escaped, with non-ASCII escaped, with both.
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
                                    hex(out, b"\\u", &unit.to_be_bytes(), digits);
                                }
                            }
                            _ => out.extend(char.encode_utf8(&mut [0; 4]).as_bytes()),
                        }
                    }
                });
            }
        }
    }

    /// Adds forms with every character escaped: as `\\uXXXX` of JSON and JavaScript; and every byte, in hexadecimal, as
    /// `\\xXX` and as `%XX`.
    fn add_escaped(&mut self, secret: &str) {
        for digits in CASES {
            self.add(SHORTEST_DERIVED, |out| {
                for unit in secret.encode_utf16() {
                    hex(out, b"\\u", &unit.to_be_bytes(), digits);
                }
            });
            for before in [&b""[..], b"\\x", b"%"] {
                self.add(SHORTEST_DERIVED, |out| {
                    secret.bytes().for_each(|byte| hex(out, before, &[byte], digits));
                });
            }
        }
    }

    /// Adds HTML and XML: with the required entities, and quotes verbatim, by name or by number; every character by
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

    /// Adds Markdown: with escaped punctuation, and with and without an escaped `<`, which may begin a tag.
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

    /// Adds the forms of Python's `repr`, of the string and of its bytes, and of `ascii()`; with `'` escaped or not.
    fn add_python(&mut self, secret: &str) {
        for quote in [false, true] {
            for non_ascii in [NonAscii::Kept, NonAscii::Bytes, NonAscii::Points] {
                self.add(SHORTEST_DERIVED, |out| {
                    for char in secret.chars() {
                        match char {
                            '\\' => out.extend(b"\\\\"),
                            '\'' if quote => out.extend(b"\\'"),
                            '\n' => out.extend(b"\\n"),
                            '\r' => out.extend(b"\\r"),
                            '\t' => out.extend(b"\\t"),
                            _ if char.is_ascii_control() => hex(out, b"\\x", &[char as u8], LOWER),
                            _ if char.is_ascii() => out.push(char as u8),
                            _ => non_ascii.write(out, char),
                        }
                    }
                });
            }
        }
    }
}

/// True for characters that are printable in Python (`str.isprintable`): no separator but the space, no control, format
/// or unassigned character. Rust's `escape_debug` agrees, but escapes combining marks that begin a text: hence the `a`.
fn is_printable(char: char) -> bool {
    let text = ['a', char].iter().collect::<String>();
    text.escape_debug().count() == 2
}

/// Treatment of non-ASCII characters by `repr`.
#[derive(Clone, Copy)]
enum NonAscii {
    Kept,
    Bytes,
    Points,
}

impl NonAscii {
    fn write(self, out: &mut Wiped, char: char) {
        let point = u32::from(char).to_be_bytes();
        let mut utf8 = [0; 4];
        let utf8 = char.encode_utf8(&mut utf8).as_bytes();
        match self {
            // `repr` escapes what is not printable, in practice C1 controls
            Self::Kept if is_printable(char) => out.extend(utf8),
            Self::Bytes => utf8.iter().for_each(|&byte| hex(out, b"\\x", &[byte], LOWER)),
            _ if point[..3] == [0; 3] => hex(out, b"\\x", &point[3..], LOWER),
            _ if point[..2] == [0; 2] => hex(out, b"\\u", &point[2..], LOWER),
            _ => hex(out, b"\\U", &point, LOWER),
        }
    }
}

fn hex(out: &mut Wiped, before: &[u8], bytes: &[u8], digits: &[u8; 16]) {
    out.extend(before);
    for &byte in bytes {
        out.push(digits[usize::from(byte >> 4)]);
        out.push(digits[usize::from(byte & 15)]);
    }
}
