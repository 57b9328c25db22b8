//! A body that a server sends, after a line with the question about it: whatever it is, the worker's answer can be read
//! and agrees with itself, and nothing invisible is in its text.

use ringfence_web::{DocumentKind, Question, Reads, clean, parse_answer, question, read_document};
use std::panic::{catch_unwind, set_hook, take_hook};

/// One input.
pub fn run(bytes: &[u8]) {
    answered(bytes);
    // Most of what is made from a seed breaks its question; its body is then read as a page.
    let body = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if serde_json::from_slice::<Question>(&bytes[..end]).is_err() => &bytes[end + 1..],
        _ => return,
    };
    let head = Question {
        url: "https://site.test/page".to_owned(),
        content_type: "text/html".to_owned(),
        coding: String::new(),
        is_cut: false,
        reads: Reads::Document,
    };
    let asked = question(&head, body).expect("a question");
    let nonsense = parse_answer(b"").expect_err("no answer");
    assert_ne!(answered(&asked), Some(nonsense.why));
}

/// Checks the answer to this input; why it was refused.
fn answered(input: &[u8]) -> Option<String> {
    let (document, picture) = match parse_answer(&read(input)) {
        Ok(answer) => answer,
        Err(refusal) => {
            assert!(!refusal.why.is_empty());
            return Some(refusal.why);
        }
    };
    assert!(document.kind == DocumentKind::Image || picture.is_empty());
    assert!(document.kind != DocumentKind::Image || document.text.is_empty());
    assert_eq!(clean(&document.text).1, 0, "{:?}", document.text);
    assert!(document.pages_left_out <= document.pages);
    None
}

/// The parser of PDFs panics and is caught. libFuzzer's hook would end the program first, so another is in its place.
fn read(input: &[u8]) -> Vec<u8> {
    let hook = take_hook();
    let answer = catch_unwind(|| read_document(input));
    set_hook(hook);
    answer.expect("no panic leaves the reader")
}
