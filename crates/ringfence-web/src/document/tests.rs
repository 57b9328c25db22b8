//! The worker's answers for each kind of body.

use super::*;
use crate::Extraction;

fn ask(content_type: &str, coding: &str, body: &[u8]) -> Result<(Document, Vec<u8>), Refusal> {
    let head = Question {
        url: "https://site.test/page".to_owned(),
        content_type: content_type.to_owned(),
        coding: coding.to_owned(),
        is_cut: false,
        reads: Reads::Document,
    };
    parse_answer(&read_document(&question(&head, body).unwrap()))
}

#[test]
fn data_becomes_a_code_block_and_plain_text_stays() {
    let (document, _) = ask("application/json", "", b"{\"a\": \"```\"}").unwrap();
    assert_eq!(document.text, "````json\n{\"a\": \"```\"}\n````\n");
    assert_eq!(
        (document.kind, document.extraction),
        (DocumentKind::Json, Extraction::Whole)
    );
    let (document, _) = ask("text/yaml", "", b"a: 1\n").unwrap();
    assert_eq!(document.text, "```yaml\na: 1\n```\n");
    let (document, _) = ask("text/plain; charset=iso-8859-1", "", b"caf\xe9\r\n").unwrap();
    assert_eq!(
        (document.text.as_str(), document.charset.as_deref()),
        ("café\n", Some("windows-1252"))
    );
}

#[test]
fn pdf_becomes_text_and_image_stays_bytes() {
    let (document, _) = ask("text/html", "", &pdf::tests::pdf(&["Words of a paper."])).unwrap();
    assert_eq!((document.kind, document.pages), (DocumentKind::Pdf, Some(1)));
    assert!(document.text.contains("Words of a paper."));
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let (document, picture) = ask("image/png", "", png).unwrap();
    assert_eq!(
        (document.kind, picture.as_slice()),
        (DocumentKind::Image, png.as_slice())
    );
}

#[test]
fn refusal_gives_the_reason() {
    let check = |content_type: &str, coding: &str, body: &[u8], expect: &str| {
        let refusal = ask(content_type, coding, body).unwrap_err();
        assert!(refusal.why.contains(expect), "{}", refusal.why);
    };
    check("text/html", "lzma", b"x", "`lzma`");
    check("text/html", "gzip,gzip,gzip", b"x", "more than 2");
    check("application/zip", "", b"PK\x03\x04aaaaaaaa", "application/zip");
    check("application/octet-stream", "", b"a\0b", "not text");
    check("application/pdf", "", b"%PDF-1.7 broken", "PDF");
    assert!(parse_answer(b"").is_err() && parse_answer(b"{}\n").is_err());
    assert!(read_document(b"no question").starts_with(b"{\"refused\""));
}

/// claim: [WEB-10]
#[test]
fn secret_in_a_link_is_redacted_as_urls_are_written() {
    let secret = "K3y '(of)' \"{th^\\e}` <st0ry|#1?";
    let redactor = Redactor::new(
        [secret],
        ringfence_redact::Forms::All,
        ringfence_redact::Personal::Keep,
    );
    let secret = secret.replace('&', "&amp;").replace('"', "&quot;");
    for before in ["/", "/?q=", "/#"] {
        let secret = match before {
            "/" => secret.replace('?', "%3F").replace('#', "%23"),
            "/?q=" => secret.replace('#', "%23"),
            _ => secret.clone(),
        };
        let page = format!("<p>See <a href=\"{before}{secret}\">this</a></p>");
        let (mut document, _) = ask("text/html", "", page.as_bytes()).unwrap();
        assert!(document.text.contains("K3y"), "{}", document.text);
        document.redact(&redactor);
        assert!(document.text.contains("REDACTED"), "{}", document.text);
        assert!(!document.text.contains("st0ry"), "{}", document.text);
    }
}
