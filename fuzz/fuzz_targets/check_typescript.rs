//! TypeScript that a stranger sends: its answer comes in time.

use super::code;
use ringfence_types::Language;

/// One input.
pub fn run(bytes: &[u8]) {
    code::ask(Language::Typescript, bytes);
}
