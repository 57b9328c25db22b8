//! Decoding of UTF-8 text that arrives in arbitrary pieces.

/// Decodes UTF-8 in pieces; invalid sequences become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The first bytes of an incomplete character, at most three.
    held: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.held);
        let mut out = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let is_cut = std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if is_cut && chunks.peek().is_none() {
                self.held = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        out
    }

    /// Returns U+FFFD if the text ended within a character.
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
    fn invalid_utf_8_is_replaced_and_held_bytes_are_bounded() {
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
