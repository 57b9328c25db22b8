//! From bytes to the bytes of a table in UTF-8, or in what comes nearest to it.

use std::borrow::Cow;

/// A table's text.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) encoding: Encoding,
    /// Bytes that are no table: a byte-order mark, a line that names the delimiter.
    pub(super) before: usize,
}

/// Is it UTF-8 from its first byte to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    /// Some row is not; which one is found where rows are looked at.
    Broken,
}

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_LITTLE_MARK: &[u8] = b"\xff\xfe";
const UTF16_BIG_MARK: &[u8] = b"\xfe\xff";

/// Without its byte-order mark.
pub(super) fn of(body: &[u8]) -> Text<'_> {
    if let Some(rest) = body.strip_prefix(UTF16_LITTLE_MARK) {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = body.strip_prefix(UTF16_BIG_MARK) {
        return utf16(rest, u16::from_be_bytes);
    }
    let bytes = body.strip_prefix(UTF8_MARK).unwrap_or(body);
    Text {
        encoding: match std::str::from_utf8(bytes) {
            Ok(_) => Encoding::Utf8,
            Err(_) => Encoding::Broken,
        },
        bytes: Cow::Borrowed(bytes),
        before: body.len() - bytes.len(),
    }
}

impl Text<'_> {
    /// `sep=;`, the first line of what Excel writes for other countries: it is not the header, and no row.
    pub(super) fn take_separator(&mut self) -> Option<char> {
        let (word, rest) = self.bytes.split_at_checked(4)?;
        if !word.eq_ignore_ascii_case(b"sep=") {
            return None;
        }
        let (delimiter, rest) = rest.split_first()?;
        let is_sign = delimiter.is_ascii_punctuation() || matches!(delimiter, b'\t' | b' ');
        let ends = rest.is_empty() || rest.starts_with(b"\n") || rest.starts_with(b"\r");
        if !is_sign || !ends {
            return None;
        }
        let delimiter = char::from(*delimiter);
        let line = self.bytes.len() - rest.len();
        match &mut self.bytes {
            Cow::Borrowed(bytes) => *bytes = bytes.get(line..).unwrap_or_default(),
            Cow::Owned(bytes) => drop(bytes.drain(..line)),
        }
        self.before += line;
        Some(delimiter)
    }
}

/// A half of a pair without the other, and an odd byte at the end, become a byte that is no UTF-8, and so an error of
/// the row in which they stand.
fn utf16(body: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Text<'static> {
    let (pairs, odd) = body.as_chunks::<2>();
    let mut bytes = Vec::with_capacity(body.len());
    let mut encoding = Encoding::Utf8;
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(_) => {
                bytes.push(BROKEN);
                encoding = Encoding::Broken;
            }
        }
    }
    if !odd.is_empty() {
        bytes.push(BROKEN);
        encoding = Encoding::Broken;
    }
    Text {
        bytes: Cow::Owned(bytes),
        encoding,
        before: 0,
    }
}

/// In no UTF-8 anywhere.
const BROKEN: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_how_a_table_is_written() {
        let check = |body: &[u8], expect: &[u8], encoding: Encoding| {
            let text = of(body);
            assert_eq!((&*text.bytes, text.encoding), (expect, encoding), "{body:?}");
        };
        check(b"a,b", b"a,b", Encoding::Utf8);
        check(b"\xef\xbb\xbfa", b"a", Encoding::Utf8);
        check(b"\xff\xfea\0,\0\xe9\0", "a,é".as_bytes(), Encoding::Utf8);
        check(b"\xfe\xff\0a\xd8\x3e\xdd\x80", "a🦀".as_bytes(), Encoding::Utf8);
        check(b"\xff\xfe\x3e\xd8a\0", b"\xffa", Encoding::Broken);
        check(b"\xff\xfea", b"\xff", Encoding::Broken);
        check(b"caf\xe9", b"caf\xe9", Encoding::Broken);
        check(b"", b"", Encoding::Utf8);
    }

    #[test]
    fn a_line_that_names_the_delimiter_is_taken_away() {
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
