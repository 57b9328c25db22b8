//! Requests from a program that wants two parsers to disagree: the verdict must not depend on how the stream is split,
//! accepted heads must be unambiguous to the simplest parser, and a destination that is printed parses as the same one.

use ringfence_egress::{Destination, FramingError, HEAD_BYTES_MAX, HttpFraming};

/// One input.
pub fn run(input: &[u8]) {
    let (cut, bytes) = input
        .split_first()
        .map_or((1, input), |(cut, rest)| (usize::from(*cut).max(1), rest));
    let mut framing = HttpFraming::default();
    let whole = framing.read(bytes);
    assert_eq!(in_pieces(bytes, cut), whole);
    assert_eq!(in_pieces(bytes, 1), whole);
    // Empty lines before a request are ignored.
    let begin = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    let end = bytes[begin..].windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.map(|end| begin + end);
    if let Some(end) = end.filter(|end| whole.is_ok() || whole.is_err_and(|(at, _)| at > end + 3)) {
        assert_plain_head(&bytes[begin..end]);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(to) = Destination::read(text, Some(80))
    {
        assert_eq!(Destination::read(&to.to_string(), None), Ok(to));
    }
}

fn in_pieces(bytes: &[u8], size: usize) -> Result<(), (usize, FramingError)> {
    let mut framing = HttpFraming::default();
    for (number, piece) in bytes.chunks(size).enumerate() {
        framing
            .read(piece)
            .map_err(|(at, wrong)| (number * size + at, wrong))?;
    }
    Ok(())
}

/// Checks an accepted head with a parser that knows only lines and colons.
fn assert_plain_head(head: &[u8]) {
    assert!(head.len() <= HEAD_BYTES_MAX);
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    assert_eq!(first.split(' ').count(), 3, "{first:?}");
    let headers: Vec<(String, &str)> = lines
        .map(|line| line.split_once(':').expect("a colon"))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let count = |wanted: &str| headers.iter().filter(|(name, _)| name == wanted).count();
    assert!(
        headers
            .iter()
            .all(|(name, value)| !name.contains([' ', '\t']) && !value.contains(['\r', '\n', '\0']))
    );
    assert!(count("host") == 1 || (count("host") == 0 && first.ends_with("HTTP/1.0")));
    assert!(count("content-length") + count("transfer-encoding") <= 1);
}
