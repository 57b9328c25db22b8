//! Converts the bytes of a table to UTF-8, as far as possible.

use std::borrow::Cow;

/// The text of a table, without its byte-order mark. Rows may be invalid UTF-8.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Bytes removed from the beginning: a UTF-8 byte-order mark, and a line that names the delimiter.
    pub(super) before: usize,
}

pub(super) fn of(body: &[u8]) -> Text<'_> {
    let (bytes, before) = match body {
        [0xff, 0xfe, rest @ ..] => (Cow::Owned(utf16(rest, u16::from_le_bytes)), 0),
        [0xfe, 0xff, rest @ ..] => (Cow::Owned(utf16(rest, u16::from_be_bytes)), 0),
        [0xef, 0xbb, 0xbf, rest @ ..] => (Cow::Borrowed(rest), 3),
        body => (Cow::Borrowed(body), 0),
    };
    Text { bytes, before }
}

impl Text<'_> {
    /// Removes a first line `sep=;`, no header or row, and returns its delimiter. Excel writes it in some locales.
    pub(super) fn take_separator(&mut self) -> Option<char> {
        let (line, rest) = self.bytes.split_at_checked(5)?;
        let (word, sign) = (line.get(..4)?, *line.last()?);
        let is_sign = sign.is_ascii_punctuation() || matches!(sign, b'\t' | b' ');
        let ends = matches!(rest, [] | [b'\n' | b'\r', ..]);
        if !word.eq_ignore_ascii_case(b"sep=") || !is_sign || !ends {
            return None;
        }
        self.before += line.len();
        match &mut self.bytes {
            Cow::Borrowed(bytes) => *bytes = bytes.get(5..).unwrap_or_default(),
            Cow::Owned(bytes) => drop(bytes.drain(..5)),
        }
        Some(char::from(sign))
    }
}

/// Decodes UTF-16. An unpaired surrogate or odd last byte becomes a byte invalid in UTF-8, and so an error of its row.
fn utf16(body: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    const BROKEN: u8 = 0xff;
    let (pairs, odd) = body.as_chunks::<2>();
    let mut bytes = Vec::with_capacity(body.len());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(_) => bytes.push(BROKEN),
        }
    }
    bytes.extend(odd.iter().map(|_| BROKEN));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_selects_the_encoding() {
        let check = |body: &[u8], expect: &[u8], is_utf8: bool| {
            let bytes = of(body).bytes;
            let decoded = (&*bytes, std::str::from_utf8(&bytes).is_ok());
            assert_eq!(decoded, (expect, is_utf8), "{body:?}");
        };
        check(b"a,b", b"a,b", true);
        check(b"\xef\xbb\xbfa", b"a", true);
        check(b"\xff\xfea\0,\0\xe9\0", "a,é".as_bytes(), true);
        check(b"\xfe\xff\0a\xd8\x3e\xdd\x80", "a🦀".as_bytes(), true);
        check(b"\xff\xfe\x3e\xd8a\0", b"\xffa", false);
        check(b"\xff\xfea", b"\xff", false);
        check(b"caf\xe9", b"caf\xe9", false);
        check(b"", b"", true);
    }

    #[test]
    fn separator_line_is_removed() {
        let check = |body: &[u8], delimiter: Option<char>, rest: &[u8]| {
            let mut text = of(body);
            assert_eq!(text.take_separator(), delimiter, "{body:?}");
            assert_eq!(&*text.bytes, rest, "{body:?}");
        };
        check(b"sep=;\na;b", Some(';'), b"\na;b");
        check(b"sep=,\r\na", Some(','), b"\r\na");
        check(b"\xef\xbb\xbfsep=|\ra", Some('|'), b"\ra");
        check(b"\xff\xfes\0e\0p\0=\0;\0\n\0a\0", Some(';'), b"\na");
        check(b"sep=\t\na", Some('\t'), b"\na");
        check(b"sep=;", Some(';'), b"");
        check(b"SEP=;\n", Some(';'), b"\n");
        for body in [
            &b"sep=\na"[..],
            b"sep=;;\na",
            b"sep=a\n1",
            b"sep=;,b\n1;2",
            b"a\nsep=;\n",
            b"Separator=;",
        ] {
            check(body, None, body);
        }
    }
}
