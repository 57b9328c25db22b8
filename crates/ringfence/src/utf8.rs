//! Text that arrives in pieces, cut anywhere.

/// Decodes UTF-8 that comes in pieces; what is not UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character, at most three bytes.
    held: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let mut rest = if self.held.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.held).as_slice(), bytes].concat();
            joined.as_slice()
        };
        let mut out = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(good) => {
                    out.push_str(good);
                    return out;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(good));
                    let Some(length) = error.error_len() else {
                        self.held = bad.to_vec();
                        return out;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[length..];
                }
            }
        }
    }

    /// A character that never came to its end.
    pub(crate) fn end(&mut self) -> String {
        if std::mem::take(&mut self.held).is_empty() {
            String::new()
        } else {
            "\u{fffd}".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_and_held_bytes_stay_few() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"a\xffb\xc3"), "a\u{fffd}b");
        assert_eq!(decoder.end(), "\u{fffd}");
        assert_eq!(decoder.end(), "");
        for _ in 0..1000 {
            decoder.push(b"\xf0\x9f");
            assert!(decoder.held.len() <= 3);
        }
    }
}
