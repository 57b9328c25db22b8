//! Output of a program in pieces: the redacted output does not depend on how it is split, and contains no secret.

use ringfence_redact::{Forms, Personal, Redactor};

/// Secrets of several forms: plain, with quotes and a line break, one that contains another.
const SECRETS: [&str; 4] = [
    "hunter2-hunter2",
    "pass\"word\\\nline two",
    "hunter2-hunter2-and-more",
    "abab",
];

/// One input.
pub fn run(bytes: &[u8]) {
    let Some((head, text)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let personal = if head[0] & 1 == 0 {
        Personal::Keep
    } else {
        Personal::Remove
    };
    let redactor = Redactor::new(SECRETS, Forms::All, personal);
    let redactor = if head[0] & 2 == 0 {
        redactor
    } else {
        redactor.filled()
    };
    let mut whole = Vec::new();
    let mut stream = redactor.stream();
    stream.push(text, &mut whole);
    stream.finish(&mut whole);
    let mut pieces = Vec::new();
    let mut stream = redactor.stream();
    for piece in text.chunks(usize::from(head[1] % 32) + 1) {
        stream.push(piece, &mut pieces);
    }
    stream.finish(&mut pieces);
    assert_eq!(whole, pieces);
    for secret in SECRETS {
        let found = whole
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "{secret:?}");
    }
    if head[0] & 2 != 0 {
        assert_eq!(whole.len(), text.len());
    }
}
