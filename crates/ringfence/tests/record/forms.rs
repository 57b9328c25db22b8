//! The forms in which a secret may be written, by encoders that are not the product's, and the search for them in
//! everything that left.

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::Value;
use std::fmt::Write;

/// Shorter ones are found in text that has nothing to do with a secret.
const SHORTEST: usize = 6;

/// What must not be found: the name of a form, and its text without line breaks.
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
        // The characters that the secret alone decides.
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

/// Python that yields the same forms of a text, and more; `named` are those of the variables that `NAMES` lists.
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

/// Text to search: as it is, and without line breaks, since forms may be wrapped. An encoding within an encoding is not
/// searched for: the product documents that it does not find one.
#[derive(Default)]
pub struct Haystack {
    texts: Vec<(String, String)>,
}

impl Haystack {
    pub fn add(&mut self, whence: &str, bytes: &[u8]) {
        if bytes.len() < SHORTEST {
            return;
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text.contains(['\r', '\n']) {
            let joined = text.replace(['\r', '\n'], "");
            self.texts.push((format!("{whence}, unwrapped"), joined));
        }
        self.texts.push((whence.to_owned(), text));
    }

    /// Every string and every key of a message, and what is base64 in it.
    pub fn add_message(&mut self, whence: &str, message: &Value) {
        match message {
            Value::String(text) => self.add(whence, text.as_bytes()),
            Value::Array(items) => items.iter().for_each(|item| self.add_message(whence, item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.add(whence, name.as_bytes());
                    self.add_message(&format!("{whence}.{name}"), value);
                    if ["content_b64", "blob", "data"].contains(&name.as_str())
                        && let Some(Ok(bytes)) = value
                            .as_str()
                            .map(|text| base64::prelude::BASE64_STANDARD.decode(text))
                    {
                        self.add(&format!("{whence}.{name}, decoded"), &bytes);
                    }
                }
            }
            other => self.add(whence, other.to_string().as_bytes()),
        }
    }

    /// Where it stands, if it does.
    pub fn place_of(&self, needle: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(_, text)| text.contains(needle));
        found.map(|(whence, _)| whence.as_str())
    }

    /// No form of it stands anywhere.
    pub fn assert_without(&self, secret: &str) {
        for (form, needle) in of(secret) {
            if let Some(place) = self.place_of(&needle) {
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
    // A line break is no break in here, and is searched for as what it is.
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
