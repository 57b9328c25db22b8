//! Every documented form is found in the output of independent encoders.
#![expect(clippy::unwrap_used, reason = "the encoders of the tests cannot fail")]

use base64::prelude::{
    BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD, Engine,
};
use ringfence_redact::{Forms, Personal, REDACTED, Redactor};
use std::fmt::Write;

/// Secrets with characters that encoders treat specially: quotes, slashes, spaces, `+`, other scripts, a line break.
const SECRETS: [&str; 8] = [
    "hunter22secret",
    "a b/c+d=e~f?g\"h'i\\j\tk",
    "pässwörd—鍵🔑€",
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASC\n-----END KEY-----\n",
    "\u{1}\u{1f}\u{7f}ctl\u{85}x",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "sk-ant-api03-\u{e9}\r\nxyz",
    "a<b>&c'd\"e&f",
];

fn redactor(forms: Forms) -> Redactor {
    Redactor::new(SECRETS, forms, Personal::Keep)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn percent(text: &str, keep: &str, space: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match char::from(byte) {
            ' ' => out.push_str(space),
            char if char.is_ascii_alphanumeric() || keep.contains(char) => out.push(char),
            _ => write!(out, "%{byte:02X}").unwrap(),
        }
        out
    })
}

fn lower_percent(text: &str, keep: &str) -> String {
    let encoded = percent(text, keep, "%20");
    let mut parts = encoded.split('%');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |out, part| {
        out + "%" + &part[..2].to_lowercase() + &part[2..]
    })
}

fn ascii_json(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap();
    let mut out = String::new();
    for unit in json.trim_matches('"').encode_utf16() {
        match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(byte) => out.push(char::from(byte)),
            None => write!(out, "\\u{unit:04x}").unwrap(),
        }
    }
    out
}

fn json(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap();
    json[1..json.len() - 1].to_owned()
}

/// Writes the text of a JSON string whose writer escapes more than it must.
fn points(text: &str, is_point: fn(char) -> bool, point: fn(u16) -> String) -> String {
    let one = |char: char| match json(&char.to_string()) {
        short if !is_point(char) && !short.starts_with("\\u") => short,
        _ => char
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|&unit| point(unit))
            .collect(),
    };
    text.chars().map(one).collect()
}

/// Writes the `repr` of Python's `bytes`: Rust escapes ASCII in the same way, except for quotes.
fn python_bytes(text: &str) -> String {
    text.as_bytes().escape_ascii().to_string().replace("\\\"", "\"")
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn markdown(text: &str, marks: &str) -> String {
    text.chars().fold(String::new(), |mut out, char| {
        if marks.contains(char) {
            out.push('\\');
        }
        out.push(char);
        out
    })
}

type Encoder = fn(&str) -> String;

/// Names and encoders of the forms.
const FORMS: &[(&str, Encoder)] = &[
    ("plain", |s| s.to_owned()),
    ("plain with CRLF", |s| s.replace('\n', "\r\n")),
    ("plain on one line", |s| s.replace(['\r', '\n'], "")),
    ("reversed", |s| s.chars().rev().collect()),
    ("hex", |s| hex(s.as_bytes())),
    ("HEX", |s| hex(s.as_bytes()).to_uppercase()),
    ("base64", |s| BASE64_STANDARD.encode(s)),
    ("base64 without padding", |s| BASE64_STANDARD_NO_PAD.encode(s)),
    ("base64 for URLs", |s| BASE64_URL_SAFE.encode(s)),
    ("base64 for URLs without padding", |s| {
        BASE64_URL_SAFE_NO_PAD.encode(s)
    }),
    ("percent, RFC 3986", |s| percent(s, "-._~", "%20")),
    ("percent, form", |s| percent(s, "-._~", "+")),
    ("percent, lower", |s| lower_percent(s, "-._~")),
    ("percent, Python", |s| percent(s, "-._~/", "%20")),
    ("percent, JavaScript", |s| percent(s, "-._~!*'()", "%20")),
    ("percent, URLSearchParams", |s| percent(s, "-._*", "+")),
    ("percent, all", |s| {
        s.bytes()
            .fold(String::new(), |out, byte| out + &format!("%{byte:02X}"))
    }),
    ("percent, all, lower", |s| {
        s.bytes()
            .fold(String::new(), |out, byte| out + &format!("%{byte:02x}"))
    }),
    ("json", json),
    ("json with \\/", |s| json(s).replace('/', "\\/")),
    ("json in ASCII", |s| {
        ascii_json(&json(s)).replace("\\\\", "\\").replace("\\\"", "\"")
    }),
    ("json, Go", |s| {
        points(s, |char| "<>&".contains(char), |unit| format!("\\u{unit:04x}"))
    }),
    ("json, Gson", |s| {
        points(s, |char| "<>&='".contains(char), |unit| format!("\\u{unit:04x}"))
    }),
    ("json, .NET", |s| {
        let is_point = |char: char| "<>&'\"+`\u{7f}".contains(char) || !char.is_ascii();
        points(s, is_point, |unit| format!("\\u{unit:04X}"))
    }),
    ("json, Flask", |s| {
        let is_point = |char: char| "<>&'".contains(char) || !char.is_ascii();
        points(s, is_point, |unit| format!("\\u{unit:04x}"))
    }),
    ("CSV", |s| s.replace('"', "\"\"")),
    ("SQL", |s| s.replace('\'', "''")),
    ("shell, single quotes", |s| s.replace('\'', r"'\''")),
    ("shell, Python's shlex.quote", |s| s.replace('\'', r#"'"'"'"#)),
    ("shell, double quotes", |s| markdown(s, r#""$`\"#)),
    ("user information, Go", |s| percent(s, "-._~$&+,;=", "%20")),
    ("user information, RFC 3986", |s| {
        percent(s, "-._~!$&'()*+,;=", "%20")
    }),
    ("user information, RFC 3986, lower", |s| {
        lower_percent(s, "-._~!$&'()*+,;=")
    }),
    ("user information, URL Standard", |s| {
        percent(s, "-._~!$%&'()*+,", "%20")
    }),
    ("percent, delimiters", |s| {
        s.replace('%', "%25").replace('/', "%2F").replace('?', "%3F")
    }),
    ("percent, delimiters, lower", |s| {
        s.replace('%', "%25").replace('/', "%2f").replace('?', "%3f")
    }),
    ("percent, reserved", |s| {
        let marks = [
            ('/', "%2F"),
            ('?', "%3F"),
            ('&', "%26"),
            ('\'', "%27"),
            ('+', "%2B"),
            ('=', "%3D"),
        ];
        marks
            .iter()
            .fold(s.to_owned(), |text, (mark, code)| text.replace(*mark, code))
    }),
    ("Python bytes", python_bytes),
    ("\\u of every character", |s| {
        s.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
    }),
    ("\\U of every character, upper case", |s| {
        s.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
    }),
    ("\\x of every byte", |s| {
        s.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
    }),
    ("HTML, text", |s| html(s)),
    ("HTML, attribute", |s| html(s).replace('"', "&quot;")),
    ("HTML, Python's html.escape", |s| {
        html(s).replace('"', "&quot;").replace('\'', "&#x27;")
    }),
    ("HTML, numbers", |s| {
        s.chars().map(|char| format!("&#{};", u32::from(char))).collect()
    }),
    ("HTML, hexadecimal", |s| {
        s.chars()
            .map(|char| format!("&#x{:x};", u32::from(char)))
            .collect()
    }),
    ("Markdown", |s| markdown(s, "\\`*_[]")),
    ("Markdown, tags", |s| markdown(s, "\\`*_[]<")),
];

/// claim: [SEC-2]
#[test]
fn every_documented_form_is_found() {
    let redactor = redactor(Forms::All);
    for secret in SECRETS {
        let secret = secret.trim_matches(['\r', '\n']);
        for (name, encode) in FORMS {
            let encoded = if name.starts_with("json in") {
                ascii_json(secret)
            } else {
                encode(secret)
            };
            for (before, after) in [("", ""), ("token: ", " end\n"), ("\n", "\n"), ("<", ">")] {
                assert_eq!(
                    redactor.text(&format!("{before}{encoded}{after}")),
                    format!("{before}{REDACTED}{after}"),
                    "{name}: {encoded}"
                );
            }
        }
    }
}

#[test]
fn python_repr_of_quotes_and_non_ascii_is_found() {
    let redactor = redactor(Forms::All);
    for text in [
        r#"'a b/c+d=e~f?g"h\'i\\j\tk'"#,
        r"'p\xe4ssw\xf6rd\u2014\u9375\U0001f511\u20ac'",
        r"b'p\xc3\xa4ssw\xc3\xb6rd\xe2\x80\x94\xe9\x8d\xb5\xf0\x9f\x94\x91\xe2\x82\xac'",
        r"'\x01\x1f\x7fctl\x85x'",
        r"'sk-ant-api03-é\r\nxyz'",
    ] {
        let quote = if text.starts_with('b') { "b'" } else { "'" };
        assert_eq!(redactor.text(text), format!("{quote}{REDACTED}'"), "{text}");
    }
}

/// The texts are those of bash 5.2, in UTF-8 and in the C locale.
///
/// claim: [SEC-2]
#[test]
fn shell_quotes_are_found() {
    let more = "back`tick$dollar!";
    let secrets = SECRETS.into_iter().chain([more, "\u{1b}[1m\u{7}\u{b}'x"]);
    let redactor = Redactor::new(secrets, Forms::All, Personal::Keep);
    for (before, text, after) in [
        ("$'", r#"a b/c+d=e~f?g"h\'i\\j\tk"#, "'"),
        (
            "declare -- s=$'",
            r"p\303\244ssw\303\266rd\342\200\224\351\215\265\360\237\224\221\342\202\254",
            "'",
        ),
        ("$'", r"\001\037\177ctl\302\205x", "'"),
        ("$'", r"\E[1m\a\v\'x", "'"),
        ("", r#"a\<b\>\&c\'d\"e\&f"#, " "),
        ("declare -- s=\"", r#"a<b>&c'd\"e&f"#, "\""),
        ("'", r#"a<b>&c'\''d"e&f"#, "'"),
        ("", r"back\`tick\$dollar\!", "\n"),
        ("declare -- s=\"", r"back\`tick\$dollar!", "\""),
    ] {
        assert_eq!(
            redactor.text(&format!("{before}{text}{after}")),
            format!("{before}{REDACTED}{after}"),
            "{text}"
        );
    }
}

#[test]
fn python_repr_of_invisible_characters_is_found() {
    let secret = "motdepass\u{e9}\u{a0}tr\u{e8}s\u{200b}fin";
    let redactor = Redactor::new([secret], Forms::All, Personal::Keep);
    assert_eq!(
        redactor.text("'motdepass\u{e9}\\xa0tr\u{e8}s\\u200bfin'"),
        format!("'{REDACTED}'")
    );
    assert_eq!(redactor.text(secret), REDACTED);
}

#[test]
fn base64_is_found_at_any_offset() {
    let redactor = redactor(Forms::All);
    for secret in SECRETS {
        let secret = secret.trim_matches(['\r', '\n']);
        for (offset, rest) in (0..9).flat_map(|offset| (0..9).map(move |rest| (offset, rest))) {
            let whole = [
                &b"\xa5\x5a\x3c"[..].repeat(3)[..offset],
                secret.as_bytes(),
                &vec![0x99; rest],
            ]
            .concat();
            for encoded in [BASE64_STANDARD.encode(&whole), BASE64_URL_SAFE.encode(&whole)] {
                let clean = redactor.text(&encoded).into_owned();
                let (before, after) = clean
                    .split_once(REDACTED)
                    .unwrap_or_else(|| panic!("{offset} {rest} {encoded}"));
                // only characters that depend on the neighbours are left
                assert_eq!(before.len(), (8 * offset).div_ceil(6));
                let after_is = if rest == 0 {
                    0
                } else {
                    encoded.len() - 8 * (offset + secret.len()) / 6
                };
                assert_eq!(after.len(), after_is, "{offset} {rest} {encoded} {clean}");
            }
        }
    }
}

#[test]
fn wrapped_forms_are_found() {
    let redactor = redactor(Forms::All);
    for secret in SECRETS {
        let secret = secret.trim_matches(['\r', '\n']);
        for (name, encode) in FORMS.iter().filter(|form| !form.0.starts_with("json in")) {
            let encoded = encode(secret).replace(['\r', '\n'], "");
            let chars: Vec<char> = encoded.chars().collect();
            for (width, end) in [
                (1, "\n"),
                (7, "\r\n"),
                (5, "\n\n\n"),
                (1, "\r\n\r\n\r\n\r\n\r\n\r\n"),
            ] {
                let lines: Vec<String> = chars.chunks(width).map(|line| line.iter().collect()).collect();
                let text = format!("{}{end}rest", lines.join(end));
                assert_eq!(
                    redactor.text(&text),
                    format!("{REDACTED}{end}rest"),
                    "{name}: {text}"
                );
            }
        }
    }
}

#[test]
fn line_breaks_beyond_the_limit_end_a_find() {
    let redactor = redactor(Forms::All);
    for (count, found) in [(16, true), (17, false), (18, false), (1000, false)] {
        for at in 1..SECRETS[0].len() {
            let (head, tail) = SECRETS[0].split_at(at);
            let text = format!("{head}{}{tail}", "\n".repeat(count));
            let expect = if found { REDACTED } else { &text };
            assert_eq!(redactor.text(&text), expect, "{count} at {at}");
        }
    }
}

#[test]
fn plain_forms_are_verbatim_and_json() {
    let redactor = redactor(Forms::Plain);
    let secret = SECRETS[1];
    assert_eq!(redactor.text(secret), REDACTED);
    assert_eq!(redactor.text(&json(secret)), REDACTED);
    assert_eq!(redactor.text(&hex(secret.as_bytes())), hex(secret.as_bytes()));
    // A log redactor has all secrets of a vault: each form costs.
    let secret = "a<b>c&d='e\"f+g`h".repeat(40);
    let plain = Redactor::new([secret.as_str()], Forms::Plain, Personal::Keep);
    assert!(plain.states() < 3 * secret.len(), "{}", plain.states());
}

#[test]
fn undetected_forms_are_kept() {
    let redactor = redactor(Forms::All);
    let twice = BASE64_STANDARD.encode(hex(SECRETS[0].as_bytes()));
    for text in [
        "uhagre22frperg",
        "HUNTER22SECRET",
        "h-u-n-t-e-r-2-2-s-e-c-r-e-t",
        "hunter22secre",
        &twice,
    ] {
        assert_eq!(redactor.text(text), text);
    }
}

#[test]
fn unredactable_secrets_are_rejected_and_skipped() {
    for secret in ["", "abc", "a\nb\r\nc", "    ", " \t\n  ", "REDACTED", "***R"] {
        assert!(Redactor::is_redactable(secret).is_err(), "{secret:?}");
        let redactor = Redactor::new([secret], Forms::All, Personal::Keep);
        assert!(redactor.is_idle());
        assert_eq!(
            redactor.text("abc    a\nb\r\nc REDACTED"),
            "abc    a\nb\r\nc REDACTED"
        );
    }
    let breaks = |count| format!("abcdefg{}hijklmn", "\n".repeat(count));
    assert!(Redactor::is_redactable(&breaks(16)).is_ok());
    assert!(Redactor::is_redactable(&breaks(17)).is_err());
    assert!(Redactor::is_redactable(&"x".repeat(64 * 1024)).is_ok());
    assert!(Redactor::is_redactable(&"x".repeat(64 * 1024 + 1)).is_err());
    assert!(Redactor::is_redactable("abcd").is_ok());
}

/// claim: [SEC-2]
#[test]
fn multiline_secret_is_found_in_a_layout() {
    let redactor = redactor(Forms::All);
    let key = SECRETS[3].trim_end();
    let found = |text: &str| {
        let clean = redactor.text(text);
        let left = ["MIIEvQIBADANBgkqh", "kiG9w0BAQEFAASC"]
            .iter()
            .any(|line| clean.contains(line));
        clean.contains(REDACTED) && !left
    };
    let all_layout = "\n".to_owned() + &" >".repeat(28) + "+";
    for between in [
        "\n+",
        "\n-",
        "\n ",
        "\n    ",
        "\n\t",
        "\n> ",
        "  \n> > ",
        " ",
        " |\r\n| ",
        "\n* ",
        "\n# ",
        "', '",
        "\\\n",
        &all_layout,
    ] {
        assert!(
            found(&format!("a\n+{}\nb", key.replace('\n', between))),
            "{between:?}"
        );
    }
    // Lines of other text in between, as in a diff, are not layout; nor are numbers.
    for between in ["\n+x\n ", "\n2 ", &(all_layout + "  ")] {
        assert!(!found(&key.replace('\n', between)), "the control: {between:?}");
    }
    let wrapped = |secret: &str| {
        let text = BASE64_STANDARD.encode(format!("ab{secret}"));
        let lines: Vec<String> = text
            .as_bytes()
            .chunks(20)
            .map(|line| String::from_utf8_lossy(line).into())
            .collect();
        lines.join("\n    ")
    };
    let clean = redactor.text(&wrapped(key)).into_owned();
    assert!(clean.contains(REDACTED) && clean.len() < 60, "{clean}");
    // Also if one of its lines contains another secret.
    let pair = [
        "hunter2hunter2",
        "user: bob\npassword: hunter2hunter2\nhost: db.internal",
    ];
    let pair = Redactor::new(pair, Forms::All, Personal::Keep);
    for redactor in [&pair, &pair.filled()] {
        let clean = redactor
            .text("  user: bob\n  password: hunter2hunter2\n  host: db.internal")
            .into_owned();
        assert!(!clean.contains("bob") && !clean.contains("internal"), "{clean}");
    }
    let one_line = Redactor::new(["hunter22secret of one line"], Forms::All, Personal::Keep);
    assert_eq!(
        one_line.text("hunter22secret\n> of one line"),
        "hunter22secret\n> of one line"
    );
}
