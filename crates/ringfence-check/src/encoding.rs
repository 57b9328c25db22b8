//! Texts that are written in other letters: base64 and hexadecimal digits. What a program decodes and runs is read as
//! if it had been written out.

/// Longer ones are no hidden command.
const BYTES_MAX: usize = 64 * 1024;

/// The text behind base64, of either alphabet, with or without padding and line breaks; none: it is no text.
pub(crate) fn base64(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut bits = 0_u32;
    let mut held = 0_u32;
    for letter in text.bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => break,
            b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        held = (held << 6 | u32::from(six)) & 0xFFF_FFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xFF).ok()?);
        }
        if bytes.len() > BYTES_MAX {
            return None;
        }
    }
    readable(bytes)
}

/// The text behind pairs of hexadecimal digits; none: it is no text.
pub(crate) fn hexadecimal(text: &str) -> Option<String> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * BYTES_MAX {
        return None;
    }
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).ok();
    readable(digits.chunks_exact(2).map(byte).collect::<Option<_>>()?)
}

fn readable(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_behind_other_letters_are_read() {
        assert_eq!(base64("cm0gLXJmIC8=").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("cm0gLXJm\nIC8").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("4pyT").as_deref(), Some("✓"));
        assert_eq!(base64("not base64!"), None);
        assert_eq!(base64("/////w=="), None);
        assert_eq!(hexadecimal("726d202d7266202f").as_deref(), Some("rm -rf /"));
        assert_eq!(hexadecimal("72 6D").as_deref(), Some("rm"));
        assert_eq!(hexadecimal("726"), None);
        assert_eq!(hexadecimal("zz"), None);
    }
}
