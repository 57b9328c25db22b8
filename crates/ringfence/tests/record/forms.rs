//! The encoded forms of a secret, made by encoders that are not Ringfence's, and the search for them in all output.

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::Value;
use std::fmt::Write;

/// Shorter forms also occur by chance in unrelated text.
const SHORTEST: usize = 6;

/// Returns the forms that must not be found: the name of each form, and its text without line breaks.
pub fn of(secret: &str) -> Vec<(&'static str, String)> {
    let bytes = secret.as_bytes();
    let json = json(secret);
    let mut forms = vec![
        ("plain", secret.to_owned()),
        ("reversed", secret.chars().rev().collect()),
        ("hex", hex(bytes)),
        ("HEX", hex(bytes).to_uppercase()),
        ("percent", percent(secret, "-._~", "%20")),
        ("percent of a form", percent(secret, "-._~", "+")),
        ("percent of JavaScript", percent(secret, "-._~!*'()", "%20")),
        ("json in ASCII", in_ascii(&json)),
        ("json", json),
    ];
    for offset in 0..3 {
        let shifted = [&b"xyz"[..offset], bytes].concat();
        // The characters that depend only on the secret.
        let decided = (8 * offset).div_ceil(6)..8 * shifted.len() / 6;
        forms.push((
            "base64",
            BASE64_STANDARD_NO_PAD.encode(&shifted)[decided.clone()].to_owned(),
        ));
        forms.push((
            "base64 for URLs",
            BASE64_URL_SAFE_NO_PAD.encode(&shifted)[decided].to_owned(),
        ));
    }
    for (_, text) in &mut forms {
        text.retain(|c| !matches!(c, '\r' | '\n'));
    }
    forms.retain(|(_, text)| text.len() >= SHORTEST);
    forms
}

/// Python that yields the same forms of a text, and more; `named` are the values of the variables that `NAMES` lists.
pub const PYTHON: &str = "import os, sys, base64, json, time
from urllib.parse import quote, quote_plus
def forms(s):
    b = s.encode()
    yield from (s, s[::-1], b.hex(), b.hex().upper(), quote(s, safe=''), quote_plus(s), quote(s, safe='!*\\'()'),
                json.dumps(s)[1:-1], json.dumps(s, ensure_ascii=False)[1:-1], base64.encodebytes(b).decode())
    for offset in range(3):
        yield base64.b64encode(b'xyz'[:offset] + b).decode()
        yield base64.urlsafe_b64encode(b'xyz'[:offset] + b).decode()
named = [os.environ[name] for name in os.environ['NAMES'].split(',')]
everything = [form for text in named for form in forms(text)]
";

/// Text to search: unchanged, and without line breaks, because forms may be wrapped. An encoding within an encoding is
/// not searched for: Ringfence documents that it does not find one.
#[derive(Default)]
pub struct Haystack {
    texts: Vec<(String, String)>,
}

impl Haystack {
    pub fn add(&mut self, source: &str, bytes: &[u8]) {
        if bytes.len() < SHORTEST {
            return;
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text.contains(['\r', '\n']) {
            let joined = text.replace(['\r', '\n'], "");
            self.texts.push((format!("{source}, unwrapped"), joined));
        }
        self.texts.push((source.to_owned(), text));
    }

    /// Adds every string and every key of a message, and the decoded content of its base64 fields.
    pub fn add_message(&mut self, source: &str, message: &Value) {
        match message {
            Value::String(text) => self.add(source, text.as_bytes()),
            Value::Array(items) => items.iter().for_each(|item| self.add_message(source, item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.add(source, name.as_bytes());
                    self.add_message(&format!("{source}.{name}"), value);
                    if ["content_b64", "blob", "data"].contains(&name.as_str())
                        && let Some(Ok(bytes)) = value
                            .as_str()
                            .map(|text| base64::prelude::BASE64_STANDARD.decode(text))
                    {
                        self.add(&format!("{source}.{name}, decoded"), &bytes);
                    }
                }
            }
            other => self.add(source, other.to_string().as_bytes()),
        }
    }

    /// Returns the source of a text that contains the needle.
    pub fn find(&self, needle: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(_, text)| text.contains(needle));
        found.map(|(source, _)| source.as_str())
    }

    /// Asserts that no text contains a form of the secret.
    pub fn assert_without(&self, secret: &str) {
        for (form, needle) in of(secret) {
            if let Some(place) = self.find(&needle) {
                panic!("{:?} as {form} is in {place}", &secret[..secret.len().min(30)]);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn percent(text: &str, keeps: &str, blank: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match char::from(byte) {
            ' ' => out.push_str(blank),
            c if c.is_ascii_alphanumeric() || keeps.contains(c) => out.push(c),
            _ => write!(out, "%{byte:02X}").unwrap(),
        }
        out
    })
}

fn json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    // A line break is escaped in JSON, and is searched for in its escaped form.
    quoted[1..quoted.len() - 1].to_owned()
}

fn in_ascii(text: &str) -> String {
    let mut out = String::new();
    for unit in text.encode_utf16() {
        match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(byte) => out.push(char::from(byte)),
            None => write!(out, "\\u{unit:04x}").unwrap(),
        }
    }
    out
}
