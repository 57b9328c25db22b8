//! Chunking: the output is the same for any chunks of the input, and is written as early as possible.
#![allow(clippy::unwrap_used, reason = "a test panics on failure")]

use proptest::prelude::*;
use ringfence_redact::{Forms, Found, LINE_BREAKS_MAX, Personal, REDACTED, Redactor};

fn cut(redactor: &Redactor, text: &[u8], sizes: &[usize]) -> (Vec<u8>, Found) {
    let (mut stream, mut out, mut rest) = (redactor.stream(), Vec::new(), text);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at((*size).min(rest.len()));
        stream.push(piece, &mut out);
        rest = later;
    }
    stream.finish(&mut out);
    (out, stream.found())
}

/// Reference implementation of the documented behaviour for verbatim needles.
fn reference(needles: &[String], text: &[u8], fill: Option<u8>) -> Vec<u8> {
    let mut covered = vec![false; text.len()];
    for needle in needles {
        for start in 0..text.len() {
            if let Some(end) = end_of(needle.as_bytes(), &text[start..]) {
                covered[start..start + end].fill(true);
            }
        }
    }
    let mut out = Vec::new();
    for at in 0..text.len() {
        match (covered[at], fill) {
            (false, _) => out.push(text[at]),
            (true, Some(star)) => out.push(star),
            (true, None) if at == 0 || !covered[at - 1] => out.extend(REDACTED.as_bytes()),
            _ => {}
        }
    }
    out
}

fn end_of(needle: &[u8], text: &[u8]) -> Option<usize> {
    let (mut left, mut breaks) = (needle, 0);
    for (at, byte) in text.iter().enumerate() {
        if matches!(byte, b'\r' | b'\n') {
            breaks += 1;
            if left.len() == needle.len() || breaks > LINE_BREAKS_MAX {
                return None;
            }
            continue;
        }
        breaks = 0;
        left = left.strip_prefix(&[*byte])?;
        if left.is_empty() {
            return Some(at + 1);
        }
    }
    None
}

/// Texts over few letters, which contain overlaps of all kinds.
fn narrow(len: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!['a', 'a', 'a', 'b', 'b', '\n', '\r']),
        len,
    )
    .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn output_matches_the_reference(
        secrets in prop::collection::vec("[ab]{4,9}", 1..6),
        text in narrow(0..200),
        breaks in prop::collection::vec((0_usize..200, 14_usize..20), 0..3),
        sizes in prop::collection::vec(1_usize..20, 1..5),
    ) {
        let mut text = text.into_bytes();
        for (at, count) in breaks {
            let at = at.min(text.len());
            text.splice(at..at, vec![b'\n'; count]);
        }
        let redactor = Redactor::new(secrets.iter().map(String::as_str), Forms::Plain, Personal::Keep);
        let whole = redactor.bytes(&text).into_owned();
        prop_assert_eq!(&whole, &reference(&secrets, &text, None));
        prop_assert_eq!(&cut(&redactor, &text, &sizes).0, &whole);
        let filled = redactor.filled();
        prop_assert_eq!(filled.bytes(&text).into_owned(), reference(&secrets, &text, Some(b'*')));
        prop_assert_eq!(cut(&filled, &text, &sizes).0, reference(&secrets, &text, Some(b'*')));
    }

    /// claim: [SEC-3]
    #[test]
    fn output_does_not_depend_on_chunking(
        secrets in prop::collection::vec("[ -~]{4,30}", 0..4),
        parts in prop::collection::vec((0_usize..14, any::<prop::sample::Index>(), "[ -~\r\n]{0,12}"), 0..30),
        sizes in prop::collection::vec(1_usize..90, 1..6),
    ) {
        let words = ["alice@example.com", "+44 (0)20 7946 0958", "(415) 555-2671", "4111 1111 1111 1111", "123-45-6789", "@", "(",
            "a.b-c_d%e+f", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"];
        let mut text = String::new();
        for (kind, index, between) in parts {
            match words.get(kind) {
                Some(word) => text.push_str(word),
                None if !secrets.is_empty() => {
                    let secret: &String = index.get(&secrets);
                    text.push_str(&secret[..secret.len() - usize::from(kind == 13)]);
                }
                None => {}
            }
            text.push_str(&between);
        }
        let redactor = Redactor::new(secrets.iter().map(String::as_str), Forms::All, Personal::Remove);
        for redactor in [redactor.filled(), redactor] {
            let whole = cut(&redactor, text.as_bytes(), &[usize::MAX]);
            prop_assert_eq!(&cut(&redactor, text.as_bytes(), &sizes), &whole);
            prop_assert_eq!(&cut(&redactor, text.as_bytes(), &[1]), &whole);
        }
    }

    #[test]
    fn text_without_secrets_is_unchanged(text in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..50) {
        prop_assert_eq!(&cut(&Redactor::none(), &text, &[size]).0, &text);
        let other = Redactor::new(["not in there at all"], Forms::All, Personal::Keep);
        prop_assert_eq!(cut(&other, &text, &[size]), (text, Found::default()));
    }

    #[test]
    fn filling_keeps_the_length(text in "[ -~]{0,80}(secret|4111111111111111|a@b.cc){0,3}[ -~\n]{0,80}") {
        let redactor = Redactor::new(["secret"], Forms::All, Personal::Remove).filled();
        prop_assert_eq!(redactor.text(&text).len(), text.len());
    }

    #[test]
    fn redacted_text_is_valid_utf8(secret in "\\PC{2,12}", text in "\\PC{0,40}", again in "\\PC{0,40}") {
        let redactor = Redactor::new([secret.as_str()], Forms::All, Personal::Remove);
        let whole = format!("{text}{secret}{again}");
        let clean = redactor.bytes(whole.as_bytes()).into_owned();
        prop_assert!(String::from_utf8(clean).is_ok());
    }
}

/// Returns the output after each piece.
fn outputs(redactor: &Redactor, pieces: &[&str]) -> Vec<String> {
    let mut stream = redactor.stream();
    let show = |piece: &&str| {
        let mut out = Vec::new();
        stream.push(piece.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    pieces.iter().map(show).collect()
}

#[test]
fn text_is_output_immediately() {
    let redactor = Redactor::new(["s3cretvalue", "s3cr-else"], Forms::Plain, Personal::Keep);
    assert_eq!(outputs(&redactor, &["hello ", "you\n"]), ["hello ", "you\n"]);
    // only a possible beginning of a secret is held back
    assert_eq!(
        outputs(&redactor, &["see s3", "cre", "t!"]),
        ["see ", "", "s3cret!"]
    );
    assert_eq!(outputs(&redactor, &["s3cr", "s3", "x"]), ["", "s3cr", "s3x"]);
    assert_eq!(
        outputs(&redactor, &["s", "\r", "\n", "x"]),
        ["", "", "", "s\r\nx"]
    );
    // a find is written without the text after it
    assert_eq!(outputs(&redactor, &["s3cretvalue", "\n"]), [REDACTED, "\n"]);
    assert_eq!(
        outputs(&redactor, &["s3cretvalue", "s3cretvalue"]),
        [REDACTED, ""]
    );
}

#[test]
fn longer_secret_absorbs_its_prefix() {
    let redactor = Redactor::new(["abcdef", "abcdefghij"], Forms::Plain, Personal::Keep);
    assert_eq!(
        outputs(&redactor, &["xabcdef", "gh", "ij."]),
        [&format!("x{REDACTED}"), "", "."]
    );
    assert_eq!(
        outputs(&redactor, &["xabcdef", "gh", "."]),
        [&format!("x{REDACTED}"), "", "gh."]
    );
}

#[test]
fn personal_words_are_held_back_only_until_their_end() {
    let redactor = Redactor::new([], Forms::Plain, Personal::Remove);
    assert_eq!(
        outputs(&redactor, &["hello ", "you, ", "x\n"]),
        ["hello ", "you, ", "x\n"]
    );
    assert_eq!(
        outputs(&redactor, &["to alice@exam", "ple.com", " "]),
        ["to ", "", &format!("{REDACTED} ")]
    );
    let mut stream = redactor.stream();
    let mut out = Vec::new();
    stream.push(&[b'a'; 100_000], &mut out);
    assert!(out.len() >= 100_000 - 512, "{}", out.len());
}

#[test]
fn stream_restarts_after_finish() {
    let redactor = Redactor::new(["secretvalue"], Forms::All, Personal::Remove);
    let mut stream = redactor.stream();
    for _ in 0..3 {
        let mut out = Vec::new();
        stream.push(b"mail a@b.cc secretval", &mut out);
        stream.finish(&mut out);
        stream.push(b"ue", &mut out);
        stream.finish(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("mail {REDACTED} secretvalue")
        );
    }
    assert_eq!(
        stream.found(),
        Found {
            secrets: 0,
            personal: 3
        }
    );
}

#[test]
fn personal_words_are_found_at_any_cut() {
    let longest = format!(
        "{}@{}.com",
        "l".repeat(64),
        ["d".repeat(60), "e".repeat(60), "f".repeat(63)].join(".")
    );
    assert_eq!(longest.len(), 254);
    let redactor = Redactor::new([], Forms::Plain, Personal::Remove);
    for word in [
        "a.b+c_d%e-f@mail.example.co.uk",
        &longest,
        "+49 30 901820",
        "+1 (415) 555-2671",
        "+44 (0)20 7946.0958",
        "+1(415)5552671",
        "(415) 555-2671",
        "(415)555 2671",
        "1 (415) 555 2671",
        "1-800-555-2671",
        "415.555.2671",
        "3782 822463 10005",
        "4111-1111-1111-1111",
        "6304000000000000000",
        "123-45-6789",
    ] {
        for around in [
            "",
            " ",
            ". ",
            "\n",
            ",",
            "x ",
            " 7",
            ".7",
            "-",
            "-7",
            "/7",
            "=",
            &"a".repeat(300),
            &"1 ".repeat(200),
        ] {
            let text = format!("{around}{word}{around}");
            let whole = cut(&redactor, text.as_bytes(), &[usize::MAX]);
            if matches!(around, "" | " " | ". " | "\n" | "," | "=") {
                let expect = format!("{around}{REDACTED}{around}");
                assert_eq!(String::from_utf8_lossy(&whole.0), expect, "{text}");
            }
            for size in 1..text.len() {
                assert_eq!(
                    cut(&redactor, text.as_bytes(), &[size, usize::MAX]),
                    whole,
                    "{text} at {size}"
                );
            }
        }
    }
}

#[test]
fn context_before_a_cut_counts() {
    let redactor = Redactor::new([], Forms::Plain, Personal::Remove);
    let text = format!("{}0.4111111111111111@{}", "a".repeat(10), "b".repeat(400));
    for size in 1..text.len() {
        assert_eq!(
            cut(&redactor, text.as_bytes(), &[size, 1]),
            (text.clone().into_bytes(), Found::default())
        );
    }
}
