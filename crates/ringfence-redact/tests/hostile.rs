//! Hostile texts: they try to make the redactor slow, to make it hold back output, or to cause false finds.
#![expect(clippy::unwrap_used, reason = "the encoders of the tests cannot fail")]

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use proptest::{prelude::*, test_runner::TestRng};
use ringfence_redact::{Forms, Found, LINE_BREAKS_MAX, Personal, REDACTED, Redactor};
use std::time::{Duration, Instant};

/// Limit of linear time; quadratic time would take hours.
const LINEAR: Duration = Duration::from_secs(60);

fn run(redactor: &Redactor, text: &[u8], piece: usize) -> (Vec<u8>, Found) {
    let start = Instant::now();
    let (mut stream, mut out) = (redactor.stream(), Vec::new());
    for piece in text.chunks(piece) {
        stream.push(piece, &mut out);
    }
    stream.finish(&mut out);
    assert!(start.elapsed() < LINEAR, "{:?}", start.elapsed());
    (out, stream.found())
}

#[test]
fn long_secrets_of_one_letter_take_linear_time() {
    let long = "a".repeat(64 * 1024);
    let almost = long[1..].to_owned() + "b";
    let text = vec![b'a'; 1 << 20];
    for (secrets, marks) in [
        (vec![&*long, "aaaa"], 1),
        (vec![&*almost], 0),
        (vec![&*long, &*almost, "aaaab"], 1),
    ] {
        let redactor = Redactor::new(secrets, Forms::All, Personal::Keep);
        for piece in [1, 7, text.len()] {
            assert_eq!(run(&redactor, &text, piece).1.secrets, marks);
        }
        let wrapped: Vec<u8> = text.iter().flat_map(|byte| [*byte, b'\n']).collect();
        assert_eq!(run(&redactor, &wrapped, 1).1.secrets, marks);
    }
}

#[test]
fn nested_secrets_take_linear_time() {
    // each state of the longest secret ends a shorter one, and each secret ends with the starts of all others
    let secrets: Vec<String> = (4..400)
        .map(|len| "ab".repeat(len / 2) + &"a".repeat(len % 2))
        .collect();
    let redactor = Redactor::new(secrets.iter().map(String::as_str), Forms::All, Personal::Keep);
    let text = "ab".repeat(1 << 19);
    assert_eq!(
        run(&redactor, text.as_bytes(), 3),
        (
            REDACTED.into(),
            Found {
                secrets: 1,
                personal: 0
            }
        )
    );
}

#[test]
fn personal_shapes_take_linear_time() {
    let redactor = Redactor::new([], Forms::All, Personal::Remove);
    for part in [
        "@", "a@", "a.", "a@b.", "+1 ", "(", "1-", "4111-", "4111 ", "+1(2)", "a", "1",
    ] {
        let text = part.repeat((1 << 17) / part.len());
        for piece in [1, text.len()] {
            let (out, found) = run(&redactor, text.as_bytes(), piece);
            assert!(found.personal > 0 || out == text.as_bytes(), "{part}");
        }
    }
}

#[test]
fn held_back_bytes_are_bounded() {
    let secret = "abcdefghijklmnopqrstuvwxyz".repeat(4);
    let redactor = Redactor::new([&*secret], Forms::All, Personal::Remove);
    let breaks = "\n".repeat(LINE_BREAKS_MAX as usize);
    let slow: String = secret[..secret.len() - 1]
        .chars()
        .map(|char| format!("{char}{breaks}"))
        .collect();
    let endless = format!("abcd{}", "\r\n".repeat(1 << 16));
    let limit = (secret.len() * 3 + 1) * (LINE_BREAKS_MAX as usize + 1) + 512;
    for text in [
        slow.repeat(50),
        endless,
        "a".repeat(1 << 16),
        "1".repeat(1 << 16),
        "a@".repeat(1 << 16),
    ] {
        let (mut stream, mut out, mut given) = (redactor.stream(), Vec::new(), 0);
        for piece in text.as_bytes().chunks(11) {
            stream.push(piece, &mut out);
            given += piece.len();
            assert!(given - out.len() <= limit);
        }
        stream.finish(&mut out);
        assert_eq!(out, text.as_bytes());
    }
}

/// 100 MB without a secret; the sequence is the same in every run.
#[test]
fn ordinary_text_is_not_mistaken_for_a_secret() {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const BYTES: usize = 25_000_000;
    let mut dice = TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha);
    let mut noise = vec![0; BYTES];
    dice.fill_bytes(&mut noise);
    let word = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(byte & 63)]))
            .collect()
    };
    let secrets: Vec<String> = noise.chunks(20).take(100).map(word).collect();
    let noise = &noise[2000..];
    let words = [
        "lorem", "ipsum", "dolor", "let", "fn", "match", "=>", "(self)", "{\n", "}\n", "0x1f", "\"%s\"",
        "\\n", "id:",
    ];
    let code = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| words[usize::from(*byte) % words.len()].to_owned() + " ")
            .collect()
    };
    let texts: [String; 4] = [
        BASE64_STANDARD.encode(&noise[..BYTES / 4 * 3 - 2000]),
        noise
            .iter()
            .map(|byte| char::from(b"0123456789abcdef"[usize::from(byte & 15)]))
            .collect(),
        noise.chunks(76).map(|line| word(line) + "\n").collect(),
        code(&noise[..BYTES / 5]),
    ];
    let redactor = Redactor::new(secrets.iter().map(String::as_str), Forms::All, Personal::Keep);
    assert!(texts.iter().map(String::len).sum::<usize>() > 97_000_000);
    for text in &texts {
        let (out, found) = run(&redactor, text.as_bytes(), 64 * 1024);
        assert_eq!(found.secrets, 0);
        assert!(out == text.as_bytes());
    }
    // the control: the same redactor finds a secret
    assert_eq!(redactor.text(&BASE64_STANDARD.encode(&secrets[99])), REDACTED);
}

fn encoded(secret: &str, form: usize) -> String {
    let hex = || {
        secret
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    match form {
        0 => secret.to_owned(),
        1 => secret.chars().rev().collect(),
        2 => hex(),
        3 => hex().to_uppercase(),
        4 => BASE64_STANDARD.encode(secret),
        5 => BASE64_URL_SAFE_NO_PAD.encode(secret),
        6 => secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        7 => {
            let json = serde_json::to_string(secret).unwrap();
            json[1..json.len() - 1].to_owned()
        }
        _ => secret.as_bytes().escape_ascii().to_string().replace("\\\"", "\""),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_form_of_every_secret_is_removed_and_nothing_else(
        secrets in prop::collection::vec("[ -~]{8,40}|\\PC{8,40}", 1..8),
        parts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..9, "[a-z<>.#\n]{0,30}"), 1..6),
        wrap in prop::option::of(1_usize..20),
        sizes in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let (mut text, mut expect) = (String::new(), String::new());
        for (index, form, between) in parts {
            let secret: &String = index.get(&secrets);
            let form = encoded(secret, form);
            let chars: Vec<char> = form.chars().collect();
            let lines: Vec<String> = chars.chunks(wrap.unwrap_or(chars.len())).map(|line| line.iter().collect()).collect();
            text += &format!("{between}\u{0}{}\u{0}", lines.join("\r\n"));
            expect += &format!("{between}\u{0}{REDACTED}\u{0}");
        }
        let redactor = Redactor::new(secrets.iter().map(String::as_str), Forms::All, Personal::Keep);
        prop_assert_eq!(redactor.text(&text), expect.as_str());
        let (mut stream, mut out, mut rest) = (redactor.stream(), Vec::new(), text.as_bytes());
        for size in sizes.iter().cycle() {
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            stream.push(piece, &mut out);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        stream.finish(&mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}
