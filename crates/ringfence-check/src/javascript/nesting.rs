//! Upper estimate, in linear time, of the depth of a recursive parser: brackets, and nesting without (`!!!a`, `a.b`,
//! `a => b`, `if (a) if (b)`), in strings and comments too, where it could hide. A crash costs one answer.

use crate::lists::LISTS;
use regex::Regex;
use std::sync::LazyLock;

/// Far above what programs written by people reach.
const DEPTH_MAX: usize = 1000;

/// Keywords whose parenthesized header does not end a statement.
const HEADERS: &[&str] = &["if", "for", "while", "with"];

#[derive(Default)]
struct Level {
    /// Nesting without brackets before this bracket.
    before: usize,
    is_header: bool,
}

#[derive(Default)]
struct Depth {
    levels: Vec<Level>,
    above: usize,
    here: usize,
    last: u8,
    last_is_header: bool,
    /// True if a statement may end after the last token, at the end of the line.
    may_end: bool,
}

pub(super) fn is_deep(code: &str) -> bool {
    let mut depth = Depth::default();
    let mut rest = code;
    let mut is_new_line = false;
    // End of the comments that follow a possible end of a statement; the next token decides if it was one.
    let mut after_comments = None;
    while let Some(first) = rest.bytes().next() {
        let length = match first {
            byte if is_word(byte) => rest.bytes().take_while(|byte| is_word(*byte)).count(),
            byte if byte.is_ascii() => 1,
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        let at = code.len() - rest.len();
        let (token, after) = rest.split_at(length);
        let text = std::mem::replace(&mut rest, after);
        if first.is_ascii_whitespace() {
            is_new_line |= first == b'\n';
            continue;
        }
        let mut ends = is_new_line && depth.may_end || depth.last == b'}';
        if let Some(end) = after_comments {
            ends = at >= end;
        } else if ends {
            after_comments = comments(text).map(|length| at + length);
            ends = after_comments.is_none();
        }
        if ends {
            after_comments = None;
        }
        let goes_on = matches!(first, b'!'..=b'/' | b':'..=b'@' | b'[' | b'^' | b'|') || token == "else";
        if ends && !goes_on {
            depth.here = 0;
        }
        depth.add(token, first);
        is_new_line = false;
        if depth.above + depth.here > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// Returns the length of a text's leading comments and blanks, if a comment is first. An unterminated comment extends
/// to the end of the text, so that each byte is scanned once.
fn comments(text: &str) -> Option<usize> {
    static COMMENTS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(?:(?://[^\n]*|(?s:/\*.*?(?:\*/|$)))[ \t\r\n\x0c]*)+").ok());
    if !text.starts_with("//") && !text.starts_with("/*") {
        return None;
    }
    let found = COMMENTS.as_ref().and_then(|comments| comments.find(text));
    found.map(|found| found.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl Depth {
    fn add(&mut self, token: &str, first: u8) {
        let last = std::mem::replace(&mut self.last, first);
        let last_is_header = std::mem::replace(&mut self.last_is_header, HEADERS.contains(&token));
        self.may_end = true;
        match first {
            b'(' | b'[' | b'{' => {
                // `f()()`, `a[0][0]`
                self.here += usize::from(matches!(last, b')' | b']') && first != b'{');
                self.above += self.here + 1;
                self.levels.push(Level {
                    before: std::mem::take(&mut self.here),
                    is_header: last_is_header,
                });
                self.may_end = false;
            }
            b')' | b']' | b'}' => {
                let level = self.levels.pop().unwrap_or_default();
                self.above = self.above.saturating_sub(level.before + 1);
                self.here = level.before;
                self.may_end = !level.is_header;
            }
            b';' | b',' => self.here = 0,
            b'!' | b'~' | b'`' => {
                self.here += 1;
                self.may_end = first == b'`';
            }
            b'?' | b'=' | b'+' | b'-' | b':' | b'<' | b'*' | b'&' | b'|' | b'/' | b'%' | b'>' | b'^'
            | b'.' => {
                // `===`, or a line of dashes
                let is_one = last == first || matches!((last, first), (b'=', b'>') | (b'?', b'.'));
                self.here += usize::from(!is_one);
                self.may_end = false;
            }
            _ if LISTS.nesting_words.contains(&token) => {
                self.here += 1;
                self.may_end = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor_time::processor_time;

    #[test]
    fn unterminated_comments_are_scanned_once() {
        for piece in ["}/*", "//a\n", "}//\n/*"] {
            let of = |count: usize| {
                let code = piece.repeat(count);
                let started = processor_time();
                std::hint::black_box(is_deep(&code));
                processor_time() - started
            };
            let (short, long) = (of(20_000), of(200_000));
            assert!(long < short * 30, "{piece:?}: {short:?}, {long:?}");
        }
    }

    #[test]
    fn nesting_is_counted_with_and_without_brackets() {
        for piece in [
            "(",
            "!",
            "(x)=>",
            "if(a)",
            "a?b:",
            "typeof ",
            "a=",
            "[{",
            "new ",
            "`${",
            "else if(a)\n",
            "(x)=>\n",
            ".a",
            "()",
            "[0]",
            "``",
            "+'a'",
            "\n+'a'",
            "\n.a()",
            "if(a){}else ",
            "&&a",
            "\n/* a */+'a'",
            "\n// a\n.a()",
        ] {
            assert!(is_deep(&piece.repeat(1200)), "{piece}");
        }
        for piece in [
            "f(a, b);",
            "const a = b ? c : d\n",
            "if (a) { b() }\n",
            "() => { f(!x) };",
            "x = 'a' + 'b'\nreturn 1\n",
            "a.b().c()\n",
            "function a(){}",
            "if(a){b.c()}",
            "/** Adds a - b. */\nasync function a(b = {}) { return b }\n",
            "// a.b\nfunction a(){}\n/* c */ // d.e\n",
            "a.b()\n// c.d\n",
        ] {
            assert!(!is_deep(&piece.repeat(2000)), "{piece}");
        }
    }
}
