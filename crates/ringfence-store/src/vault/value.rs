//! One secret's text. It lives in one buffer, is handed around by reference count, and is wiped when the last holder
//! lets go.

use std::fmt;
use zeroize::Zeroizing;

pub const SECRET_BYTES_MAX: usize = 65_536;

/// UTF-8, 1 to 65,536 bytes, no NUL, for it becomes an environment variable. It cannot be cloned, printed or
/// serialized: share it with an `Arc`.
pub struct SecretValue(Zeroizing<String>);

/// Why a text can be no secret. It says nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("a secret is not empty")]
    Empty,
    #[error("a secret is at most {} bytes", SECRET_BYTES_MAX)]
    TooLong,
    /// No environment variable can hold it.
    #[error("a secret holds no NUL byte")]
    Nul,
}

impl SecretValue {
    /// Takes the buffer as it is, without a copy; on refusal it is wiped.
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

    /// The text itself. A caller that copies it wipes the copy.
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
    fn a_secret_is_text_that_a_variable_can_hold() {
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
    fn the_buffer_is_taken_and_not_copied() {
        let text = "canary".to_owned();
        let place = text.as_ptr();
        assert_eq!(SecretValue::new(text).unwrap().expose().as_ptr(), place);
    }
}
