//! The environment of a claim on its way to pid 1, as JSON. Its values may be secrets. A parser copies a string that
//! has escapes into a buffer of its own, which it does not wipe; values are therefore written as hexadecimal digits,
//! which have no escapes, and each is decoded into the one buffer that is wiped later.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

type Environment = Vec<(String, String)>;

pub(crate) fn serialize<S: Serializer>(
    environment: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(environment.iter().map(|(name, value)| (name, Digits(value))))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Environment, D::Error> {
    let environment = Vec::<(String, Value)>::deserialize(deserializer)?;
    let taken = environment
        .into_iter()
        .map(|(name, mut value)| (name, std::mem::take(&mut *value.0)));
    Ok(taken.collect())
}

struct Digits<'a>(&'a str);

impl Serialize for Digits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        const CHUNK_BYTES: usize = 64;
        let mut digits = Zeroizing::new([0; 2 * CHUNK_BYTES]);
        for chunk in self.0.as_bytes().chunks(CHUNK_BYTES) {
            for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(chunk) {
                *pair = [byte >> 4, byte & 0xf].map(|half| DIGITS[usize::from(half)]);
            }
            let text = std::str::from_utf8(&digits[..2 * chunk.len()]);
            f.write_str(text.map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

struct Value(Zeroizing<String>);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed from the input: a string with escapes would be copied, and is refused.
        decode(<&str>::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("a value is malformed"))
    }
}

fn decode(digits: &str) -> Option<Value> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let half = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|half| u8::try_from(half).ok())
    };
    // Allocated at its full size: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        bytes.push(half(*high)? << 4 | half(*low)?);
    }
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(value) => Some(Value(Zeroizing::new(value))),
        Err(error) => {
            error.into_bytes().zeroize();
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Claim(#[serde(with = "super")] Environment);

    fn claim(values: &[&str]) -> Claim {
        let named = (0..)
            .zip(values)
            .map(|(at, value)| (format!("N{at}"), (*value).to_owned()));
        Claim(named.collect())
    }

    /// claim: [SEC-7]
    #[test]
    fn values_round_trip_without_escapes() {
        let long = "é\"\\\n\u{7f}".repeat(999);
        let sent = claim(&["", "plain", "\"\\\n\0 \u{1f600}", &long]);
        let text = serde_json::to_string(&sent).unwrap();
        assert!(!text.contains('\\') && !text.contains("plain"), "{text}");
        assert_eq!(serde_json::from_str::<Claim>(&text).unwrap(), sent);
    }

    #[test]
    fn invalid_hexadecimal_values_are_refused() {
        for value in ["6", "6g", "ff", "\\u0036\\u0031", "+1", "é"] {
            let text = format!("[[\"NAME\",\"{value}\"]]");
            assert!(serde_json::from_str::<Claim>(&text).is_err(), "{value}");
        }
    }
}
