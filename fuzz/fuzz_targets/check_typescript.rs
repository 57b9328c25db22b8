//! Untrusted TypeScript: the answer is in time.

use super::code;
use ringfence_types::Language;

/// One input.
pub fn run(bytes: &[u8]) {
    code::check(Language::Typescript, bytes);
}
