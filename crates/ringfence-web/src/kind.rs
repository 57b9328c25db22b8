//! The kind of a body, by its bytes before its header, which may be wrong.

use ringfence_types::closed_words;
use serde::{Deserialize, Serialize};

/// Bytes from the beginning of the body that are examined.
const SNIFFED: usize = 2048;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    Html,
    Pdf,
    Image,
    Json,
    Yaml,
    Xml,
    #[default]
    Text,
    Binary,
}

closed_words!(DocumentKind: Html = "html", Pdf = "pdf", Image = "image", Json = "json", Yaml = "yaml", Xml = "xml",
    Text = "text", Binary = "binary");

/// Part of the body that the text comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    Main,
    /// The whole body of a page, because no main part was found.
    Fallback,
    /// The whole document, which is not a page.
    #[default]
    Whole,
}

closed_words!(Extraction: Main = "main", Fallback = "fallback", Whole = "whole");

/// Returns the kind of a decoded body. Its first bytes take precedence over the header.
pub(crate) fn of(body: &[u8], content_type: &str) -> DocumentKind {
    let declared = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if body.starts_with(b"%PDF-") {
        return DocumentKind::Pdf;
    }
    if let Some(found) = infer::get(body) {
        match found.matcher_type() {
            infer::MatcherType::Image if declared != "image/svg+xml" => return DocumentKind::Image,
            infer::MatcherType::Text => {}
            _ => return DocumentKind::Binary,
        }
    }
    let is_utf_16 = body.starts_with(b"\xff\xfe") || body.starts_with(b"\xfe\xff");
    if !is_utf_16 && body[..body.len().min(SNIFFED)].contains(&0) {
        return DocumentKind::Binary;
    }
    let head = String::from_utf8_lossy(&body[..body.len().min(SNIFFED)]).to_ascii_lowercase();
    let head = head.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    let is_html = ["<!doctype html", "<html", "<head", "<body"]
        .iter()
        .any(|begins| head.starts_with(begins));
    match declared.as_str() {
        _ if is_html => DocumentKind::Html,
        "text/html" | "application/xhtml+xml" => DocumentKind::Html,
        "application/json" | "text/json" => DocumentKind::Json,
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => DocumentKind::Yaml,
        _ if declared.ends_with("+json") => DocumentKind::Json,
        _ if declared.ends_with("+xml") || matches!(declared.as_str(), "application/xml" | "text/xml") => {
            DocumentKind::Xml
        }
        _ if head.starts_with("<?xml") => DocumentKind::Xml,
        _ if declared.is_empty() && head.starts_with(['{', '[']) => DocumentKind::Json,
        _ => DocumentKind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_bytes_take_precedence_over_the_header() {
        let check = |body: &[u8], content_type: &str, expect: DocumentKind| {
            assert_eq!(of(body, content_type), expect, "{content_type}");
        };
        check(b"%PDF-1.7\n", "text/html", DocumentKind::Pdf);
        check(
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "text/plain",
            DocumentKind::Image,
        );
        check(b"\x7fELF\x02\x01\x01\0", "text/html", DocumentKind::Binary);
        check(b"PK\x03\x04\0\0", "text/plain", DocumentKind::Binary);
        check(b"text\0text", "text/html", DocumentKind::Binary);
        check(
            b"\n <!DOCTYPE HTML><p>",
            "application/octet-stream",
            DocumentKind::Html,
        );
        check(b"<p>part</p>", "text/html; charset=utf-8", DocumentKind::Html);
        check(b"{\"a\": 1}", "application/problem+json", DocumentKind::Json);
        check(b"{\"a\": 1}", "", DocumentKind::Json);
        check(b"a: 1", "application/yaml", DocumentKind::Yaml);
        check(b"<?xml version='1.0'?><rss/>", "", DocumentKind::Xml);
        check(b"words", "", DocumentKind::Text);
        check(b"\xff\xfea\0", "text/plain", DocumentKind::Text);
    }
}
