//! An arbitrary body from a server, after a line with the question about it: the worker's answer can be read and is
//! consistent, and its text contains nothing invisible.

use ringfence_web::{DocumentKind, Question, Reads, clean, parse_answer, question, read_document};
use std::panic::{catch_unwind, set_hook, take_hook};

/// One input.
pub fn run(bytes: &[u8]) {
    check_answer(bytes);
    // Most inputs made from a seed have a broken question; their body is then read as a page.
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
    let input = question(&head, body).expect("a question");
    let nonsense = parse_answer(b"").expect_err("no answer");
    assert_ne!(check_answer(&input), Some(nonsense.why));
}

/// Checks the answer to this input. Returns the reason if the input was refused.
fn check_answer(input: &[u8]) -> Option<String> {
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

/// Reads a document. The PDF parser may panic, and the reader catches that. libFuzzer's panic hook would end the
/// program first, so the default hook replaces it meanwhile.
fn read(input: &[u8]) -> Vec<u8> {
    let hook = take_hook();
    let answer = catch_unwind(|| read_document(input));
    set_hook(hook);
    answer.expect("no panic leaves the reader")
}
