//! The part that runs in the jailed worker: it turns a body as received into text or a picture. Question and answer are
//! a line of JSON followed by bytes; the answer is as hostile as the question.

use crate::{
    Document, DocumentKind,
    charset::{self, Markup},
    coding::{self, Arrived},
    fence,
    hidden::HiddenText,
    html, kind, pdf,
    results::{ResultsPage, duckduckgo_page},
};
use ringfence_redact::Redactor;
use serde::{Deserialize, Serialize};
use url::Url;

/// Maximum bytes of a decoded body.
const UNPACKED_BYTES_MAX: usize = 32 << 20;
/// Maximum bytes of a document's text; the rest is left out, and the document says so.
const TEXT_BYTES_MAX: usize = 4 << 20;
const FIELD_CHARS_MAX: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub url: String,
    pub content_type: String,
    pub coding: String,
    pub is_cut: bool,
    pub reads: Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reads {
    Document,
    /// A results page of DuckDuckGo.
    Results,
}

impl Document {
    pub fn redact(&mut self, redactor: &Redactor) {
        let chars_max = if self.is_cut { 0 } else { usize::MAX };
        fence::redact(&mut self.text, chars_max, redactor);
        let fields = [
            &mut self.title,
            &mut self.author,
            &mut self.date,
            &mut self.language,
        ];
        for field in fields.into_iter().flatten() {
            fence::redact(field, FIELD_CHARS_MAX, redactor);
        }
    }
}

/// The reason why a body is not read; a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Document(Box<Document>),
    Results(ResultsPage),
    Refused(Refusal),
}

/// Encodes a question for [`read_document`].
pub fn question(head: &Question, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut question = serde_json::to_vec(head)?;
    question.push(b'\n');
    question.extend_from_slice(body);
    Ok(question)
}

/// Reads a body. To be called in a separate worker, because it may use all its time and memory.
pub fn read_document(input: &[u8]) -> Vec<u8> {
    let (answer, picture) =
        answer(input).unwrap_or_else(|why| (Answer::Refused(Refusal { why }), Vec::new()));
    let mut bytes = serde_json::to_vec(&answer).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(&picture);
    bytes
}

fn answer(input: &[u8]) -> Result<(Answer, Vec<u8>), String> {
    let (head, body) = split(input).ok_or("the question has no end")?;
    let head: Question = serde_json::from_slice(head).map_err(|error| error.to_string())?;
    let arrived = match head.is_cut {
        true => Arrived::Part,
        false => Arrived::Whole,
    };
    let body = coding::decode(&head.coding, body, UNPACKED_BYTES_MAX, arrived);
    let body = body.map_err(|error| format!("the body {error}"))?;
    if head.reads == Reads::Results {
        let (text, _) = charset::decode(&body, &head.content_type, Markup::Html);
        return Ok((Answer::Results(duckduckgo_page(&text)), Vec::new()));
    }
    let mut document = document(&head, &body)?;
    document.is_cut |= head.is_cut;
    if document.text.len() > TEXT_BYTES_MAX {
        let end = document.text.floor_char_boundary(TEXT_BYTES_MAX);
        document.text.truncate(end);
        document.is_cut = true;
    }
    let picture = Some(body).filter(|_| document.kind == DocumentKind::Image);
    Ok((Answer::Document(Box::new(document)), picture.unwrap_or_default()))
}

fn document(head: &Question, body: &[u8]) -> Result<Document, String> {
    let kind = kind::of(body, &head.content_type);
    match kind {
        DocumentKind::Html => {
            let (text, charset) = charset::decode(body, &head.content_type, Markup::Html);
            Ok(Document {
                charset: Some(charset.to_owned()),
                ..html::read(&text, Url::parse(&head.url).ok().as_ref())?
            })
        }
        DocumentKind::Pdf => {
            let read = pdf::read(body).map_err(|why| format!("the PDF cannot be read: {why}"))?;
            let (text, invisible) = fence::clean(&read.text);
            Ok(Document {
                pages: Some(read.pages),
                pages_left_out: Some(read.pages_left_out).filter(|pages| *pages > 0),
                ..text_document(kind, text, invisible)
            })
        }
        DocumentKind::Image => Ok(Document {
            kind,
            ..Document::default()
        }),
        DocumentKind::Binary => {
            let found = infer::get(body).map_or("of no kind that is known here", |found| found.mime_type());
            Err(format!("the body is not text: it is {found}"))
        }
        DocumentKind::Json | DocumentKind::Yaml | DocumentKind::Xml | DocumentKind::Text => {
            let (text, charset) = charset::decode(body, &head.content_type, Markup::Plain);
            let (text, invisible) = fence::clean(&text);
            let text = match kind {
                DocumentKind::Text => text,
                _ => fence::block(kind.as_str(), &text),
            };
            Ok(Document {
                charset: Some(charset.to_owned()),
                ..text_document(kind, text, invisible)
            })
        }
    }
}

fn text_document(kind: DocumentKind, text: String, invisible: usize) -> Document {
    Document {
        kind,
        text,
        hidden: HiddenText {
            invisible,
            ..HiddenText::default()
        },
        ..Document::default()
    }
}

fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    Some((&input[..end], &input[end + 1..]))
}

/// Reads the worker's answer to a question about a document, and the bytes that follow it.
pub fn parse_answer(answer: &[u8]) -> Result<(Document, Vec<u8>), Refusal> {
    match parsed(answer)? {
        (Answer::Document(document), picture) => Ok((cleaned(*document), picture.to_vec())),
        (Answer::Refused(refusal), _) => Err(Refusal {
            why: fence::line(&refusal.why, FIELD_CHARS_MAX),
        }),
        (Answer::Results(_), _) => Err(invalid_answer()),
    }
}

/// Cleans the texts of the answer, because the worker may have been taken over.
fn cleaned(document: Document) -> Document {
    let field = |text: Option<String>| text.map(|text| fence::line(&text, FIELD_CHARS_MAX));
    Document {
        text: fence::clean(&document.text).0,
        title: field(document.title),
        author: field(document.author),
        date: field(document.date),
        language: field(document.language),
        charset: field(document.charset),
        ..document
    }
}

/// Reads the worker's answer to a question about results.
pub(crate) fn parse_results(answer: &[u8]) -> Result<ResultsPage, Refusal> {
    match parsed(answer)? {
        (Answer::Results(page), _) => Ok(page),
        (Answer::Refused(refusal), _) => Err(refusal),
        (Answer::Document(_), _) => Err(invalid_answer()),
    }
}

fn parsed(answer: &[u8]) -> Result<(Answer, &[u8]), Refusal> {
    let (head, rest) = split(answer).ok_or_else(invalid_answer)?;
    let answer = serde_json::from_slice(head).map_err(|_| invalid_answer())?;
    Ok((answer, rest))
}

fn invalid_answer() -> Refusal {
    Refusal {
        why: "its parser sent an invalid answer".to_owned(),
    }
}

#[cfg(test)]
mod tests;
