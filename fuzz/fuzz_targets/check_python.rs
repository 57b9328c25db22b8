//! Untrusted Python: the answer is in time, and a fix does not make the code worse.

use super::code;
use ringfence_types::Language;

/// One input.
pub fn run(bytes: &[u8]) {
    code::check(Language::Python, bytes);
}
