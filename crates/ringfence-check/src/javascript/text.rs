//! What the letters of a literal mean.

/// The value of a text between its quotes.
pub(super) fn value(literal: &str) -> String {
    let inner = literal
        .get(1..literal.len().saturating_sub(1))
        .unwrap_or_default();
    unescaped(inner)
}

/// With escapes undone. Those that are wrong are left out; Node.js refuses them.
pub(super) fn unescaped(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        told.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(letter) = rest.chars().next() else {
            break;
        };
        rest = &rest[letter.len_utf8()..];
        match letter {
            'n' => told.push('\n'),
            't' => told.push('\t'),
            'r' => told.push('\r'),
            'b' => told.push('\u{8}'),
            'f' => told.push('\u{c}'),
            'v' => told.push('\u{b}'),
            '\n' | '\u{2028}' | '\u{2029}' => {}
            '\r' => rest = rest.strip_prefix('\n').unwrap_or(rest),
            'x' => rest = number(rest, 16, 2, &mut told),
            'u' => {
                let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
                rest = match braced {
                    Some((digits, after)) => {
                        number(digits, 16, 8, &mut told);
                        after
                    }
                    None => number(rest, 16, 4, &mut told),
                };
            }
            '0'..='7' => {
                let from = text.len() - rest.len() - 1;
                rest = number(&text[from..], 8, 3, &mut told);
            }
            letter => told.push(letter),
        }
    }
    told.push_str(rest);
    told
}

fn number<'t>(text: &'t str, base: u32, most: usize, told: &mut String) -> &'t str {
    let digits = text.chars().take(most).take_while(|c| c.is_digit(base)).count();
    let value = u32::from_str_radix(&text[..digits], base).ok();
    told.extend(value.and_then(char::from_u32));
    &text[digits..]
}

/// `%72%6d`
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match (first, pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How many letters of a text are written as numbers though they could be written as themselves.
pub(super) fn hidden_letters(literal: &str) -> usize {
    let bytes = literal.as_bytes();
    let mut count = 0;
    let mut at = 0;
    while at + 3 < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let digits = match bytes[at + 1] {
            b'x' => literal.get(at + 2..at + 4),
            b'u' => literal.get(at + 2..at + 6),
            _ => None,
        };
        let letter = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        count += usize::from(letter.is_some_and(|letter| (0x21..0x7F).contains(&letter)));
        at += 2;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(value(r"'a\x62\u0063\u{64}\145\n\q'"), "abcde\nq");
        assert_eq!(value("'a\\\nb\\\r\nc'"), "abc");
        assert_eq!(value("'\\'"), "");
        assert_eq!(value("'"), "");
        assert_eq!(value(r"'\u{zz}\x'"), "");
        assert_eq!(unescaped(r"\u0065val"), "eval");
        assert_eq!(percent_decoded("%72m%2"), "rm%2");
        assert_eq!(hidden_letters(r"'\x65\x76\u0061l\x00\n'"), 3);
    }
}
