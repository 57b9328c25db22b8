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
/// `encodeURIComponent`; forms (`URLSearchParams`); in the user information of URLs: Go, RFC 3986, the URL Standard.
const PERCENT_KEEPS: &str = "-._~ -._~/ -._~!*'() -._* -._~$&+,;= -._~!$&'()*+,;= -._~!$%&'()*+,";
/// The same for parsers of URLs (URL Standard, section 1.3): a path, a query and a fragment, and in a Markdown link.
const URL_KEEPS: &str = r"-._~!$%&'()*+,/:;=@[]^| -._~!$%&()*+,/:;=@[\]^|?`{} -._~!$%&'()*+,/:;=@[\]^|?#{}
    -._~!$%&'*+,/:;=@[]^| -._~!$%&*+,/:;=@[\]^|?{} -._~!$%&'*+,/:;=@[\]^|?#{}";
/// Characters that others encode alone: the delimiters of URLs; all reserved characters of RFC 3986.
const PERCENT_ENCODES: [&str; 2] = ["%:/?#[]@", "%:/?#[]@!$&'()*+,;="];

/// Writers of JSON: the characters that they write as `\uXXXX`, if they write `/` as `\/`, and if in ASCII only. The
/// first four are common, then follow Go, Gson, Flask and .NET.
const JSON_WRITERS: [(&str, bool, bool); 8] = [
    ("", false, false),
    ("", true, false),
    ("", false, true),
    ("", true, true),
    ("<>&\u{2028}\u{2029}", false, false),
    ("<>&='\u{2028}\u{2029}", false, false),
    ("<>&'", false, true),
    ("<>&'\"+`\u{7f}", false, true),
];
/// Characters that a backslash and a letter stand for, each before its letter: in JSON; in `$'…'` of a shell, of which
/// Python has the first four, and `'` if that is its quote.
const JSON_LETTERS: &[u8] = b"\"\"\\\\\nn\rr\tt\x08b\x0cf";
const SHELL_LETTERS: &[u8] = b"\\\\\nn\rr\tt''\x07a\x08b\x0bv\x0cf\x1bE";
/// Characters that get a backslash: in Markdown, also where `<` may begin a tag; in a shell, by `printf %q`, and in
/// double quotes.
const BACKSLASHED: [&str; 4] = [r"\`*_[]", r"\`*_[]<", " !\"$&'()*,;<>?[\\]^`{|}", "\"$`\\"];
/// Replacements of `&`, `<`, `>`, `"` and `'`: in HTML and XML; in CSV, in SQL, and between single quotes of a shell.
const REPLACED: [[&str; 5]; 10] = [
    ["&amp;", "&lt;", "&gt;", "\"", "'"],
    ["&amp;", "&lt;", "&gt;", "&quot;", "'"],
    ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"],
    ["&amp;", "&lt;", "&gt;", "&quot;", "&#x27;"],
    ["&amp;", "&lt;", "&gt;", "&#34;", "&#39;"],
    ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"],
    ["&", "<", ">", "\"\"", "'"],
    ["&", "<", ">", "\"", "''"],
    ["&", "<", ">", "\"", r"'\''"],
    ["&", "<", ">", "\"", "'\"'\"'"],
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

/// Start and end.
#[derive(Clone, Copy)]
struct Span(u32, u32);

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.0 as usize..self.1 as usize]
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
                self.add_replaced(secret);
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
        self.add_json(secret, forms);
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
        self.add_percent(secret);
        self.add_literals(secret);
        self.add_escaped(secret);
        self.add_replaced(secret);
        for marks in BACKSLASHED {
            self.add_chars(secret, |out, char| {
                if marks.contains(char) {
                    out.push(b'\\');
                }
                false
            });
        }
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
        let span = span.map(|(start, end)| Span(start, end));
        let bytes = self.bytes.as_slice();
        let known = |other: &Span| other.of(bytes) == &bytes[start..];
        match span {
            Some(span) if end - start >= shortest && !self.spans[self.first..].iter().any(known) => {
                self.spans.push(span);
            }
            _ => self.bytes.truncate(start),
        }
    }

    /// Adds a form in which `escape` writes some characters, for which it returns true; the others stay, as do ASCII
    /// letters and digits.
    fn add_chars(&mut self, secret: &str, escape: impl Fn(&mut Wiped, char) -> bool) {
        self.add(SHORTEST_DERIVED, |out| {
            for char in secret.chars() {
                match char {
                    '0'..='9' | 'A'..='Z' | 'a'..='z' => out.push(char as u8),
                    _ if escape(out, char) => {}
                    _ => out.extend(char.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        });
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

    fn add_percent(&mut self, secret: &str) {
        let encoders = CASES.map(|digits| PERCENT_KEEPS.split(' ').map(move |keeps| (keeps, digits)));
        let urls = URL_KEEPS.split_whitespace().map(|keeps| (keeps, UPPER));
        let spaces = &[&b"%20"[..], b"+"][..1 + usize::from(secret.contains(' '))];
        for (keeps, digits) in encoders.into_iter().flatten().chain(urls) {
            // Parsers of URLs, which keep `:`, write in a path `/` for `\`.
            let is_path = keeps.contains(':') && !keeps.contains('\\');
            let keeps = keeps.as_bytes();
            for space in spaces {
                self.add(SHORTEST_DERIVED, |out| {
                    for byte in secret.bytes() {
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
        let others = CASES.map(|digits| PERCENT_ENCODES.map(|encoded| (digits, encoded)));
        for (digits, encoded) in others.into_iter().flatten() {
            self.add_chars(secret, |out, char| {
                let found = encoded.find(char);
                found.inspect(|_| hex(out, b"%", &[char as u8], digits)).is_some()
            });
        }
    }

    fn add_json(&mut self, secret: &str, forms: Forms) {
        let writers = &JSON_WRITERS[..if forms == Forms::Plain { 4 } else { 8 }];
        let cases = CASES.map(|digits| writers.iter().map(move |writer| (digits, *writer)));
        for (digits, (points, slash, ascii)) in cases.into_iter().flatten() {
            self.add_chars(secret, |out, char| {
                let is_point = points.contains(char) || (ascii && !char.is_ascii());
                match letter(JSON_LETTERS, char) {
                    Some(letter) if !is_point => out.extend(&[b'\\', letter]),
                    _ if is_point || char < ' ' => {
                        for unit in char.encode_utf16(&mut [0; 2]) {
                            hex(out, b"\\u", &unit.to_be_bytes(), digits);
                        }
                    }
                    _ if char == '/' && slash => out.extend(b"\\/"),
                    _ => return false,
                }
                true
            });
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
    /// number, decimal or hexadecimal. Adds the quotes of CSV, SQL and shells.
    fn add_replaced(&mut self, secret: &str) {
        for replaced in REPLACED {
            self.add_chars(secret, |out, char| {
                let found = "&<>\"'".find(char);
                found.inspect(|&at| out.extend(replaced[at].as_bytes())).is_some()
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

    /// Adds the forms of Python's `repr`, of the string and of its bytes, and of `ascii()`, with `'` escaped or not;
    /// and of `$'…'` in a shell, where bytes are octal.
    fn add_literals(&mut self, secret: &str) {
        use NonAscii::{Bytes, Kept, Points};
        let python = [8, 10].map(|letters| [Kept, Bytes, Points].map(|non_ascii| (letters, non_ascii)));
        let shell = [Kept, Bytes].map(|non_ascii| (SHELL_LETTERS.len(), non_ascii));
        for (letters, non_ascii) in python.into_iter().flatten().chain(shell) {
            let letters = &SHELL_LETTERS[..letters];
            self.add_chars(secret, |out, char| {
                let mut utf8 = [0; 4];
                let utf8 = char.encode_utf8(&mut utf8).as_bytes();
                match letter(letters, char) {
                    Some(letter) => out.extend(&[b'\\', letter]),
                    None if char.is_ascii() && !char.is_ascii_control() => return false,
                    // What is not printable is escaped, in practice C1 controls.
                    None if non_ascii == Kept && is_printable(char) => return false,
                    None if letters == SHELL_LETTERS => utf8.iter().for_each(|&byte| octal(out, byte)),
                    None if non_ascii == Bytes => {
                        utf8.iter().for_each(|&byte| hex(out, b"\\x", &[byte], LOWER))
                    }
                    None => match u32::from(char).to_be_bytes() {
                        [0, 0, 0, byte] => hex(out, b"\\x", &[byte], LOWER),
                        [0, 0, unit @ ..] => hex(out, b"\\u", &unit, LOWER),
                        point => hex(out, b"\\U", &point, LOWER),
                    },
                }
                true
            });
        }
    }
}

/// Returns the letter that, after a backslash, stands for a character.
fn letter(letters: &[u8], char: char) -> Option<u8> {
    let mut pairs = letters.chunks_exact(2);
    pairs.find(|pair| char::from(pair[0]) == char).map(|pair| pair[1])
}

/// True for characters that are printable in Python (`str.isprintable`): no separator but the space, no control, format
/// or unassigned character. Rust's `escape_debug` agrees, but escapes combining marks that begin a text: hence the `a`.
fn is_printable(char: char) -> bool {
    let text = ['a', char].iter().collect::<String>();
    text.escape_debug().count() == 2
}

/// Treatment of non-ASCII characters by `repr` and by shells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NonAscii {
    Kept,
    Bytes,
    Points,
}

fn octal(out: &mut Wiped, byte: u8) {
    let digit = |shift: u8| b'0' + (byte >> shift & 7);
    out.extend(&[b'\\', digit(6), digit(3), digit(0)]);
}

fn hex(out: &mut Wiped, before: &[u8], bytes: &[u8], digits: &[u8; 16]) {
    out.extend(before);
    for &byte in bytes {
        out.push(digits[usize::from(byte >> 4)]);
        out.push(digits[usize::from(byte & 15)]);
    }
}
