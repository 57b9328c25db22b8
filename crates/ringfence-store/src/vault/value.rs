//! The value of one secret, in one buffer that is shared by reference count and wiped with the last reference.

use std::fmt;
use zeroize::Zeroizing;

pub const SECRET_BYTES_MAX: usize = 65_536;

/// UTF-8 for an environment variable: 1 to 65,536 bytes without NUL. Not cloned, printed or serialized: share an `Arc`.
pub struct SecretValue(Zeroizing<String>);

/// The reason why a text cannot be a secret. It does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("a secret cannot be empty")]
    Empty,
    #[error("a secret is at most {} bytes", SECRET_BYTES_MAX)]
    TooLong,
    /// An environment variable cannot contain it.
    #[error("a secret cannot contain a NUL byte")]
    Nul,
}

impl SecretValue {
    /// Takes the buffer without a copy; on error it is wiped.
    pub fn new(text: String) -> Result<Self, SecretError> {
        let text = Zeroizing::new(text);
        if text.is_empty() {
            return Err(SecretError::Empty);
        }
        if text.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLong);
        }
        if text.contains('\0') {
            return Err(SecretError::Nul);
        }
        Ok(Self(text))
    }

    /// Returns the text. A caller that copies it must wipe the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }

    #[expect(clippy::len_without_is_empty, reason = "a secret is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_nonempty_bounded_text_without_nul() {
        let check = |text: &str, expect: Result<usize, SecretError>| {
            let made = SecretValue::new(text.to_owned());
            assert_eq!(made.map(|value| value.len()), expect);
        };
        check("x", Ok(1));
        check("ключ", Ok(8));
        check(" \n", Ok(2));
        check(&"x".repeat(SECRET_BYTES_MAX), Ok(SECRET_BYTES_MAX));
        check("", Err(SecretError::Empty));
        check(&"x".repeat(SECRET_BYTES_MAX + 1), Err(SecretError::TooLong));
        check("a\0b", Err(SecretError::Nul));
    }

    #[test]
    fn secret_buffer_is_moved_not_copied() {
        let text = "canary".to_owned();
        let address = text.as_ptr();
        assert_eq!(SecretValue::new(text).unwrap().expose().as_ptr(), address);
    }
}
