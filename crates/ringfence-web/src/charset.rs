//! Decoding of text: by byte order mark, header, `<meta>`, or a guess. Never UTF-7: its markup passes ASCII filters.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

/// Bytes in which a page must declare its charset (HTML, section 4.2.5.4).
const META_BYTES: usize = 1024;
/// Bytes on which a guess is based.
const GUESS_BYTES: usize = 64 << 10;

/// Kind of text: only HTML may declare its own charset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Markup {
    Html,
    Plain,
}

/// Returns the text, and the name of its charset.
pub(crate) fn decode(body: &[u8], content_type: &str, markup: Markup) -> (String, &'static str) {
    let encoding = declared(body, content_type, markup).unwrap_or_else(|| guessed(body));
    let (text, used, _) = encoding.decode(body);
    (text.into_owned(), used.name())
}

fn declared(body: &[u8], content_type: &str, markup: Markup) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(body) {
        return Some(encoding);
    }
    let header = labelled(&content_type.to_ascii_lowercase());
    let meta = || {
        let head = String::from_utf8_lossy(&body[..body.len().min(META_BYTES)]).to_ascii_lowercase();
        let found = head.match_indices("<meta").find_map(|(at, _)| {
            let tag = &head[at..];
            labelled(&tag[..tag.find('>').unwrap_or(tag.len())])
        });
        // A text whose `<meta>` was read as ASCII cannot be UTF-16.
        found.map(|encoding| {
            if encoding == UTF_16LE || encoding == UTF_16BE {
                UTF_8
            } else {
                encoding
            }
        })
    };
    header.or_else(|| if markup == Markup::Html { meta() } else { None })
}

/// Returns the encoding of `charset=`. `for_label` knows the names of the Encoding Standard, which has no UTF-7.
fn labelled(text: &str) -> Option<&'static Encoding> {
    let (_, value) = text.split_once("charset")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.')));
    let encoding = Encoding::for_label(&value.as_bytes()[..end.unwrap_or(value.len())])?;
    // Browsers refuse these charsets; a guess is better than a single replacement character.
    (encoding != REPLACEMENT).then_some(encoding)
}

fn guessed(body: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(body).is_ok() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    let head = &body[..body.len().min(GUESS_BYTES)];
    detector.feed(head, head.len() == body.len());
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], content_type: &str, expect: &str, charset: &str) {
        let (text, used) = decode(body, content_type, Markup::Html);
        assert_eq!((text.as_str(), used), (expect, charset), "{content_type}");
    }

    #[test]
    fn declared_charset_is_used_in_the_order_of_the_standard() {
        check("é".as_bytes(), "text/html; charset=utf-8", "é", "UTF-8");
        check(b"\xe9", "text/html; Charset=\"ISO-8859-1\"", "é", "windows-1252");
        check(
            b"\xef\xbb\xbf\xc3\xa9",
            "text/html; charset=iso-8859-1",
            "é",
            "UTF-8",
        );
        check(b"\xff\xfea\0", "", "a", "UTF-16LE");
        check(
            b"<meta charset=shift_jis>\x82\xa0",
            "",
            "<meta charset=shift_jis>あ",
            "Shift_JIS",
        );
        check(
            "<meta charset=utf-16>é".as_bytes(),
            "",
            "<meta charset=utf-16>é",
            "UTF-8",
        );
        check(
            b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>\xc1",
            "text/html",
            "<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>а",
            "KOI8-R",
        );
    }

    #[test]
    fn utf_7_is_not_decoded() {
        let text = "+ADw-script+AD4-";
        check(text.as_bytes(), "text/html; charset=utf-7", text, "UTF-8");
        let meta = format!("<meta charset=utf-7>{text}");
        check(meta.as_bytes(), "", &meta, "UTF-8");
    }

    #[test]
    fn undeclared_charset_is_guessed() {
        let russian = "Съешь же ещё этих мягких французских булок, да выпей чаю. ".repeat(4);
        let (bytes, _, _) = encoding_rs::WINDOWS_1251.encode(&russian);
        check(&bytes, "text/html", &russian, "windows-1251");
        check("日本語".as_bytes(), "", "日本語", "UTF-8");
        let japanese = "これは日本語の文章です。文字コードを推測します。".repeat(4);
        let (bytes, _, _) = encoding_rs::EUC_JP.encode(&japanese);
        check(&bytes, "text/html; charset=iso-2022-kr", &japanese, "EUC-JP");
    }
}
